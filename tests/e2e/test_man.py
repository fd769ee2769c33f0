"""The manual pages: what groff and mandoc say about them, and that everything of the tables stands in them."""

import json
import re
import shutil
import subprocess

import pytest

from tests.e2e.relay import BINARY, ROOT, postrider
from tests.e2e.scene import missing

PAGES = {"postrider.1": "--man", "postrider.yaml.5": "--man-settings"}


@pytest.fixture(params=PAGES)
def page(product, tmp_path, request):
    path = tmp_path / request.param
    done = postrider("help", PAGES[request.param])
    assert done.returncode == 0 and done.stderr == ""
    path.write_text(done.stdout)
    return path


def run(*command):
    if not shutil.which(command[0]):
        missing(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def rendered(flag, tmp_path):
    """The page as plain text, without line breaks."""
    path = tmp_path / "page"
    path.write_text(postrider("help", flag).stdout)
    done = run("mandoc", "-T", "utf8", path)
    plain = re.sub(r".\x08", "", done.stdout)
    return " ".join(plain.split())


def test_mandoc_finds_nothing_wrong(page):
    """But the date, which pages have not: a version's page is the same whenever it is built."""
    done = run("mandoc", "-T", "lint", page)
    complaints = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert complaints == [] and "missing date" in done.stdout


def test_groff_finds_nothing_wrong(page):
    done = run("groff", "-ww", "-man", "-T", "utf8", page)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout


def test_a_page_is_ascii(page):
    assert page.read_text().isascii()


def test_commands_and_their_flags_are_in_the_page(product, tmp_path):
    text = rendered("--man", tmp_path)
    commands = re.findall(r"^  (\w+) ", postrider("help").stdout.partition("options of")[0], re.M)
    assert {"init", "run", "completion", "help"} <= set(commands)
    for command in commands:
        shown = postrider("help", command).stdout
        details = shown.partition("\n\n")[2].partition("\noptions")[0]
        assert f"postrider {command}" in text
        for word in re.findall(r"^ +(?:-\w, )?(--[\w-]+)", shown, re.M):
            assert word in text, (command, word)
        for line in details.splitlines():
            assert " ".join(line.replace("`", "").split()) in text, (command, line)


def test_settings_are_in_the_page(product, tmp_path):
    text = rendered("--man-settings", tmp_path)
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", (ROOT / "docs" / "configuration.md").read_text(), re.M)
    assert len(rows) > 50
    for name, meaning in rows:
        meaning = re.sub(r" `\w+` sets it for every outbox\.$", "", meaning)
        assert name in text
        assert " ".join(meaning.replace("`", "").split()) in text, name


def test_pages_and_completion_are_installed(product):
    if not (BINARY.parent / "build.ninja").exists():
        pytest.skip(f"{BINARY} is not in its build folder")
    done = run("meson", "introspect", "--installed", BINARY.parent)
    assert done.returncode == 0, done.stderr
    places = {path.partition("/share/")[2] for path in json.loads(done.stdout).values()}
    assert places >= {
        "man/man1/postrider.1", "man/man5/postrider.yaml.5", "bash-completion/completions/postrider",
        "zsh/site-functions/_postrider", "fish/vendor_completions.d/postrider.fish"}, places
