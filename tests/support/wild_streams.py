"""Events of providers that say too much, in each of the four formats, and a server that sends any bytes."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import attrs
import trio

from greenroom.actors.testing.wire_formats import event

Data = dict[str, Any]


@attrs.frozen
class Wild:
    """One format: each function returns the data of an event.

    Attributes:
        text: (piece) -> a delta of the text.
        reasoning: (piece) -> a delta of the reasoning; of Gemini a text, for its thoughts are not kept.
        call: (index, id, tool, JSON text of the arguments) -> a whole call.
        arguments: (index, piece) -> a delta of a call's arguments; a further call in Gemini, which has no deltas.
        calls: (count, id, tool) -> one event with so many calls, where the format has such events.
        part: (index, more fields) -> a block, an item or a part that goes back to the provider.
        used: (count of the input) -> the usage.
        end: the events that end an answer.
    """

    text: Callable[[str], Data]
    reasoning: Callable[[str], Data]
    call: Callable[[int, str, str, str], Data]
    arguments: Callable[[int, str], Data]
    calls: Callable[[int, str, str], Data]
    part: Callable[[int, Data], Data]
    used: Callable[[int], Data]
    end: tuple[Data, ...]


# --- the formats -----------------------------------------------------------------------------------------------------


def _delta(finish: str | None = None, **delta: Any) -> Data:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _chat_call(index: int, call_id: str, tool: str, arguments: str) -> Data:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}}


CHAT = Wild(
    text=lambda piece: _delta(content=piece),
    reasoning=lambda piece: _delta(reasoning_content=piece),
    call=lambda index, call_id, tool, arguments: _delta(tool_calls=[_chat_call(index, call_id, tool, arguments)]),
    arguments=lambda index, piece: _delta(tool_calls=[{"index": index, "function": {"arguments": piece}}]),
    calls=lambda count, call_id, tool: _delta(
        tool_calls=[_chat_call(index, f"{call_id}{index}", tool, "{}") for index in range(count)]
    ),
    part=lambda index, more: _delta(reasoning_details=[{"type": "reasoning.encrypted", "index": index, **more}]),
    used=lambda count: {"choices": [], "usage": {"prompt_tokens": count}},
    end=(_delta("stop"),),
)


def _item(index: int, call_id: str, tool: str, arguments: str) -> Data:
    return {"type": "function_call", "id": f"fc{index}", "call_id": call_id, "name": tool, "arguments": arguments}


def _said(kind: str, **fields: Any) -> Data:
    return {"type": f"response.{kind}", **fields}


def _whole(*items: Data, used: int = 1) -> Data:
    return _said("completed", response={"status": "completed", "output": items, "usage": {"input_tokens": used}})


RESPONSES = Wild(
    text=lambda piece: _said("output_text.delta", output_index=0, delta=piece),
    reasoning=lambda piece: _said("reasoning_summary_text.delta", output_index=0, delta=piece),
    call=lambda index, call_id, tool, arguments: _said(
        "output_item.done", output_index=index, item=_item(index, call_id, tool, arguments)
    ),
    arguments=lambda index, piece: _said("function_call_arguments.delta", output_index=index, delta=piece),
    calls=lambda count, call_id, tool: _whole(
        *(_item(index, f"{call_id}{index}", tool, "{}") for index in range(count))
    ),
    part=lambda index, more: _said("output_item.done", output_index=index, item={"type": "reasoning", **more}),
    used=lambda count: _whole(used=count),
    end=(_whole(),),
)


def _begun(index: int, **block: Any) -> Data:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _grown(index: int, kind: str, **fields: Any) -> Data:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


ANTHROPIC = Wild(
    text=lambda piece: _grown(0, "text_delta", text=piece),
    reasoning=lambda piece: _grown(0, "thinking_delta", thinking=piece),
    call=lambda index, call_id, tool, arguments: _begun(
        index, type="tool_use", id=call_id, name=tool, input={"text": arguments}
    ),
    arguments=lambda index, piece: _grown(index, "input_json_delta", partial_json=piece),
    calls=lambda count, call_id, tool: {  # the format has no event with many of anything
        **_begun(0, type="tool_use", id=call_id, name=tool, input={"all": [{} for _ in range(count)]})
    },
    part=lambda index, more: _begun(index, **{"type": "redacted_thinking", **more}),
    used=lambda count: {"type": "message_delta", "delta": {}, "usage": {"input_tokens": count}},
    end=(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ),
)


def _parts(*parts: Data, **more: Any) -> Data:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}]}


def _function(call_id: str, tool: str, arguments: str) -> Data:
    return {"functionCall": {"id": call_id, "name": tool, "args": {"text": arguments}}}


GEMINI = Wild(
    text=lambda piece: _parts({"text": piece}),
    reasoning=lambda piece: _parts({"text": piece}),
    call=lambda index, call_id, tool, arguments: _parts(_function(call_id, tool, arguments)),
    arguments=lambda index, piece: _parts(_function(f"x{index}", "add", piece)),
    calls=lambda count, call_id, tool: _parts(*(_function(f"{call_id}{index}", tool, "") for index in range(count))),
    part=lambda index, more: _parts({"thoughtSignature": "c2ln", "index": index, **more}),
    used=lambda count: {"usageMetadata": {"promptTokenCount": count}},
    end=(_parts(finishReason="STOP"),),
)

WILD = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}


def written(*data: Data) -> bytes:
    """The events as bytes."""
    return b"".join(event(one, one.get("type", "")) for one in data)


# --- a server that sends any bytes -----------------------------------------------------------------------------------


def head(*headers: str, status: str = "200 OK", chunked: bool = False) -> bytes:
    """The head of a response; without a length its body ends with the connection."""
    lines = (f"HTTP/1.1 {status}", "content-type: text/event-stream", *headers)
    return "\r\n".join((*lines, "transfer-encoding: chunked" if chunked else "connection: close", "", "")).encode()


def in_chunks(body: bytes, size: int) -> bytes:
    """A body in chunks of some bytes each."""
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@attrs.define(eq=False)
class RawServer:
    """A server that answers each request with the same bytes.

    Attributes:
        pieces: makes them; may be endless.
        url: where it is.
        asked: heads of the requests.
    """

    pieces: Callable[[], Iterable[bytes]]
    url: str = ""
    asked: list[str] = attrs.field(factory=list)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one request."""
        async with stream:
            request = bytearray()
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some(65_536)
            self.asked.append(bytes(request).decode().lower())
            try:
                for piece in self.pieces():
                    await stream.send_all(piece)
                with trio.move_on_after(5):  # the body ends when the other side has read it
                    await stream.send_eof()
                    while await stream.receive_some(65_536):
                        pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass


@asynccontextmanager
async def open_raw_server(pieces: Callable[[], Iterable[bytes]]) -> AsyncIterator[RawServer]:
    """Open a server on loopback."""
    server = RawServer(pieces)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        await nursery.start(trio.serve_listeners, server.serve, [listener])
        yield server
        nursery.cancel_scope.cancel()


def endless(first: bytes, again: bytes) -> Callable[[], Iterator[bytes]]:
    """Pieces that never end."""

    def pieces() -> Iterator[bytes]:
        yield first
        yield from chain.from_iterable(iter(lambda: (again,), None))

    return pieces
