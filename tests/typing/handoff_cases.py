"""What type checkers must know of handoffs; checked by test_typing.py, never run."""

from collections.abc import Iterable, Sequence
from typing import Never, assert_type

import attrs

import greenroom as gr


@attrs.frozen
class Deps:
    limit: int


@attrs.frozen
class Reason:
    text: str


desk = gr.Agent("desk", deps_type=Deps, output_type=int)


async def noted(ctx: gr.ToolContext[Deps]) -> None:
    assert_type(ctx.deps, Deps)


def explained(ctx: gr.SyncToolContext[Deps], reason: Reason) -> None:
    assert_type(reason, Reason)


def newest(messages: tuple[gr.Message, ...]) -> Iterable[gr.Message]:
    return messages[-1:]


async def later(messages: Sequence[gr.Message]) -> list[gr.Message]:
    return [message for message in messages if message.role == "user"]


def words(messages: tuple[gr.Message, ...]) -> list[str]:
    return [message.content for message in messages]


plain = gr.handoff(desk, on_handoff=noted, input_filter=newest)
typed = gr.handoff("clerk", on_handoff=explained, input_type=Reason, needs_approval=True, on_error="raise")
assert_type(gr.handoff(desk, input_filter=later, tool_name="ask_desk", tool_description="Knows."), gr.Handoff[int])
assert_type(typed, gr.Handoff[Never])
assert_type(gr.handoff("clerk", output_type=Reason), gr.Handoff[Reason])
assert_type(gr.Agent("front", handoffs=["clerk"]), gr.Agent[str])
assert_type(gr.Agent("front", handoffs=[gr.handoff("clerk", output_type=Reason)]), gr.Agent[str | Reason])
assert_type(gr.Agent("front", handoffs=["clerk"], output_type=Reason, deps_type=Deps), gr.Agent[Reason, Deps])
assert_type(gr.Agent("front", handoffs=[gr.handoff(desk), gr.handoff("clerk")]), gr.Agent[str | int])
gr.handoff(desk, input_filter=gr.filters.without_tools, is_enabled=False)
gr.handoff(desk, input_filter=gr.filters.nested)
gr.handoff(desk, input_filter=words)  # type: ignore[arg-type]
gr.handoff(desk, on_error="ignore")  # type: ignore[call-overload]
gr.Agent("front", handoffs=[desk, "clerk", plain, typed])
front = gr.Agent("front", handoffs=[plain])
assert_type(front, gr.Agent[str | int])
assert_type(gr.Agent("hall", output_type=Reason, handoffs=[front]), gr.Agent[Reason | str | int])
assert_type(gr.Agent("front", deps_type=Deps, handoffs=[desk], output_type=int), gr.Agent[int, Deps])
gr.Agent("front", handoffs=[noted])  # type: ignore[list-item]
gr.handoff(7)  # type: ignore[call-overload]
gr.handoff(desk, on_handoff=explained)  # type: ignore[arg-type]
gr.handoff(desk, on_handoff=noted, input_type=Reason)  # type: ignore[arg-type]
gr.handoff(desk, on_handoff=explained, input_type=str)  # type: ignore[arg-type]
gr.handoff(desk, input_filter=noted)  # type: ignore[arg-type]


async def started(runtime: gr.Runtime) -> None:
    assert_type(await runtime.start(desk, "x", thread_id="t", deps=Deps(1)), gr.Run[int])
    run = await runtime.start(None, "x", thread_id="t", deps=Deps(1))
    assert_type((await run.view()).active_agent, str)


async def ended(runtime: gr.Runtime) -> None:
    hall = gr.Agent("hall", output_type=Reason, handoffs=[desk])
    outcome = await (await runtime.start(hall, "x", thread_id="t", deps=Deps(1))).result()
    assert isinstance(outcome, gr.Completed)
    assert_type(outcome.output, Reason | int)
    outcome.output.text  # type: ignore[union-attr]  # noqa: B018 - the run may have been handed over to the desk
