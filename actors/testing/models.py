"""Models for tests: one that reads its answers from a script, one that asks a function.

    model = ScriptedModel([
        call("refund", order="7", cents=500, id="c1"),      # one step = one answer: a str, a part, or a list of them
        [text("checking"), call("add", a=1, b=2)],
        fail("overloaded"),
        "done",
    ])

The script is indexed by `request.answers`, which the runtime carries in the request: how many answers and errors this
run and agent have got so far. So concurrent runs, handoffs, forks and restarts each read the right step, and a step
that was asked for but interrupted is read again.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, get_args

import attrs
import trio

from greenroom.actors.abc import Model, ModelEvent, ReasoningDelta, TextDelta
from greenroom.actors.contract.ids import canonical_json
from greenroom.actors.contract.messages import CallRequest, ModelRequest, ModelResponse, Usage
from greenroom.actors.errors import ModelError, ModelErrorKind

_KINDS: Final = get_args(ModelErrorKind)


@attrs.frozen
class Text:
    """A text of the answer; see `text`."""

    text: str
    usage: Usage | None = None


@attrs.frozen
class Think:
    """Reasoning before or between the answer's parts; see `think`."""

    text: str


@attrs.frozen
class Call:
    """A tool call; see `call`."""

    tool: str
    arguments: Mapping[str, Any]
    id: str = ""


@attrs.frozen
class Fail:
    """The end of the stream by an error; see `fail`."""

    kind: ModelErrorKind
    message: str


@attrs.frozen
class Delay:
    """A pause; see `delay`."""

    seconds: float


@attrs.frozen
class Refuse:
    """A refusal in place of an answer; see `refuse`."""

    text: str


Part = Text | Think | Call | Fail | Delay | Refuse
Step = str | Part | Sequence[str | Part]
"""One answer of a model: a str (its text), a part, or a list of them in the order in which they are streamed."""


def text(s: str, usage: Usage | None = None) -> Text:
    """The model says something. A `usage` replaces the counted one (`requests` is 1 if it says 0)."""
    return Text(s, usage)


def think(s: str) -> Think:
    """The model reasons; streamed as reasoning, no part of the answer's text."""
    return Think(s)


def call(tool: str, values: Mapping[str, Any] | None = None, /, *, id: str | None = None, **arguments: Any) -> Call:  # noqa: A002
    """The model calls a tool. Without an id the runtime makes one.

    Args:
        tool: the tool's name.
        values: arguments whose names can not be given as keywords, such as "id".
        id: the provider's id of the call.
        arguments: plain JSON data.
    """
    return Call(tool, {**(values or {}), **arguments}, id or "")


def fail(kind: ModelErrorKind, message: str | None = None) -> Fail:
    """The stream ends with a classified ModelError.

    Raises:
        ValueError: the kind is not one of ModelErrorKind.
    """
    if kind not in _KINDS:
        raise ValueError(f"fail({kind!r}): the kinds are {', '.join(_KINDS)}")
    return Fail(kind, f"scripted {kind}" if message is None else message)


def delay(seconds: float) -> Delay:
    """The model is silent for a while (`trio.sleep`: costs nothing under an autojump clock).

    Raises:
        ValueError: seconds is not a number, 0 or more.
    """
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < math.inf:
        raise ValueError(f"delay({seconds!r}): give seconds, 0 or more")
    return Delay(seconds)


def refuse(s: str) -> Refuse:
    """The model refuses, and does nothing else."""
    return Refuse(s)


class _TestModel(Model):
    """What both test models have in common: they record the requests and stream the parts of one step."""

    def __init__(self, chunk: int | None) -> None:
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise ValueError(f"chunk={chunk!r}: give a number of characters, 1 or more, or None for whole texts")
        self._chunk = chunk
        self._requests: list[ModelRequest] = []
        self._answered: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {len(self._requests)} requests>"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """What the runtime has sent, one record per model call, in order."""
        return tuple(self._requests)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer one request; a checkpoint before each delta and before the response.

        Raises:
            ModelError: the step says so, or there is none; from the iteration.
        """
        self._requests.append(request)
        async with aclosing(self._play(request)) as events:
            yield events

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        raise NotImplementedError  # each of the two models says what its step is

    async def _play(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        parts = await self._step(request)
        for part in parts:
            match part:
                case Delay():
                    await trio.sleep(part.seconds)
                case Fail():
                    await trio.lowlevel.checkpoint()
                    self._count(request)
                    raise ModelError(part.message, kind=part.kind)
                case Text() | Think():
                    make = TextDelta if isinstance(part, Text) else ReasoningDelta
                    for piece in _pieces(part.text, self._chunk):
                        await trio.lowlevel.checkpoint()
                        yield make(piece)
                case Call() | Refuse():
                    pass  # they come with the response
        await trio.lowlevel.checkpoint()
        self._count(request)
        yield _response(self.name, request, parts)

    def _count(self, request: ModelRequest) -> None:
        who = (request.run_id, request.agent)
        self._answered[who] = max(self._answered.get(who, 0), request.answers + 1)


class ScriptedModel(_TestModel):
    """A model that plays a script.

    Unless a step states its usage, it is counted in words: input = words of all messages of the request, output = words
    of texts and reasoning plus one per call.

    Args:
        steps: one per answer.
        chunk: characters per delta; None streams each text as one delta.

    Raises:
        ValueError: a step is not one; names its index and why.
    """

    name = "scripted"

    def __init__(self, steps: Sequence[Step], *, chunk: int | None = None) -> None:
        super().__init__(chunk)
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise ValueError(f"steps={steps!r}: give a list of steps")  # noqa: TRY004 - one error type for what is no script
        self._steps = tuple(_parts(step, f"step {index}") for index, step in enumerate(steps))

    def remaining(self, run_id: str) -> int:
        """How many steps a run has not got yet (of its agents, the one that is furthest)."""
        counts = [count for (run, _), count in self._answered.items() if run == run_id]
        return len(self._steps) - max(counts, default=0)

    def assert_complete(self) -> None:
        """Every run (and agent) that has asked got the whole script.

        Raises:
            AssertionError: names the run and the steps that it did not get; or nobody has asked.
        """
        asked = dict.fromkeys((request.run_id, request.agent) for request in self._requests)
        if self._steps and not asked:
            raise AssertionError(f"nobody has asked the model; its script has {len(self._steps)} steps")
        lines = [
            f"run {run!r}, agent {agent!r}: step {index} was not played: {_shown(self._steps[index])}"
            for run, agent in asked
            for index in range(self._answered.get((run, agent), 0), len(self._steps))
        ]
        if lines:
            raise AssertionError("the script was not played to its end\n" + "\n".join(lines))

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        if request.answers >= len(self._steps):
            raise ModelError(
                f"the script has no more answers than {len(self._steps)}, but run {request.run_id!r} (agent"
                f" {request.agent!r}) asks for number {request.answers + 1}; add it to the script, or find out why"
                " the run asks again",
                kind="invalid_request",
            )
        return self._steps[request.answers]


class FunctionModel(_TestModel):
    """A model that asks a function for each answer.

    Usage is counted as by `ScriptedModel`.

    Args:
        fn: request -> one step, as in a script; sync or async. What it raises comes out of the stream.
        chunk: characters per delta; None streams each text as one delta.
    """

    name = "function"

    def __init__(self, fn: Callable[[ModelRequest], Step | Awaitable[Step]], *, chunk: int | None = None) -> None:
        super().__init__(chunk)
        self._fn = fn

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        step = self._fn(request)
        if inspect.isawaitable(step):
            step = await step
        return _parts(step, f"answer of {getattr(self._fn, '__name__', self._fn)!r}")


def _parts(step: Any, where: str) -> tuple[Part, ...]:
    """The parts of a step, checked."""
    many = isinstance(step, Sequence) and not isinstance(step, str)
    parts = tuple(_part(one, where) for one in (step if many else (step,)))
    for position, part in enumerate(parts):
        if isinstance(part, Fail) and position + 1 < len(parts):
            raise ValueError(f"{where}: what stands behind fail({part.kind!r}) can not be reached")
        if isinstance(part, Refuse) and any(isinstance(other, Text | Call | Fail) for other in parts):
            raise ValueError(f"{where}: a refusal stands alone")
    return parts


def _part(part: Any, where: str) -> Part:
    match part:
        case str():
            return Text(part)
        case Call():
            return _checked_call(part, where)
        case Text() | Think() | Refuse() if not isinstance(part.text, str):
            raise ValueError(f"{where}: {part!r}: the text is a str")
        case Text() | Think() | Refuse() | Fail() | Delay():
            return part
        case _:
            hint = "write call(...), text(...), fail(...), delay(...), think(...), a str, or a list of them"
            raise ValueError(f"{where}: {part!r} is not a step; {hint}")


def _checked_call(part: Call, where: str) -> Call:
    if not isinstance(part.tool, str) or not part.tool:
        raise ValueError(f"{where}: call({part.tool!r}): give the tool's name as a str")
    try:
        canonical_json(part.arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: call({part.tool!r}): the arguments are plain JSON data ({error})") from error
    return part


def _pieces(whole: str, chunk: int | None) -> Iterator[str]:
    if not whole:
        return
    size = chunk or len(whole)
    yield from (whole[start : start + size] for start in range(0, len(whole), size))


def _response(model: str, request: ModelRequest, parts: Sequence[Part]) -> ModelResponse:
    refusal = next((part.text for part in parts if isinstance(part, Refuse)), None)
    return ModelResponse(
        text=tuple(part.text for part in parts if isinstance(part, Text)),
        calls=tuple(
            CallRequest(call_id=part.id, tool=part.tool, arguments=part.arguments, provider_id=part.id)
            for part in parts
            if isinstance(part, Call)
        ),
        usage=_usage(request, parts),
        model=model,
        refusal=refusal,
    )


def _usage(request: ModelRequest, parts: Sequence[Part]) -> Usage:
    stated = [part.usage for part in parts if isinstance(part, Text) and part.usage is not None]
    if stated:
        total = sum(stated, Usage())
        return total if total.requests else attrs.evolve(total, requests=1)
    reasoning = sum(len(part.text.split()) for part in parts if isinstance(part, Think))
    said = sum(len(part.text.split()) for part in parts if isinstance(part, Text | Refuse))
    calls = sum(isinstance(part, Call) for part in parts)
    heard = sum(len(message.content.split()) for message in request.messages)
    return Usage(requests=1, input=heard, output=said + calls + reasoning, reasoning=reasoning)


def _shown(parts: Sequence[Part]) -> str:
    shown = ", ".join(repr(part) for part in parts)
    return shown if len(shown) <= 200 else f"{shown[:199]}…"
