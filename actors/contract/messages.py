"""Messages, requests and responses of models in Greenroom's own, provider-neutral form."""

from __future__ import annotations

from typing import Literal

import attrs
import msgspec

from .parts import Part
from .plain import JSONObject, JSONValue, exact
from .row_forms import Value

Role = Literal["system", "user", "assistant", "tool"]
MessageKind = Literal["text", "task_started", "task_finished", "task_left"]
"""The subject of a message: plain text, or a background task.

The task was started by a call, has finished, or stays with the run from which a fork was made (left).
"""
FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "other"]
"""Why a model ended its answer.

It was done, requests tools, reached its token limit, was cut by a filter of the provider, refused, or another reason.
"""


class Usage(Value, frozen=True, kw_only=True, omit_defaults=False):  # events show all counts
    """Tokens and requests, as counts >= 0. `cached` is part of `input`, `reasoning` part of `output`.

    `stored`: tokens of `input` that the provider put into its cache, for later requests to read as `cached`.
    `incomplete`: requests that were stopped before the provider reported all of their tokens, so the true counts may be
    higher. Without such tokens or requests both are `msgspec.UNSET`, which is false and is left out of JSON.
    """

    requests: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    stored: int | msgspec.UnsetType = msgspec.UNSET
    incomplete: int | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        counts = {name: getattr(self, name) for name in self.__struct_fields__}
        return f"Usage({', '.join(f'{name}={n}' for name, n in counts.items() if n is not msgspec.UNSET)})"

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, field by field."""
        return Usage(
            requests=self.requests + other.requests,
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            stored=_sum(self.stored, other.stored),
            incomplete=_sum(self.incomplete, other.incomplete),
        )

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output


def _sum(first: int | msgspec.UnsetType, second: int | msgspec.UnsetType) -> int | msgspec.UnsetType:
    if first is msgspec.UNSET:
        return second
    return first if second is msgspec.UNSET else first + second


class CallRequest(Value, frozen=True, kw_only=True):
    """A tool call as the model requested it.

    Attributes:
        call_id: unique within the run.
        tool: the tool's name.
        arguments: a JSON object.
        provider_id: the model's own id of the call, if it differs from call_id.
        fault: why the model's arguments are not a JSON object; then `arguments` is empty, the tool does not run, and
            the model receives the fault.
    """

    call_id: str
    tool: str
    arguments: JSONObject
    provider_id: str | None = None
    fault: str | None = None

    @classmethod
    def from_json(cls, tool: str, arguments: str | bytes | None, *, call_id: str = "") -> CallRequest:
        """Return a call whose arguments are JSON text, as most providers send them.

        Pure; never raises for a model's text.

        Args:
            tool: the tool's name.
            arguments: JSON text of an object. None, an empty text and `null` mean no arguments.
            call_id: the provider's id of the call; the runtime makes one if it is empty.
        """
        values, fault = read_arguments(arguments)
        return cls(call_id=call_id, tool=tool, arguments=values, fault=fault)


def read_arguments(text: str | bytes | None) -> tuple[dict[str, JSONValue], str | None]:
    """Return the arguments in a model's JSON text, and the fault if they are invalid."""
    if text is None or not text.strip():
        return {}, None
    try:
        arguments = msgspec.json.decode(exact(text) if isinstance(text, str) else text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return {}, f"the arguments are not JSON: {error}"
    if arguments is None:
        return {}, None
    return (arguments, None) if isinstance(arguments, dict) else ({}, not_an_object(arguments))


def not_an_object(value: object) -> str:
    """Return the fault of arguments that are not an object."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return f"the arguments are {names.get(type(value), type(value).__name__)}, not a JSON object"


class Producer(Value, frozen=True, kw_only=True):
    """The run and step that wrote a message (step 0: the run's input)."""

    run_id: str
    step: int


class Message(Value, frozen=True, kw_only=True):
    """One entry of a thread's history. Threads are append-only; a message never changes.

    Attributes:
        id: unique within the thread.
        role: system, user, assistant or tool.
        content: the text.
        calls: the tool calls of an assistant message, in the model's order.
        call_id: the call that a tool message answers. A call has exactly one tool message.
        producer: the run and step that wrote it.
        final_at: where the answer's final text begins in `content`: 0 unless the model gave several texts.
        kind: its subject. Messages stored before kinds existed read as "text".
        task_id: the background task, unless the kind is "text".
        provider: names the service whose `items` these are; "" without items.
        items: the answer as the provider wants it back, unchanged: reasoning, signatures. Opaque and private: sent to
            the same provider only, and only if text and calls are still those of the answer.
        parts: images and files of an input or a tool's result, in order. Their bytes are in the requests of models
            only.
        cut: the run ended while the model wrote this answer: the text is what had arrived. A request says so to the
            model.
    """

    id: str
    role: Role
    content: str
    calls: tuple[CallRequest, ...] = ()
    call_id: str | None = None
    producer: Producer | None = None
    final_at: int = 0
    kind: MessageKind = "text"
    task_id: str | None = None
    provider: str = ""
    items: tuple[JSONObject, ...] = ()
    parts: tuple[Part, ...] = ()
    cut: bool = False


@attrs.frozen(kw_only=True)
class ToolInfo:
    """A tool as a model sees it: name, description, JSON Schema of the arguments object."""

    name: str
    description: str
    schema: JSONObject


class ModelRequest(Value, frozen=True, kw_only=True):
    """The input of one model call. A model reads it and changes nothing in it.

    Its messages are shared with the later requests of the run, and its tools, settings and schemas with all requests of
    the agent. A change reaches those, but no row, event or record.

    Attributes:
        agent: the agent's key.
        messages: system text first, then the thread in order.
        tools: the tools that may be called in this step.
        settings: provider settings (temperature and so on).
        run_id: the run.
        step: the run's step, from 1.
        model_attempts: answers and errors that this agent has received in this run so far, from any model.
        output_schema: JSON Schema of the final answer; None for plain text. Unless the model's class sets
            `structured = "native"`, the system text already asks for it.
        prefix: the text that the answer continues, because an earlier stream of the step broke. The messages already
            end with it and with a request to continue.
        cut_calls: names of the tools whose calls that stream had begun, and that did not run; also in the messages.
        attempt: The attempt of this step's request, from 1.
        model: names the asked model, as the agent does.
        tool_choice: "auto" lets the model choose, "required" demands a call, "none" forbids calls, the name of one of
            `tools` demands a call of that tool.
    """

    agent: str
    messages: tuple[Message, ...]
    tools: tuple[ToolInfo, ...] = ()
    settings: JSONObject = msgspec.field(default_factory=dict)
    run_id: str = ""
    step: int = 0
    model_attempts: int = 0
    output_schema: JSONObject | None = None
    prefix: str = ""
    cut_calls: tuple[str, ...] = ()
    attempt: int = 1
    model: str = ""
    tool_choice: str = "auto"


class ModelResponse(Value, frozen=True, kw_only=True):
    """The result of one model call.

    Attributes:
        text: the texts of the answer, in order and as streamed; joined they are the message, and the last one is the
            final text.
        calls: the requested calls, in the model's order, with the provider's ids (may be empty strings).
        usage: tokens of this request; `requests` counts as 1 if it is 0.
        model: the provider's name of the answering model.
        refusal: the model's refusal, if the answer has nothing else.
        finish: why the answer ended; None: derived from the parts (refusal, tool_calls or stop).
        provider: names the service whose `items` these are.
        items: JSON objects that the provider wants back unchanged with the history; see `Message.items`.
    """

    text: tuple[str, ...] = ()
    calls: tuple[CallRequest, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    refusal: str | None = None
    finish: FinishReason | None = None
    provider: str = ""
    items: tuple[JSONObject, ...] = ()
