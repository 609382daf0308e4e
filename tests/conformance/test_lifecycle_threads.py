"""Rules of threads: who writes when, what a history holds, and what becomes of new input."""

from itertools import pairwise

import pytest

import greenroom as gr
from greenroom.testing import call, delay

from ..support.paced_clock import wait
from ..support.promises import broken_history
from ..support.scene_tools import FAR
from ..support.scenes import (
    THREAD,
    Act,
    Scene,
    after,
    another,
    approve,
    cancel,
    decide,
    pause,
    pause_run,
    restart,
    send,
)

B, C = call("sign", id="B"), call("look", id="C")


async def thread_of(scene: Scene, thread_id: str = THREAD) -> list[gr.Message]:
    """The thread as the store has it."""
    return list(await scene.runtime.store.messages(thread_id))


def keep_stage(key: str) -> Act:
    """An act: the stage of another run is noted."""

    async def act(scene: Scene) -> None:
        scene.replies.append((await scene.others[key].view()).stage.value)

    return act


# --- histories -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-98")
async def test_each_message_has_an_id_and_tells_who_made_it_and_in_which_step(play, autojump_clock):
    life = await play([C], "done")
    made = [(message.role, message.producer.run_id, message.producer.step) for message in life.view.messages]
    assert made == [("user", "r", 0), ("assistant", "r", 1), ("tool", "r", 1), ("assistant", "r", 2)]
    assert len({message.id for message in life.view.messages}) == 4


@pytest.mark.rule("L-100")
async def test_the_messages_of_a_step_are_appended_in_one_commit_when_all_its_calls_have_settled(play, autojump_clock):
    life = await play([B, C], "done", do=[approve("B")])
    appended = [[message.role for message in commit.messages] for commit in life.log if commit.messages]
    assert appended == [["user"], ["assistant", "tool", "tool"], ["assistant"]]


@pytest.mark.rule("L-100")
async def test_until_then_the_thread_is_as_it_was_and_the_view_shows_both(play, autojump_clock):
    kept: list[list[str]] = []

    async def look(scene: Scene) -> None:
        kept.append([message.role for message in await thread_of(scene)])
        kept.append([message.role for message in (await scene.run.view()).messages])

    await play([B, C], do=[look])
    assert kept == [["user"], ["user", "assistant", "tool"]]


@pytest.mark.rule("L-98")
async def test_a_thread_only_grows(play, autojump_clock):
    seen: list[list[gr.Message]] = []

    async def look(scene: Scene) -> None:
        seen.append(await thread_of(scene))

    await play([C], [B], "done", do=[after(1, look), after(15, look), restart, look, approve("B"), look])
    assert [len(messages) for messages in seen] == [1, 3, 3, 6]
    assert all(later[: len(before)] == before for before, later in pairwise(seen))


async def test_a_run_without_a_thread_has_one_of_its_own(play, autojump_clock):
    life = await play(
        "done", start={"thread_id": None}, do=[another("more"), another("mine", key="own", thread_id=None)]
    )
    threads = {life.scene.run.thread_id, *(run.thread_id for run in life.scene.others.values())}
    assert len(threads) == 3
    assert life.history == ["user: hi", "assistant: done"]


# --- one at a time ---------------------------------------------------------------------------------------------------


async def test_the_next_run_of_a_thread_continues_its_history(play, autojump_clock):
    life = await play([C], "done", do=[another("more"), pause(1)])
    (request,) = life.scene.crew["next"].model.requests
    assert [message.content for message in request.messages] == ["hi", "", "saw C", "done", "next?"]


@pytest.mark.rule("L-99")
@pytest.mark.parametrize("front", ["works", "waits"])
async def test_one_run_works_in_a_thread_and_the_others_stand_in_line(play, autojump_clock, front):
    """A run that waits for people works in its thread: no message comes between a call and its answer."""
    script = [B] if front == "waits" else [call("look", seconds=50, id="C")]
    acts = [after(1, another("more")), after(20, keep_stage("next")), *([approve("B")] if front == "waits" else [])]
    life = await play(script, "done", do=[*acts, pause(5), keep_stage("next")])
    assert (life.replies[0], life.replies[-1]) == ("planned", "completed")
    (request,) = life.scene.crew["next"].model.requests
    assert [message.content for message in request.messages][-2:] == ["done", "next?"]


@pytest.mark.rule("L-99")
async def test_who_does_not_want_to_stand_in_line_is_refused(play, autojump_clock):
    async def impatient(scene: Scene) -> None:
        with pytest.raises(gr.ThreadBusy, match="'r'"):
            await another("more", on_busy="refuse")(scene)

    assert (await play([B], "done", do=[impatient, approve("B")])).outcome.output == "done"


async def test_runs_in_line_work_in_the_order_of_their_start_also_after_a_restart(play, autojump_clock):
    async def look(scene: Scene) -> None:
        await wait(FAR)
        scene.replies.extend(message.content for message in await thread_of(scene) if message.role == "user")

    line = [after(1, another("more", key=key)) for key in ("first", "second", "third")]
    life = await play([B], "done", do=[*line, restart, approve("B"), look])
    assert life.replies == ["accepted", "hi", "first?", "second?", "third?"]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_however_a_run_ended_its_thread_is_free_and_valid_for_the_next_one(play, autojump_clock, end):
    script, acts = {
        "completed": (([C], "done"), []),
        "failed": (([call("breaks", seconds=5, id="X"), B, C],), []),
        "cancelled": (([B, C],), [after(5, cancel())]),
    }[end]
    life = await play(*script, do=[*acts, another("more"), pause(1)])
    (request,) = life.scene.crew["next"].model.requests
    assert life.stages[-1] == end
    assert not list(broken_history(request.messages, "the next request"))
    assert request.messages[-1].content == "next?"


# --- slots -----------------------------------------------------------------------------------------------------------


@pytest.mark.pace(5)
async def test_a_run_beyond_the_limit_waits_for_its_slot_in_stage_planned(play, autojump_clock):
    play.runtime = {"max_running": 1}
    begin = after(1, another("more", thread_id=None))
    life = await play(
        [call("look", seconds=50)], "done", do=[begin, after(1, keep_stage("next")), pause(1), keep_stage("next")]
    )
    # In a shared store the run stays without an owner, and untouched, until a process with a free slot claims it.
    assert life.replies == ["created" if life.scene.runtime.store.shared else "planned", "completed"]


async def test_a_waiting_run_holds_no_slot(play, autojump_clock):
    play.runtime = {"max_running": 1}
    life = await play([B], do=[another("more", thread_id=None), pause(1), keep_stage("next")])
    assert life.replies == ["completed"]


# --- new input -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-34")
async def test_input_joins_the_next_step(play, autojump_clock):
    life = await play([C], "done", do=[after(5, send("hurry"))])
    assert life.history == ["user: hi", "assistant: (C)", "C: saw C", "user: hurry", "assistant: done"]
    assert [(payload["text"], payload["by"]) for payload in life.payloads("input.received")] == [("hurry", "ada")]


async def test_input_in_one_step_keeps_its_order(play, autojump_clock):
    life = await play([C], "done", do=[after(1, send("one")), after(1, send("two")), after(1, send("three"))])
    assert life.history[3:6] == ["user: one", "user: two", "user: three"]


@pytest.mark.rule("L-34")
async def test_input_for_a_waiting_run_waits_in_line_by_default(play, autojump_clock):
    life = await play([B], "done", do=[send("hurry"), approve("B")])
    assert life.path == "running waiting running completed"
    assert life.history == ["user: hi", "assistant: (B)", "B: signed 1", "user: hurry", "assistant: done"]


@pytest.mark.rule("L-34", "L-35")
async def test_input_for_a_waiting_run_may_supersede_its_open_tickets(play, autojump_clock):
    life = await play([B, C], "fine", do=[send("forget it")], on_new_input="supersede")
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn")}
    assert (life.calls["B"], life.codes["B"]) == ("new suspended cancelled", "superseded")
    assert "superseded" in life.tool_texts["B"]
    assert life.history[-2:] == ["user: forget it", "assistant: fine"]


@pytest.mark.rule("L-36")
async def test_superseding_input_leaves_alone_what_is_decided_or_done(play, autojump_clock):
    life = await play(
        [B, call("pay", id="A"), C], "fine", do=[approve("B"), send("forget it")], on_new_input="supersede"
    )
    assert life.calls["C"] == "new running succeeded"
    assert life.calls["A"] == "new suspended cancelled"
    assert life.calls["B"] == "new suspended resuming running succeeded"


SLOW = [call("spend", id="A", cents=200, thinking=10.0), call("spend", id="B", cents=200, thinking=10.0)]
SUPERSEDED = "new suspended cancelled"


@pytest.mark.rule("L-35")
@pytest.mark.parametrize("seconds", [5, 15])
async def test_a_ticket_that_opens_while_superseding_input_waits_is_superseded_at_once(play, autojump_clock, seconds):
    """B's ticket opens in any case after the input has come; A's before it, or after it."""
    life = await play(SLOW, "fine", do=[after(seconds, send("forget it"))], on_new_input="supersede")
    assert (life.calls, life.path) == ({"A": SUPERSEDED, "B": SUPERSEDED}, "running completed")
    assert life.payloads("approval.resolved") == [
        {**payload, "resolution": "withdrawn", "by": "ada", "reason": "superseded by new input"}
        for payload in life.payloads("approval.resolved")
    ]
    assert life.history[-2:] == ["user: forget it", "assistant: fine"]


async def test_the_ticket_of_a_body_that_asks_after_superseding_input_is_superseded(play, autojump_clock):
    life = await play(
        [call("ask", id="A", seconds=10.0), C], "fine", do=[after(5, send("forget it"))], on_new_input="supersede"
    )
    assert life.calls == {"A": "new running suspended cancelled", "C": "new running succeeded"}
    assert (life.tickets, life.codes["A"]) == ({"r.t1": ("user_input", "withdrawn")}, "superseded")


async def test_the_ticket_of_a_call_that_the_model_asks_for_after_superseding_input_is_superseded(play, autojump_clock):
    model = [delay(10), B]
    life = await play(model, "fine", do=[after(5, send("forget it"))], on_new_input="supersede")
    assert (life.calls, life.path) == ({"B": SUPERSEDED}, "running completed")


@pytest.mark.rule("L-36")
async def test_what_was_decided_before_it_asked_is_not_superseded(play, autojump_clock):
    acts = [after(5, decide("B")), after(1, send("and this"))]
    life = await play(SLOW, "fine", do=acts, on_new_input="supersede")
    assert life.calls == {"A": SUPERSEDED, "B": "new suspended resuming running succeeded"}


async def test_the_first_input_of_a_run_and_what_tasks_and_pauses_say_supersede_nothing(play, autojump_clock):
    acts = [after(5, pause_run()), decide("r.t1", result="go"), approve("B")]
    life = await play([C], [B], "fine", do=acts, on_new_input="supersede")
    assert life.calls["B"] == "new suspended resuming running succeeded"


async def test_superseding_input_that_has_been_received_supersedes_nothing_more(play, autojump_clock):
    life = await play([C], [B], "fine", do=[after(5, send("go on")), approve("B")], on_new_input="supersede")
    assert life.history[3] == "user: go on"
    assert life.calls["B"] == "new suspended resuming running succeeded"


async def test_superseding_input_acts_in_the_next_process_too(play, autojump_clock):
    """The body was lost: no person is asked what came of it, and the model reads that it may have taken effect."""
    acts = [after(2, send("forget it")), after(1, restart)]
    life = await play([call("note", id="A")], "fine", do=acts, on_new_input="supersede")
    assert life.tickets == {"r.t1": ("outcome_unknown", "withdrawn")}
    assert "superseded" in life.tool_texts["A"]
    assert "may or may not have taken effect" in life.tool_texts["A"]


async def test_superseding_input_is_waited_behind_a_gate_by_the_next_process_too(play, autojump_clock):
    life = await play(SLOW, "fine", do=[after(15, send("forget it")), after(1, restart)], on_new_input="supersede")
    assert life.calls == {"A": SUPERSEDED, "B": SUPERSEDED}


async def test_input_outlives_the_process_that_took_it(play, autojump_clock):
    life = await play([B], "done", do=[send("hurry"), restart, approve("B")])
    assert life.history[-2:] == ["user: hurry", "assistant: done"]


async def test_the_same_input_again_is_a_duplicate(play, autojump_clock):
    life = await play(
        [C], "done", do=[after(1, send("hurry", command_id="x")), after(1, send("hurry", command_id="x"))]
    )
    assert life.replies == ["accepted", "duplicate"]
    assert life.history.count("user: hurry") == 1


# --- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-102")
@pytest.mark.parametrize(("step", "length"), [(0, 1), (1, 3), (2, 5)])
async def test_a_fork_begins_where_a_run_stood_at_the_end_of_a_step_in_a_thread_of_its_own(
    play, autojump_clock, step, length
):
    kept: list[list[str]] = []

    async def fork(scene: Scene) -> None:
        child = await scene.runtime.fork("r", step=step, new_run_id="f")
        scene.others["f"] = child
        await child.result()
        both = (scene.run.thread_id, child.thread_id)
        kept.extend([[message.content for message in await thread_of(scene, name)] for name in both])

    life = await play([C], [call("note", id="N")], "done", do=[fork])
    parent, child = kept
    assert life.scene.others["f"].thread_id != THREAD
    assert child[:length] == parent[:length]
    assert parent == ["hi", "", "saw C", "", "noted N", "done"]


def forks(step: int, texts: list[list[str]]) -> Act:
    async def act(scene: Scene) -> None:
        child = await scene.runtime.fork("r", step=step)
        await child.result()
        texts.append([message.content for message in await thread_of(scene, child.thread_id)])

    return act


async def test_a_fork_of_a_run_that_waits_for_its_thread_has_its_question(play, autojump_clock):
    reported: list[list[str]] = []
    life = await play("done", behind=60, do=[after(5, forks(0, reported))])
    assert reported == [["me first", "hi", "done"]]
    assert life.outcome.output == "done"


async def test_a_fork_of_a_held_run_has_the_input_that_waits_in_line_now_as_it_has_later(play, autojump_clock):
    reported: list[list[str]] = []
    acts = [after(5, pause_run()), send("hurry"), forks(1, reported), decide("r.t1"), forks(1, reported)]
    await play([C], "done", do=acts)
    assert [one[:4] for one in reported] == [["hi", "", "saw C", "hurry"]] * 2


async def test_a_fork_says_of_which_run_and_step_it_is(play, autojump_clock):
    reported: list[str] = []

    async def fork(scene: Scene) -> None:
        child = await scene.runtime.fork("r", step=1)
        async with child.events() as events:
            reported.extend([event.payload["forkedFrom"] async for event in events if event.type == "run.created"])

    await play([C], "done", do=[fork])
    assert reported == ["r@1"]


async def test_a_run_can_be_forked_at_a_finished_step_while_it_works_or_waits(play, autojump_clock):
    async def fork(scene: Scene) -> None:
        child = await scene.runtime.fork("r", step=1)
        scene.replies.append((await child.view()).messages[-1].content)
        with pytest.raises(gr.UsageError, match="step=2"):
            await scene.runtime.fork("r", step=2)

    life = await play([C], [B, call("look", id="D")], "done", do=[after(15, fork), fork, approve("B")])
    assert life.replies == ["saw C", "saw C", "accepted"]
    assert (life.path, life.outcome.output) == ("running waiting running completed", "done")
