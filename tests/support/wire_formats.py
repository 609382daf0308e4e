"""What services send: one answer, written in each of the four formats as its official SDK reads it.

chat.stream(Answer(parts=("Hello ", think("hm"), call("add", a=1, id="c1"))))      # a list of events, as bytes
chat.error(429, "slow down")                                                       # the JSON body of a status
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from greenroom.actors.contract.messages import Usage
from greenroom.actors.testing.models import Call, Think

Part = str | Call | Think
USED = Usage(requests=1, input=31, output=9, cached=7, reasoning=4)


@attrs.frozen
class Answer:
    """What a model says: texts, reasoning and calls in their order, why it ends, and what that has cost."""

    parts: Sequence[Part] = ()
    finish: str = ""
    usage: Usage = USED
    pieces: int = 4
    """Most characters of a delta."""

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    def cut(self, text: str) -> Iterator[str]:
        yield from (text[at : at + self.pieces] for at in range(0, len(text), self.pieces))


@attrs.frozen
class Format:
    """One wire format: where it is asked, how it streams an answer, and how it says that something went wrong."""

    name: str
    path: str
    first: int
    """Events up to the first text of an answer that begins with one."""
    stream: Callable[[Answer], list[bytes]]
    error: Callable[[int, str, str], Any]
    """(status, code, message) -> the JSON body."""
    stream_error: Callable[[str, str], bytes]
    """(code, message) -> the event of a stream; without a code the service is overloaded."""


def event(data: Any, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


# --- OpenAI chat completions -----------------------------------------------------------------------------------------


def chat_stream(answer: Answer) -> list[bytes]:
    def chunk(finish: str | None = None, **delta: Any) -> bytes:
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
        pieces = list(answer.cut(json.dumps(part.arguments)))
        rest.append([chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}]) for piece in pieces])
    out += starts
    for at in range(max(map(len, rest), default=0)):  # the pieces of several calls come in turns
        out += [pieces[at] for pieces in rest if at < len(pieces)]
    used = answer.usage
    usage = {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
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


def openai_error(status: int, code: str, message: str) -> Any:
    kind, known = OPENAI_CODES.get(status, ("invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "code": code or known, "param": None}}


def chat_stream_error(code: str, message: str) -> bytes:
    return event(openai_error(500, code or "server_is_overloaded", message))


chat = Format("chat", "/v1/chat/completions", 2, chat_stream, openai_error, chat_stream_error)

FORMATS = {one.name: one for one in (chat,)}
