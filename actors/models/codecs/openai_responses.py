"""OpenAI responses, without storage at the provider: the history is sent whole, reasoning in encrypted form.

Source: the types of the official Python SDK (openai 3.54). The mark of a whole answer is `response.completed` or
`response.incomplete`. Output items go back as they came if there is reasoning among them, or work of OpenAI's own
tools (searches, code that ran).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

import msgspec
from typing_extensions import override

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import FinishReason, Message, ModelRequest, ModelResponse, ToolInfo, Usage, read_arguments
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
    count,
    items,
    mapping,
    model_name,
    string,
)
from .schemas import object_schema, words
from .settings import extra_body, extra_headers, provider_files, provider_tools, renamed
from .strict_schemas import StrictForms
from .thinking import Thinking, openai_thinking

RENAMED: Final = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "service_tier": "service_tier",
    "cache_key": "prompt_cache_key",
    "cache_retention": "prompt_cache_retention",
}
WITHOUT_REASONING: Final = ("gpt-3", "gpt-4", "chatgpt-")
"""Beginnings of the names of models that refuse to be asked for encrypted reasoning."""
INCOMPLETE: Final[Mapping[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}


class OpenAIResponsesCodec(Codec):
    """The responses format.

    Args:
        model: the provider's name of the model.
        provider: names the service.
        native: ask for an answer's form by `text.format`.
        strict: send schemas in the strict form of OpenAI where they have one.
    """

    settings = (*RENAMED, "parallel_tool_calls", "thinking")

    def __init__(
        self, model: str, *, provider: str = "openai-responses", native: bool = True, strict: bool = True
    ) -> None:
        self._model = model
        self.provider = provider
        self._native = native
        self._strict = StrictForms("limits" if strict else "never", model)

    @override
    def auth(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    @override
    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request for `POST /responses`."""
        settings, schema = request.settings, request.output_schema if self._native else None
        form = None if schema is None else object_schema(schema)
        thread = Thread(request.messages, self.provider, _said)
        system, rest = thread.split()
        if schema is not None and form is None:
            system = f"{system}\n\n{words(schema)}".strip()
        body: dict[str, JSONValue] = {
            "model": self._model,
            "input": list(_input(rest, provider_files(settings, _file))),
            "stream": True,
            "store": False,
            **renamed(settings, RENAMED),
        }
        if system:
            body["instructions"] = system
        if not self._model.startswith(WITHOUT_REASONING):
            body["include"] = ["reasoning.encrypted_content"]
        if tools := [*map(self._function, request.tools), *provider_tools(settings)]:
            body["tools"] = tools
        if request.tools:
            body |= renamed(settings, {"parallel_tool_calls": "parallel_tool_calls"})
            if (choice := request.tool_choice) != "auto":
                body["tool_choice"] = choice if choice in ("required", "none") else {"type": "function", "name": choice}
        if (thinking := settings.get("thinking")) is not None:
            body |= _reasoning(self._model, thinking)
        if schema is not None and form is not None:
            strict = self._strict.of(schema)
            shape = {"schema": form, "strict": False} if strict is None else {"schema": strict, "strict": True}
            body["text"] = {"format": {"type": "json_schema", "name": "answer", **shape}}
        return Encoded(path="/responses", body=body | extra_body(settings), headers=extra_headers(settings))

    def _function(self, tool: ToolInfo) -> JSONObject:
        strict = self._strict.of(tool.schema)
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema if strict is None else strict,
            "strict": strict is not None,
        }

    @override
    def decoder(self) -> Decoder:
        return OpenAIResponsesDecoder(self.provider)

    @override
    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"error": {...}}`, the event `error`, or the error of a failed response."""
        fields = mapping(data)
        error = fields.get("error") or mapping(fields.get("response")).get("error") or fields
        if isinstance(error, str):
            return Reported(status=status, message=error)
        kind = mapping(error).get("type")
        return from_object(status, mapping(error), (mapping(error).get("code"), None if kind == "error" else kind))


def _reasoning(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    effort = openai_thinking(model, thinking).get("reasoning_effort")
    if effort is None:
        return {}
    return {"reasoning": {"effort": effort, **({"summary": "auto"} if effort != "none" else {})}}


def _file(file_id: str) -> JSONObject:
    return {"type": "input_file", "file_id": file_id}


def _input(rest: Sequence[Entry], files: Sequence[JSONObject] = ()) -> Iterator[JSONObject]:
    """Yield the items; `files` are parts that stand in front of the first input."""
    for entry in rest:
        message = entry.message
        if entry.items:
            yield from entry.items
            continue
        if message.call_id is not None:
            yield {"type": "function_call_output", "call_id": entry.result_id, "output": _content(message)}
            continue
        if message.content or not message.calls:
            in_front = files if message.role == "user" else ()
            files = () if in_front else files
            yield {"role": message.role, "content": _content(message, in_front)}
        for call, call_id in zip(message.calls, entry.call_ids, strict=True):
            arguments = msgspec.json.encode(call.arguments).decode()
            yield {"type": "function_call", "call_id": call_id, "name": call.tool, "arguments": arguments}


def _content(message: Message, in_front: Sequence[JSONObject] = ()) -> JSONValue:
    if not (message.parts or in_front):
        return message.content
    text = [{"type": "input_text", "text": message.content}] if message.content else []
    return [*in_front, *text, *map(parts.responses, message.parts)]


def _said(stored_items: Sequence[JSONObject]) -> Said:
    calls = [item for item in stored_items if item.get("type") == "function_call"]
    return Said(
        "".join(_text(item) for item in stored_items if item.get("type") == "message"),
        [(item["call_id"], item["name"], read_arguments(item["arguments"])[0]) for item in calls],
    )


def _text(item: JSONObject) -> str:
    return "".join(string(part.get("text")) for part in items(item.get("content")) if _speaks(part))


def _speaks(part: JSONValue) -> TypeGuard[JSONObject]:
    return mapping(part).get("type") == "output_text"


class OpenAIResponsesDecoder(Decoder):
    """Reads the events of one answer."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        self._provider = provider
        self._texts: dict[int, list[str]] = {}  # by output_index, as the three below
        self._calls: dict[int, PartialCall] = {}
        self._done: dict[int, JSONObject] = {}
        self._refusal: list[str] = []
        self._finish: FinishReason = "stop"

    @override
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        kind, index = string(data.get("type")) or name, count(data.get("output_index"))
        if kind.endswith(".delta"):
            yield from self._delta(kind, index, string(data.get("delta")))
            return
        match kind:
            case "response.reasoning_summary_part.added" if count(data.get("summary_index")):
                yield ReasoningDelta("\n\n")
            case "response.output_item.added":
                yield from self._begin(index, mapping(data.get("item")))
            case "response.output_item.done":
                yield from self._end(index, mapping(data.get("item")))
            case "response.created" | "response.in_progress":
                self.model = self.model or model_name(mapping(data.get("response")).get("model"))
            case "response.completed" | "response.incomplete":
                yield from self._close(mapping(data.get("response")))
            case "response.failed" | "error":
                raise StreamError(data)
            case _ if data.get("error") and not kind:  # a service that fails in the way of the chat format
                raise StreamError(data)

    def _delta(self, kind: str, index: int, text: str) -> Iterator[ModelDelta]:
        match kind:
            case "response.output_text.delta":
                yield from self._text(index, text)
            case "response.refusal.delta":
                self.grow(text)
                self._refusal.append(text)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if text:
                self.grow(text)
                yield ReasoningDelta(text)
            case "response.function_call_arguments.delta":
                self.grow_values(text)
                self._call(index).arguments.append(text)
                yield CallDelta(index, arguments=text)
            case _:  # empty, or a delta of something that is not read
                pass

    def _text(self, index: int, text: str) -> Iterator[ModelDelta]:
        if text:
            self.grow(text)
            if index not in self._texts:
                self.part()
            self._texts.setdefault(index, []).append(text)
            yield TextDelta(text)

    def _call(self, index: int) -> PartialCall:
        if index not in self._calls:
            self._calls[index] = self.new_call()
        return self._calls[index]

    def _begin(self, index: int, item: JSONObject) -> Iterator[ModelDelta]:
        if item.get("type") == "function_call":
            call = self._call(index)
            call.id, call.tool = self.call_id(string(item.get("call_id"))), self.tool(string(item.get("name")))
            yield CallDelta(index, call.tool)

    def _end(self, index: int, item: JSONObject) -> Iterator[ModelDelta]:
        if not item or index in self._done:
            return
        self._keep(index, item)
        yield from self._begin(index, item)
        if item.get("type") == "function_call":
            call, arguments = self._calls[index], string(item.get("arguments"))
            if arguments and arguments != "".join(call.arguments):
                self.grow_values(arguments)
                call.arguments = [arguments]
        elif item.get("type") == "message" and index not in self._texts:
            yield from self._text(index, _text(item))

    def _keep(self, index: int, item: JSONObject) -> None:
        """Keep an item that is done. Its arguments, and its text if it came before, are not counted twice."""
        self._done[index] = item
        sized_item, content = item, item.get("content")
        if item.get("type") == "function_call":
            sized_item = besides(item, "arguments")
        elif item.get("type") == "message" and isinstance(content, list):
            if index in self._texts and _text(item) != "".join(self._texts[index]):
                self.grow(_text(item))
            sized_item = {**item, "content": [besides(part, "text") if _speaks(part) else part for part in content]}
        self.keep(sized_item)

    def _close(self, response: JSONObject) -> Iterator[ModelDelta]:
        for index, item in enumerate(items(response.get("output"))):  # for services that send no items before
            yield from self._end(index, mapping(item))
        self.model = model_name(response.get("model")) or self.model
        if isinstance(response.get("usage"), Mapping):
            self.usage = usage_of(response["usage"])
        if response.get("status") == "incomplete":
            reason = string(mapping(response.get("incomplete_details")).get("reason"))
            self._finish = INCOMPLETE.get(reason, "other")
        self.complete = self.finished = True

    @override
    def response(self) -> ModelResponse:
        texts = tuple("".join(self._texts[index]) for index in sorted(self._texts))
        calls = calls_of([self._calls[index] for index in sorted(self._calls)], self._finish)
        finish: FinishReason = "tool_calls" if calls and self._finish == "stop" else self._finish
        if finish == "content_filter" and not (texts or calls):
            raise ModelError("a filter of the provider stopped the answer", kind="content_filtered", usage=self.usage)
        refusal = "".join(self._refusal) or None
        return ModelResponse(
            text=texts,
            calls=calls,
            usage=self.usage,
            model=self.model,
            refusal=refusal,
            finish="refusal" if refusal and not (texts or calls) else finish,
            provider=self._provider,
            items=self._items(),
        )

    def _items(self) -> tuple[JSONObject, ...]:
        """Return the output items, if there is more among them than texts and calls, and none is missing."""
        whole = [self._done[index] for index in sorted(self._done)]
        while whole and whole[-1].get("type") == "reasoning":
            whole.pop()  # one without the item that follows it is refused
        more = any(item.get("type") not in ("message", "function_call") for item in whole)
        return tuple(whole) if more and all(index in self._done for index in (*self._texts, *self._calls)) else ()


def usage_of(data: JSONObject) -> Usage:
    """Return the tokens of a usage object; cached ones are within the input, reasoning within the output."""
    details = mapping(data.get("input_tokens_details"))
    return Usage(
        requests=1,
        input=count(data.get("input_tokens")),
        output=count(data.get("output_tokens")),
        cached=count(details.get("cached_tokens")),
        stored=count(details.get("cache_write_tokens")) or msgspec.UNSET,
        reasoning=count(mapping(data.get("output_tokens_details")).get("reasoning_tokens")),
    )
