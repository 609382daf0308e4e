"""Parts of the command line that need no process: ends of runs, tokens, which ticket is meant, where to ask."""

import argparse
import io
import json
import pkgutil
import stat
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import attrs
import pydantic
import pytest
from msgspec.structs import replace

import greenroom as gr
from greenroom.testing import call, fail
from greenroom.transport import cli
from greenroom.transport.cli import outcome_output, owner, tokens
from greenroom.transport.cli.decide import _meant, decision_about
from greenroom.transport.cli.inspect import only, whole_id
from greenroom.transport.terminal.screen import Screen

from ...support.runs import agent, events_of, home

# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", cli._COMMANDS.values(), ids=list(cli._COMMANDS))
def test_each_command_has_its_function(place: str) -> None:
    """The table names modules as text, so that a command imports its own only; a checker of types does not see them."""
    assert callable(pkgutil.resolve_name(f"{cli.__name__}.{place}"))


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ([KeyboardInterrupt()], 130, "interrupted"),
        ([KeyboardInterrupt(), gr.StoreOpenError("it cannot be opened")], 130, "interrupted"),
        ([gr.StoreOpenError("a"), ValueError("b")], 1, "a bug in Greenroom"),
    ],
)
def test_ctrl_c_ends_a_command_whatever_fails_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], errors: list[Any], code: int, said: str
) -> None:
    def failing(_: argparse.Namespace) -> int:
        raise BaseExceptionGroup("two tasks", errors)

    monkeypatch.setattr(cli, "_command", lambda _: failing)
    assert cli.main(["runs"]) == code
    assert said in capsys.readouterr().err


# --- ends ------------------------------------------------------------------------------------------------------------


async def ended(helper: gr.Agent[Any], *, cancel: bool = False) -> tuple[gr.Event, Any]:
    """The terminal event of a run, and the outcome that its own process sees."""
    async with home(agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        if cancel:
            await run.cancel(reason="enough", by="ann")
        outcome = await run.result()
        return (await events_of(run))[-1], outcome


@gr.tool
async def look() -> str:
    return "seen"


@pytest.mark.parametrize(
    ("helper", "kind", "code", "words"),
    [
        (agent("all is well"), gr.Completed, 0, "all is well"),
        (
            agent(call("look"), "more", tools=[look], stop=[gr.stop.MaxRounds(1)]),
            gr.Stopped,
            0,
            "Stopped by a condition",
        ),
        (agent(fail("unauthorized", "no key")), gr.Failed, 1, "Failed (model_error): unauthorized: no key"),
    ],
)
async def test_a_terminal_event_tells_the_same_end_as_the_run_itself(
    helper: gr.Agent[Any], kind: type, code: int, words: str
) -> None:
    event, outcome = await ended(helper)
    end = outcome_output.exit_report(event)
    assert type(end) is kind
    assert end == outcome
    out = io.StringIO()
    assert outcome_output.print_outcome(end, Screen(out)).exit == code
    assert words in out.getvalue()


async def test_who_cancelled_and_why_is_reported() -> None:
    event, outcome = await ended(agent("never said"), cancel=True)
    end = outcome_output.exit_report(event)
    assert end == outcome == gr.Cancelled(reason="enough", by="ann")
    out = io.StringIO()
    reported = outcome_output.print_outcome(end, Screen(out))
    assert (reported.exit, reported.status, reported.more["by"]) == (4, "cancelled", "ann")
    assert out.getvalue() == "\nCancelled by ann: enough\n"


@attrs.frozen
class Receipt:
    order_id: int
    paidAt: date  # noqa: N815 - a name of a user


class Model(pydantic.BaseModel):
    order_id: int
    paid_at: date = pydantic.Field(alias="paidAt")


@pytest.mark.parametrize(
    ("form", "value"),
    [(Receipt, Receipt(7, date(2026, 1, 31))), (Model, Model(order_id=7, paidAt=date(2026, 1, 31)))],
    ids=["attrs", "pydantic"],
)
async def test_an_output_of_a_class_is_printed_as_json_as_in_the_terminal_event(form: type, value: object) -> None:
    """It was printed as Python prints an object."""
    text = '{"order_id": 7, "paidAt": "2026-01-31"}'
    event, outcome = await ended(agent(text, output_type=form))
    assert outcome.output == value
    for end in (outcome, outcome_output.exit_report(event)):
        out = io.StringIO()
        reported = outcome_output.print_outcome(end, Screen(out))
        assert reported.more["output"] == json.loads(text) == json.loads(out.getvalue().split("\n")[1])


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.db.token"
    assert tokens.beside(tmp_path / "s.db") == path
    token = tokens.kept(path)
    assert len(token) >= 32
    assert tokens.kept(path) == token
    assert path.read_text() == f"{token}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["s.db.token"]


@pytest.mark.parametrize(
    "content", [b"", b"short", b"line\nand another line", b"\xff" * 20, "schlüssel-schlüssel".encode()]
)
def test_what_is_no_token_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(gr.UsageError) as caught:
        tokens.read(path)
    assert "schlüssel" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_token_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(gr.UsageError, match="cannot be written"):
        tokens.kept(tmp_path / "nowhere" / "token")
    assert list(tmp_path.iterdir()) == []


# --- which ticket, which run -----------------------------------------------------------------------------------------


def ticket(number: int, tool: str) -> gr.Ticket:
    return gr.Ticket(
        ticket_id=f"r.t{number}",
        run_id="r",
        call_id=f"call#{number}",
        tool=tool,
        arguments={},
        fingerprint=f"f{number}",
        reason="tool_permission",
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class View:
    run_id = "r"
    tickets = (ticket(1, "refund"), ticket(2, "refund"), ticket(3, "write"))


@pytest.mark.parametrize(("target", "number"), [("r.t2", 2), ("t2", 2), ("call#3", 3), ("write", 3)])
def test_a_ticket_is_named_by_its_id_its_call_its_tool_or_its_last_part(target: str, number: int) -> None:
    assert _meant(target, View()).ticket_id == f"r.t{number}"


def test_a_ticket_of_the_run_itself_is_named_by_its_id_and_by_nothing_else() -> None:
    class Held(View):
        tickets = (replace(ticket(1, ""), call_id=None, reason="manual_pause"), ticket(2, "refund"))

    assert _meant("t1", Held()).ticket_id == "r.t1"
    with pytest.raises(gr.UsageError, match="'' is no open ticket"):
        _meant("", Held())


@pytest.mark.parametrize("target", ["refund", "t", "t4", "", "r."])
def test_a_name_that_means_none_or_several_is_refused_with_those_there_are(target: str) -> None:
    with pytest.raises(gr.UsageError, match=r"there are: r\.t1, r\.t2, r\.t3"):
        _meant(target, View())


def test_a_decision_is_bound_to_the_action_that_was_shown() -> None:
    given = {"text": None, "result": None, "edit": None, "reason": None, "id": None}
    approving = argparse.Namespace(**given | {"command": "approve", "result": 7, "reason": "fine", "id": "d1"})
    approved = decision_about(ticket(1, "refund"), approving)
    assert (approved.target, approved.action, approved.fingerprint) == ("r.t1", "resume", "f1")
    assert (approved.result, approved.reason, approved.decision_id) == (7, "fine", "d1")
    denied = decision_about(ticket(2, "refund"), argparse.Namespace(**given, command="deny"))
    assert (denied.target, denied.action, denied.fingerprint, denied.decision_id) == ("r.t2", "cancel", "f2", "")


def test_the_only_run_that_begins_like_this_is_meant() -> None:
    assert only(["abc"], "ab") == "abc"
    with pytest.raises(gr.UsageError, match="2 runs begin with 'ab', such as abc and abd"):
        only(["abc", "abd"], "ab")
    with pytest.raises(gr.UsageError, match="Many runs begin with 'ab'"):
        only(["abc"] * 1000, "ab")
    with pytest.raises(gr.UnknownRun):
        only([], "z")


@pytest.mark.slow
async def test_the_beginning_of_an_id_finds_a_run_however_many_are_newer(tmp_path: Path) -> None:
    helper = agent("done")
    async with gr.open_runtime(tmp_path / "runs.db", agents=[helper], max_running=1, drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="the-oldest")
        for number in range(1001):
            await runtime.start(helper, "hi", run_id=f"newer-{number}")
        assert await whole_id(runtime.store, "the-old") == "the-oldest"
        assert await whole_id(runtime.store, "newer-1") == "newer-1"
        with pytest.raises(gr.UsageError, match="Many runs begin with 'newer-', such as newer-1000 and"):
            await whole_id(runtime.store, "newer-")
        assert await whole_id(runtime.store, "none") == "none"


# --- where -----------------------------------------------------------------------------------------------------------


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"db": None, "store": None, "url": None, "token": None, "token_file": None} | given)


def test_what_is_typed_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GREENROOM_URL", "http://from-the-environment:1")
    monkeypatch.setenv("GREENROOM_TOKEN", "of the environment")
    found = owner.find(options())
    assert found == owner.ServedBy(url="http://from-the-environment:1", token="of the environment")
    found = owner.find(options(url="http://typed:1", token="typed"))
    assert found == owner.ServedBy(url="http://typed:1", token="typed")
    (tmp_path / "s.db").touch()
    assert owner.find(options(db=tmp_path / "s.db")) == owner.Stored(place=tmp_path / "s.db")
    assert "of the environment" not in repr(found)
