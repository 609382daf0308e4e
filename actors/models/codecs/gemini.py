"""Gemini generateContent, as a stream of server-sent events.

Source: the types of the official Python SDK (google-genai 3.4). The mark of a whole answer is a chunk with a
`finishReason`; counts may follow. Parts with a `thoughtSignature` and those of Google's own tools go back unchanged.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from typing_extensions import override

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import FinishReason, ModelRequest, ModelResponse, ToolInfo, Usage
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
    items,
    json_text,
    mapping,
    model_name,
    string,
)
from .schemas import words
from .settings import extra_body, extra_headers, provider_files, provider_tools, renamed
from .thinking import gemini_takes_budget, gemini_thinking

RENAMED: Final = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop_sequences": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
FINISHES: Final[Mapping[str, FinishReason]] = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
FILTERED: Final = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"})
MALFORMED: Final = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"}
)
UNSIGNED: Final = b64encode(b"skip_thought_signature_validator").decode()
"""The documented signature for a call that another provider's model, or no model, has made."""
DETAILS: Final = 64
"""Details of an error, and violations in one of them, that are read; three come in practice."""
KEPT: Final = frozenset({"thoughtSignature", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
"""Fields of parts that have to come back: signatures, and the work of Google's own tools."""
WITHOUT_SIGNATURES: Final = ("gemini-1", "gemini-2")
"""Beginnings of the names of models that check no signatures."""


class GeminiCodec(Codec):
    """The generateContent format.

    Args:
        model: the provider's name of the model.
        api_version: The version of the API, a part of the path.
        native: ask for an answer's form by `responseJsonSchema`, where no tools are offered.
    """

    provider = "gemini"
    settings = (*RENAMED, "thinking")

    def __init__(self, model: str, *, api_version: str = "v1beta", native: bool = True) -> None:
        self._model = model
        self._version = api_version
        self._native = native
        self.budgets = gemini_takes_budget(model)

    @override
    def auth(self, key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": key}

    @override
    def encode(self, request: ModelRequest) -> Encoded:
        """Return a request for `POST /{version}/models/{model}:streamGenerateContent?alt=sse`."""
        settings, schema = request.settings, request.output_schema if self._native else None
        thread = Thread(request.messages, self.provider, _said)
        system, rest = thread.split()
        config: dict[str, JSONValue] = renamed(settings, RENAMED)
        if schema is not None and request.tools:  # most models refuse a form beside tools
            system = f"{system}\n\n{words(schema)}".strip()
        elif schema is not None:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        if (thinking := settings.get("thinking")) is not None:
            config["thinkingConfig"] = gemini_thinking(self._model, thinking)
        body: dict[str, JSONValue] = {
            "contents": _contents(rest, signed=not self._model.startswith(WITHOUT_SIGNATURES))
        }
        if files := provider_files(settings, _file):
            _put_in_front(body["contents"], files)
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        functions = [{"functionDeclarations": list(map(_function, request.tools))}] if request.tools else []
        if tools := [*functions, *provider_tools(settings)]:
            body["tools"] = tools
        if request.tools and request.tool_choice != "auto":
            body["toolConfig"] = {"functionCallingConfig": _choice(request.tool_choice)}
        if config:
            body["generationConfig"] = config
        place = self._model if "/" in self._model else f"models/{self._model}"
        path = f"/{self._version}/{quote(place)}:streamGenerateContent?alt=sse"
        return Encoded(path=path, body=body | extra_body(settings), headers=extra_headers(settings))

    @override
    def decoder(self) -> Decoder:
        return GeminiDecoder(self.provider)

    @override
    def error(self, status: int | None, data: object) -> Reported:
        """Read `{"error": {"code", "message", "status", "details"}}`, also as the first of an array."""
        if isinstance(data, list):
            data = data[0] if data else None
        error = mapping(mapping(data).get("error"))
        details = list(map(mapping, items(error.get("details"))[:DETAILS]))
        reasons = tuple(detail.get("reason") for detail in details)
        daily = "daily_quota" if any(map(_is_daily, details)) else None
        report = from_object(status, error, (daily, *reasons, error.get("status"), error.get("code")))
        delays = [_delay(detail.get("retryDelay")) for detail in details]
        return Reported(
            codes=report.codes,
            message=report.message,
            status=report.status,
            retry_after=next((delay for delay in delays if delay is not None), None),
        )


def _choice(choice: str) -> dict[str, JSONValue]:
    modes = {"required": "ANY", "none": "NONE"}
    return {"mode": modes[choice]} if choice in modes else {"mode": "ANY", "allowedFunctionNames": [choice]}


def _is_daily(detail: JSONObject) -> bool:
    return any(
        "PerDay" in string(one.get("quotaId")) for one in map(mapping, items(detail.get("violations"))[:DETAILS])
    )


def _delay(text: object) -> float | None:
    """Return the seconds of a duration such as "12.5s"."""
    try:
        seconds = float(string(text).removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _file(uri: str) -> JSONObject:
    return {"fileData": {"fileUri": uri}}


def _put_in_front(contents: list[dict[str, JSONValue]], files: list[JSONObject]) -> None:
    """Put files in front of the first input."""
    first = next((content for content in contents if content["role"] == "user"), None)
    if first is not None:
        first["parts"] = [*files, *first["parts"]]


def _function(tool: ToolInfo) -> JSONObject:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}


def _contents(rest: Sequence[Entry], *, signed: bool) -> list[dict[str, JSONValue]]:
    out: list[dict[str, JSONValue]] = []
    for entry in rest:
        role = "model" if entry.message.role == "assistant" else "user"
        content_parts = list(_parts(entry, signed=signed))
        if content_parts and out and out[-1]["role"] == role:
            out[-1]["parts"] += content_parts
        elif content_parts:
            out.append({"role": role, "parts": content_parts})
    for content in out:  # responses of functions first, then what a response cannot hold
        content["parts"].sort(key=lambda part: content["role"] == "user" and "functionResponse" not in part)
    return out


def _parts(entry: Entry, *, signed: bool) -> Iterator[JSONObject]:
    message = entry.message
    if entry.items:
        yield from entry.items
        return
    if message.call_id is not None:
        response_fields = {"name": entry.tool, "response": {"output": message.content}}
        media = list(map(parts.gemini, message.parts))
        inner_media = [part for part in media if signed and parts.in_response(part)]
        response = {
            **response_fields,
            "id": entry.result_id,
            **({"parts": inner_media} if inner_media else {}),
        }
        yield {"functionResponse": response}
        if rest := [part for part in media if part not in inner_media]:
            yield from ({"text": parts.announced(message)}, *rest)
        return
    if message.content:
        yield {"text": message.content}
    yield from map(parts.gemini, message.parts)
    for number, (call, call_id) in enumerate(zip(message.calls, entry.call_ids, strict=True)):
        part = {"functionCall": {"name": call.tool, "args": call.arguments, "id": call_id}}
        yield {**part, "thoughtSignature": UNSIGNED} if signed and number == 0 else part


def _said(stored_parts: Sequence[JSONObject]) -> Said:
    calls = [part["functionCall"] for part in stored_parts if "functionCall" in part]
    return Said(
        "".join(string(part.get("text")) for part in stored_parts if not part.get("thought")),
        [(string(call.get("id")), call["name"], mapping(call.get("args"))) for call in calls],
    )


class GeminiDecoder(Decoder):
    """Reads the chunks of one answer."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        self._provider = provider
        self._text: list[str] = []
        self._calls: list[PartialCall] = []
        self._parts_kept: list[dict[str, JSONValue]] = []
        self._text_pieces: list[list[str]] = []  # the texts of the parts that are kept, in pieces
        self._reason = ""
        self._why = ""

    @override
    def take(self, name: str, data: JSONObject) -> Iterator[ModelDelta]:
        if data.get("error"):
            raise StreamError(data)
        self.model = self.model or model_name(data.get("modelVersion"))
        if isinstance(data.get("usageMetadata"), Mapping):
            self.usage = usage_of(data["usageMetadata"])
        if why := cause(mapping(data.get("promptFeedback")).get("blockReason")):
            raise ModelError(f"the provider blocked the request: {why}", kind="content_filtered", usage=self.usage)
        candidates = items(data.get("candidates"))
        candidate = mapping(candidates[0]) if candidates else {}
        for part in map(mapping, items(mapping(candidate.get("content")).get("parts"))):
            yield from self._part(part)
        if reason := cause(candidate.get("finishReason")):
            self._reason, self.complete = reason, True
            self._why = cause(candidate.get("finishMessage"))

    def _part(self, part: JSONObject) -> Iterator[ModelDelta]:
        text = string(part.get("text"))
        self.grow(text)
        if text and part.get("thought") is True:
            yield ReasoningDelta(text)
        elif text:
            self._text.append(text)
            yield TextDelta(text)
        if isinstance(part.get("functionCall"), Mapping):
            call = part["functionCall"]
            partial = self.new_call(string(call.get("id")), string(call.get("name")))
            partial.ready = {} if call.get("args") is None else call["args"]
            arguments = json_text(partial.ready)
            self.grow_values(arguments)
            self._calls.append(partial)
            yield CallDelta(partial.place, partial.tool, arguments)
        self._keep(part)

    def _keep(self, part: JSONObject) -> None:
        """Keep a part that goes back; texts in pieces become one part, and thoughts go back by their signature only."""
        before = self._parts_kept[-1] if self._parts_kept else {}
        if part.keys() == before.keys() == {"text"}:
            self._text_pieces[-1].append(string(part.get("text")))
        elif part and not (part.get("thought") and "thoughtSignature" not in part):
            sized_part, call = besides(part, "text"), part.get("functionCall")
            if isinstance(call, Mapping):
                sized_part["functionCall"] = {name: value for name, value in call.items() if name != "args"}
            self.keep(sized_part)
            self._parts_kept.append(dict(part))
            self._text_pieces.append([string(part.get("text"))])

    @override
    def response(self) -> ModelResponse:
        text, reason = "".join(self._text), f"{self._reason}: {self._why}".removesuffix(": ")
        if self._reason in MALFORMED:
            raise ModelError(f"the model's answer cannot be used: {reason}", kind="provider", usage=self.usage)
        if self._reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelError(f"the provider refused the history: {reason}", kind="invalid_request", usage=self.usage)
        is_filtered = self._reason in FILTERED or self._reason.startswith("IMAGE_")
        if is_filtered and not (text or self._calls):
            raise ModelError(
                f"a filter of the provider stopped the answer: {reason}", kind="content_filtered", usage=self.usage
            )
        for part, pieces in zip(self._parts_kept, self._text_pieces, strict=True):
            if "text" in part:
                part["text"] = "".join(pieces)
        finish: FinishReason = "content_filter" if is_filtered else FINISHES.get(self._reason, "other")
        calls = calls_of(self._calls, finish)
        return ModelResponse(
            text=(text,) if text else (),
            calls=calls,
            usage=self.usage,
            model=self.model,
            finish="tool_calls" if calls and finish == "stop" else finish,
            provider=self._provider,
            items=tuple(self._parts_kept) if any(map(KEPT.intersection, self._parts_kept)) else (),
        )


def usage_of(data: JSONObject) -> Usage:
    """Return the tokens of a running total. Thoughts are counted beside the candidates, cached ones in the prompt."""
    thoughts = count(data.get("thoughtsTokenCount"))
    return Usage(
        requests=1,
        input=count(data.get("promptTokenCount")) + count(data.get("toolUsePromptTokenCount")),
        output=count(data.get("candidatesTokenCount")) + thoughts,
        cached=count(data.get("cachedContentTokenCount")),
        reasoning=thoughts,
    )
