"""RunAgentInput, the request of an AG-UI client: parsed strictly, trusted little.

Used are the newest user messages as input, the answers in `resume`, and ids. The history comes from the log; the
client's messages are returned in snapshots, so that they keep their ids and their order. Unknown keys are ignored, as
the protocol requires; a value of the wrong type is refused, and the refusal names the field.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn
from cattrs.v import format_exception

from greenroom.actors.contract.plain import JSONObject

from ...protocol.codes import Refused
from ...protocol.up import SentAttachment

ROLES: Final = ("developer", "system", "user", "assistant", "tool", "activity", "reasoning")
STATUSES: Final = ("resolved", "cancelled")
MEDIA: Final = ("image", "audio", "video", "document", "binary")
"""Types of parts that hold an image or a file; "binary" is that of clients before version 1.0."""
ANSWERS: Final = ("assistant", "tool")
"""Roles of messages that follow an answered user message."""


def _one_of(*names: str) -> Callable[[Any, Any, str], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
        if value not in names:
            raise ValueError(f"{attribute.name} {value!r:.40} is not known; use one of {', '.join(names)}")

    return check


def _not_empty(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value:
        raise ValueError(f"{attribute.name} is empty")


def _content(_: object, __: object, value: object) -> None:
    parts = value if isinstance(value, list) else []
    if not (value is None or isinstance(value, str | list | dict)) or not all(isinstance(part, dict) for part in parts):
        raise TypeError("content must be a string or a list of parts")


@attrs.frozen(kw_only=True)
class CalledFunction:
    """The function of a tool call; `arguments` is JSON text."""

    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class SentCall:
    """A tool call in an assistant's message."""

    id: str
    function: CalledFunction
    type: str = "function"
    metadata: JSONObject | None = None


@attrs.frozen(kw_only=True)
class SentMessage:
    """A message of the conversation in the client's view. `content` is text or parts; of an activity, an object."""

    id: str = attrs.field(validator=_not_empty)
    role: str = attrs.field(validator=_one_of(*ROLES))
    content: Any = attrs.field(default=None, validator=_content)
    name: str | None = None
    toolCalls: tuple[SentCall, ...] | None = None  # noqa: N815 - the protocol's names, here and below
    toolCallId: str | None = None  # noqa: N815
    error: str | None = None
    encryptedValue: str | None = None  # noqa: N815
    metadata: JSONObject | None = None
    subagentRunId: str | None = None  # noqa: N815

    def __attrs_post_init__(self) -> None:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"content is missing: a message of role {self.role} has it")
        if self.toolCallId is None and self.role == "tool":
            raise ValueError("toolCallId is missing: a message of role tool has it")


@attrs.frozen(kw_only=True)
class ResumeEntry:
    """An answer to one interrupt."""

    interruptId: str = attrs.field(validator=_not_empty)  # noqa: N815
    status: str = attrs.field(validator=_one_of(*STATUSES))
    payload: Any = None
    metadata: JSONObject | None = None


@attrs.frozen(kw_only=True)
class RunAgentInput:
    """The body of a request. `tools` and `context` are for agents that use the client's; Greenroom's agents do not.

    Attributes:
        threadId: The conversation, which is the thread of its runs.
        runId: Id of this AG-UI run, which is not a Greenroom run.
        messages: The whole conversation, oldest first.
        resume: Answers to all open interrupts.
        state: Returned in STATE_SNAPSHOT.
    """

    threadId: str = attrs.field(validator=_not_empty)  # noqa: N815
    runId: str = attrs.field(validator=_not_empty)  # noqa: N815
    messages: tuple[SentMessage, ...]
    protocolVersion: str | None = None  # noqa: N815
    parentRunId: str | None = None  # noqa: N815
    state: Any = None
    tools: tuple[JSONObject, ...] | None = None
    context: tuple[JSONObject, ...] | None = None
    forwardedProps: Any = None  # noqa: N815
    resume: tuple[ResumeEntry, ...] | None = None


# --- reading ---------------------------------------------------------------------------------------------------------

_converter = cattrs.Converter()


def _text(value: object, _: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _object(value: object, _: object) -> JSONObject:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return value


def _is_list(kind: object) -> bool:
    return get_origin(kind) is tuple


def _list_of(kind: object) -> Callable[[Any, Any], Any]:
    """Structure a JSON list only; a string or an object is iterable, too."""
    whole: Any = types.GenericAlias(list, get_args(kind)[:1])

    def structure(value: object, _: object) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise TypeError("expected a list")
        return tuple(_converter.structure(value, whole))

    return structure


def _without_nulls(cls: type[Any]) -> Callable[[Any, Any], Any]:
    """Structure a class so that an absent field and null are equal."""
    whole = make_dict_structure_fn(cls, _converter)

    def structure(value: object, _: object) -> Any:
        if not isinstance(value, dict):
            raise TypeError("expected an object")
        return whole({name: item for name, item in value.items() if item is not None}, cls)

    return structure


_converter.register_structure_hook(str, _text)
_converter.register_structure_hook_func(lambda kind: kind == JSONObject, _object)
_converter.register_structure_hook_factory(_is_list, _list_of)
for _class in (CalledFunction, SentCall, SentMessage, ResumeEntry, RunAgentInput):
    _converter.register_structure_hook(_class, _without_nulls(_class))


def read_input(data: JSONObject) -> RunAgentInput:
    """Parse the body of a request.

    Raises:
        Refused: bad_message; the text names every invalid field.
    """
    try:
        run_input: RunAgentInput = _converter.structure(dict(data), RunAgentInput)
    except cattrs.ClassValidationError as error:
        faults = "; ".join(cattrs.transform_error(error, path="input", format_exception=_explain))
        raise Refused("bad_message", faults[:1000]) from error
    return run_input


def _explain(error: BaseException, kind: type | None) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, TypeError | ValueError) and error.args:
        return str(error.args[0])[:200]
    return format_exception(error, kind)


# --- conversion ------------------------------------------------------------------------------------------------------


def plain_messages(messages: Sequence[SentMessage]) -> list[dict[str, Any]]:
    """Return the messages for a snapshot: each id once, known fields only, no nulls, no activities."""
    return [*{message.id: _plain(message) for message in messages if message.role != "activity"}.values()]


_NAMES: Final[dict[type, tuple[str, ...]]] = {}
"""Kind of a value -> the names of its fields; a client sends thousands of messages of few kinds."""


def _names(kind: type) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in attrs.fields(kind)) if attrs.has(kind) else ()
    return names


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if names := _names(type(value)):
        fields = ((name, getattr(value, name)) for name in names)
        return {name: _plain(item) for name, item in fields if item is not None}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, list):  # the parts of a content
        return [{name: item for name, item in part.items() if item is not None} for part in value]
    return value


def unanswered(messages: Sequence[SentMessage]) -> list[SentMessage]:
    """Return the user messages without an answer, oldest first."""
    newest: list[SentMessage] = []
    for message in reversed(messages):
        if message.role in ANSWERS:
            break
        if message.role == "user":
            newest.append(message)
    return newest[::-1]


def read_content(message: SentMessage) -> tuple[str, tuple[SentAttachment, ...]]:
    """Return the text of a user message, and its images and files.

    Raises:
        Refused: unprocessable: the message has a part of another type.
    """
    if isinstance(message.content, str):
        return message.content, ()
    parts = message.content if isinstance(message.content, list) else []
    text, attachments = "", []
    for part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            text += part["text"]
        elif part.get("type") in MEDIA:
            attachments.append(_attachment(message, part))
        else:
            raise Refused(
                "unprocessable",
                f"message {message.id!r:.60} holds a part of type {part.get('type')!r:.40};"
                f" send text, {', '.join(MEDIA)}",
            )
    return text, tuple(attachments)


def _attachment(message: SentMessage, part: JSONObject) -> SentAttachment:
    """Return the image or the file of a part: its source is bytes in base64, or the address of an image."""
    legacy = part["type"] == "binary"  # before version 1.0 of the protocol
    source = part if legacy else part.get("source")
    source = source if isinstance(source, dict) else {}
    kind = ("data" if "data" in source else "url") if legacy else source.get("type")
    value, media_type = source.get(str(kind) if legacy else "value"), source.get("mimeType")
    whole = kind in ("data", "url") and isinstance(value, str) and isinstance(media_type, str | None)
    if not whole or (kind == "data" and media_type is None):
        raise Refused(
            "unprocessable",
            f"message {message.id!r:.60} holds a part of type {part['type']!r} without a source of data or url",
        )
    if kind == "url" and not str(value).startswith("data:") and part["type"] not in ("image", "binary"):
        raise Refused("unprocessable", f"message {message.id!r:.60}: send the bytes of {part['type']}, not an address")
    plain = None if media_type is None else str(media_type).partition(";")[0].strip().lower()
    return SentAttachment(media_type=plain, **{str(kind): value})
