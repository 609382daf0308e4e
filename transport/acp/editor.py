"""The connection to an editor: its messages in, ours out, one JSON object per line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from greenroom.actors.backends.jsonrpc import Answered, JSONRPCPeer, RequestId
from greenroom.actors.contract.plain import JSONObject, JSONValue

BACKLOG: Final = 64
"""Most lines that wait for an editor that reads slowly; then whoever has more to tell waits, too."""

NOT_FOUND: Final = -32002


class RequestFailed(Exception):
    """A request of the editor cannot be answered; `code`, the text and `data` are the error's."""

    def __init__(self, code: int, message: str, data: JSONObject | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


@attrs.define(eq=False)
class EditorRequest:
    """A request of ours that the editor has not answered."""

    request_id: int
    answer: Answered | None = None
    _done: trio.Event = attrs.field(factory=trio.Event, repr=False)

    def __repr__(self) -> str:
        return f"<EditorRequest {self.request_id}, {'answered' if self.answer else 'open'}>"

    def take(self, answer: Answered) -> None:
        """Note the answer."""
        self.answer = answer
        self._done.set()

    async def wait(self) -> Answered:
        """Return the answer when it has come."""
        await self._done.wait()
        assert self.answer is not None  # noqa: S101 - `take` has set both
        return self.answer


class Editor:
    """What the agent tells its editor. Any number of tasks may use it; lines leave in the order of the calls.

    Args:
        peer: The JSON-RPC of the connection.
        write: Sends bytes, for one task.
    """

    def __init__(self, peer: JSONRPCPeer, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._peer, self._write = peer, write
        self._send, self._lines = trio.open_memory_channel[bytes](BACKLOG)
        self._open: dict[int, EditorRequest] = {}

    def __repr__(self) -> str:
        return f"<Editor: {len(self._open)} open requests>"

    async def write_lines(self) -> None:
        """Write lines until `close`."""
        async for line in self._lines:
            await self._write(line)

    def close(self) -> None:
        """End `write_lines` after the lines that wait."""
        self._send.close()

    async def update(self, session_id: str, fields: JSONObject) -> None:
        """Send an update of a session."""
        await self.send(self._peer.notify("session/update", {"sessionId": session_id, "update": fields}))

    async def ask(self, method: str, params: JSONObject) -> EditorRequest:
        """Send a request, and return it unanswered."""
        request_id, line = self._peer.request(method, params)
        self._open[request_id] = request = EditorRequest(request_id)
        await self.send(line)
        return request

    async def withdraw(self, request: EditorRequest) -> None:
        """Tell the editor that nobody waits for the answer to a request any more."""
        if self._open.pop(request.request_id, None) is not None:
            await self.send(self._peer.notify("$/cancel_request", {"requestId": request.request_id}))

    def answered(self, answer: Answered) -> None:
        """Hand an answer of the editor to whoever waits; a late one is dropped."""
        request = self._open.pop(answer.request_id, None)
        if request is not None:
            request.take(answer)

    async def respond(self, request_id: RequestId, result: JSONValue) -> None:
        """Answer a request of the editor; nothing happens if it is answered already."""
        await self.send(self._peer.respond(request_id, result))

    async def fail(self, request_id: RequestId, error: RequestFailed) -> None:
        """Answer a request of the editor with an error; nothing happens if it is answered already."""
        await self.send(self._peer.fail(request_id, error.code, str(error), error.data))

    async def send(self, line: bytes) -> None:
        """Send a line of the peer; an empty one is no line."""
        if line:
            await self._send.send(line)
