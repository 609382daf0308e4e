"""The messages of a thread as people and clients see them: redacted, bounded, parts as facts.

Theory of operation. A thread keeps what models read, unredacted. Here it passes the redactor as every event does. The
text of a tool message is JSON for most results, and then its values are masked under their names, too. A message is as
large as an event at most: of a larger one the long fields keep head and tail, and `excerpted` names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from ..casing import camel
from ..envelope import BUDGETS, PAYLOAD_BYTES, shortened
from ..excerpt import LARGE, Large, showing
from ..messages import CallRequest, Message, MessageKind, Role
from ..parts import Part, PartType
from ..plain import JSONObject
from ..secrets.redaction import Redactor
from ..secrets.secret_readers import MASK
from ..sizes import measured
from ..stepwise import Steps

_LIST_BYTES: Final = PAYLOAD_BYTES // 4
"""Bytes of calls, and of parts, that a message keeps that is too large."""
ARGUMENT_BYTES: Final = 32_768
"""Bytes of the arguments of each of these calls."""
_TOGETHER: Final = 64
"""Calls that are read in one step."""
_TOO_DEEP: Final[JSONObject] = {"[nested too deeply to be shown]": None}

_encode = msgspec.json.Encoder().encode


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=camel):
    """The base of what a reader of threads sees; fields that have their default are left out of JSON."""


class PartFacts(Shown, frozen=True, kw_only=True):
    """An image or a file of a message.

    Attributes:
        size, sha256: Of the bytes; 0 and "" for an image behind an address.
        url: The address of an image whose bytes the provider fetches; else "".
        href: The path of the bytes at a gateway; else "".
    """

    type: PartType
    media_type: str
    size: int = 0
    sha256: str = ""
    name: str = ""
    url: str = ""
    href: str = ""


class MessageCall(Shown, frozen=True, kw_only=True):
    """A tool call as the model requested it. `fault`: why its arguments are not a JSON object."""

    call_id: str
    tool: str
    arguments: JSONObject
    fault: str = ""


class ThreadMessage(Shown, frozen=True, kw_only=True):
    """A message of a thread.

    Attributes:
        position: Its place in the thread, from 1; null for input that waits for the next step of its run.
        id: Unique within the thread.
        role: system, user, assistant or tool.
        text: The text, redacted.
        run_id, step: The run and step that wrote it; step 0: the input of the run. "" if that is not known.
        kind: Its subject: text, or the start or the end of a background task.
        calls: The tool calls of an assistant message.
        call_id: The call that a tool message answers.
        task_id: The background task, unless the kind is text.
        parts: Images and files, in order.
        cut: The run ended while the model wrote this answer.
        excerpted: Fields that are too long and hold head and tail of their texts.
    """

    position: int | None
    id: str
    role: Role
    text: str
    run_id: str = msgspec.field(default="", name="run")
    step: int = 0
    kind: MessageKind = "text"
    calls: tuple[MessageCall, ...] = ()
    call_id: str | None = None
    task_id: str | None = None
    parts: tuple[PartFacts, ...] = ()
    cut: bool = False
    excerpted: tuple[str, ...] = ()


class ThreadRun(Shown, frozen=True, kw_only=True):
    """An unfinished run of a thread, and where to follow it.

    Attributes:
        run_id: The run.
        agent: The key of the agent with which it was started.
        after: Follow its events behind this sequence: what they tell is not in the messages.
        pending: Input that waits for the run's next step, and is in no page yet.
    """

    run_id: str = msgspec.field(name="run")
    agent: str
    after: int = msgspec.field(default_factory=int)  # never left out
    pending: tuple[ThreadMessage, ...] = ()


class ThreadMessages(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """A page of a thread's messages, from one consistent snapshot.

    Attributes:
        thread_id: The thread.
        epoch: The identity of the logs that the sequences in `runs` belong to.
        messages: The oldest first.
        before: Requests the page before this one; null if this page has the thread's first message.
        after: Requests the messages behind this page: position of its last message.
        newest: Position of the newest message of the thread; equal to `after` on the newest page.
        newest_run: The newest run of the thread; runs that begin later are behind it.
        runs: The unfinished runs, the oldest first, at most 100.
    """

    thread_id: str = msgspec.field(name="thread")
    epoch: str
    messages: tuple[ThreadMessage, ...]
    before: int | None
    after: int
    newest: int
    newest_run: str | None
    runs: tuple[ThreadRun, ...]


def message_steps(position: int | None, message: Message, redactors: Sequence[Redactor]) -> Steps[ThreadMessage]:
    """Return a message as people may see it, in steps.

    Args:
        position: Its place in the thread.
        message: The message.
        redactors: Each of them masks all texts. More than one if the run that wrote the message, and so its directory,
            is not known.
    """
    clean, calls, parts = _MessageMasker(redactors), list[MessageCall](), list[PartFacts]()
    for number, call in enumerate(message.calls):
        if number % _TOGETHER == 0:
            yield
        calls.append((yield from clean.call(call)))
    for part in message.parts:
        parts.append((yield from facts_steps(part, redactors)))
    producer = message.producer
    line = ThreadMessage(
        position=position,
        id=message.id,
        role=message.role,
        text=(yield from clean.content(message)),
        run_id="" if producer is None else producer.run_id,
        step=0 if producer is None else producer.step,
        kind=message.kind,
        calls=tuple(calls),
        call_id=message.call_id,
        task_id=message.task_id,
        parts=tuple(parts),
        cut=message.cut,
        excerpted=("calls",) if clean.cut else (),
    )
    yield
    return line if len(_encode(line)) <= PAYLOAD_BYTES else (yield from _excerpted(line))


def facts_steps(part: Part, redactors: Sequence[Redactor]) -> Steps[PartFacts]:
    """Return the facts of a part as people may see them, in steps."""
    facts: dict[str, Any] = part.facts()
    for name in facts.keys() & {"name", "url"}:
        facts[name] = yield from _MessageMasker(redactors).text(facts[name])
    return PartFacts(**facts)


@attrs.define
class _MessageMasker:
    """Masks the texts and values of a message with some redactors. `cut`: large arguments have become an excerpt."""

    redactors: Sequence[Redactor]
    cut: bool = False

    def text(self, text: str) -> Steps[str]:
        for redactor in self.redactors:
            text = yield from redactor.text_steps(text)
        return text

    def value(self, value: Any) -> Steps[Any]:
        for redactor in self.redactors:
            value = yield from redactor.steps(value)
        return value

    def content(self, message: Message) -> Steps[str]:
        text = message.content
        if message.role == "tool" and text[:1] in ("{", "["):
            try:
                value = msgspec.json.decode(text)
                clean = yield from self.value(value)
            except (msgspec.DecodeError, RecursionError):  # an excerpt, or not JSON after all
                clean = value = None
            if clean != value:
                text = _encode(clean).decode()
        return (yield from self.text(text))

    def call(self, call: CallRequest) -> Steps[MessageCall]:
        arguments = call.arguments
        try:
            if measured(arguments, LARGE) > LARGE:
                self.cut, arguments = True, {"excerpt": (yield from showing(Large(arguments), self.text, MASK))}
            else:
                arguments = yield from self.value(arguments)
        except RecursionError:  # a model may nest its arguments without limit
            arguments = _TOO_DEEP
        fault = yield from self.text(call.fault or "")
        return MessageCall(call_id=call.call_id, tool=call.tool, arguments=arguments, fault=fault)


def _excerpted(message: ThreadMessage) -> Steps[ThreadMessage]:
    """Return a message cut to `PAYLOAD_BYTES`. It is redacted: a cut before could leave the beginning of a secret."""
    calls, room = list[MessageCall](), _LIST_BYTES
    for number, call in enumerate(message.calls):
        if number % _TOGETHER == 0:
            yield
        shorter = replace(call, arguments=shortened(call.arguments, ARGUMENT_BYTES))
        room -= len(_encode(shorter))
        if room < 0:
            break
        calls.append(shorter)
    sizes = accumulate(len(_encode(part)) for part in message.parts)
    parts = tuple(part for part, size in zip(message.parts, sizes, strict=True) if size <= _LIST_BYTES)
    yield
    cut = replace(message, text=shortened(message.text, BUDGETS[0]), calls=tuple(calls), parts=parts)
    names = [name for name in ("text", "calls", "parts") if getattr(cut, name) != getattr(message, name)]
    return replace(cut, excerpted=tuple(dict.fromkeys((*message.excerpted, *names))))
