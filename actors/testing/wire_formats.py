"""The bytes that services send: one answer, written in each of the four formats as its official SDK reads it. Pure.

FORMATS["chat"].stream(Answer(parts=("Hello ", think("hm"), call("add", a=1, id="c1"))))   # events, as bytes
FORMATS["chat"].error(429, "", "slow down")                                                # the body of a status
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs
import msgspec

from ..contract.messages import Usage
from ..contract.plain import JSONObject, JSONValue
from .models import Call, Think

Part = str | Call | Think
_Fields = dict[str, JSONValue]


class _Say(Protocol):
    def __call__(self, kind: str, **fields: object) -> None: ...


_Item = Callable[[_Fields, Callable[[_Fields], None], _Fields], None]
SIGNATURE = "c2lnbmF0dXJl"
USED = Usage(requests=1, input=31, output=9, cached=7, reasoning=4)


@attrs.frozen
class Answer:
    """The content of an answer: texts, reasoning and calls in their order, why it ends, and what that has cost."""

    parts: Sequence[Part] = ()
    finish: str = ""
    usage: Usage = USED
    pieces: int = 4
    """Most characters of a delta."""

    @property
    def calls(self) -> list[Call]:
        """The calls of the answer."""
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def text(self) -> str:
        """All texts of the answer, joined."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def cut(self, text: str) -> Iterator[str]:
        """Yield a text in deltas."""
        yield from (text[at : at + self.pieces] for at in range(0, len(text), self.pieces))


@attrs.frozen
class Format:
    """One wire format: where it is asked, how it streams an answer, and how it says that something went wrong."""

    name: str
    path: str
    first: int
    """Events up to the first text of an answer that begins with one."""
    stream: Callable[[Answer], list[bytes]]
    error: Callable[[int, str, str], JSONObject]
    """(status, code, message) -> the JSON body."""
    stream_error: Callable[[str, str], bytes]
    """(code, message) -> the event of a stream; without a code the service is overloaded."""


def event(data: object, name: str = "") -> bytes:
    """Return a server-sent event: a text as it is, other data as JSON."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def _stored(tokens: Usage) -> int:
    return 0 if tokens.stored is msgspec.UNSET else tokens.stored


def _arguments(call: Call) -> str:
    return json.dumps(call.arguments) if call.raw is None else call.raw


# --- OpenAI chat completions -----------------------------------------------------------------------------------------


def _chat_stream(answer: Answer) -> list[bytes]:
    def chunk(finish: str | None = None, **delta: object) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**head, "choices": [choice], "usage": None})

    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "small-1"}
    out = [chunk(role="assistant", content="", refusal=None)]
    for part in answer.parts:
        if isinstance(part, str):
            out += [chunk(content=piece) for piece in answer.cut(part)]
        elif isinstance(part, Think):
            out += [chunk(reasoning_content=piece) for piece in answer.cut(part.text)]
    starts, rest = [], []
    for index, part in enumerate(answer.calls):
        function = {"name": part.tool, "arguments": ""}
        starts.append(chunk(tool_calls=[{"index": index, "id": part.id, "type": "function", "function": function}]))
        pieces = list(answer.cut(_arguments(part)))
        rest.append([chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}]) for piece in pieces])
    out += starts
    for at in range(max(map(len, rest), default=0)):  # the pieces of several calls come in turns
        out += [pieces[at] for pieces in rest if at < len(pieces)]
    tokens = answer.usage
    usage = {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": _stored(tokens)},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
    out.append(chunk(answer.finish or ("tool_calls" if answer.calls else "stop")))
    out.append(event({**head, "choices": [], "usage": usage}))
    out.append(event("[DONE]"))
    return out


OPENAI_CODES = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "overloaded"),
}


def _openai_error(status: int, code: str, message: str) -> JSONObject:
    kind, default_code = OPENAI_CODES.get(status, ("invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "code": code or default_code, "param": None}}


def _chat_stream_error(code: str, message: str) -> bytes:
    return event(_openai_error(500, code or "server_is_overloaded", message))


# --- OpenAI responses ------------------------------------------------------------------------------------------------


def _responses_stream(answer: Answer) -> list[bytes]:
    out, done = list[bytes](), list[_Fields]()

    def say(kind: str, **fields: object) -> None:
        out.append(event({"type": kind, "sequence_number": len(out), **fields}, kind))

    def item(first: _Fields, deltas: Callable[[_Fields], None], whole: _Fields) -> None:
        place = {"output_index": len(done)}
        say("response.output_item.added", **place, item=first)
        deltas({**place, "item_id": first["id"]})
        say("response.output_item.done", **place, item=whole)
        done.append(whole)

    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": "small-1",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tools": [],
        "temperature": 1.0,
        "tool_choice": "auto",
        "top_p": 1.0,
        "status": "in_progress",
        "output": [],
    }
    say("response.created", response=head)
    for number, part in enumerate(answer.parts):
        if isinstance(part, str):
            _responses_text(say, item, answer, f"msg_{number}", part)
        elif isinstance(part, Think):
            _responses_thought(say, item, answer, f"rs_{number}", part.text)
    for number, part in enumerate(answer.calls):
        _responses_call(say, item, answer, f"fc_{number}", part)
    tokens = answer.usage
    usage = {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": _stored(tokens)},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    status = "incomplete" if answer.finish in reasons else "completed"
    details = {"reason": reasons[answer.finish]} if answer.finish in reasons else None
    response = {**head, "status": status, "output": done, "usage": usage, "incomplete_details": details}
    say(f"response.{status}", response=response)
    return out


def _responses_text(say: _Say, item: _Item, answer: Answer, name: str, text: str) -> None:
    def deltas(place: _Fields) -> None:
        place = {**place, "content_index": 0}
        say("response.content_part.added", **place, part={**part, "text": ""})
        for piece in answer.cut(text):
            say("response.output_text.delta", **place, delta=piece, logprobs=[])
        say("response.output_text.done", **place, text=text, logprobs=[])
        say("response.content_part.done", **place, part=part)

    part = {"type": "output_text", "text": text, "annotations": []}
    first = {"id": name, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    item(first, deltas, {**first, "status": "completed", "content": [part]})


def _responses_thought(say: _Say, item: _Item, answer: Answer, name: str, text: str) -> None:
    def deltas(place: _Fields) -> None:
        place = {**place, "summary_index": 0}
        say("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
        for piece in answer.cut(text):
            say("response.reasoning_summary_text.delta", **place, delta=piece)
        say("response.reasoning_summary_text.done", **place, text=text)
        say("response.reasoning_summary_part.done", **place, part=part)

    part = {"type": "summary_text", "text": text}
    first = {"id": name, "type": "reasoning", "summary": [], "encrypted_content": "gAA"}
    item(first, deltas, {**first, "summary": [part], "encrypted_content": SIGNATURE})


def _responses_call(say: _Say, item: _Item, answer: Answer, name: str, part: Call) -> None:
    def deltas(place: _Fields) -> None:
        for piece in answer.cut(arguments):
            say("response.function_call_arguments.delta", **place, delta=piece)
        say("response.function_call_arguments.done", **place, name=part.tool, arguments=arguments)

    arguments = _arguments(part)
    first = {"id": name, "type": "function_call", "call_id": part.id, "name": part.tool, "arguments": ""}
    item(first, deltas, {**first, "status": "completed", "arguments": arguments})


def _responses_stream_error(code: str, message: str) -> bytes:
    fault = {"type": "error", "code": code or "server_is_overloaded", "message": message, "param": None}
    return event({**fault, "sequence_number": 9}, "error")


# --- Anthropic messages ----------------------------------------------------------------------------------------------


def _anthropic_stream(answer: Answer) -> list[bytes]:
    out, number = list[bytes](), 0

    def say(kind: str, **fields: object) -> None:
        out.append(event({"type": kind, **fields}, kind))

    def block(first: _Fields, *deltas: _Fields) -> None:
        nonlocal number
        say("content_block_start", index=number, content_block=first)
        for delta in deltas:
            say("content_block_delta", index=number, delta=delta)
        say("content_block_stop", index=number)
        number += 1

    tokens = answer.usage
    usage = {
        "input_tokens": tokens.input - tokens.cached - _stored(tokens),
        "cache_creation_input_tokens": _stored(tokens),
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "small-1", "content": []}
    say("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    for part in sorted(answer.parts, key=lambda part: isinstance(part, Call)):
        if isinstance(part, str):
            block({"type": "text", "text": ""}, *({"type": "text_delta", "text": one} for one in answer.cut(part)))
        elif isinstance(part, Think):
            thoughts = ({"type": "thinking_delta", "thinking": one} for one in answer.cut(part.text))
            signature = {"type": "signature_delta", "signature": SIGNATURE}
            block({"type": "thinking", "thinking": "", "signature": ""}, *thoughts, signature)
        else:
            pieces = ["", *answer.cut(_arguments(part))]
            deltas = ({"type": "input_json_delta", "partial_json": one} for one in pieces)
            block({"type": "tool_use", "id": part.id, "name": part.tool, "input": {}}, *deltas)
    say("ping")
    reasons = {"length": "max_tokens", "": "tool_use" if answer.calls else "end_turn"}
    details = {"thinking_tokens": tokens.reasoning}
    message_delta = {"stop_reason": reasons.get(answer.finish, answer.finish), "stop_sequence": None}
    say("message_delta", delta=message_delta, usage={"output_tokens": tokens.output, "output_tokens_details": details})
    say("message_stop")
    return out


ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def _anthropic_error(status: int, code: str, message: str) -> JSONObject:
    kind = code or ANTHROPIC_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _anthropic_stream_error(code: str, message: str) -> bytes:
    return event(_anthropic_error(529, code, message), "error")


# --- Gemini generateContent ------------------------------------------------------------------------------------------


def _gemini_stream(answer: Answer) -> list[bytes]:
    def chunk(parts: Sequence[JSONObject], **more: object) -> bytes:
        content = {"role": "model", "parts": parts}
        counts = {"promptTokenCount": tokens.input, "totalTokenCount": tokens.input}
        rest = {"usageMetadata": more.pop("usage", counts), "modelVersion": "small-1", "responseId": "r1"}
        return event({"candidates": [{"content": content, "index": 0, **more}], **rest})

    tokens, out, needs_signature = answer.usage, list[bytes](), any(isinstance(part, Think) for part in answer.parts)
    for part in sorted(answer.parts, key=lambda part: isinstance(part, Call)):
        if isinstance(part, str):
            out += [chunk([{"text": piece}]) for piece in answer.cut(part)]
        elif isinstance(part, Think):
            out += [chunk([{"text": piece, "thought": True}]) for piece in answer.cut(part.text)]
        else:
            call = {
                "functionCall": {
                    "name": part.tool,
                    "args": part.arguments if part.raw is None else part.raw,
                    "id": part.id,
                }
            }
            out.append(chunk([{**call, "thoughtSignature": SIGNATURE} if needs_signature else call]))
            needs_signature = False  # of parallel calls the first one has it
    usage = {
        "promptTokenCount": tokens.input,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.input + tokens.output,
    }
    last = [{"text": "", "thoughtSignature": SIGNATURE}] if needs_signature else [{"text": ""}]
    reasons = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "": "STOP"}
    out.append(chunk(last, finishReason=reasons.get(answer.finish, answer.finish), usage=usage))
    return out


GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _gemini_error(status: int, code: str, message: str) -> JSONObject:
    return {"error": {"code": status, "message": message, "status": code or GEMINI_STATUSES.get(status, "UNKNOWN")}}


def _gemini_stream_error(code: str, message: str) -> bytes:
    return event(_gemini_error(503, code, message))


chat = Format("chat", "/chat/completions", 2, _chat_stream, _openai_error, _chat_stream_error)
responses = Format("responses", "/responses", 4, _responses_stream, _openai_error, _responses_stream_error)
anthropic = Format("anthropic", "/v1/messages", 3, _anthropic_stream, _anthropic_error, _anthropic_stream_error)
gemini = Format("gemini", ":streamGenerateContent", 1, _gemini_stream, _gemini_error, _gemini_stream_error)

FORMATS = {one.name: one for one in (chat, responses, anthropic, gemini)}
