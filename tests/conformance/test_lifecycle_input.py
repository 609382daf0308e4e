"""Rules of input that waits: at its place in the thread, bounded, and never without a word when no step reads it."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import attrs
import pytest

from greenroom.actors.contract.pending_input import MAX_INPUT_BYTES, MAX_INPUTS
from greenroom.testing import call

from ..support.scenes import BIRTHDAY, THREAD, Act, Scene, after, another, approve, cancel, pause, restart, send

B, C = call("sign", id="B"), call("look", id="C")
LONG = call("look", seconds=100, id="L")


async def thread_of(scene: Scene) -> list[str]:
    """What is in the scene's thread, without the calls."""
    return [message.content for message in await scene.runtime.store.messages(THREAD) if message.content]


def stop(key: str, **options: Any) -> Act:
    """Another run of the scene is cancelled."""

    async def act(scene: Scene) -> None:
        scene.note(await scene.others[key].cancel(by="ada", **options))
        await scene.others[key].result()

    return act


def settled(key: str) -> Act:
    """Another run of the scene has ended."""

    async def act(scene: Scene) -> None:
        await scene.others[key].result()

    return act


def look_at(kept: list[Any]) -> Act:
    """Keep what the thread holds now."""

    async def act(scene: Scene) -> None:
        kept.append(await thread_of(scene))

    return act


# --- a run that ends in the line -------------------------------------------------------------------------------------


@pytest.mark.rule("L-101")
@pytest.mark.parametrize("between", [(), (restart,)], ids=["", "restart"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_the_input_of_a_run_that_ended_in_the_line_is_not_in_the_middle_of_another_run(
    play, autojump_clock, how, between
):
    """What a request holds does not depend on whether the run had left memory."""
    kept: list[Any] = []
    options = {} if how == "cancel" else {"deadline": BIRTHDAY + timedelta(seconds=5)}
    ends = [stop("next")] if how == "cancel" else [after(10, settled("next"))]
    do = [another("never", **options), *ends, look_at(kept), *between, approve("B"), look_at(kept)]
    life = await play([B], "done", do=do)
    assert kept[0] == ["hi"]
    assert kept[1] == ["hi", "signed 1", "done", "next?"]
    assert [message.content for message in life.requests[-1].messages if message.content] == ["hi", "signed 1"]


@pytest.mark.rule("L-101")
async def test_a_line_of_runs_keeps_its_order_whichever_of_them_ends_first(play, autojump_clock):
    kept: list[Any] = []
    do = [
        *(another(f"{name} done", key=name) for name in ("r2", "r3", "r4", "r5")),
        *(stop("r4"), stop("r2"), look_at(kept), stop("r5"), approve("B")),
        *(settled("r3"), look_at(kept)),
    ]
    await play([B], "done", do=do)
    assert kept[0] == ["hi"]
    assert kept[1] == ["hi", "signed 1", "done", "r2?", "r3?", "r3 done", "r4?", "r5?"]


async def test_the_next_run_in_the_line_reads_the_withdrawn_wish_before_its_own(play, autojump_clock):
    do = [another("never", key="r2"), another("r3 done", key="r3"), stop("r2"), approve("B"), settled("r3")]
    life = await play([B], "done", do=do)
    (request,) = life.scene.crew["r3"].model.requests
    assert [message.content for message in request.messages if message.content][-2:] == ["r2?", "r3?"]


async def test_a_run_that_ended_in_the_line_shows_its_question_once(play, autojump_clock):
    views: list[Any] = []

    async def look(scene: Scene) -> None:
        views.append([message.content for message in (await scene.others["next"].view()).messages if message.content])

    await play([B], "done", do=[another("never"), stop("next"), look, approve("B"), look])
    assert views == [["hi", "next?"], ["hi", "signed 1", "done", "next?"]]


async def test_a_fork_and_a_replay_of_it_have_its_question(play, autojump_clock):
    kept: list[Any] = []

    async def look(scene: Scene) -> None:
        assert (await scene.runtime.replay("next")).equal
        fork = await scene.runtime.fork("next", step=0, new_run_id=f"f{len(kept)}")
        await fork.result()
        kept.append([message.content for message in (await fork.view()).messages if message.content])

    await play([B], "done", do=[another("forked", "forked"), stop("next"), look, approve("B"), look])
    assert kept[0] == ["hi", "next?", "forked"]
    assert kept[1] == ["hi", "signed 1", "done", "next?", "forked"]


async def test_a_run_that_never_got_its_slot_leaves_its_question_at_once(play, autojump_clock):
    """It had its thread, and nothing else works there."""
    play = attrs.evolve(play, runtime={"max_running": 1})
    kept: list[Any] = []

    async def look(scene: Scene) -> None:
        run = await scene.runtime.start(scene.agent, "me too", run_id="late", thread_id="other")
        await run.cancel()
        await run.result()
        kept.append([message.content for message in await scene.runtime.store.messages("other")])

    await play([LONG], "done", do=[after(5, look)])
    assert kept == [["me too"]]


# --- bounded ---------------------------------------------------------------------------------------------------------


def sends(count: int, text: str) -> Act:
    """So many at once."""

    async def act(scene: Scene) -> None:
        for number in range(count):
            scene.note(await scene.run.send(f"{number} {text}", by="ada", command_id=f"s{number}"))

    return act


@pytest.mark.rule("L-37")
async def test_more_than_a_run_may_keep_is_answered_busy_and_room_is_made_by_a_step(play, autojump_clock):
    do = [after(5, sends(MAX_INPUTS + 3, "x")), after(0, restart), after(6, pause(0)), after(20, send("later"))]
    life = await play([LONG], "done", do=do)
    assert life.replies == ["accepted"] * MAX_INPUTS + ["rejected busy"] * 3 + ["rejected busy"]
    assert f"{MAX_INPUTS} texts of " in (life.scene.details[-1] or "")
    received = [line for line in life.history if line.startswith("user: ") and line.endswith(" x")]
    assert received == [f"user: {number} x" for number in range(MAX_INPUTS)]


@pytest.mark.rule("L-37")
async def test_the_size_of_what_waits_is_bounded_too(play, autojump_clock):
    part = "é" * (MAX_INPUT_BYTES // 8)  # a quarter of the bytes
    do = [after(5, sends(5, part)), after(1, send("é"))]
    life = await play([LONG], "done", do=do)
    assert life.replies == ["accepted"] * 3 + ["rejected busy"] * 2 + ["accepted"]
    assert life.outcome.output == "done"


@pytest.mark.rule("L-37")
async def test_a_text_that_waits_alone_may_be_larger(play, autojump_clock):
    life = await play([LONG], "done", do=[after(5, send("x" * (MAX_INPUT_BYTES + 1))), after(1, send("y"))])
    assert life.replies == ["accepted", "rejected busy"]


async def test_a_repeated_command_is_a_duplicate_and_not_busy(play, autojump_clock):
    do = [after(5, sends(MAX_INPUTS, "x")), after(0, send("0 x", command_id="s0"))]
    life = await play([LONG], "done", do=do)
    assert life.replies[-1] == "duplicate"


async def test_what_waits_is_received_in_its_order_after_any_number_of_restarts(play, autojump_clock):
    do = [send("a"), restart, send("b"), restart, send("c"), restart, approve("B")]
    life = await play([B], "done", do=do)
    assert [message.content for message in life.requests[-1].messages if message.role == "user"] == [
        *("hi", "a", "b", "c")
    ]


async def test_the_row_of_a_run_does_not_hold_the_texts_that_wait(play, autojump_clock):
    """Of a store that writes rows out: every commit of the step would write all of them again."""
    sizes: list[int] = []

    async def look(scene: Scene) -> None:
        record = await scene.runtime.store.load("r")
        assert record is not None
        assert [len(message.content) for message in record.row.pending_input] == [1_002] * 10 + [1_003] * 54
        if play.shelf.kind == "sqlite":
            with closing(sqlite3.connect(play.shelf.path)) as file:
                sizes.extend(size for (size,) in file.execute("SELECT length(row) FROM runs"))

    await play([LONG], "done", do=[after(5, sends(MAX_INPUTS, "x" * 1_000)), after(1, look)])
    assert all(size < 8_000 for size in sizes)


# --- no step reads it ------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-38")
@pytest.mark.parametrize("when", ["before the cancel", "on the way out"])
async def test_input_that_no_step_reads_is_reported_and_stays_in_the_thread(play, autojump_clock, when):
    first, second = send("wait", command_id="s"), cancel()
    acts = [first, second] if when == "before the cancel" else [second, first]
    life = await play([call("tidy", id="T")], do=[after(5, acts[0]), after(0.5, acts[1])])
    assert life.replies == ["accepted", "accepted"]
    assert life.history[-1] == "user: wait"
    (refused,) = life.payloads("decision.refused")
    assert (refused["commandId"], refused["code"], refused["target"]) == ("s", "unused", "r")
    assert "the text stays in the thread for the next run" in refused["detail"]


async def test_input_that_a_step_has_received_is_not_refused(play, autojump_clock):
    life = await play([C], [LONG], do=[after(5, send("go on")), after(20, cancel())])
    assert life.payloads("decision.refused") == []
    assert "user: go on" in life.history
