"""The port of a provider's format: `Codec` writes requests and reads errors, `Decoder` reads one stream."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ...abc import ModelDelta
from ...contract.messages import (
    CallRequest,
    FinishReason,
    ModelRequest,
    ModelResponse,
    Usage,
    not_an_object,
    read_arguments,
)
from ...contract.plain import JSONObject, JSONValue
from ...errors import ModelError
from .settings import fault_of_settings

ANSWER_LIMIT: Final = 10_000_000
"""Most characters of one answer: texts, reasoning and arguments together."""

CUT_CALL: Final = "the answer ended in the middle of this call, so its arguments are not complete"


@attrs.frozen(kw_only=True)
class Encoded:
    """A request on the wire.

    Attributes:
        path: behind the base URL, with its query.
        headers: beside those of the client and of the key.
        body: JSON data.
    """

    path: str
    body: JSONObject
    headers: Mapping[str, str] = attrs.field(factory=dict)


class Codec(abc.ABC):
    """One provider's format for one model. Pure.

    Attributes:
        provider: names the service; what it wants back unchanged is sent to the same provider only.
        settings: the names of settings that the format has, beside extra_headers and extra_body.
    """

    provider: str
    settings: tuple[str, ...]

    def check(self, settings: JSONObject) -> str | None:
        """Return what is wrong with an agent's settings, and what to give; None if nothing is."""
        return fault_of_settings(settings, self.settings)

    @abc.abstractmethod
    def auth(self, key: str) -> Mapping[str, str]:
        """Return the headers that carry a key."""

    @abc.abstractmethod
    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request in the provider's form. Its settings have passed `check`."""

    @abc.abstractmethod
    def decoder(self) -> Decoder:
        """Return a reader of one stream."""

    @abc.abstractmethod
    def error(self, status: int | None, data: object) -> Reported:
        """Read the provider's error from the JSON body of a status, or from an event of a stream (None)."""


@attrs.frozen(kw_only=True)
class Reported:
    """A provider's own report of a failure, not yet classified.

    Attributes:
        codes: codes and types, the most specific first.
        message: the provider's sentence.
        status: the HTTP status, if the report has one.
        retry_after: seconds to wait.
    """

    codes: tuple[str, ...] = ()
    message: str = ""
    status: int | None = None
    retry_after: float | None = None


class StreamError(Exception):
    """The stream reports a failure.

    Attributes:
        data: the event's JSON data, for `Codec.error`.
    """

    def __init__(self, data: object) -> None:
        super().__init__("the stream reports a failure")
        self.data = data


@attrs.define(eq=False, repr=False)
class PartialCall:
    """A call whose arguments arrive in pieces.

    Attributes:
        arguments: pieces of JSON text.
        ready: arguments that came as a JSON value.
        extras: further fields that go back with the call.
    """

    id: str = ""
    tool: str = ""
    arguments: list[str] = attrs.field(factory=list)
    ready: object = None
    extras: dict[str, JSONValue] = attrs.field(factory=dict)

    def request(self, *, cut: bool) -> CallRequest:
        """Return the call. `cut`: the answer ended early, in the middle of this call."""
        if self.ready is not None:
            if not isinstance(self.ready, Mapping):
                fault = not_an_object(self.ready)
                return CallRequest(call_id=self.id, tool=self.tool, arguments={}, fault=fault)
            return CallRequest(call_id=self.id, tool=self.tool, arguments=dict(self.ready))
        text = "".join(self.arguments)
        made = CallRequest.from_json(self.tool, text, call_id=self.id)
        incomplete = not text.strip() or read_arguments(text)[1] is not None
        if cut and incomplete:  # an empty text would mean no arguments
            return CallRequest(call_id=self.id, tool=self.tool, arguments={}, fault=CUT_CALL)
        return made


class Decoder(abc.ABC):
    """Reads one stream: `take` each event, then `response`. Pure.

    Attributes:
        complete: the stream has given its own mark of the end: the answer is whole.
        finished: nothing that matters comes after this.
        usage: tokens as far as the stream has reported them.
        model: the provider's name of the answering model.
    """

    def __init__(self) -> None:
        self.complete = False
        self.finished = False
        self.usage = Usage(requests=1)
        self.model = ""
        self.size = 0

    @abc.abstractmethod
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        """Take one event and yield what can be shown of it.

        Raises:
            StreamError: the event reports a failure.
            ModelError: the stream cannot be used.
        """

    @abc.abstractmethod
    def response(self) -> ModelResponse:
        """Return the answer of a complete stream.

        Raises:
            ModelError: a filter left nothing of it.
        """

    def grow(self, text: str) -> None:
        """Count a part of the answer.

        Raises:
            ModelError: the answer is too long.
        """
        self.size += len(text)
        if self.size > ANSWER_LIMIT:
            raise ModelError(f"the answer has more than {ANSWER_LIMIT:,} characters", kind="provider", usage=self.usage)


def calls_of(partial: list[PartialCall], finish: FinishReason) -> tuple[CallRequest, ...]:
    """Return the calls of an answer. One that was cut ends in the middle of its last call."""
    cut = finish in ("length", "content_filter")
    return tuple(call.request(cut=cut and call is partial[-1]) for call in partial)


# --- reading foreign JSON: what has another form than expected counts as absent ---------------------------------------


def mapping(value: object) -> JSONObject:
    """Return a JSON object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[JSONValue]:
    """Return a JSON array, or an empty one."""
    return value if isinstance(value, list) else []


def string(value: object) -> str:
    """Return a string, or ""."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a number of tokens, or 0."""
    return value if type(value) is int and value >= 0 else 0
