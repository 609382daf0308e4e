"""The frames of a client, one class per type. cattrs decodes them, so an error names the field and its expected type.

A text frame contains one JSON object; its `type` selects the class. Unknown fields are refused: a misspelt
`editedArguments` must not become an approval of the original arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn, override
from cattrs.v import format_exception

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.decisions import ActionWord
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.run_lists import RunFilters, RunOrder
from greenroom.actors.contract.ticket_lists import TicketOrder
from greenroom.actors.json_text import JSONTextError, read_json
from greenroom.actors.permission.remembered import RememberAs, RememberScope
from greenroom.supervision.fields import did_you_mean

from .codes import Refused

MAX_ID: Final = 128
"""Maximum characters of a command's id: room for two UUIDs and a prefix."""


CommandId = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=MAX_ID, description="Printable text that the client has not used before."),
]
Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="0, or the sequence of an event.")]
Step = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="0, or the number of a finished step.")]
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=1000, description="Lines of a page, at most.")]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1, description="Position of a message; 0: before the first.")]
Priority = Annotated[int, msgspec.Meta(ge=-100, le=100, description="Each step counts like ten seconds of waiting.")]
Input = Annotated[str, msgspec.Meta(description="Something for the model to read; blank is unprocessable.")]
# Meta feeds the generated documents; the validators below produce the messages for the client.


def _id(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not 0 < len(value) <= MAX_ID or not value.isprintable():
        raise ValueError(f"{attribute.name} must be 1 to {MAX_ID} printable characters")


def _limit(_: object, __: object, value: int) -> None:
    if not 1 <= value <= 1000:
        raise ValueError("limit must be 1 to 1000")


def _after(_: object, __: object, value: int) -> None:
    if not 0 <= value < 2**53:  # the largest integer that a JavaScript client represents exactly
        raise ValueError("after must be 0 or the sequence of an event")


def _position(_: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and not 0 <= value < 2**53:
        raise ValueError(f"{attribute.name} must be the position of a message")


def _step(_: object, __: object, value: int) -> None:
    if not 0 <= value < 2**53:
        raise ValueError("step must be 0 or the number of a finished step")


def _priority(_: object, __: object, value: int | None) -> None:
    if value is not None and not -100 <= value <= 100:
        raise ValueError("priority must be -100 to 100")


@attrs.frozen(kw_only=True)
class Hello:
    """The first frame of a client that cannot set the Authorization header. `client` is a name for the log."""

    token: str = attrs.field(default="", repr=False)
    client: str = ""
    protocol: str = ""


@attrs.frozen(kw_only=True)
class Subscribe:
    """Follow a run from sequence `after` + 1 on. `epoch` is the epoch of the cursor's log (from gw.welcome)."""

    run: str
    after: Cursor = attrs.field(default=0, validator=_after)
    epoch: str | None = None
    id: str | None = None


@attrs.frozen(kw_only=True)
class Unsubscribe:
    """Stop following a run. The run itself continues."""

    run: str
    id: str | None = None


@attrs.frozen(kw_only=True)
class SentAttachment:
    """An image or a file: its bytes in base64 (`data`), or an http, https or data address (`url`).

    `media_type`, such as image/png, may be omitted where the bytes or the address show it; an image/ type makes an
    image. `name` is that of a file. Behind an http or https address there is an image, which the provider reads.
    """

    media_type: str | None = None
    data: str | None = attrs.field(default=None, repr=False)
    url: str | None = attrs.field(default=None, repr=False)
    name: str | None = None


@attrs.frozen(kw_only=True)
class Start:
    """Start a run. Repeated with the same id, the run is started once.

    `run` is the run's id (default: derived from `id`). `title` is one line for lists of runs (default: the first line
    of `text`). `attachments` are images and files of the input, at most 100 and 8 MiB together, within the limits of
    messages and bodies; with some, `text` may be blank.

    `deadline` and `at` are times with a zone: when the run ends at the latest, and before which it does not begin.
    `background` lets the run wait in its queue until a process has room; `queue`, `at` and `priority` (-100 to 100)
    imply it. While an open run of the principal was started with the same `dedupe`, that run is the answer. `queue` and
    `priority` need the scope admin: they decide which runs of others are first.
    """

    id: CommandId = attrs.field(validator=_id)
    agent: str
    text: Input
    run: str | None = None
    thread: str | None = None
    session: str | None = None
    on_busy: Literal["queue", "refuse"] = "queue"
    title: str | None = None
    attachments: tuple[SentAttachment, ...] = ()
    deadline: str | None = None
    background: bool | None = None
    queue: str | None = None
    at: str | None = None
    priority: Priority | None = attrs.field(default=None, validator=_priority)
    dedupe: str | None = None


@attrs.frozen(kw_only=True)
class LimitQueue:
    """Limit a queue, or pause it; POST /v1/queues/{queue} accepts it. Both fields are set: the default is no limit.

    At most `max_running` of its runs work at once, over all processes. No run of a `paused` queue begins.
    """

    max_running: int | None = None
    paused: bool = False


@attrs.frozen(kw_only=True)
class PruneRuns:
    """Delete the runs that ended before a time with a zone; POST /v1/prune accepts it."""

    before: str


@attrs.frozen(kw_only=True)
class Watch:
    """Watch a list of runs: its first page, then every changed run. The filters are those of GET /v1/runs.

    `id` names the watch; another watch with the same id replaces it.
    """

    id: CommandId = attrs.field(validator=_id)
    status: str | None = None
    agent: str | None = None
    thread: str | None = None
    prefix: str | None = None
    by: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None
    outcome: str | None = None
    code: str | None = None
    tool: str | None = None
    order: RunOrder = "newest"
    limit: PageLimit = attrs.field(default=50, validator=_limit)


THREADS_PAGE: Final = 50
MESSAGES_PAGE: Final = 100
MOST_OF_PAGE: Final = 1000
"""Lines and messages of a page: the defaults, and the most."""


@attrs.frozen(kw_only=True)
class ListThreads:
    """Request a page of threads, as GET /v1/threads: those with the newest runs first. The answer is gw.threads.

    `by`: only threads in which this principal has started a run, in the order of its newest runs.
    """

    id: CommandId = attrs.field(validator=_id)
    by: str | None = None
    limit: PageLimit = attrs.field(default=THREADS_PAGE, validator=_limit)
    cursor: str | None = None


@attrs.frozen(kw_only=True)
class ReadMessages:
    """Request a page of a thread's messages, as GET /v1/threads/{thread}/messages. The answer is gw.messages.

    `before`: the newest messages before this position; `after`: the oldest ones behind it. Without both, the newest.
    """

    id: CommandId = attrs.field(validator=_id)
    thread: str
    before: Position | None = attrs.field(default=None, validator=_position)
    after: Position | None = attrs.field(default=None, validator=_position)
    limit: PageLimit = attrs.field(default=MESSAGES_PAGE, validator=_limit)


FILTERS: Final[Mapping[str, str]] = {
    name: "thread" if name == "thread_id" else name for name in RunFilters.__annotations__
}
"""Filter of a list of runs -> its name in the frame `watch` and in the query of GET /v1/runs."""


@attrs.frozen(kw_only=True)
class WatchTickets:
    """Watch a list of open tickets: its first page, then those of every changed run, as in GET /v1/tickets.

    `id` names the watch; another watch with the same id replaces it.
    """

    id: CommandId = attrs.field(validator=_id)
    agent: str | None = None
    tool: str | None = None
    order: TicketOrder = "oldest"
    limit: PageLimit = attrs.field(default=50, validator=_limit)


@attrs.frozen(kw_only=True)
class Unwatch:
    """Stop watching a list."""

    id: CommandId = attrs.field(validator=_id)


@attrs.frozen(kw_only=True)
class Fork:
    """Start a run, in a thread of its own, from the state of `run` at the end of `step`; step 0 is its beginning.

    Repeated with the same id, the fork is made once; `new_run` is the fork's id (default: derived from `id`).
    """

    id: CommandId = attrs.field(validator=_id)
    run: str
    step: Step = attrs.field(validator=_step)
    new_run: str | None = None


@attrs.frozen(kw_only=True)
class Remember:
    """A person's "always" beside an approval: the answer becomes a rule for a run, a thread or a workspace (`scope`).

    `form` is what the rule covers: this call, these words of a command (argv), or every call of the tool.
    """

    scope: RememberScope = "thread"
    form: RememberAs = "call"


@attrs.frozen(kw_only=True)
class Decide:
    """Decide a ticket or a call. `fingerprint` binds the decision to the action that was shown."""

    id: CommandId = attrs.field(validator=_id)
    run: str
    target: str
    action: ActionWord
    result: Any = None
    edited_arguments: JSONObject | None = None
    reason: str | None = None
    fingerprint: str | None = None
    remember: Remember | None = None


@attrs.frozen(kw_only=True)
class Cancel:
    """Ask a run to end."""

    id: CommandId = attrs.field(validator=_id)
    run: str
    mode: Literal["now", "after_step"] = "now"
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Send:
    """Give a run more input. `attachments` as in `start`."""

    id: CommandId = attrs.field(validator=_id)
    run: str
    text: Input
    attachments: tuple[SentAttachment, ...] = ()


@attrs.frozen(kw_only=True)
class Pause:
    """Pause a run before its next step; the run then has a ticket of its own (call_id null) that awaits a decision."""

    id: CommandId = attrs.field(validator=_id)
    run: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Ping:
    """Request a gw.tick with the same id."""

    id: str | None = None


RunCommand = Decide | Cancel | Send | Pause
PageRequest = ListThreads | ReadMessages
Up = Hello | Subscribe | Unsubscribe | Watch | WatchTickets | Unwatch | PageRequest | Start | Fork | RunCommand | Ping
COMMANDS: Final[Mapping[str, type[RunCommand]]] = {
    "decide": Decide,
    "cancel": Cancel,
    "send": Send,
    "pause": Pause,
}
"""The commands to a run; POST /v1/runs/{run}/commands accepts the same commands."""
UP: Final[Mapping[str, type[object]]] = {
    "hello": Hello,
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "watch": Watch,
    "watchTickets": WatchTickets,
    "unwatch": Unwatch,
    "threads": ListThreads,
    "messages": ReadMessages,
    "start": Start,
    "fork": Fork,
    **COMMANDS,
    "ping": Ping,
}
"""Type -> class."""

_converter = cattrs.Converter(forbid_extra_keys=True)


def _exact(kind: type) -> Any:
    def structure(value: object, _: object) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {_SAID[kind]}")
        return value

    return structure


_SAID: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", bool: "true or false", float: "a number"}
for _kind in _SAID:
    _converter.register_structure_hook(_kind, _exact(_kind))


def _object(value: object, _: object) -> Any:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return value


def _is_choice(kind: object) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _one_of(value: object, kind: object) -> Any:
    names = get_args(kind)
    if value not in names:
        raise ValueError(f"{value!r:.40} is not known; {did_you_mean(value, names)}use {' or '.join(map(repr, names))}")
    return value


_converter.register_structure_hook_func(lambda kind: kind == JSONObject, _object)
_converter.register_structure_hook_func(_is_choice, _one_of)


def _reader(cls: type[Any], converter: cattrs.Converter) -> Any:
    names: Any = {field.name: override(rename=camel(field.name)) for field in attrs.fields(cls)}
    read = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **names)

    def structure(value: object, kind: type[Any]) -> Any:
        return read(_object(value, kind), kind)

    return structure


_converter.register_structure_hook_factory(attrs.has, _reader)


def _attachments(value: object, _: object) -> Any:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise TypeError("expected a list of objects")
    return tuple(_converter.structure(one, SentAttachment) for one in value)


_converter.register_structure_hook_func(lambda kind: kind == tuple[SentAttachment, ...], _attachments)


class Malformed(Exception):
    """The message is not a JSON object; the connection is closed with 4400."""


def parse(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        Malformed: The text is not a JSON object.
    """
    try:
        data = read_json(text)
    except JSONTextError as error:
        raise Malformed(f"the message {error}") from error
    if not isinstance(data, dict):
        raise Malformed(f"a JSON {type(data).__name__} where an object is asked for")
    return data


def read(data: JSONObject) -> Up:
    """Decode the frame in a JSON object.

    Raises:
        Refused: bad_message; the text names the field.
    """
    kind = data.get("type")
    cls = UP.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise Refused("bad_message", f"type {_shown(kind)} is not known; use one of {', '.join(UP)}")
    frame: Up = structure({key: value for key, value in data.items() if key != "type"}, cls, str(kind))
    return frame


def read_command(data: JSONObject) -> RunCommand:
    """Decode the command to a run in a JSON object.

    Raises:
        Refused: bad_message; the text names the field.
    """
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in COMMANDS:
        raise Refused("bad_message", f"type {_shown(kind)} is not a command; use one of {', '.join(COMMANDS)}")
    command = read(data)
    if not isinstance(command, RunCommand):
        raise Refused("bad_message", f"{kind} is not a command to a run")
    return command


def structure(data: JSONObject, cls: type[Any], what: str) -> Any:
    """Convert a JSON object to an attrs class of plain fields.

    Raises:
        Refused: bad_message; the text names every invalid field.
    """
    try:
        return _converter.structure(dict(data), cls)
    except cattrs.ClassValidationError as error:
        faults = "; ".join(map(_on_the_wire, cattrs.transform_error(error, path=what, format_exception=_explain)))
        raise Refused("bad_message", faults[:1000]) from error


def _on_the_wire(fault: str) -> str:
    """A fault with the path of its field as the client writes it; cattrs names the attribute."""
    text, at, path = fault.rpartition(" @ ")
    return f"{text}{at}{camel(path)}"


def _explain(error: BaseException, kind: type | None) -> str:
    match error:
        case KeyError():
            return f"{error.args[0]} is missing"
        case cattrs.ForbiddenExtraKeysError():
            known = [camel(field.name) for field in attrs.fields(error.cl)]
            names = sorted(map(str, error.extra_fields))
            near = did_you_mean(names[0], known, quoted=False)
            return f"{', '.join(names)[:100]} is not known here; {near}there are {', '.join(known)}"
        case TypeError() | ValueError() if error.args:
            return str(error.args[0])[:200]
        case _:
            return format_exception(error, kind)


def _shown(value: object) -> str:
    return "(missing)" if value is None else f"{value!r:.40}"
