"""Settings of an outbox for each reader: what holds for every one, or for all that keep order, is tested with each."""

READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease", "lease": "3s"},
    "skip_locked": {"reader": "skip_locked"},
    "skip_locked-ordered": {"reader": "skip_locked", "order": "entity"},
}
ORDERED = [name for name in READERS if name != "skip_locked"]
