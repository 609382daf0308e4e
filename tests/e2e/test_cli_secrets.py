"""The command line hides what it is ordered to hide, in all that it prints."""

from pathlib import Path

import pytest

from .cli_kit import Inside, one_line

pytestmark = pytest.mark.slow

KEY = "kanarienvogel-0123456789-abcdefghijklmnopqrstuvwx"
OTHER = "correct horse battery staple"
AGENTS = f"""
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(needs_approval=True)
async def pays(key: str) -> str:
    raise ValueError("no: " + key)

steps = [call("pays", key="{KEY}", id="c1"), "the key is {KEY}, and {OTHER}, {KEY[:-4]}"]
payer = gr.Agent("payer", tools=[pays], model=ScriptedModel(steps))
"""
BROKEN = f"""
raise RuntimeError("cannot connect with {KEY}")
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "hidden.txt").write_text(f"{OTHER}\n\n")
    monkeypatch.setenv("PAY_KEY", KEY)
    return Inside(tmp_path, tmp_path / "state", monkeypatch)


HIDE = ("--secret-env", "PAY_KEY", "--secrets-file", "hidden.txt")


def assert_clean(shown: str) -> None:
    found = [one for one in (*(KEY[:length] for length in range(8, 50)), KEY[-20:], OTHER) if one in shown]
    assert found == [], shown


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_command_prints_a_secret_that_was_named(inside: Inside, form: tuple[str, ...]) -> None:
    asked = f"pay with {KEY} and {OTHER}"
    waits = inside("run", "agents.py:payer", asked, "--db", "a.db", "--run-id", "r1", "--no-approve", *HIDE)
    assert waits.returncode == 3
    outputs = [waits]
    for command in (
        ("show", "r1", "--db", "a.db", *HIDE),
        ("show", "r1", "--db", "a.db", "--events", *HIDE),
        ("runs", "--db", "a.db", *HIDE),
        ("approve", "r1", "--db", "a.db", "--yes", *HIDE),
        ("run", "agents.py:payer", "--db", "a.db", "--resume", "r1", *HIDE),
        ("show", "r1", "--db", "a.db", *HIDE),
        ("show", "r1", "--db", "a.db", "--events", *HIDE),
        ("run", "agents.py:payer", asked, "--yes", *HIDE),
    ):
        outputs.append(inside(*command, *form))
        assert outputs[-1].returncode == 0, (command, outputs[-1].stderr)
    for done in outputs:
        assert_clean(done.stdout + done.stderr)
        assert "[redacted]" in done.stdout or done.args[0] in {"approve", "runs"}, done.args


def test_an_error_on_the_way_prints_no_secret_either(inside: Inside) -> None:
    for debug in ((), ("--debug",)):
        done = inside("run", "broken.py", "hi", *HIDE, *debug)
        assert done.returncode != 0
        assert_clean(done.stdout + done.stderr)
        assert "[redacted]" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--secret-env", "NO_SUCH_NAME"), "--secret-env NO_SUCH_NAME: the environment has no such variable"),
        (("--secret-env", "SHORT"), "--secret-env SHORT: a secret of 3 characters would garble text"),
        (("--secrets-file", "nowhere.txt"), "--secrets-file nowhere.txt cannot be read: No such file"),
    ],
)
def test_what_cannot_be_hidden_is_reported_before_anything_runs(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("SHORT", "xyz")
    done = inside("run", "agents.py:payer", "hi", *options)
    assert done.returncode == 2
    assert words in one_line(done.stderr)
    assert "xyz" not in done.stderr


def test_a_list_hides_secrets_that_the_writer_of_the_database_was_not_given(inside: Inside) -> None:
    options = ("--db", "a.db", "--run-id", "r1", "--no-approve")
    assert inside("run", "agents.py:payer", f"pay with {OTHER}", *options).returncode == 3
    assert OTHER in inside("runs", "--db", "a.db").stdout
    for form in ((), ("--json",)):
        shown = inside("runs", "--db", "a.db", *HIDE, *form).stdout
        assert OTHER not in shown
        assert "pay with [redacted]" in shown
