"""The stream of Anthropic messages: its events as deltas, and the answer.

Source: as for the requests, in `anthropic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

import msgspec
from typing_extensions import override

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import FinishReason, ModelResponse, Usage, read_arguments
from ...contract.plain import JSONObject, JSONValue
from ...errors import ModelError
from .port import (
    Decoder,
    PartialCall,
    StreamError,
    besides,
    calls_of,
    cause,
    count,
    items,
    json_text,
    mapping,
    model_name,
    string,
)

COUNTS: Final = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    "output_tokens_details",
)
"""The counts that are read."""
FINISHES: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "pause_turn": "length",  # the provider's own tools take too long: the text so far is the beginning of an answer
    "refusal": "refusal",
}
ITEMS: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
"""Blocks that go back, beside the results of the provider's own tools."""


class AnthropicDecoder(Decoder):
    """Reads the events of one answer."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        self._provider = provider
        self._blocks: dict[int, dict[str, JSONValue]] = {}  # by index, as the calls
        self._pieces: dict[int, dict[str, list[str]]] = {}  # by index and field: the texts that grow
        self._calls: dict[int, PartialCall] = {}
        self._citations: dict[int, list[JSONValue]] = {}
        self._inputs: dict[int, list[str]] = {}  # JSON of what the provider's own tools are asked
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
            case "input_json_delta" if block.get("type") == "server_tool_use":
                text = string(delta.get("partial_json"))
                self.grow_values(text)
                self._inputs.setdefault(index, []).append(text)
            case "citations_delta" if isinstance(delta.get("citation"), Mapping):
                self.keep(delta["citation"])
                self._citations.setdefault(index, items(block.get("citations"))).append(delta["citation"])
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
        """Return the content blocks, if there is more among them than texts and calls."""
        for index, call in self._calls.items():
            self._blocks[index]["input"] = call.request(cut=True).arguments
        for index, pieces in self._inputs.items():
            self._blocks[index]["input"] = read_arguments("".join(pieces))[0]
        for index, citations in self._citations.items():
            self._blocks[index]["citations"] = citations
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        kinds = {string(block.get("type")) for block in blocks}
        usual = all(kind in ITEMS or kind.endswith("_tool_result") for kind in kinds)
        if not usual or kinds <= {"text", "tool_use"} or not all(call.id for call in self._calls.values()):
            return ()
        return tuple(blocks)


def usage_of(data: JSONObject) -> Usage:
    """Return the tokens of a usage object; the input includes tokens written to the cache and read from it."""
    from_cache, to_cache = count(data.get("cache_read_input_tokens")), count(data.get("cache_creation_input_tokens"))
    return Usage(
        requests=1,
        input=count(data.get("input_tokens")) + to_cache + from_cache,
        output=count(data.get("output_tokens")),
        cached=from_cache,
        stored=to_cache or msgspec.UNSET,
        reasoning=count(mapping(data.get("output_tokens_details")).get("thinking_tokens")),
    )
