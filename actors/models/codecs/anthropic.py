"""Anthropic messages.

Source: the types of the official Python SDK (anthropic 2.12). The mark of a whole answer is `message_stop`, or the
`message_delta` with a stop reason before it. Content blocks go back as they came if there is thinking among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from typing_extensions import override

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import FinishReason, ModelRequest, ModelResponse, Usage
from ...contract.plain import JSONObject, JSONValue
from ...errors import ModelError
from . import parts
from .faults import from_object
from .history import Entry, Said, Thread
from .port import (
    Codec,
    Decoder,
    Encoded,
    PartialCall,
    Reported,
    StreamError,
    besides,
    calls_of,
    cause,
    count,
    json_text,
    mapping,
    model_name,
    string,
)
from .schemas import closed_schema, object_schema, words
from .settings import extra_body, extra_headers, renamed

NEWEST: Final = "2026-10-21"
"""Version of the API that is asked for."""
SAMPLED: Final = "2023-06-01"
"""The version that takes temperature, top_p and top_k."""
MAX_TOKENS: Final = 8192
"""Default for max_tokens, which the format requires."""
RENAMED: Final = {"max_tokens": "max_tokens", "stop_sequences": "stop_sequences", "service_tier": "service_tier"}
COUNTS: Final = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    "output_tokens_details",
)
"""The counts that are read."""
SAMPLING: Final = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
FINISHES: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refusal",
}


class AnthropicCodec(Codec):
    """The messages format.

    Args:
        model: the provider's name of the model.
        api_version: The version of the API; "2023-06-01" takes temperature, top_p and top_k.
        native: ask for an answer's form by `output_config`.
    """

    provider = "anthropic"

    def __init__(self, model: str, *, api_version: str = NEWEST, native: bool = True) -> None:
        self._model = model
        self._version = api_version
        self._native = native
        sampling = SAMPLING if api_version == SAMPLED else {}
        self._wire_names = {**RENAMED, **sampling}
        self.settings = (*self._wire_names, "parallel_tool_calls", "thinking")

    @override
    def auth(self, key: str) -> Mapping[str, str]:
        return {"x-api-key": key}

    @override
    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request for `POST /v1/messages`."""
        settings, schema = request.settings, request.output_schema if self._native else None
        form = None if schema is None else _form(schema)
        thread = Thread(request.messages, self.provider, _said)
        system, rest = thread.split()
        if schema is not None and form is None:
            system = f"{system}\n\n{words(schema)}".strip()
        body: dict[str, JSONValue] = {
            "model": self._model,
            "max_tokens": MAX_TOKENS,
            "messages": _merged(rest),
            "stream": True,
            **renamed(settings, self._wire_names),
        }
        if system:
            body["system"] = system
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
            choice = _choice(request.tool_choice, settings.get("parallel_tool_calls"))
            if choice != {"type": "auto"}:
                body["tool_choice"] = choice
        config = _config(body, settings.get("thinking"))
        if form is not None:
            config["format"] = {"type": "json_schema", "schema": form}
        if config:
            body["output_config"] = config
        headers = {"anthropic-version": self._version, **extra_headers(settings)}
        return Encoded(path="/v1/messages", body=body | extra_body(settings), headers=headers)

    @override
    def decoder(self) -> Decoder:
        return AnthropicDecoder(self.provider)

    @override
    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"type": "error", "error": {"type", "message"}}`."""
        error = mapping(mapping(data).get("error"))
        return from_object(status, error, (error.get("type"),))


def _choice(choice: str, parallel: bool | None) -> dict[str, JSONValue]:
    """Return the field tool_choice, which also says whether the answer may have several calls."""
    if choice == "none":
        return {"type": "none"}
    words = {"auto": "auto", "required": "any"}
    tool_choice: dict[str, JSONValue] = {"type": words[choice]} if choice in words else {"type": "tool", "name": choice}
    return tool_choice if parallel is None else {**tool_choice, "disable_parallel_tool_use": not parallel}


def _config(body: dict[str, JSONValue], thinking: bool | str | None) -> dict[str, JSONValue]:
    """Put the setting `thinking` into a body; returns the output_config that belongs to it."""
    if thinking is None:
        return {}
    body["thinking"] = {"type": "adaptive", "display": "summarized"} if thinking else {"type": "disabled"}
    return {"effort": thinking} if isinstance(thinking, str) else {}


def _form(schema: JSONObject) -> dict[str, JSONValue] | None:
    root = object_schema(schema)
    return None if root is None else closed_schema(root)


def _merged(rest: Sequence[Entry]) -> list[dict[str, JSONValue]]:
    """Return messages of alternating roles: all results of a step are in one user message, in front of other text."""
    out: list[dict[str, JSONValue]] = []
    for entry in rest:
        role, blocks = "assistant" if entry.message.role == "assistant" else "user", list(_blocks(entry))
        if blocks and out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    for message in out:
        message["content"].sort(key=lambda block: message["role"] == "user" and block["type"] != "tool_result")
    return out


def _blocks(entry: Entry) -> Iterator[JSONObject]:
    message = entry.message
    if entry.items:
        yield from (block for block in entry.items if block["type"] != "text" or block["text"].strip())
        return
    if message.call_id is not None:
        content: JSONValue = message.content
        if message.parts:
            content = [*_text(content), *map(parts.anthropic, message.parts)]
        yield {"type": "tool_result", "tool_use_id": entry.result_id, "content": content}
        return
    yield from _text(message.content)
    yield from map(parts.anthropic, message.parts)
    for call, call_id in zip(message.calls, entry.call_ids, strict=True):
        yield {"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments}


def _text(text: str) -> Sequence[JSONObject]:
    """Return the block of a text; a text without a visible character is refused."""
    return ({"type": "text", "text": text},) if text.strip() else ()


def _said(blocks: Sequence[JSONObject]) -> Said:
    return Said(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
    )


class AnthropicDecoder(Decoder):
    """Reads the events of one answer."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        self._provider = provider
        self._blocks: dict[int, dict[str, JSONValue]] = {}  # by index, as the calls
        self._pieces: dict[int, dict[str, list[str]]] = {}  # by index and field: the texts that grow
        self._calls: dict[int, PartialCall] = {}
        self._counts: dict[str, JSONValue] = {}
        self._reason = ""
        self._explanation = ""

    @override
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        index = count(data.get("index"))
        match string(data.get("type")) or name:
            case "message_start":
                message = mapping(data.get("message"))
                self.model = model_name(message.get("model"))
                self._count(mapping(message.get("usage")))
            case "content_block_start":
                yield from self._begin(index, mapping(data.get("content_block")))
            case "content_block_delta":
                yield from self._delta(index, mapping(data.get("delta")))
            case "message_delta":
                self._count(mapping(data.get("usage")))
                self._stop(mapping(data.get("delta")))
            case "message_stop":
                self.complete = self.finished = True
            case "error":
                raise StreamError(data)
            case _:  # a ping, or an event that is new
                pass

    def _begin(self, index: int, block: JSONObject) -> Iterator[ModelDelta]:
        fields = self._blocks[index] = {key: value for key, value in block.items() if value is not None}
        self._pieces[index] = {}
        kind = string(fields.get("type"))
        arguments = fields.get("input") if kind == "tool_use" else None
        sized_fields = besides(fields, kind) if kind in ("text", "thinking") else fields
        self.keep({key: value for key, value in sized_fields.items() if value is not arguments})
        if kind == "tool_use":
            call = self._calls[index] = self.new_call(string(fields.get("id")), string(fields.get("name")))
            call.ready = arguments or None
            if arguments:
                self.grow_values(json_text(arguments))
            yield CallDelta(index, call.tool)
        if kind in ("text", "thinking"):
            text = fields[kind] = string(fields.get(kind))
            self.grow(text)
            if text:
                yield TextDelta(text) if kind == "text" else ReasoningDelta(text)

    def _delta(self, index: int, delta: JSONObject) -> Iterator[ModelDelta]:
        if index not in self._blocks:
            self.part()
        block = self._blocks.setdefault(index, {})
        match delta.get("type"):
            case "text_delta" if text := string(delta.get("text")):
                block.setdefault("type", "text")
                self._grow(index, "text", text)
                yield TextDelta(text)
            case "thinking_delta" if text := string(delta.get("thinking")):
                block.setdefault("type", "thinking")
                self._grow(index, "thinking", text)
                yield ReasoningDelta(text)
            case "signature_delta":
                self._grow(index, "signature", string(delta.get("signature")))
            case "input_json_delta" if index in self._calls:
                text = string(delta.get("partial_json"))
                self.grow_values(text)
                if text:
                    self._calls[index].ready = None
                    self._calls[index].arguments.append(text)
                    yield CallDelta(index, arguments=text)
            case _:  # empty, or a kind of delta that is new
                pass

    def _grow(self, index: int, field: str, text: str) -> None:
        self.grow(text)
        beginning = string(self._blocks[index].get(field))
        self._pieces.setdefault(index, {}).setdefault(field, [beginning]).append(text)

    def _stop(self, delta: JSONObject) -> None:
        if reason := string(delta.get("stop_reason")):
            self._reason, self.complete = reason, True
            self._explanation = cause(mapping(delta.get("stop_details")).get("explanation"))

    def _count(self, usage: JSONObject) -> None:
        """Merge counts: those of `message_delta` are totals, and replace earlier ones where they are given."""
        self._counts |= {key: usage[key] for key in COUNTS if usage.get(key) is not None}
        self.usage = usage_of(self._counts)

    @override
    def response(self) -> ModelResponse:
        if self._reason == "model_context_window_exceeded":
            text = "the answer filled the model's context window"
            raise ModelError(text, kind="context_overflow", usage=self.usage)
        for index, fields in self._pieces.items():
            self._blocks[index] |= {field: "".join(pieces) for field, pieces in fields.items()}
        finish = FINISHES.get(self._reason, "other")
        if finish == "refusal":  # the text so far is not to be used
            refusal = self._explanation or "the model refused to answer"
            return ModelResponse(usage=self.usage, model=self.model, refusal=refusal, finish=finish)
        calls = calls_of([self._calls[index] for index in sorted(self._calls)], finish)
        return ModelResponse(
            text=self._texts(),
            calls=calls,
            usage=self.usage,
            model=self.model,
            finish="tool_calls" if calls and finish == "stop" else finish,
            provider=self._provider,
            items=self._items(),
        )

    def _texts(self) -> tuple[str, ...]:
        """Return the texts; blocks side by side, as those of an answer with citations, are one text."""
        blocks = (self._blocks[index] for index in sorted(self._blocks))
        runs = groupby(blocks, key=lambda block: block.get("type") == "text")
        texts = ("".join(string(block.get("text")) for block in run) for is_text, run in runs if is_text)
        return tuple(filter(None, texts))

    def _items(self) -> tuple[JSONObject, ...]:
        """Return the content blocks, if there is thinking among them."""
        for index, call in self._calls.items():
            self._blocks[index]["input"] = call.request(cut=True).arguments
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        usual = all(block.get("type") in ("text", "thinking", "redacted_thinking", "tool_use") for block in blocks)
        thinks = any(block.get("type") in ("thinking", "redacted_thinking") for block in blocks)
        if not (usual and thinks) or not all(call.id for call in self._calls.values()):
            return ()
        return tuple(blocks)


def usage_of(data: JSONObject) -> Usage:
    """Return the tokens of a usage object; the input includes tokens written to the cache and read from it."""
    from_cache = count(data.get("cache_read_input_tokens"))
    return Usage(
        requests=1,
        input=count(data.get("input_tokens")) + count(data.get("cache_creation_input_tokens")) + from_cache,
        output=count(data.get("output_tokens")),
        cached=from_cache,
        reasoning=count(mapping(data.get("output_tokens_details")).get("thinking_tokens")),
    )
