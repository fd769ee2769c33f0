"""A NATS server that knows its users by signed tokens and nkeys: operator, account, and a user's credentials file."""

import base64
import json
import os
import time

import nkeys

UNLIMITED = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True}
STREAMS = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}    # which the system's account has not
CREDENTIALS = """-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


def make_accounts():
    """Settings of a server, and the text of a credentials file for a user of its only account besides the system's."""
    operator, system, account, user = (_Party(kind) for kind in ("operator", "account", "account", "user"))
    settings = {
        "operator": operator.sign(operator), "system_account": system.name, "resolver": "MEMORY",
        "resolver_preload": {
            system.name: operator.sign(system, limits=UNLIMITED),
            account.name: operator.sign(account, limits=UNLIMITED | STREAMS)}}
    token = account.sign(user, subs=-1, data=-1, payload=-1)
    return settings, CREDENTIALS.format(token=token, seed=user.seed)


class _Party:
    """Somebody with a pair of keys."""

    PREFIXES = {"operator": nkeys.PREFIX_BYTE_OPERATOR, "account": nkeys.PREFIX_BYTE_ACCOUNT, "user": nkeys.PREFIX_BYTE_USER}

    def __init__(self, kind):
        self.kind = kind
        seed = nkeys.encode_seed(os.urandom(32), self.PREFIXES[kind])
        self.seed = bytes(seed).decode()
        self.pair = nkeys.from_seed(seed)
        self.name = self.pair.public_key.decode()

    def sign(self, whom, **claims):
        """A token that says who `whom` is."""
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": base64.b32encode(os.urandom(20)).decode(), "iat": int(time.time()), "iss": self.name,
                "name": whom.kind, "sub": whom.name, "nats": {"type": whom.kind, "version": 2, **claims}}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, body))
        return f"{signed}.{_encoded(self.pair.sign(signed.encode()))}"


def _encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
