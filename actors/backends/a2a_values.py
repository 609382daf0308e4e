"""A2A 1.0: the data of the protocol as values, read from JSON and written as JSON.

Theory of operation. The JSON of A2A is that of its protobuf schema: names in camelCase, enumerations by name, bytes in
base64, and a field with its default left out. `read` passes over unknown fields, as the protocol demands of both sides,
takes null for a field that is left out, and refuses a value of another type with the path to it; `written` is its
inverse. Client and server share the values: A2A is one schema for both directions.

https://a2a-protocol.org/v1.0.0/specification
"""

from __future__ import annotations

import enum
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Annotated, Any, Final, TypeAlias, TypeVar, assert_never

import msgspec

from ..contract.casing import camel
from ..contract.plain import JSONValue
from ..contract.row_forms import Value

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
"""An id that the other side may choose."""


class TaskState(enum.StrEnum):
    """The state of an A2A task."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"

    @property
    def terminal(self) -> bool:
        """True if no other state follows."""
        return self in _TERMINAL

    @property
    def at_rest(self) -> bool:
        """True if the state is terminal, or the A2A task waits for a message of its client."""
        return self in _AT_REST


_TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
_AT_REST: Final = _TERMINAL | {TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}


class Role(enum.StrEnum):
    """The author of a message."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class A2APart(Value, frozen=True, kw_only=True, rename=camel):
    """A part of a message or an artifact; exactly one of text, raw, url and data is there.

    Attributes:
        text: A text.
        raw: Bytes in base64; `A2APart.of_bytes` makes such a part, `content` decodes it.
        url: An address of bytes.
        data: Any JSON value, null included; UNSET if the part has other content.
        filename: The name of a file, or "".
        media_type: The media type of the content, or "".
        metadata: Data for programs.
    """

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: JSONValue = msgspec.UNSET
    filename: str = ""
    media_type: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        contents = (self.text is not None) + (self.raw is not None) + (self.url is not None)
        if contents + (self.data is not msgspec.UNSET) != 1:
            raise ValueError("a part has exactly one of text, raw, url and data")

    @classmethod
    def of_bytes(cls, content: bytes, *, media_type: str, filename: str = "") -> A2APart:
        """Return the part of some bytes."""
        return cls(raw=b64encode(content).decode(), media_type=media_type, filename=filename)

    def content(self) -> bytes:
        """Return the bytes of `raw`, in the standard or the URL-safe alphabet, padded or not; b"" without `raw`.

        Raises:
            A2AInvalid: raw is not base64.
        """
        text = (self.raw or "").rstrip("=").replace("-", "+").replace("_", "/")
        try:
            return b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (Base64Error, ValueError) as error:
            raise A2AInvalid(f"raw of the part {self.filename!r:.60} is not base64") from error


class A2AMessage(Value, frozen=True, kw_only=True, rename=camel):
    """A message of the client or the agent.

    Attributes:
        message_id: Chosen by the author.
        role: The author.
        parts: The content.
        task_id, context_id: The A2A task and the conversation of the message, or "".
        metadata: Data for programs.
        extensions: URIs of the extensions that the message uses.
        reference_task_ids: A2A tasks that the message is about.
    """

    message_id: Id
    role: Role
    parts: tuple[A2APart, ...] = ()
    task_id: str = ""
    context_id: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class A2AStatus(Value, frozen=True, kw_only=True, rename=camel):
    """The state of an A2A task, since `timestamp` (RFC 3339, or ""), and what the agent says about it."""

    state: TaskState
    message: A2AMessage | None = None
    timestamp: str = ""


class A2AArtifact(Value, frozen=True, kw_only=True, rename=camel):
    """Something that an agent has made; `artifact_id` is unique in its A2A task."""

    artifact_id: Id
    parts: tuple[A2APart, ...] = ()
    name: str = ""
    description: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    extensions: tuple[str, ...] = ()


class A2ATask(Value, frozen=True, kw_only=True, rename=camel):
    """The work for a message, as the server has it.

    Attributes:
        id: Chosen by the server.
        context_id: The conversation, or "".
        status: The state.
        artifacts: What the agent has made so far.
        history: Messages, oldest first; as many as the client asked for.
        metadata: Data for programs.
    """

    id: Id
    status: A2AStatus
    context_id: str = ""
    artifacts: tuple[A2AArtifact, ...] = ()
    history: tuple[A2AMessage, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class StatusUpdate(Value, frozen=True, kw_only=True, rename=camel):
    """An item of a stream: an A2A task has another state."""

    task_id: Id
    status: A2AStatus
    context_id: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class ArtifactUpdate(Value, frozen=True, kw_only=True, rename=camel):
    """An item of a stream: an artifact, or more of one.

    Attributes:
        task_id, context_id: The A2A task and its conversation.
        artifact: The whole artifact; with `append` the parts that join those that are there.
        append: The artifact exists, and has more parts.
        last_chunk: The artifact is complete.
        metadata: Data for programs.
    """

    task_id: Id
    artifact: A2AArtifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


A2AItem: TypeAlias = A2ATask | A2AMessage | StatusUpdate | ArtifactUpdate
"""An item of a stream; the answer to SendMessage is one of the first two."""


class A2AReply(Value, frozen=True, kw_only=True, rename=camel):
    """An answer to a message, and an item of a stream; exactly one field is there."""

    task: A2ATask | None = None
    message: A2AMessage | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None

    def __post_init__(self) -> None:
        if len(self.items()) != 1:
            raise ValueError("an answer has exactly one of task, message, statusUpdate and artifactUpdate")

    def items(self) -> list[A2AItem]:
        """Return the fields that are there."""
        fields = (self.task, self.message, self.status_update, self.artifact_update)
        return [field for field in fields if field is not None]


class AgentInterface(Value, frozen=True, kw_only=True, rename=camel):
    """An address of an agent, and the binding that is spoken there: "HTTP+JSON", "JSONRPC" or "GRPC"."""

    url: Id
    protocol_binding: str
    protocol_version: str = ""
    tenant: str = ""


class AgentCapabilities(Value, frozen=True, kw_only=True, rename=camel):
    """What an agent offers beside the operations that every agent has."""

    streaming: bool = False
    push_notifications: bool = False
    extended_agent_card: bool = False
    extensions: tuple[dict[str, Any], ...] = ()


class AgentSkill(Value, frozen=True, kw_only=True, rename=camel):
    """Something that an agent can do, described for people."""

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentCard(Value, frozen=True, kw_only=True, rename=camel):
    """The description of an agent, by which clients find its addresses.

    Attributes:
        name, description, version: For people.
        supported_interfaces: The addresses; the server prefers the first.
        capabilities: What the agent offers.
        default_input_modes, default_output_modes: Media types.
        skills: What the agent can do.
        security_schemes, security_requirements: How a client authenticates, in the form of OpenAPI.
        provider, documentation_url, icon_url: For people.
        signatures: JSON Web Signatures of the card; not checked.
    """

    name: str = ""
    description: str = ""
    version: str = ""
    supported_interfaces: tuple[AgentInterface, ...] = ()
    capabilities: AgentCapabilities = AgentCapabilities()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[AgentSkill, ...] = ()
    security_schemes: dict[str, Any] = msgspec.field(default_factory=dict)
    security_requirements: tuple[dict[str, Any], ...] = ()
    provider: dict[str, Any] | None = None
    documentation_url: str = ""
    icon_url: str = ""
    signatures: tuple[dict[str, Any], ...] = ()


# --- parameters of operations ----------------------------------------------------------------------------------------


class SendConfiguration(Value, frozen=True, kw_only=True, rename=camel):
    """How a message is to be answered.

    Attributes:
        accepted_output_modes: Media types that the client takes; () takes all.
        history_length: Most messages of the history in the answer; None leaves the number to the server.
        return_immediately: The answer is the A2A task as it stands, else as it comes to rest.
        task_push_notification_config: Where the client wants to be told.
    """

    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    return_immediately: bool = False
    task_push_notification_config: dict[str, Any] | None = None


class SendParams(Value, frozen=True, kw_only=True, rename=camel):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: A2AMessage
    configuration: SendConfiguration = SendConfiguration()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    tenant: str = ""


class TaskParams(Value, frozen=True, kw_only=True, rename=camel):
    """The parameters of GetTask, CancelTask and SubscribeToTask; history_length is of the first."""

    id: Id
    history_length: int | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    tenant: str = ""


class ListParams(Value, frozen=True, kw_only=True, rename=camel):
    """The parameters of ListTasks.

    Attributes:
        context_id, status, status_timestamp_after: Filters; "" and None match all.
        page_size: Most A2A tasks of the page; None leaves the number to the server.
        page_token: `next_page_token` of the page before, or "".
        history_length: As in `SendConfiguration`.
        include_artifacts: The A2A tasks have their artifacts.
    """

    context_id: str = ""
    status: TaskState | None = None
    status_timestamp_after: str = ""
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    include_artifacts: bool = False
    tenant: str = ""


class TaskPage(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    """The answer to ListTasks. Each field is required in the protocol, so each is written.

    Attributes:
        tasks: The A2A tasks, by the newest change.
        next_page_token: "" on the last page.
        page_size: The number of A2A tasks of this page, at most.
        total_size: The number of A2A tasks on all pages.
    """

    tasks: tuple[A2ATask, ...] = ()
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


# --- reading and writing ---------------------------------------------------------------------------------------------


class A2AInvalid(ValueError):
    """A value does not have the form that A2A gives it; the text names its path."""


Kind = TypeVar("Kind", bound=msgspec.Struct)
_OPAQUE: Final = frozenset({"data", "metadata", "params", "securitySchemes", "securityRequirements", "header"})
"""The fields whose values belong to users and programs: null is a value in there."""


def read(kind: type[Kind], data: JSONValue, *, textual: bool = False) -> Kind:
    """Return the value of some JSON data.

    Args:
        kind: A class of this module.
        data: Parsed JSON.
        textual: Numbers and booleans may be texts, as those of a query are.

    Raises:
        A2AInvalid: a field is missing or has another type.
    """
    try:
        return msgspec.convert(_without_nulls(data), kind, strict=not textual)
    except msgspec.ValidationError as error:
        raise A2AInvalid(str(error)[:500]) from error
    except RecursionError as error:
        raise A2AInvalid("the data is nested too deeply") from error


def written(value: msgspec.Struct) -> dict[str, Any]:
    """Return a value as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(value)
    return data


def read_item(data: JSONValue) -> A2AItem:
    """Return the item of a stream, or of an answer to a message.

    Raises:
        A2AInvalid: as `read`.
    """
    return read(A2AReply, data).items()[0]


def item_field(item: A2AItem) -> str:
    """Return the field of `A2AReply` that has an item, by its name on the wire."""
    match item:
        case A2ATask():
            return "task"
        case A2AMessage():
            return "message"
        case StatusUpdate():
            return "statusUpdate"
        case ArtifactUpdate():
            return "artifactUpdate"
        case _ as never:
            assert_never(never)


def _without_nulls(data: JSONValue) -> JSONValue:
    if isinstance(data, dict):
        return {
            name: value if name in _OPAQUE else _without_nulls(value)
            for name, value in data.items()
            if value is not None or name == "data"
        }
    return [_without_nulls(item) for item in data] if isinstance(data, list) else data
