"""Texts and numbers of user code may be of subclasses: records get plain values, and no run is harmed.

`class Markup(str)` is a text for every check by `isinstance`, and msgspec encodes no instance of it: such a text in a
row or an event would crash the run's owner at each commit.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event

from ..support.runs import home


class Text(str):
    """A text with a class of its own."""

    __slots__ = ()


class Whole(int):
    """A number with a class of its own."""


class Part(float):
    """A number with a class of its own."""


class Object(dict[Any, Any]):
    """An object with a class of its own."""


box = gr.StateKey(Text("box"), dict[str, str], default=Object(a="b"), scope=Text("thread"))  # type: ignore[arg-type]


@gr.tool(needs_approval=True, name=Text("pay"), description=Text("Pay."), effect=Text("write"))
async def pay(ctx: gr.ToolContext, n: int, text: str) -> Any:
    await ctx.progress(Part(0.5), Text("half"))
    await ctx.output(Text("out"))
    ctx.state.set(box, {Text("n"): Text(str(n))})
    return Object({Text("paid"): [Whole(n), Part(2.5), Text(text)]})


@gr.tool
async def ask() -> str:
    raise gr.Suspend(
        action=Text("asks"),
        message=Text("well?"),
        parameters=Object({Text("k"): Text("v")}),
        response_schema=Object(type=Text("string")),
        resume_mode=Text("use_decision_as_tool_result"),  # type: ignore[arg-type]
        reviewers=(Text("me"),),
        reason=Text("user_input"),  # type: ignore[arg-type]
        expires_after=Whole(100),
        on_expiry=Text("deny"),  # type: ignore[arg-type]
    )


@gr.tool
async def fail() -> str:
    raise gr.ToolError(Text("no"))


@gr.tool
async def judged(how: str) -> str:
    return how


class Plain(gr.Model):
    """Gives subclasses wherever a model gives a text."""

    name = Text("plain")

    def __init__(self) -> None:
        self.asked = 0

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        yield self._answer()

    async def _answer(self) -> AsyncIterator[gr.ModelEvent]:
        self.asked += 1
        if self.asked == 1:
            raise gr.ModelError(Text("busy"), kind=Text("timeout"))  # type: ignore[arg-type]
        if self.asked == 2:
            yield gr.TextDelta(Text("hel"))
            yield gr.ReasoningDelta(Text("hm"))
            yield gr.ModelResponse(text=(Text("hello"),), calls=CALLS, finish=Text("tool_calls"), model=Text("m"))  # type: ignore[arg-type]
        else:
            yield gr.ModelResponse(text=[Text("done")], refusal=Text("r"), finish=Text("stop"))  # type: ignore[arg-type]


def asked(name: str, arguments: Any, call_id: str) -> gr.CallRequest:
    return gr.CallRequest(call_id=Text(call_id), tool=Text(name), arguments=arguments, provider_id=Text("p"))


CALLS = (
    asked("pay", Object({Text("n"): Whole(1), Text("text"): Text("x")}), "A"),
    asked("ask", Text("{}"), "B"),
    asked("fail", Object(), "C"),
    asked("judged", Object(how=Text("result")), "D"),
    asked("judged", Object(how=Text("deny")), "E"),
    asked("judged", Object(how=Text("edit")), "F"),
    asked("judged", Object(how=Text("drop")), "G"),
    asked(Text("unknown"), Object(), "H"),
)


class Hooks(gr.Plugin):
    name = Text("hooks")

    async def run_start(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        return gr.Mutation().set(box, {Text("q"): Text("r")})

    async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        asked = gr.Mutation().add_message(Text("psst"), placement=Text("system"), role=Text("user"))  # type: ignore[arg-type]
        return asked.override(warmth=Part(1), word=Text("w")).exclude_tools(Text("fail"))

    async def after_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        if not ctx.calls:
            return None
        edited = Object({Text("how"): Text("edited")})
        return gr.Mutation().edit_call(Text("F"), edited).drop_call(Text("G"), Text("dropped"))

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> gr.Verdict | None:
        match ctx.arguments:
            case {"how": "result"}:
                return gr.SetResult(Text("set"), code=Text("permission_denied"))
            case {"how": "deny"}:
                return gr.Deny(Text("denied"))
        return None

    async def step_end(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        return gr.Mutation().hold(gr.Suspend(message=Text("hold"))) if ctx.step == 1 else None


def exact(value: object) -> bool:
    """True if everything in the data is of exactly the types that JSON gives."""
    match value:
        case dict():
            return type(value) is dict and all(exact(key) and exact(item) for key, item in value.items())
        case list():
            return type(value) is list and all(map(exact, value))
    return type(value) in (str, int, float, bool, type(None))


async def test_texts_of_a_subclass_become_plain_texts_and_harm_no_run(shelf, autojump_clock, caplog):
    tools = [pay, ask, fail, judged]
    agent = gr.Agent(
        Text("helper"),
        instructions=Text("be kind"),
        description=Text("d"),
        tools=tools,
        model=Plain(),
        plugins=[Hooks()],
        state=[box],
        execution=Text("sequential"),  # type: ignore[arg-type]
        denial=lambda _ticket, _decision: Text("no way"),
    )
    where: dict[str, Any] = {"session_id": Text("s"), "workspace": Text("/w"), "execution": Text("sequential")}
    async with home(shelf, agents=[agent]) as runtime:
        names = {"run_id": Text("r"), "thread_id": Text("t"), "by": Text("me"), "title": Text("title")}
        run = await runtime.start(Text("helper"), Text("go"), **names, **where)
        answers = []
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                options: dict[str, Any] = {"result": Text("my result")}
                if ticket.tool == "pay":
                    options = {"edited_arguments": Object({Text("n"): Whole(2), Text("text"): Text("y")})}
                name = Text(f"d-{ticket.ticket_id}")
                said = {"reason": Text("why"), "decision_id": name, "by": Text("me")}
                answers.append(await run.decide(Text(ticket.ticket_id), Text("approve"), **options, **said))  # type: ignore[call-overload]
        await trio.sleep(1)
        assert [answer.status for answer in answers] == ["accepted"] * 3
        assert isinstance(outcome, gr.Completed), outcome
        assert (type(outcome.output), outcome.output, outcome.finish) == (str, "done", "stop")
        view = await run.view()
        assert {message.call_id: message.content for message in view.messages if message.role == "tool"} == {
            "A": """(The arguments were changed to {'n': 2, 'text': 'y'} before the call ran.)\n{"paid":[2,2.5,"y"]}""",
            "B": "my result",
            "C": view.messages[4].content,
            "D": "set",
            "E": "denied",
            "F": "(The arguments were changed to {'how': 'edited'} before the call ran.)\nedited",
            "G": "dropped",
            "H": view.messages[9].content,
        }
        assert view.state["box"] == {"n": "2"}
        assert (await runtime.replay("r")).difference is None
        frames = await runtime.reader.events("r")
        assert all(exact(dict(decode_event(frame).payload)) for frame in frames)
        record = await runtime.reader.record("r", calls="all")
        assert all(exact(call.arguments) and type(call.tool) is str for call in record.calls)
        assert {type(name) for name in (record.info.run_id, record.info.agent, record.info.by)} == {str}
    assert not [line for line in caplog.records if "crashed" in line.message]
