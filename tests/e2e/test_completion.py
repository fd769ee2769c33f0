"""Completion in real shells: bash and zsh with a terminal and a pressed Tab key, fish by the command it has for that."""

import os
import re
import shutil
import subprocess

import pytest

from tests.e2e.relay import ROOT, clean_environment, postrider, settings, wait_until, write_config
from tests.e2e.scene import missing
from tests.e2e.terminal import Terminal

TAB = "\t"
REPORT = "\x14"  # Ctrl-T, which the shells below bind to writing the line into a file
CLEAR = "\x15"

# {script} is the source of completion, {report} the file for the line.
SETUPS = {
    "bash": """bind 'set show-all-if-ambiguous on'; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'
{script}
bind -x '"\\C-t": printf "%s" "$READLINE_LINE" > {report}'
""",
    "zsh": """unset zle_bracketed_paste; autoload -Uz compinit; {script}
report() {{ print -rn -- "$BUFFER" > {report} }}; zle -N report; bindkey '^T' report
""",
}
SOURCED = {
    "bash": "source <(postrider completion bash)",
    "zsh": "compinit -u -D; source <(postrider completion zsh)",
}
# As the shell finds it where `meson install` puts it.
INSTALLED = {
    "bash": f"source {ROOT}/src/cli/completion/postrider.bash",
    "zsh": "fpath=($PWD $fpath); compinit -u -D",
}


def program(name):
    path = shutil.which(name)
    if not path:
        missing(f"{name} is not installed")
    return path


class Shell(Terminal):
    def __init__(self, shell, script, folder, environment):
        flags = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
        super().__init__([program(shell), *flags[shell]], folder, environment)
        self.report = folder / "line"
        self.type(SETUPS[shell].format(script=script, report=self.report) + "echo rea''dy\n")
        wait_until(lambda: "ready\r" in self.read(), what="the shell's answer")

    def completed(self, line):
        """What becomes of a line by the Tab key; `shown` is what the shell shows meanwhile."""
        self.read()
        self.shown = ""
        self.report.unlink(missing_ok=True)
        self.type(line + TAB + REPORT)
        wait_until(lambda: self.read() and self.report.exists() and self.report.read_text(), what=f"the end of {line!r}")
        self.type(CLEAR)
        return self.report.read_text()


@pytest.fixture
def scene(product, tmp_path):
    """A folder with the program in the PATH of its shells and with settings of two outboxes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "postrider").symlink_to(product.resolve())
    (tmp_path / "_postrider").symlink_to(ROOT / "src" / "cli" / "completion" / "postrider.zsh")
    content = settings("postgresql://nobody@127.0.0.1:1/x", {"type": "stdout"})
    content["outboxes"]["bills"] = {"table": "public.bills", "sinks": [{"type": "stdout"}]}
    write_config(tmp_path / "two.yaml", content)
    write_config(tmp_path / "broken.yaml", "outboxes: [")
    return tmp_path


def environment_of(scene):
    return clean_environment({
        "PATH": f"{scene / 'bin'}:{os.environ['PATH']}", "TERM": "vt100", "HOME": str(scene), "PS1": "$ ",
        "XDG_CONFIG_HOME": str(scene / "config"), "XDG_DATA_HOME": str(scene / "data"), "LC_ALL": "C.UTF-8"})


@pytest.fixture
def open_shell(scene):
    shells = []

    def open_one(name, script):
        shells.append(Shell(name, script, scene, environment_of(scene)))
        return shells[-1]

    yield open_one
    for shell in shells:
        shell.close()


LINES = [
    ("postrider sta", "postrider status "),
    ("postrider explain --js", "postrider explain --json "),
    ("postrider dead li", "postrider dead list "),
    ("postrider replay --from t", "postrider replay --from table "),
    ("postrider entity --reason 'a b' sh", "postrider entity --reason 'a b' show "),
    ("postrider completion f", "postrider completion fish "),
    ("postrider help sett", "postrider help settings "),
    ("postrider init --reader adv", "postrider init --reader advisory "),
    # file names, also attached to their flag
    ("postrider -c tw", "postrider -c two.yaml "),
    ("postrider run --config=tw", "postrider run --config=two.yaml "),
    # what only the settings know
    ("postrider -c two.yaml pause bi", "postrider -c two.yaml pause bills "),
    ("postrider pause -c ~/two.yaml bi", "postrider pause -c ~/two.yaml bills "),
    ("postrider dead -c two.yaml --outbox=or", "postrider dead -c two.yaml --outbox=orders "),
    # settings: a step at a time, without a blank before their values
    ("postrider --set log.le", "postrider --set log.level="),
    ("postrider --set log.level=w", "postrider --set log.level=warn "),
    ("postrider -c two.yaml --set outboxes.bi", "postrider -c two.yaml --set outboxes.bills."),
    ("postrider -c two.yaml --set outboxes.bills.reader=le", "postrider -c two.yaml --set outboxes.bills.reader=lease "),
    # nothing fits, or nothing can be known
    ("postrider status tw", "postrider status tw"),
    ("postrider nonsense tw", "postrider nonsense tw"),
    ("postrider pause -c broken.yaml tw", "postrider pause -c broken.yaml tw"),
]


@pytest.mark.parametrize("script", [SOURCED, INSTALLED], ids=["sourced", "installed"])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_line_is_completed(open_shell, shell, script):
    opened = open_shell(shell, script[shell])
    found = {line: opened.completed(line) for line, _ in LINES}
    assert found == dict(LINES)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_what_is_open_is_listed(open_shell, shell):
    opened = open_shell(shell, SOURCED[shell])
    assert opened.completed("postrider re") == "postrider re"
    assert "resume" in opened.shown and "replay" in opened.shown and "status" not in opened.shown
    assert opened.completed("postrider dead -c two.yaml --outbox ").strip() == "postrider dead -c two.yaml --outbox"
    assert "orders" in opened.shown and "bills" in opened.shown


def fish_proposes(scene, line):
    done = subprocess.run(
        [program("fish"), "-N", "-c", "source (postrider completion fish | psub); complete -C $argv[1]", line],
        cwd=scene, env=environment_of(scene), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [row.partition("\t")[0] for row in done.stdout.splitlines()]


def test_fish_completes(scene):
    """Fish tells words, not lines. It sets no blank behind a word that ends in = or a dot by itself."""
    for line, expected in LINES:
        start, _, word = line.rpartition(" ")
        found = fish_proposes(scene, line)
        assert found == ([expected.rpartition(start + " ")[2].strip()] if expected != line else []), line


def test_fish_lists_with_explanations(scene):
    assert sorted(fish_proposes(scene, "postrider re")) == ["replay", "resume"]
    assert sorted(fish_proposes(scene, "postrider dead -c two.yaml --outbox ")) == ["bills", "orders"]


# ---- The program's answers -------------------------------------------------------------------------------------------

def proposed(*words, **options):
    done = postrider("completion", "words", "--", *words, **options)
    assert done.returncode == 0
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_every_command_and_flag_is_proposed(product):
    commands = proposed("")
    assert {"run", "status", "completion", "help"} <= set(commands)
    for command in commands:
        flags = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", postrider("help", command).stdout, re.M)
        assert "--config" in flags
        assert sorted(proposed(command, "--")) == sorted(flags)


def test_flags_are_not_proposed_behind_two_dashes(product):
    assert proposed("explain", "-") and not proposed("explain", "--", "-")


def test_settings_from_the_environment_count(product):
    assert proposed("pause", "", environment={"POSTRIDER_OUTBOXES_OUTBOX_TABLE": "public.x"}) == ["outbox"]


def test_a_missing_or_unknown_shell_is_a_wrong_command_line(product):
    for arguments in [(), ("tcsh",), ("bash", "zsh")]:
        done = postrider("completion", *arguments)
        assert done.returncode == 2 and "postrider help completion" in done.stderr and done.stdout == ""
