"""Rules of expiry, and of waiting: what the clock decides, and what a run that waits does meanwhile: nothing."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.scene_tools import FAR
from ..support.scenes import Down, Scene, after, approve, cancel, decide, deny, pause, restart, send

B, C = call("sign", id="B"), call("look", id="C")


def brief(**asking: Any) -> Any:
    """A call whose ticket no person may answer after fifty seconds."""
    return call("ask", {"expires": 50, **asking}, id="E")


# --- what an expiry does ---------------------------------------------------------------------------------------------


@pytest.mark.rule("L-16", "A-25")
async def test_a_ticket_without_a_decision_is_denied_and_the_model_reads_so(play, autojump_clock):
    life = await play([brief(), C], "done", do=[pause(60)])
    assert (life.tickets["r.t1"], life.codes["E"]) == (("user_input", "expired"), "expired")
    assert life.calls["E"] == "new running suspended cancelled"
    assert "no decision came in time" in life.tool_texts["E"]
    assert life.outcome.output == "done"


@pytest.mark.rule("L-16")
async def test_an_expiry_may_end_the_run(play, autojump_clock):
    life = await play([brief(on_expiry="cancel_run"), B], do=[pause(60)])
    assert life.outcome == gr.Cancelled(reason="an approval expired", by="clock", code="approval_rejected")
    assert life.tool_texts.keys() == {"E", "B"}


@pytest.mark.rule("L-16")
async def test_an_expiry_may_bring_a_result(play, autojump_clock):
    life = await play([brief(default="no"), C], "done", do=[pause(60)])
    assert life.calls["E"] == "new running suspended resuming succeeded"
    assert (life.tool_texts["E"], life.effects) == ("no", ["C"])


@pytest.mark.parametrize("seconds", [1e-9, 1e-4, 1e-3])
async def test_a_ticket_may_expire_in_the_moment_it_is_made(play, autojump_clock, seconds):
    life = await play([brief(expires=seconds)], "done", do=[pause(60)])
    assert life.tickets == {"r.t1": ("user_input", "expired")}
    assert life.path.endswith("completed")


@gr.tool
async def read(way: str) -> str:
    """Asks, and has read somewhere what an expiry does."""
    raise gr.Suspend(expires_after=50, on_expiry="".join(list(way)))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["deny", "cancel_run"])
async def test_what_an_expiry_does_may_come_from_a_file(play, autojump_clock, way):
    """The event is the same, and so is its replay, wherever the word comes from."""
    life = await play([call("read", way=way, id="E")], tools=[read])
    assert life.payloads("approval.requested")[0].get("onExpiry", "deny") == way
    assert (b'"onExpiry":"deny"' in b"".join(life.frames)) is False


@gr.tool
async def lapse() -> str:
    """Asks, and says what it came to if no answer comes."""
    raise gr.Suspend(expires_after=50, on_expiry=gr.SetResult("nobody said yes", code="permission_denied"))


@pytest.mark.rule("L-16")
async def test_the_result_of_an_expiry_may_be_a_failure(play, autojump_clock):
    life = await play([call("lapse", id="E")], "done", do=[restart, pause(60)], tools=[lapse])
    assert life.calls["E"] == "new running suspended resuming failed"
    assert (life.codes["E"], life.tool_texts["E"]) == ("permission_denied", "nobody said yes")
    assert life.tickets == {"r.t1": ("user_input", "expired")}


async def test_an_expiry_comes_at_its_time_by_the_clock(play, autojump_clock):
    life = await play([brief()], "done", do=[pause(60)])
    assert life.seconds("approval.resolved") == 50.0
    (resolved,) = life.payloads("approval.resolved")
    assert (resolved["by"], resolved["resolution"]) == ("clock", "expired")


async def test_of_several_tickets_each_expires_at_its_own_time(play, autojump_clock):
    asks = [call("ask", expires=30 * number, id=f"E{number}") for number in (3, 1, 2)]
    life = await play(asks, "done", do=[pause(300)])
    if play.mode == "sequential":  # a call is asked for when the one before it has been settled
        assert [payload["callId"] for payload in life.payloads("approval.resolved")] == ["E3", "E1", "E2"]
    else:
        assert [payload["callId"] for payload in life.payloads("approval.resolved")] == ["E1", "E2", "E3"]


async def test_a_second_ticket_of_a_call_has_a_time_of_its_own(play, autojump_clock):
    life = await play([brief(times=2)], "done", do=[after(40, approve("E")), pause(60)])
    assert life.tickets == {"r.t1": ("user_input", "approved"), "r.t2": ("user_input", "expired")}
    assert life.seconds("approval.resolved", ticket_id="r.t2") == 90.0


# --- deciding against the clock --------------------------------------------------------------------------------------


async def test_a_decision_in_time_wins(play, autojump_clock):
    life = await play([brief()], "done", do=[after(49.9, approve("E", "in time")), pause(60)])
    assert (life.replies, life.tool_texts["E"]) == (["accepted"], "told in time")


@pytest.mark.parametrize("late", [50.0, 50.1, 70.0])
async def test_from_its_time_on_a_decision_is_too_late(play, autojump_clock, late):
    life = await play([brief()], [B], do=[after(late, decide("E"))])
    assert life.replies == ["rejected expired"]
    assert life.calls["E"] == "new running suspended cancelled"


async def test_a_denial_in_time_is_no_expiry(play, autojump_clock):
    life = await play([brief(on_expiry="cancel_run")], "done", do=[deny("E"), pause(60)])
    assert (life.tickets["r.t1"], life.outcome.output) == (("user_input", "denied"), "done")


async def test_no_command_keeps_a_ticket_from_expiring_by_its_id(play, autojump_clock):
    """The sender of a command chooses its id; the clock's own commands take one that is free."""
    ids = ["expire:r.t1", "expire:r.t1+"]
    life = await play([brief()], "done", do=[send("one", command_id=ids[0]), send("two", command_id=ids[1]), pause(60)])
    assert life.replies == ["accepted", "accepted"]
    assert life.tickets == {"r.t1": ("user_input", "expired")}
    assert life.path.endswith("completed")


async def test_a_run_that_is_cancelled_before_withdraws_the_ticket(play, autojump_clock):
    life = await play([brief(default="no")], do=[after(49, cancel())])
    assert life.tickets == {"r.t1": ("user_input", "withdrawn")}
    assert life.end["by"] == "ada"


async def test_a_decision_whose_body_outlives_the_time_is_not_undone(play, autojump_clock):
    life = await play([brief()], "done", do=[after(49, approve("E", "yes")), pause(60)])
    assert life.seconds("tool.result", call_id="E") == 59.0
    assert life.calls["E"].endswith("succeeded")


# --- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asleep", [0.0, FAR], ids=["at once", "after long"])
async def test_a_ticket_expires_in_another_process_too(play, autojump_clock, asleep):
    life = await play([brief(default="no")], "done", do=[restart, pause(60 + asleep)])
    assert life.seconds("approval.resolved") == 50.0
    assert life.tool_texts["E"] == "no"


async def test_a_ticket_that_expired_while_no_process_ran_expires_at_the_next_start(play, autojump_clock):
    life = await play([brief(default="no")], "done", do=[Down(FAR), pause(1)])
    assert life.seconds("approval.resolved") == FAR
    assert life.tool_texts["E"] == "no"


async def test_a_decision_at_the_start_after_the_expiry_is_too_late(play, autojump_clock):
    life = await play([brief()], [B], do=[after(1, Down(FAR)), after(0, decide("E"))])
    assert life.replies == ["rejected expired"]


async def test_waiting_is_outside_of_the_run_s_active_time(play, autojump_clock):
    life = await play([B, C], "done", do=[pause(FAR), approve("B")])
    assert life.end["activeSeconds"] == 20.0  # C before the decision, B after it


@pytest.mark.parametrize("patience", [None, 60.0, 1.0], ids=["stays in memory", "leaves it", "leaves it soon"])
async def test_a_run_that_waits_long_is_decided_as_if_it_had_been_decided_at_once(play, autojump_clock, patience):
    play.runtime = {"passivate_after": patience}
    life = await play([B, brief(expires=None)], "done", do=[pause(FAR), approve("B"), pause(FAR), approve("E", "yes")])
    assert life.replies == ["accepted", "accepted"]
    assert life.tool_texts == {"B": "signed 1", "E": "told yes"}


async def test_input_for_a_run_that_left_memory_is_kept_for_its_next_step(play, autojump_clock):
    life = await play([B], "done", do=[pause(FAR), send("hurry"), pause(FAR), approve("B")])
    assert life.history == ["user: hi", "assistant: (B)", "B: signed 1", "user: hurry", "assistant: done"]


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks, and gives up when there are far too many."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.count, self._scope = 0, scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        if self.count > 1_000:
            self._scope.cancel()


async def idle(scene: Scene) -> None:
    """A long time goes by in which nothing happens."""
    with trio.CancelScope() as scope:
        steps = Steps(scope)
        trio.lowlevel.add_instrument(steps)
        try:
            await trio.sleep(FAR)
        finally:
            trio.lowlevel.remove_instrument(steps)
    assert steps.count < 200, f"{steps.count} steps"  # a busy run would not let the virtual time continue


@pytest.mark.parametrize("patience", [None, 60.0])
async def test_a_run_that_waits_does_nothing(play, autojump_clock, patience):
    play.runtime = {"passivate_after": patience}
    assert (await play([B, C], do=[idle])).path == "running waiting"


@pytest.mark.parametrize("patience", [None, 60.0])
async def test_a_run_that_waits_on_after_an_expiry_does_nothing(play, autojump_clock, patience):
    """The clock's own command is done with, once the ticket is closed."""
    play.runtime = {"passivate_after": patience}
    assert (await play([brief()], [B], do=[pause(60), idle])).path == "running waiting running waiting"
