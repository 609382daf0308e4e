"""Models for tests: one that plays a script, one that calls a function.

    model = ScriptedModel([
        call("refund", order="7", cents=500, id="c1"),      # one step = one answer: a str, a part, or a list of them
        [text("checking"), call("add", a=1, b=2)],
        fail("overloaded"),
        "done",
    ])

The script is indexed by `request.model_attempts`, which the runtime carries in the request: the answers and errors
that this run and agent have received so far. So concurrent runs, handoffs, forks and restarts each read the right step,
and an interrupted step is read again.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from typing import Any, Final, get_args

import attrs
import trio
from msgspec.structs import replace

from greenroom.supervision.fields import did_you_mean

from ..abc import CallDelta, Model, ModelEvent, ReasoningDelta, TextDelta
from ..contract.ids import canonical_json
from ..contract.messages import CallRequest, FinishReason, ModelRequest, ModelResponse, Usage
from ..contract.plain import JSONObject
from ..errors import MODEL_ERROR_KINDS, ModelError, ModelErrorKind, UsageError

KEEP: Final = 1_000
"""Default for the requests that a test model keeps; each refers to the messages of its thread."""
RUNS: Final = 10_000
"""Runs that a ScriptedModel remembers, each of those that have finished the script and of the others."""


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
    """A tool call; see `call` and `malformed`."""

    tool: str
    arguments: JSONObject
    id: str = ""
    fault: str | None = None
    raw: str | None = None
    """The arguments as a service sends them, if they are not a JSON object."""


@attrs.frozen
class Fail:
    """The end of the stream by an error; see `fail`."""

    kind: ModelErrorKind
    message: str
    retry_after: float | None = None
    usage: Usage | None = None


@attrs.frozen
class Delay:
    """A pause; see `delay`."""

    seconds: float


@attrs.frozen
class Refuse:
    """A refusal instead of an answer; see `refuse`."""

    text: str


@attrs.frozen
class Finish:
    """Why the answer ends; see `finish`."""

    reason: FinishReason


Part = Text | Think | Call | Fail | Delay | Refuse | Finish
Step = str | Part | Sequence[str | Part]
"""One answer of a model: a str (its text), a part, or a list of them in the order of streaming."""


def text(s: str, usage: Usage | None = None) -> Text:
    """Return a text of the answer. A `usage` replaces the counted one (`requests` counts as 1 if it is 0)."""
    return Text(s, usage)


def think(s: str) -> Think:
    """Return reasoning, streamed as reasoning and not part of the answer's text."""
    return Think(s)


def call(tool: str, values: JSONObject | None = None, /, *, id: str | None = None, **arguments: object) -> Call:  # noqa: A002
    """Return a tool call. Without an id the runtime makes one.

    Args:
        tool: the tool's name.
        values: arguments whose names cannot be keywords, such as "id".
        id: the provider's id of the call.
        arguments: plain JSON data.
    """
    return Call(tool, {**(values or {}), **arguments}, id or "")


def malformed(tool: str, arguments: str, *, id: str | None = None) -> Call:  # noqa: A002
    """Return a tool call whose arguments are not a JSON object: the call fails, and the model reads why.

    Args:
        tool: the tool's name.
        arguments: the model's text, such as '{"a": 1'.
        id: the provider's id of the call.

    Raises:
        UsageError: the text is a valid JSON object.
    """
    request = CallRequest.from_json(tool, arguments)
    if request.fault is None:
        raise UsageError(f"malformed({tool!r}, {arguments!r}): these are sound arguments; use call(...)")
    return Call(tool, {}, id or "", request.fault, arguments)


def fail(
    kind: ModelErrorKind, message: str | None = None, *, retry_after: float | None = None, usage: Usage | None = None
) -> Fail:
    """Return the end of the stream by a classified ModelError.

    Args:
        kind: The kind of the ModelError.
        message: its text.
        retry_after: seconds that the provider asks to wait.
        usage: The usage of the failed request.

    Raises:
        UsageError: an argument is invalid for a ModelError.
    """
    if kind not in MODEL_ERROR_KINDS:
        raise UsageError(
            f"fail({kind!r}): {did_you_mean(kind, MODEL_ERROR_KINDS)}the kinds are {', '.join(MODEL_ERROR_KINDS)}"
        )
    ModelError("", kind=kind, retry_after=retry_after, usage=usage)  # raises for the others
    return Fail(kind, f"scripted {kind}" if message is None else message, retry_after, usage)


def finish(reason: FinishReason) -> Finish:
    """Return why the answer ends, such as "length" for a cut answer. Anywhere in a step; streams nothing.

    Raises:
        UsageError: the reason is not a FinishReason.
    """
    if reason not in get_args(FinishReason):
        near = did_you_mean(reason, get_args(FinishReason))
        raise UsageError(f"finish({reason!r}): {near}the reasons are {', '.join(get_args(FinishReason))}")
    return Finish(reason)


def delay(seconds: float) -> Delay:
    """Return a pause (`trio.sleep`: costs nothing under an autojump clock).

    Raises:
        UsageError: seconds is not a number, 0 or more.
    """
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < math.inf:
        raise UsageError(f"delay({seconds!r}): give seconds, 0 or more")
    return Delay(seconds)


def refuse(s: str) -> Refuse:
    """Return a refusal, which is the whole answer."""
    return Refuse(s)


class _TestModel(Model):
    """Base of both test models: records the newest requests and streams the parts of one step."""

    def __init__(self, chunk: int | None, keep: int | None) -> None:
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise UsageError(f"chunk={chunk!r}: give a number of characters, 1 or more, or None for whole texts")
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 0):
            raise UsageError(f"keep={keep!r}: give a number of requests, 0 or more, or None for all of them")
        self._chunk = chunk
        self._requests: deque[ModelRequest] = deque(maxlen=keep)
        self._request_count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self._request_count} requests>"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The received requests, one per model call, in order; at most the newest `keep`."""
        return tuple(self._requests)

    @property
    def received(self) -> int:
        """The number of received requests, kept or not."""
        return self._request_count

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer one request; a checkpoint before each delta and before the response.

        Raises:
            ModelError: the step fails, or the script has no more steps; from the iteration.
        """
        self._requests.append(request)
        self._request_count += 1
        self._note(request, request.model_attempts)
        async with aclosing(self._play(request)) as events:
            yield events

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        raise NotImplementedError  # each of the two models says what its step is

    async def _play(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        parts = await self._step(request)
        for index, part in enumerate(parts):
            match part:
                case Delay():
                    await trio.sleep(part.seconds)
                case Fail():
                    await trio.lowlevel.checkpoint()
                    self._note(request, request.model_attempts + 1)
                    raise ModelError(part.message, kind=part.kind, retry_after=part.retry_after, usage=part.usage)
                case Text() | Think():
                    make = TextDelta if isinstance(part, Text) else ReasoningDelta
                    for piece in _pieces(part.text, self._chunk):
                        await trio.lowlevel.checkpoint()
                        yield make(piece)
                case Call():
                    yield CallDelta(index, part.tool)
                case Refuse() | Finish():
                    pass  # they come with the response
        await trio.lowlevel.checkpoint()
        self._note(request, request.model_attempts + 1)
        yield _response(self.name, request, parts)

    def _note(self, request: ModelRequest, attempts: int) -> None:
        """Note how many answers and errors the asking run has received."""


class ScriptedModel(_TestModel):
    """A model that plays a script.

    Unless a step states its usage, usage is counted in words: input = words of all messages of the request, output =
    words of texts and reasoning plus one per call.

    Args:
        steps: one per answer.
        chunk: characters per delta; None streams each text as one delta.
        keep: how many of the newest requests are kept (1,000); None: all.

    Raises:
        UsageError: a step is invalid, with its index and the reason; or chunk or keep is out of range.
    """

    name = "scripted"

    def __init__(self, steps: Sequence[Step], *, chunk: int | None = None, keep: int | None = KEEP) -> None:
        super().__init__(chunk, keep)
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise UsageError(f"steps={steps!r}: give a list of steps")
        self._steps = tuple(_parts(step, f"step {index}") for index, step in enumerate(steps))
        self._playing: dict[tuple[str, str], int] = {}  # (run, agent) -> answers, of those that have not got all
        self._finished_runs: dict[tuple[str, str], int] = {}  # and of those that have
        self._forgotten_runs = 0

    def remaining(self, run_id: str) -> int:
        """Return how many steps a run has not received yet (of its agents, the most advanced one).

        For a run without a request that is the whole script; also for a forgotten one among more than 10,000 runs.
        """
        counts = [
            count for book in (self._playing, self._finished_runs) for (run, _), count in book.items() if run == run_id
        ]
        return len(self._steps) - max(counts, default=0)

    def assert_complete(self) -> None:
        """Check that every run (and agent) that made a request received the whole script, also if no request is kept.

        Raises:
            AssertionError: names the runs and their missing steps (of at most 100 runs); or the model had no request;
                or more than 10,000 runs were in the middle of the script at once, and some were forgotten.
        """
        if self._steps and not self._request_count:
            raise AssertionError(f"the model was never asked; its script has {len(self._steps)} steps")
        lines = [
            f"run {run!r}, agent {agent!r}: step {index} was not played: {_shown(self._steps[index])}"
            for (run, agent), count in islice(self._playing.items(), 100)
            for index in range(count, len(self._steps))
        ]
        if self._forgotten_runs:
            lines.append(
                f"more than {RUNS:,} runs were playing it at once; {self._forgotten_runs:,} of them were forgotten"
            )
        if lines:
            raise AssertionError("the script was not played to its end\n" + "\n".join(lines))

    def _note(self, request: ModelRequest, attempts: int) -> None:
        who = (request.run_id, request.agent)
        count = max(self._playing.pop(who, 0), self._finished_runs.pop(who, 0), attempts)
        book = self._finished_runs if count >= len(self._steps) else self._playing
        book[who] = count  # as its newest entry
        if len(book) > RUNS:
            del book[next(iter(book))]
            self._forgotten_runs += book is self._playing

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        if request.model_attempts >= len(self._steps):
            raise ModelError(
                f"the script has no more answers than {len(self._steps)}, but run {request.run_id!r} (agent"
                f" {request.agent!r}) asks for number {request.model_attempts + 1}; add it to the script, or find out"
                " why the run asks again",
                kind="invalid_request",
            )
        return self._steps[request.model_attempts]


class FunctionModel(_TestModel):
    """A model that calls a function for each answer.

    Usage is counted as by `ScriptedModel`.

    Args:
        fn: request -> one step, as in a script; sync or async. Its exceptions leave the stream.
        chunk: characters per delta; None streams each text as one delta.
        keep: how many of the newest requests are kept (1,000); None: all.

    Raises:
        UsageError: chunk or keep is out of range.
    """

    name = "function"

    def __init__(
        self,
        fn: Callable[[ModelRequest], Step | Awaitable[Step]],
        *,
        chunk: int | None = None,
        keep: int | None = KEEP,
    ) -> None:
        super().__init__(chunk, keep)
        self._fn = fn

    async def _step(self, request: ModelRequest) -> tuple[Part, ...]:
        step = self._fn(request)
        if inspect.isawaitable(step):
            step = await step
        return _parts(step, f"answer of {getattr(self._fn, '__name__', self._fn)!r}")


def _parts(step: Any, where: str) -> tuple[Part, ...]:
    """Return the parts of a step, checked."""
    many = isinstance(step, Sequence) and not isinstance(step, str)
    parts = tuple(_part(item, where) for item in (step if many else (step,)))
    for position, part in enumerate(parts):
        if isinstance(part, Fail) and position + 1 < len(parts):
            raise UsageError(f"{where}: the parts after fail({part.kind!r}) cannot be reached")
        if isinstance(part, Refuse) and any(isinstance(other, Text | Call | Fail) for other in parts):
            raise UsageError(f"{where}: a refusal must be the only part")
    return parts


def _part(part: object, where: str) -> Part:
    match part:
        case str():
            return Text(part)
        case Call():
            return _checked_call(part, where)
        case Text() | Think() | Refuse() if not isinstance(part.text, str):
            raise UsageError(f"{where}: {part!r}: the text is a str")
        case Text() | Think() | Refuse() | Fail() | Delay() | Finish():
            return part
        case _:
            hint = "write call(...), text(...), fail(...), delay(...), think(...), a str, or a list of them"
            raise UsageError(f"{where}: {part!r} is not a step; {hint}")


def _checked_call(part: Call, where: str) -> Call:
    if not isinstance(part.tool, str) or not part.tool:
        raise UsageError(f"{where}: call({part.tool!r}): give the tool's name as a str")
    try:
        canonical_json(part.arguments)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: call({part.tool!r}): the arguments are plain JSON data ({error})") from error
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
            CallRequest(
                call_id=part.id, tool=part.tool, arguments=part.arguments, provider_id=part.id, fault=part.fault
            )
            for part in parts
            if isinstance(part, Call)
        ),
        usage=_usage(request, parts),
        model=model,
        refusal=refusal,
        finish=next((part.reason for part in parts if isinstance(part, Finish)), None),
    )


def _usage(request: ModelRequest, parts: Sequence[Part]) -> Usage:
    usages = [part.usage for part in parts if isinstance(part, Text) and part.usage is not None]
    if usages:
        total = sum(usages, Usage())
        return total if total.requests else replace(total, requests=1)
    reasoning = sum(len(part.text.split()) for part in parts if isinstance(part, Think))
    words_written = sum(len(part.text.split()) for part in parts if isinstance(part, Text | Refuse))
    calls = sum(isinstance(part, Call) for part in parts)
    words_read = sum(len(message.content.split()) for message in request.messages)
    return Usage(requests=1, input=words_read, output=words_written + calls + reasoning, reasoning=reasoning)


def _shown(parts: Sequence[Part]) -> str:
    listing = ", ".join(repr(part) for part in parts)
    return listing if len(listing) <= 200 else f"{listing[:199]}…"
