"""Anthropic messages.

Source: the types of the official Python SDK (anthropic 2.12). The mark of a whole answer is `message_stop`, or the
`message_delta` with a stop reason before it. Content blocks go back as they came if there is thinking among them, or
work of Anthropic's own tools (searches, code that ran).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from typing_extensions import override

from ...contract.messages import ModelRequest, ToolInfo
from ...contract.plain import JSONObject, JSONValue
from . import parts
from .anthropic_stream import AnthropicDecoder
from .faults import from_object
from .history import Entry, Said, Thread
from .port import Codec, Decoder, Encoded, Reported, mapping
from .schemas import closed_schema, object_schema, words
from .settings import extra_body, extra_headers, provider_files, provider_tools, renamed
from .thinking import anthropic_fault, anthropic_takes_budget, anthropic_thinking

NEWEST: Final = "2026-10-21"
"""Version of the API that is asked for."""
SAMPLED: Final = "2023-06-01"
"""The version that takes temperature, top_p and top_k."""
FILES: Final = "files-api-2025-04-14"
"""The beta of files by their ids, which that version needs."""
MAX_TOKENS: Final = 8192
"""Default for max_tokens, which the format requires."""
RENAMED: Final = {"max_tokens": "max_tokens", "stop_sequences": "stop_sequences", "service_tier": "service_tier"}
RETENTIONS: Final[Mapping[str, JSONObject]] = {
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}
"""The setting cache_retention -> the mark of the end of a beginning that the provider keeps."""
SAMPLING: Final = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}


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
        self.settings = (*self._wire_names, "parallel_tool_calls", "thinking", "cache_retention")
        self.budgets = anthropic_takes_budget(model)

    @override
    def check(self, settings: JSONObject) -> str | None:
        sampling = next((name for name in settings if name in SAMPLING and name not in self.settings), None)
        if sampling is not None:
            way = f'leave it out, or ask with Anthropic(..., api_version="{SAMPLED}")'
            return f"the newest version of the API has no {sampling!r}; {way}"
        fault = super().check(settings)
        if fault is not None:
            return fault
        if (retention := settings.get("cache_retention")) is not None and retention not in RETENTIONS:
            return f"cache_retention={retention!r:.100}: give one of {', '.join(RETENTIONS)}"
        return anthropic_fault(self._model, settings)

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
        if files := provider_files(settings, _file):
            _put_in_front(body["messages"], files)
        body |= _tools(request)
        must_call = bool(request.tools) and request.tool_choice not in ("auto", "none")
        fields, config = anthropic_thinking(self._model, settings, MAX_TOKENS, must_call=must_call)
        body |= fields
        if form is not None:
            config["format"] = {"type": "json_schema", "schema": form}
        if config:
            body["output_config"] = config
        if retention := settings.get("cache_retention"):
            _mark(body, RETENTIONS[retention])
        headers = {"anthropic-version": self._version}
        if files and self._version == SAMPLED:
            headers["anthropic-beta"] = FILES
        headers |= extra_headers(settings)
        return Encoded(path="/v1/messages", body=body | extra_body(settings), headers=headers)

    @override
    def decoder(self) -> Decoder:
        return AnthropicDecoder(self.provider)

    @override
    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"type": "error", "error": {"type", "message"}}`."""
        error = mapping(mapping(data).get("error"))
        return from_object(status, error, (error.get("type"),))


def _tools(request: ModelRequest) -> dict[str, JSONValue]:
    """Return the fields of the tools, and of the choice among them."""
    tools = [*map(_tool, request.tools), *provider_tools(request.settings)]
    choice = _choice(request.tool_choice, request.settings.get("parallel_tool_calls"))
    choice_field = {"tool_choice": choice} if request.tools and choice != {"type": "auto"} else {}
    return {**({"tools": tools} if tools else {}), **choice_field}


def _tool(tool: ToolInfo) -> JSONObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _file(file_id: str) -> JSONObject:
    return {"type": "document", "source": {"type": "file", "file_id": file_id}}


def _put_in_front(messages: list[dict[str, JSONValue]], files: list[JSONObject]) -> None:
    """Put files in front of the first input."""
    first = next((message for message in messages if message["role"] == "user"), None)
    if first is not None:
        first["content"] = [*files, *first["content"]]


def _choice(choice: str, parallel: bool | None) -> dict[str, JSONValue]:
    """Return the field tool_choice, which also says whether the answer may have several calls."""
    if choice == "none":
        return {"type": "none"}
    words = {"auto": "auto", "required": "any"}
    tool_choice: dict[str, JSONValue] = {"type": words[choice]} if choice in words else {"type": "tool", "name": choice}
    return tool_choice if parallel is None else {**tool_choice, "disable_parallel_tool_use": not parallel}


def _mark(body: dict[str, JSONValue], mark: JSONObject) -> None:
    """Mark where beginnings of the request end that later requests share: tools, system text, the two newest inputs."""
    if body.get("tools"):
        body["tools"][-1] = {**body["tools"][-1], "cache_control": mark}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    inputs = [message["content"] for message in body["messages"] if message["role"] == "user"]
    for blocks in inputs[-2:]:
        blocks[-1] = {**blocks[-1], "cache_control": mark}


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
