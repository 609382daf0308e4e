"""OpenAI chat completions, and the many services and local servers that speak the same format.

Source: the types of the official Python SDK (openai 3.54). Deviations of compatible servers are tolerated: calls
without ids, names that are repeated in each piece, whole calls in one piece, `stop` as the reason of an answer with
calls, no `[DONE]`. The mark of a whole answer is the chunk with a `finish_reason`.

A message with calls and without text has the content "", the one form that all take. The AI SDK has sent it to OpenAI,
Azure, DeepSeek, Groq and Mistral (vercel/ai 13744, 14888; req_llm 966 asked DeepSeek), and vLLM makes it of null (vllm
54368). null is refused by llama-cpp-python 0.3.35 (500), Ollama (pydantic-ai 5206), llama.cpp's server (13471), LM
Studio (261) and mlx-lm (185); a missing content by lmdeploy (4035) and by llama-cpp-python's templates (1805). The
price: a template of Ollama's reads "" as a text (14181), and a gateway to Bedrock may make an empty block of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import CallRequest, FinishReason, ModelRequest, ModelResponse, ToolInfo, Usage, read_arguments
from ...contract.plain import JSONObject, JSONValue
from ...errors import ModelError
from . import parts
from .faults import from_object
from .history import Said, Thread
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
    json_text,
    mapping,
    model_name,
    string,
)
from .schemas import object_schema, words
from .settings import extra_body, extra_headers, provider_files, provider_tools, renamed
from .strict_schemas import StrictForms
from .variant import OPENAI, ChatVariant

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
    "cache_key": "prompt_cache_key",
    "cache_retention": "prompt_cache_retention",
}


class OpenAIChatCodec(Codec):
    """The chat format.

    Args:
        model: the provider's name of the model.
        provider: names the service.
        variant: what the server has otherwise than OpenAI.
        path: behind the base URL, with its query.
        native: ask for an answer's form by `response_format`.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str = "openai",
        variant: ChatVariant = OPENAI,
        path: str = "/chat/completions",
        native: bool = True,
    ) -> None:
        self._model = model
        self.provider = provider
        self._variant = variant
        self._path = path
        self._native = native
        self.budgets = variant.budgets
        self._strict = StrictForms(variant.strict, model)
        self._wire_names = {**RENAMED, "max_tokens": variant.limit_field, "seed": variant.seed_field}
        self.settings = tuple(
            name for name in ("max_tokens", *RENAMED, "parallel_tool_calls", "thinking") if name not in variant.lacks
        )

    @override
    def auth(self, key: str) -> Mapping[str, str]:
        header = self._variant.key_header
        return {header: key} if header else {"authorization": f"Bearer {key}"}

    @override
    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request for `POST /chat/completions`."""
        settings, variant = request.settings, self._variant
        form, in_words = self._form(request)
        thread = Thread(request.messages, self.provider, _said, variant.call_id)
        body: dict[str, JSONValue] = {
            "model": self._model,
            "messages": [*in_words, *_messages(thread, provider_files(settings, _file))],
            "stream": True,
            **({"stream_options": {"include_usage": True}} if variant.counts else {}),
            **renamed(settings, self._wire_names),
        }
        if tools := [*map(self._function, request.tools), *provider_tools(settings)]:
            body["tools"] = tools
        if request.tools:
            body |= renamed(settings, {"parallel_tool_calls": "parallel_tool_calls"})  # refused beside no tools
            if (choice := request.tool_choice) != "auto":
                words_of = {"required": variant.required, "none": "none"}
                body["tool_choice"] = words_of.get(choice, {"type": "function", "function": {"name": choice}})
        if (thinking := settings.get("thinking")) is not None:
            body |= variant.thinking(self._model, thinking)
        if form is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", **form}}
        return Encoded(path=self._path, body=body | extra_body(settings), headers=extra_headers(settings))

    def _form(self, request: ModelRequest) -> tuple[JSONObject | None, Sequence[JSONObject]]:
        """Return the fields of the answer's form, and the messages that ask for it in words."""
        schema, way = request.output_schema if self._native else None, self._variant.form
        if schema is None:
            return None, ()
        asks_natively = way == "native" or (way == "without_tools" and not request.tools)
        form = object_schema(schema) if asks_natively else None
        if form is None:
            return None, ({"role": "system", "content": words(schema)},)
        strict = self._strict.of(schema)
        return {"schema": form} if strict is None else {"schema": strict, "strict": True}, ()

    def _function(self, tool: ToolInfo) -> JSONObject:
        strict = self._strict.of(tool.schema)
        form = {"parameters": tool.schema} if strict is None else {"parameters": strict, "strict": True}
        return {"type": "function", "function": {"name": tool.name, "description": tool.description, **form}}

    @override
    def decoder(self) -> Decoder:
        return OpenAIChatDecoder(self.provider, self._variant)

    @override
    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"error": {"message", "type", "code", "param"}}`."""
        error = mapping(data).get("error", data)
        if isinstance(error, str):
            return Reported(status=status, message=error)
        fields = mapping(error)
        return from_object(status, fields, (fields.get("code"), fields.get("type")))


def _file(file_id: str) -> JSONObject:
    return {"type": "file", "file": {"file_id": file_id}}


def _messages(thread: Thread, files: Sequence[JSONObject] = ()) -> Iterator[JSONObject]:
    """Yield the messages. A tool's message takes text only: its images and files follow when all calls are answered.

    Args:
        thread: The messages of the request.
        files: parts that stand in front of the first input.
    """
    behind: list[JSONObject] = []
    for entry in thread.entries:
        message = entry.message
        if behind and message.call_id is None:
            yield {"role": "user", "content": behind}
            behind = []
        if message.parts and message.call_id is not None:
            behind += [{"type": "text", "text": parts.announced(message)}, *map(parts.chat, message.parts)]
        if entry.items:
            yield entry.items[0]
            continue
        out: dict[str, JSONValue] = {"role": message.role, "content": message.content}
        if message.calls:
            out["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": msgspec.json.encode(call.arguments).decode()},
                }
                for call, call_id in zip(message.calls, entry.call_ids, strict=True)
            ]
        if message.call_id is not None:
            out["tool_call_id"] = entry.result_id
        elif message.parts or (files and message.role == "user"):
            text = [{"type": "text", "text": message.content}] if message.content else []
            out["content"] = [*(files if message.role == "user" else ()), *text, *map(parts.chat, message.parts)]
            files = () if message.role == "user" else files
        yield out
    if behind:
        yield {"role": "user", "content": behind}


def _said(stored_items: Sequence[JSONObject]) -> Said:
    message = stored_items[0]
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    return Said(
        message.get("content") or "",
        [(name, function["name"], read_arguments(function["arguments"])[0]) for name, function in calls],
    )


class OpenAIChatDecoder(Decoder):
    """Reads the chunks of one answer.

    Args:
        provider: names the service.
        variant: what the server has otherwise than OpenAI.
    """

    def __init__(self, provider: str, variant: ChatVariant) -> None:
        super().__init__()
        self._provider = provider
        self._variant = variant
        self._reasoning: dict[str, list[str]] = {}  # under the name that the server gives it
        self._details: list[tuple[str, JSONObject, list[str]]] = []  # the field of the text, the others, the text
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[PartialCall] = []
        self._slots: dict[int, PartialCall] = {}
        self._finish: str | None = None

    @override
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        if data.get("error"):
            raise StreamError(data)
        self.model = self.model or model_name(data.get("model"))
        if isinstance(data.get("usage"), Mapping):
            self.usage = usage_of(data["usage"])
        for choice in map(mapping, items(data.get("choices"))):
            if choice.get("index") in (0, None):
                yield from self._choice(choice)

    @override
    def done(self) -> None:
        """Take `[DONE]`: the end of an answer whose server gives no reason for it; OpenAI always gives one."""
        if self._variant.ends_without_reason and (self._text or self._calls):
            self.complete = True
        super().done()

    def _choice(self, choice: JSONObject) -> Iterator[ModelDelta]:
        delta = mapping(choice.get("delta")) or mapping(choice.get("message"))  # the latter: whole, in one event
        for field in ("reasoning_content", "reasoning"):  # the same text under two names; it goes back under its own
            if reasoning := string(delta.get(field)):
                self.grow(reasoning)
                self._reasoning.setdefault(field, []).append(reasoning)
                yield ReasoningDelta(reasoning)
                break
        for detail in map(mapping, items(delta.get("reasoning_details"))):
            self._detail(detail)
        yield from self._content(delta.get("content"))
        if refusal := string(delta.get("refusal")):
            self.grow(refusal)
            self._refusal.append(refusal)
        for piece in map(mapping, items(delta.get("tool_calls"))):
            yield self._call(piece)
        if finish := string(choice.get("finish_reason")):
            self._finish, self.complete = finish, True

    def _content(self, content: JSONValue) -> Iterator[ModelDelta]:
        """Take a text, or Mistral's list of texts and thoughts."""
        if text := string(content):
            self.grow(text)
            self._text.append(text)
            yield TextDelta(text)
        for part in map(mapping, items(content)):
            if part.get("type") == "thinking":
                for thought in map(mapping, items(part.get("thinking"))):
                    self.grow(string(thought.get("text")))
                    yield ReasoningDelta(string(thought.get("text")))
            else:
                yield from self._content(string(part.get("text")))

    def _detail(self, detail: JSONObject) -> None:
        """Keep a detail of the reasoning. Pieces of a text, each a detail like the one before, become one detail."""
        field = next((name for name in ("text", "summary") if isinstance(detail.get(name), str)), "")
        text, rest = string(detail.get(field)), besides(detail, field)
        self.grow(text)
        if not (field and self._details and self._details[-1][:2] == (field, rest)):
            self.keep(rest)
            self._details.append((field, rest, []))
        self._details[-1][2].append(text)

    def _call(self, piece: JSONObject) -> CallDelta:
        function, call_id = mapping(piece.get("function")), string(piece.get("id"))
        tool, index = string(function.get("name")), piece.get("index")
        if type(index) is not int:  # some servers number nothing: a piece with an id or a name begins a call
            index = len(self._calls) if not self._calls or call_id or tool else len(self._calls) - 1
        call = self._slots.get(index)
        if call is None or (call_id and tool and call.id and call.id != call_id):  # whole calls, all with index 0
            call = self._slots[index] = self.new_call()
            self._calls.append(call)
        call.id, new = call.id or self.call_id(call_id), "" if call.tool else self.tool(tool)
        call.tool = call.tool or tool
        arguments = function.get("arguments")
        text = string(arguments)
        if isinstance(arguments, Mapping):  # a whole value in place of its text
            self.grow_values(json_text(arguments))
            call.ready = arguments
        elif text:
            self.grow_values(text)
            call.arguments.append(text)
        if isinstance(piece.get("extra_content"), Mapping):  # signatures, where another format is behind this one
            self.keep(piece["extra_content"])
            call.extras["extra_content"] = piece["extra_content"]
        return CallDelta(call.place, new, text)

    @override
    def response(self) -> ModelResponse:
        text, refusal = "".join(self._text), "".join(self._refusal)
        finish = "length" if self._finish is None else FINISHES.get(self._finish, "other")
        calls = calls_of(self._calls, finish)  # without a reason the last call may be cut
        finish = "stop" if self._finish is None else finish
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
            provider=self._provider,
            items=self._items(text, calls),
        )

    def _items(self, text: str, calls: Sequence[CallRequest]) -> tuple[JSONObject, ...]:
        """Return the whole message, if it has more than text and calls; results need ids to refer to."""
        extras: dict[str, JSONValue] = {}
        if self._variant.keeps_reasoning:
            extras = {field: "".join(pieces) for field, pieces in self._reasoning.items()}
        if self._details:
            extras["reasoning_details"] = [
                {**rest, field: "".join(pieces)} if field else rest for field, rest, pieces in self._details
            ]
        if not (extras or any(call.extras for call in self._calls)) or not all(call.call_id for call in calls):
            return ()
        message = {"role": "assistant", "content": text, **extras}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": json_text(call.arguments)},
                    **partial.extras,
                }
                for call, partial in zip(calls, self._calls, strict=True)
            ]
        return (message,)


def usage_of(data: JSONObject) -> Usage:
    """Return the tokens of a usage object; cached ones are within the input, reasoning within the output."""
    details = mapping(data.get("prompt_tokens_details"))
    return Usage(
        requests=1,
        input=count(data.get("prompt_tokens")),
        output=count(data.get("completion_tokens")),
        cached=count(details.get("cached_tokens")) or count(data.get("prompt_cache_hit_tokens")),  # DeepSeek's name
        stored=count(details.get("cache_write_tokens")) or msgspec.UNSET,
        reasoning=count(mapping(data.get("completion_tokens_details")).get("reasoning_tokens")),
    )
