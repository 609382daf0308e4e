"""OpenAI chat completions, and the many services and local servers that speak the same format.

Source: the types of the official Python SDK (openai 3.54). What compatible servers do otherwise is tolerated: calls
without ids, names that are repeated in each piece, whole calls in one piece, `stop` as the reason of an answer with
calls, no `[DONE]`. The mark of a whole answer is the chunk with a `finish_reason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ...abc import ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import FinishReason, Message, ModelRequest, ModelResponse, Usage
from ...contract.plain import JSONObject
from ...errors import ModelError
from ..answers import WORDS
from .faults import from_object
from .history import wire_ids
from .port import Codec, Decoder, Encoded, PartialCall, Reported, StreamError, calls_of, count, items, mapping, string
from .schemas import object_schema
from .settings import extra_body, extra_headers, renamed

FINISHES: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
RENAMED: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop_sequences": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "service_tier": "service_tier",
}


class OpenAIChatCodec(Codec):
    """The chat format.

    Args:
        model: the provider's name of the model.
        provider: names the service.
        limit_field: the field for max_tokens: OpenAI's own models refuse "max_tokens", many other servers know no
            other one.
        native: ask for an answer's form by `response_format`.
    """

    settings = ("max_tokens", *RENAMED, "parallel_tool_calls", "thinking")

    def __init__(
        self, model: str, *, provider: str = "openai", limit_field: str = "max_completion_tokens", native: bool = True
    ) -> None:
        self._model = model
        self.provider = provider
        self._limit_field = limit_field
        self._native = native

    def auth(self, key: str) -> Mapping[str, str]:
        """Return the headers that carry a key."""
        return {"authorization": f"Bearer {key}"}

    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request for `POST /chat/completions`."""
        settings, form = request.settings, self._form(request)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [*_words(request, form, native=self._native), *_messages(request.messages)],
            "stream": True,
            "stream_options": {"include_usage": True},
            **renamed(settings, {**RENAMED, "max_tokens": self._limit_field}),
        }
        if request.tools:
            body["tools"] = [{"type": "function", "function": _function(tool)} for tool in request.tools]
            body |= renamed(settings, {"parallel_tool_calls": "parallel_tool_calls"})  # refused beside no tools
        if (thinking := settings.get("thinking")) is not None:
            body["reasoning_effort"] = {True: "medium", False: "none"}.get(thinking, thinking)
        if form is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
        return Encoded(path="/chat/completions", body=body | extra_body(settings), headers=extra_headers(settings))

    def _form(self, request: ModelRequest) -> dict[str, Any] | None:
        return object_schema(request.output_schema) if self._native and request.output_schema is not None else None

    def decoder(self) -> Decoder:
        """Return a reader of one stream."""
        return OpenAIChatDecoder()

    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"error": {"message", "type", "code", "param"}}`."""
        error = mapping(data).get("error", data)
        if isinstance(error, str):
            return Reported(status=status, message=error)
        found = mapping(error)
        return from_object(status, found, (found.get("code"), found.get("type")))


def _function(tool: Any) -> JSONObject:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}


def _words(request: ModelRequest, form: object, *, native: bool) -> Iterator[JSONObject]:
    """Yield the words about a form that `response_format` does not take."""
    if native and request.output_schema is not None and form is None:
        schema = msgspec.json.encode(request.output_schema).decode()
        yield {"role": "system", "content": WORDS.format(schema=schema)}


def _messages(messages: Iterable[Message]) -> Iterator[JSONObject]:
    messages = tuple(messages)
    ids = wire_ids(messages)
    for message in messages:
        made: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.calls:
            made["content"] = message.content or None
            made["tool_calls"] = [
                {
                    "id": ids[call.call_id],
                    "type": "function",
                    "function": {"name": call.tool, "arguments": msgspec.json.encode(call.arguments).decode()},
                }
                for call in message.calls
            ]
        if message.call_id is not None:
            made["tool_call_id"] = ids[message.call_id]
        yield made


class OpenAIChatDecoder(Decoder):
    """Reads the chunks of one answer."""

    def __init__(self) -> None:
        super().__init__()
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[PartialCall] = []
        self._slots: dict[int, PartialCall] = {}
        self._finish: str | None = None

    def take(self, name: str, data: Mapping[str, Any]) -> Iterator[ModelDelta]:
        """Take one chunk. See `Decoder.take`."""
        if data.get("error"):
            raise StreamError(data)
        self.model = self.model or string(data.get("model"))
        if isinstance(data.get("usage"), Mapping):
            self.usage = usage_of(data["usage"])
        for choice in map(mapping, items(data.get("choices"))):
            if choice.get("index", 0) == 0:
                yield from self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[ModelDelta]:
        delta = mapping(choice.get("delta"))
        if reasoning := string(delta.get("reasoning_content")) or string(delta.get("reasoning")):
            self.grow(reasoning)
            yield ReasoningDelta(reasoning)
        if text := string(delta.get("content")):
            self.grow(text)
            self._text.append(text)
            yield TextDelta(text)
        if refusal := string(delta.get("refusal")):
            self.grow(refusal)
            self._refusal.append(refusal)
        for piece in map(mapping, items(delta.get("tool_calls"))):
            self._call(piece)
        if finish := string(choice.get("finish_reason")):
            self._finish, self.complete = finish, True

    def _call(self, piece: Mapping[str, Any]) -> None:
        function, call_id = mapping(piece.get("function")), string(piece.get("id"))
        tool, index = string(function.get("name")), piece.get("index")
        if type(index) is not int:  # some servers number nothing: a piece with an id or a name begins a call
            index = len(self._calls) if not self._calls or call_id or tool else len(self._calls) - 1
        call = self._slots.get(index)
        if call is None or (call_id and tool and call.id and call.id != call_id):  # whole calls, all with index 0
            call = self._slots[index] = PartialCall()
            self._calls.append(call)
        call.id = call.id or call_id
        call.tool = call.tool or tool
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):  # a whole value in place of its text
            call.ready = arguments
        elif text := string(arguments):
            self.grow(text)
            call.arguments.append(text)

    def response(self) -> ModelResponse:
        """Return the answer. See `Decoder.response`."""
        text, refusal = "".join(self._text), "".join(self._refusal)
        finish = FINISHES.get(self._finish or "", "other")
        calls = calls_of(self._calls, finish)
        if finish == "stop" and calls:
            finish = "tool_calls"
        if finish == "content_filter" and not (text or calls):
            raise ModelError("a filter of the provider stopped the answer", kind="content_filtered", usage=self.usage)
        return ModelResponse(
            text=(text,) if text else (),
            calls=calls,
            usage=self.usage,
            model=self.model,
            refusal=refusal or None,
            finish="refusal" if refusal and not (text or calls) else finish,
        )


def usage_of(data: Mapping[str, Any]) -> Usage:
    """Return the tokens of a usage object; cached ones are within the input, reasoning within the output."""
    return Usage(
        requests=1,
        input=count(data.get("prompt_tokens")),
        output=count(data.get("completion_tokens")),
        cached=count(mapping(data.get("prompt_tokens_details")).get("cached_tokens")),
        reasoning=count(mapping(data.get("completion_tokens_details")).get("reasoning_tokens")),
    )
