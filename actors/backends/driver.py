"""The driver: the model of a backend agent, a function of the thread.

Theory of operation. Nothing is kept between requests; the newest message decides:

| newest message | answer |
|---|---|
| what no call of the backend has taken | a call of the backend with it |
| the backend's result, with a proposal | a call of apply_changes |
| the backend's result, without | its text |
| the result of an apply | the text, and a line about what was applied |
| a conflict | a call of the backend that resolves it; the third time, the text |
| a denied apply, with a text | a call of the backend with that text |

The program has the conversation with its own session. So a prompt has only what came since the last call: the texts of
people, and what other agents of the thread have said.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, Literal

import trio

from ..abc import Model, ModelEvent
from ..contract.codec import shortened
from ..contract.messages import CallRequest, Message, ModelRequest, ModelResponse
from ..contract.parts import Part
from ..contract.plain import JSONValue
from .backend import Backend

APPLY: Final = "apply_changes"
"""The tool that applies a proposal."""
MAX_CONFLICTS: Final = 2
"""Conflicts that the backend is asked to resolve before the answer leaves the proposal open."""
SUMMARY_LIMIT: Final = 4_000
"""Most characters of the text that a ticket shows about a proposal."""
HISTORY_LIMIT: Final = 64 * 1024
"""Most characters of one message of another agent in a prompt."""

ApplyEnd = Literal["applied", "conflicted", "refused"]
ReadApply = Callable[[str], ApplyEnd]
"""Reads the text of an ended call of apply_changes."""


class Driver(Model):
    """The model of a backend agent.

    Args:
        backend: The backend; opened and closed with the model.
        tool: The name of its tool.
        read_apply: Reads the end of a call of `APPLY`; None: the agent has no such tool.
    """

    def __init__(self, backend: Backend, tool: str, read_apply: ReadApply | None = None) -> None:
        self._backend, self._tool, self._read_apply = backend, tool, read_apply
        self.name = f"backend:{backend.name}"

    def __repr__(self) -> str:
        return f"<Driver of {self._backend!r}>"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the backend."""
        async with self._backend.open():
            yield

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer one request, in one piece.

        The tool's body reads the images and files of the input itself: see `new_parts`.
        """
        async with aclosing(_one(self.answer(request))) as events:
            yield events

    def answer(self, request: ModelRequest) -> ModelResponse:
        """Return the answer to a request. Pure."""
        thread = [message for message in request.messages if message.role != "system"]
        newest = thread[-1] if thread else None
        caller = _caller(thread, newest)
        if newest is None or caller is None:
            return self._prompt(request, thread)
        if caller.tool == self._tool:
            return self._worked(_content(newest))
        if caller.tool == APPLY and self._read_apply is not None:
            return self._applied(request, thread, self._read_apply, newest)
        return self._prompt(request, thread)  # the result of a handoff to this agent

    def _worked(self, content: str) -> ModelResponse:
        text, proposal = read_result(content)
        if proposal is None or self._read_apply is None:
            return ModelResponse(text=(text,))
        return _call(APPLY, proposal=proposal, summary=shortened(text, SUMMARY_LIMIT))

    def _applied(
        self, request: ModelRequest, thread: Sequence[Message], read: ReadApply, newest: Message
    ) -> ModelResponse:
        line = _last_line(newest.content)
        text = next((read_result(_content(message))[0] for message in _results(thread, self._tool)), "")
        ends = [read(_last_line(message.content)) for message in _results(thread, APPLY)]
        if ends[0] == "applied":
            note = "" if request.output_schema is not None else f"\n\n{line[:1].upper()}{line[1:]}."
            return ModelResponse(text=(f"{text}{note}",))
        if ends[0] == "conflicted" and ends.count("conflicted") > MAX_CONFLICTS:
            return ModelResponse(text=(f"{text}\n\nThe proposal is open, and not applied: {line}.",))
        return self._prompt(request, thread)

    def _prompt(self, request: ModelRequest, thread: Sequence[Message]) -> ModelResponse:
        news = list(self._news(thread, _start(thread, self._tool)))
        if all(role == "user" for role, _ in news):
            return self._ask(request, "\n\n".join(text for _, text in news))
        return self._ask(request, "\n\n".join(f"{role}: {text}" for role, text in news))

    def _news(self, thread: Sequence[Message], start: int) -> Iterator[tuple[str, str]]:
        """Yield what the program has not read: (role, text)."""
        own_runs = {one.producer.run_id for one in thread[:start] if _calls(one, self._tool) and one.producer}
        applies = {call.call_id for one in thread[start:] for call in one.calls if call.tool == APPLY}
        for message in thread[start:]:
            is_own = _calls(message, APPLY) or (
                not message.calls and message.producer is not None and message.producer.run_id in own_runs
            )
            if message.role == "user":
                yield "user", message.content
            elif message.role == "assistant" and message.content and not is_own:
                yield "assistant", shortened(message.content, HISTORY_LIMIT)
            elif message.call_id in applies and self._read_apply is not None:
                line = _last_line(message.content)
                if self._read_apply(line) != "applied":
                    yield "user", f"Your changes were not applied: {message.content}"

    def _ask(self, request: ModelRequest, prompt: str) -> ModelResponse:
        system = "\n\n".join(message.content for message in request.messages if message.role == "system")
        if not system:
            return _call(self._tool, prompt=prompt)
        properties = [tool.schema.get("properties") for tool in request.tools if tool.name == self._tool]
        if any(isinstance(names, dict) and "instructions" in names for names in properties):
            return _call(self._tool, prompt=prompt, instructions=system)
        return _call(self._tool, prompt=f"{system}\n\n{prompt}")


def new_parts(messages: Sequence[Message], tool: str) -> tuple[Part, ...]:
    """Return the images and files of people that no call of the tool has had yet, in order.

    Args:
        messages: The thread as `ToolContext.messages` gives it.
        tool: The name of the backend's tool.
    """
    news = messages[_start(messages, tool) :]
    return tuple(part for message in news if message.role == "user" for part in message.parts)


def read_result(content: str) -> tuple[str, str | None]:
    """Return the text and the proposal of a backend's result, which may also be a text that a person has given."""
    try:
        value: JSONValue = json.loads(content) if content.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str) or "proposal" not in value:
        return content, None
    proposal = value["proposal"]
    return str(value["text"]), proposal if isinstance(proposal, str) else None


def _content(message: Message) -> str:
    """Return the text of a result; one with images and files is a list that begins with the text."""
    if not message.parts:
        return message.content
    try:
        value: JSONValue = json.loads(message.content)
    except (ValueError, RecursionError):
        return message.content
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, str) else message.content


async def _one(response: ModelResponse) -> AsyncGenerator[ModelEvent, None]:
    await trio.lowlevel.checkpoint()
    yield response


def _call(tool: str, **arguments: JSONValue) -> ModelResponse:
    return ModelResponse(calls=(CallRequest(call_id="", tool=tool, arguments=arguments),))


def _start(thread: Sequence[Message], tool: str) -> int:
    """Return the place behind the newest call of a tool."""
    return 1 + max((at for at, message in enumerate(thread) if _calls(message, tool)), default=-1)


def _calls(message: Message, tool: str) -> bool:
    return any(call.tool == tool for call in message.calls)


def _caller(thread: Sequence[Message], newest: Message | None) -> CallRequest | None:
    """Return the call that the newest message answers, if it answers one."""
    if newest is None or newest.role != "tool":
        return None
    calls = (call for message in reversed(thread) for call in message.calls)
    return next((call for call in calls if call.call_id == newest.call_id), None)


def _results(thread: Sequence[Message], tool: str) -> Iterator[Message]:
    """Yield the results of a tool since the newest message of a person, the newest first."""
    names = {call.call_id for message in thread for call in message.calls if call.tool == tool}
    for message in reversed(thread):
        if message.role == "user":
            return
        if message.role == "tool" and message.call_id in names:
            yield message


def _last_line(content: str) -> str:
    """Return the result of an apply, before which a line may say that its arguments were changed."""
    return content.rstrip("\n").rpartition("\n")[2]
