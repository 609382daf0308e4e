"""The port of a provider's format: `Codec` writes requests and reads errors, `Decoder` reads one stream."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import msgspec

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
from ...contract.sizes import ANSWER_LIMIT
from ...errors import ModelError
from .settings import fault_of_settings

CALLS_LIMIT: Final = 4_096
"""Most calls of one answer; no provider documents more than 128."""
PARTS_LIMIT: Final = 16_384
"""Most blocks, items or parts of one answer, calls among them: each costs an object for as long as the run lives."""
NAME_LIMIT: Final = 1_024
"""Most characters of the name of a called tool."""
ID_LIMIT: Final = 65_536
"""Most characters of the id of a call: some services put a whole signature into it."""
VALUES_LIMIT: Final = 50_000
"""Most commas and opening brackets in the arguments of one answer and in what goes back to the provider: each is a
value, and a run reads values one by one, some microseconds each."""
COUNT_LIMIT: Final = 10**12
"""The largest number of tokens that counts as one."""
MODEL_LIMIT: Final = 256
"""Characters kept of the name of the answering model."""
REASON_LIMIT: Final = 1_000
"""Characters kept of a provider's reason for the end of an answer."""

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
        budgets: the setting `thinking` may be a number of tokens.
    """

    provider: str
    settings: tuple[str, ...]
    budgets: bool = False

    def check(self, settings: JSONObject) -> str | None:
        """Return what is wrong with an agent's settings, and what to give; None if nothing is."""
        return fault_of_settings(settings, self.settings, budgets=self.budgets)

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
        place: The place of the call in its answer, from 0.
        arguments: pieces of JSON text.
        ready: arguments that came as a JSON value.
        extras: further fields that go back with the call.
    """

    id: str = ""
    tool: str = ""
    arguments: list[str] = attrs.field(factory=list)
    ready: object = None
    extras: dict[str, JSONValue] = attrs.field(factory=dict)
    place: int = 0

    def request(self, *, cut: bool) -> CallRequest:
        """Return the call. `cut`: the answer ended early, in the middle of this call."""
        if self.ready is not None:
            if not isinstance(self.ready, Mapping):
                fault = not_an_object(self.ready)
                return CallRequest(call_id=self.id, tool=self.tool, arguments={}, fault=fault)
            return CallRequest(call_id=self.id, tool=self.tool, arguments=dict(self.ready))
        text = "".join(self.arguments)
        request = CallRequest.from_json(self.tool, text, call_id=self.id)
        incomplete = not text.strip() or read_arguments(text)[1] is not None
        if cut and incomplete:  # an empty text would mean no arguments
            return CallRequest(call_id=self.id, tool=self.tool, arguments={}, fault=CUT_CALL)
        return request


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
        self._parts = self._calls_begun = self._values = 0

    @abc.abstractmethod
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        """Take one event and yield what can be shown of it.

        Raises:
            StreamError: the event reports a failure.
            ModelError: the stream cannot be used.
        """

    def done(self) -> None:
        """Take the last event of a stream that has one with no data of its own."""
        self.finished = self.complete

    @abc.abstractmethod
    def response(self) -> ModelResponse:
        """Return the answer of a complete stream.

        Raises:
            ModelError: a filter left nothing of it.
        """

    def grow(self, text: str) -> None:
        """Count a text of the answer.

        Raises:
            ModelError: the answer is too long.
        """
        self.size += len(text)
        if self.size > ANSWER_LIMIT:
            raise self._too_much(f"more than {ANSWER_LIMIT:,} characters")

    def grow_values(self, text: str) -> None:
        """Count a part of the JSON text of arguments, or of what goes back to the provider.

        Raises:
            ModelError: the answer is too long, or has too many values.
        """
        self.grow(text)
        self._values += text.count(",") + text.count("[") + text.count("{")
        if self._values > VALUES_LIMIT:
            raise self._too_much(f"more than {VALUES_LIMIT:,} values in its calls and parts")

    def keep(self, data: JSONObject) -> None:
        """Count a block, an item or a part that is kept to go back to the provider.

        Args:
            data: the fields of it that are counted nowhere else.

        Raises:
            ModelError: the answer is too long, or has too many of them or too many values.
        """
        self.part()
        if data:
            self.grow_values(json_text(data))

    def part(self) -> None:
        """Count a block, an item or a part.

        Raises:
            ModelError: the answer has too many of them.
        """
        self._parts += 1
        if self._parts > PARTS_LIMIT:
            raise self._too_much(f"more than {PARTS_LIMIT:,} parts")

    def new_call(self, call_id: str = "", tool: str = "") -> PartialCall:
        """Return a call that begins.

        Raises:
            ModelError: the answer has too many calls, or the call's id or name is too long.
        """
        place = self._calls_begun
        self._calls_begun += 1
        if place >= CALLS_LIMIT:
            raise self._too_much(f"more than {CALLS_LIMIT:,} calls")
        return PartialCall(self.call_id(call_id), self.tool(tool), place=place)

    def call_id(self, text: str) -> str:
        """Return the id of a call.

        Raises:
            ModelError: the id or the answer is too long.
        """
        if len(text) > ID_LIMIT:
            raise self._too_much(f"a call whose id has {len(text):,} characters, at most {ID_LIMIT:,}")
        self.grow(text)
        return text

    def tool(self, text: str) -> str:
        """Return the name of a called tool.

        Raises:
            ModelError: the name or the answer is too long.
        """
        if len(text) > NAME_LIMIT:
            raise self._too_much(f"a call of a tool whose name has {len(text):,} characters, at most {NAME_LIMIT:,}")
        self.grow(text)
        return text

    def _too_much(self, what: str) -> ModelError:
        return ModelError(f"the answer has {what}", kind="provider", usage=self.usage)


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
    """Return a number of tokens, or an index; 0 for anything else."""
    return value if type(value) is int and 0 <= value <= COUNT_LIMIT else 0


def model_name(value: object) -> str:
    """Return the name of the answering model, or ""."""
    return string(value)[:MODEL_LIMIT]


def cause(value: object) -> str:
    """Return a provider's reason for an end, or ""."""
    return string(value)[:REASON_LIMIT]


def besides(data: JSONObject, *texts: str) -> dict[str, JSONValue]:
    """Return an object without some of its texts."""
    return {name: value for name, value in data.items() if name not in texts or not isinstance(value, str)}


def json_text(value: JSONValue) -> str:
    """Return JSON data as a text, also if its strings hold half of a surrogate pair, which has no UTF-8."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value)
