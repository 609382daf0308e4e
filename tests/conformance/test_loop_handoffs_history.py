"""Rules of handoffs: what the new agent reads, forks and replays, and the agent of a thread."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, text

from ..support.handoff_scenes import Callback, H, fork, handed, only, other, read
from ..support.scene_plugins import scripted
from ..support.scenes import THREAD, Scene, after, another, pause, restart, send

LOOK = call("look", id="L")
SENT = 30.0
"""Virtual seconds after which a new text arrives: in the body of the new agent's call."""


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-13")
async def test_without_a_filter_the_new_agent_reads_the_whole_thread(play, autojump_clock):
    desk = other("done", instructions="You know.")
    life = await play(LOOK, [text("I hand over."), H], instructions="You ask.", handoffs=[desk])
    assert read(desk)[0] == "system: You know."
    assert read(desk)[1:] == life.history[:-1]


@pytest.mark.rule("HA-13", "HA-15")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_filter_makes_what_the_new_agent_reads_and_the_thread_keeps_everything(play, autojump_clock, is_async):
    given: list[list[str]] = []

    def brief(messages: Sequence[gr.Message]) -> Sequence[gr.Message]:
        given.append([message.role for message in messages])
        return [message for message in messages if message.role == "user"]

    async def later(messages: Sequence[gr.Message]) -> Sequence[gr.Message]:
        await trio.sleep(3)
        return brief(messages)

    desk = other([delay(5), LOOK], "done")
    handoff = gr.handoff(desk, input_filter=later if is_async else brief)
    life = await play(
        call("note", id="N"), [H, call("note", id="M")], handoffs=[handoff], do=[after(SENT, send("and?"))]
    )
    assert given == [["user", "assistant", "tool", "assistant"]]
    assert read(desk, 0) == ["user: hi"]
    assert read(desk, 1) == ["user: hi", "assistant: (L)", "L: saw L", "user: and?"]
    assert [line.split(":")[0] for line in life.history] == [
        *("user", "assistant", "N", "assistant", "H", "M", "assistant", "L", "user", "assistant")
    ]


@pytest.mark.rule("HA-13", "HA-20")
@pytest.mark.parametrize("seconds", [1.0, 7.0, 12.0])
async def test_a_filter_is_asked_once_and_its_result_survives_a_restart(play, autojump_clock, seconds):
    asked: list[int] = []

    def brief(messages: Sequence[gr.Message]) -> Sequence[gr.Message]:
        asked.append(len(messages))
        return messages[:1]

    desk = other([delay(5), LOOK], [delay(5), text("done")])
    callback = Callback(seconds=0.0)
    handoff = gr.handoff(desk, on_handoff=callback.plain, input_filter=brief)
    life = await play([delay(2), H], handoffs=[handoff], do=[after(seconds, restart)])
    assert (asked, callback.begun, life.outcome.output) == ([2], 1, "done")
    assert read(desk, 0) == ["user: hi"]
    assert read(desk)[:2] == ["user: hi", "assistant: (L)"]


@pytest.mark.rule("HA-13")
async def test_a_later_handoff_reads_the_thread_again(play, autojump_clock):
    third = other("done", key="third")
    second = other(call("transfer_to_third", id="T"), handoffs=[third])
    life = await play(LOOK, H, handoffs=[gr.handoff(second, input_filter=only("user"))])
    assert read(second) == ["user: hi"]
    assert read(third) == life.history[:-1]
    assert [to for _, to, _, _ in handed(life)] == ["other", "third"]


BROKEN = {
    "raises": (lambda _: 1 / 0, "division by zero"),
    "no messages": (lambda _: ["hi"], "returned str among its messages"),
    "nothing": (lambda _: None, "returned NoneType"),
    "a text": (lambda _: "hi", "returned str; return messages"),
    "a message of a wrong form": (lambda _: [gr.Message(id="x", role="user", content=7)], "wrong type"),  # type: ignore[arg-type]
}


@pytest.mark.rule("HA-14")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_filter_that_fails_hands_nothing_over(play, autojump_clock, name):
    function, words = BROKEN[name]
    life = await play(H, "mine", handoffs=[gr.handoff(other("done"), input_filter=function)])
    assert (handed(life), life.codes["H"], life.outcome.output) == ([], "tool_error", "mine")
    assert words in life.tool_texts["H"]


@pytest.mark.rule("HA-14")
async def test_a_filter_that_fails_may_end_the_run(play, autojump_clock):
    handoff = gr.handoff(other("done"), input_filter=lambda _: 1 / 0, on_error="raise")
    life = await play(H, handoffs=[handoff])
    assert (life.outcome.code, handed(life)) == ("tool_error", [])


@pytest.mark.rule("HA-13")
async def test_messages_of_a_filter_get_ids_of_their_own(play, autojump_clock):
    def doubled(messages: Sequence[gr.Message]) -> list[gr.Message]:
        return [messages[0], messages[0], gr.Message(id="", role="assistant", content="I am new.")]

    desk = other("done")
    await play(H, handoffs=[gr.handoff(desk, input_filter=doubled)])
    ids = [message.id for message in desk.model.requests[0].messages]
    assert (len(ids), len(set(ids)), ids[0]) == (3, 3, "r.m1")


@pytest.mark.rule("HA-15")
async def test_calls_and_answers_that_lose_each_other_are_left_out(play, autojump_clock):
    def halves(messages: Sequence[gr.Message]) -> list[gr.Message]:
        return [message for message in messages if message.call_id != "L"]

    desk = other("done")
    step = [text("Both."), LOOK, call("note", id="N")]
    await play(step, LOOK, H, handoffs=[gr.handoff(desk, input_filter=halves)])
    assert read(desk) == ["user: hi", "assistant: Both. (N)", "N: noted N", "assistant: (L#2)", "L#2: saw L#2", *END]


END = ["assistant: (H)", 'H: {"agent":"other"}']


@pytest.mark.rule("HA-16")
async def test_the_filter_without_tools(play, autojump_clock):
    desk = other("done")
    await play([text("I look."), LOOK], LOOK, H, handoffs=[gr.handoff(desk, input_filter=gr.filters.without_tools)])
    assert read(desk) == ["user: hi", "assistant: I look."]


@pytest.mark.rule("HA-16")
async def test_the_filter_that_nests(play, autojump_clock):
    desk = other("done")
    await play([text("I look."), LOOK], H, handoffs=[gr.handoff(desk, input_filter=gr.filters.nested)])
    (message,) = desk.model.requests[0].messages
    assert (message.role, message.content.splitlines()[1:]) == (
        "user",
        [
            "1. user: hi",
            "2. assistant: I look.",
            "3. assistant calls look with {}",
            "4. result of look: saw L",
            "5. assistant calls transfer_to_other with {}",
        ],
    )


@pytest.mark.rule("HA-16")
async def test_hooks_of_the_new_agent_read_what_its_model_reads(play, autojump_clock):
    seen: list[int] = []
    counts = scripted("counts", before_inference=lambda ctx: seen.append(len(ctx.messages)))
    desk = other(LOOK, "done", plugins=[counts])
    await play([LOOK, H], handoffs=[gr.handoff(desk, input_filter=only("user"))])
    assert seen == [len(request.messages) for request in desk.model.requests] == [1, 3]


# --- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-21")
@pytest.mark.parametrize(("step", "agent"), [(0, "helper"), (1, "helper"), (2, "other"), (3, "other")])
async def test_a_fork_begins_with_the_agent_that_was_active(play, autojump_clock, step, agent):
    desk = other(LOOK, "done")
    handoff = gr.handoff(desk, input_filter=only("user"))
    life = await play(call("note", id="N"), H, handoffs=[handoff], do=[pause(60), fork(step)])
    forked = [request for request in (*life.requests, *desk.model.requests) if request.run_id == "f"]
    assert forked[0].agent == agent
    if agent == "other":
        assert [message.content for message in forked[0].messages if message.role == "user"] == ["hi"]
        assert not any(message.call_id == "N" for message in forked[0].messages)


# --- the thread's agent ----------------------------------------------------------------------------------------------


class Later:
    """Further runs of the thread, started without an agent or with one, and how they look at their end."""

    def __init__(self) -> None:
        self.views: dict[str, gr.RunView] = {}

    def run(self, run_id: str, key: str | None = None) -> Any:
        """A run is started."""

        async def act(scene: Scene) -> None:
            options: Any = {"run_id": run_id, "thread_id": THREAD, "execution": scene.play.mode}
            run = await scene.runtime.start(key, "go on", **options)
            await run.wait()
            self.views[run_id] = await run.view()

        return act


@pytest.mark.rule("HA-18")
async def test_a_start_without_an_agent_takes_the_one_with_which_the_thread_ended(play, autojump_clock):
    desk, later = other("done"), Later()
    do = [pause(5), later.run("n"), restart, later.run("n"), later.run("m")]
    life = await play(H, handoffs=[desk], do=do)
    view = later.views["n"]
    assert (view.agent, view.active_agent, view.stage.value, view.state) == ("other", "other", "completed", {})
    assert [request.run_id for request in desk.model.requests] == ["r", "n", "m"]
    assert life.view.state == {}


@pytest.mark.rule("HA-18")
async def test_a_named_agent_wins(play, autojump_clock):
    later = Later()
    do = [pause(5), later.run("n", "helper"), later.run("m")]
    await play(H, handoffs=[other("done")], do=do)
    assert [(view.agent, view.active_agent) for view in later.views.values()] == [
        ("helper", "other"),
        ("other", "other"),
    ]


@pytest.mark.rule("HA-18")
async def test_a_completed_run_without_a_handoff_is_the_threads_agent(play, autojump_clock):
    later = Later()
    do = [pause(5), another("me", key="third"), pause(5), later.run("n")]
    await play(H, handoffs=[other("done")], do=do)
    assert later.views["n"].agent == "third"


@pytest.mark.rule("HA-18")
async def test_a_thread_without_handoffs_has_an_agent_too(play, autojump_clock):
    later = Later()
    await play("mine", do=[pause(5), later.run("n")])
    assert later.views["n"].agent == "helper"


@pytest.mark.rule("HA-18")
async def test_without_a_completed_run_an_agent_must_be_named(play, watched, autojump_clock):
    async with gr.open_runtime(watched.open(), agents=[play.agent("done")]) as runtime:
        with pytest.raises(gr.UsageError, match="no completed run"):
            await runtime.start(None, "hi", thread_id="nowhere")
        with pytest.raises(gr.UsageError, match="thread_id"):
            await runtime.start(None, "hi")


@pytest.mark.rule("HA-19")
def test_reserved_state_keys_are_refused():
    with pytest.raises(gr.StateError, match="reserved"):
        gr.StateKey("greenroom.agent", str)
    assert gr.StateKey("greenroomy", str).name == "greenroomy"


# --- replay ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-22")
async def test_a_replay_calls_neither_callback_nor_filter(play, autojump_clock):
    callback, asked = Callback(), list[int]()

    def brief(messages: Sequence[gr.Message]) -> Sequence[gr.Message]:
        asked.append(1)
        return messages[:1]

    handoff = gr.handoff(other(LOOK, "done"), on_handoff=callback.plain, input_filter=brief)
    life = await play(H, handoffs=[handoff])  # a life replays its run
    assert (callback.begun, asked, life.outcome.output) == (1, [1], "done")


@pytest.mark.rule("HA-22")
async def test_a_replay_with_agents_that_name_each_other(play, watched, autojump_clock):
    life = await play(H, handoffs=[other(call("transfer_to_helper", id="B"), handoffs=["helper"])], do=[])
    assert [to for _, to, _, _ in handed(life)][:2] == ["other", "helper"]
    tried = play.agent(H, handoffs=[other("done", handoffs=["nobody"])])
    async with gr.open_runtime(watched.open(), agents=[life.scene.agent]) as runtime:
        with pytest.raises(gr.UnknownAgent, match="nobody"):
            await runtime.replay("r", tried)
        tried = play.agent(H, handoffs=[other("done", handoffs=["helper"])])
        assert (await runtime.replay("r", tried)).equal
