"""JSON-RPC 2.0 from both sides of one connection, one object per line, without I/O.

Theory of operation. Each side numbers its own requests, so that both may use the same ids; a message with a `method` is
a request or a notification of the other side, a message without one answers a request of ours. Each request of the
other side is answered once, and each of ours gets one answer: a second answer, or one to no request, is a fault.
"""

from __future__ import annotations

import json
from typing import Final, TypeAlias

import msgspec

from ..contract.plain import JSONObject, JSONValue

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
OPEN_LIMIT: Final = 1_000
"""Most requests of the other side that wait for their answers."""
_ID_LIMIT: Final = 1_024
"""Most characters of an id."""

RequestId: TypeAlias = int | str


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the other side, to be answered with `respond` or `fail`."""

    request_id: RequestId
    method: str
    params: JSONObject


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification of the other side."""

    method: str
    params: JSONObject


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request of ours.

    Attributes:
        request_id: our id of the request.
        method: the method of our request.
        result: the result.
        code, error: of a failure; None and "" for a result.
    """

    request_id: int
    method: str
    result: JSONValue = None
    code: int | None = None
    error: str = ""


class ProtocolFault(msgspec.Struct, frozen=True, kw_only=True):
    """A message that breaks the protocol.

    Attributes:
        rule: The rule that the message breaks.
        code: The code of the error that answers the message; None for an answer, which is not answered.
        request_id: The id of that error; None if the message has no id that can be used.
    """

    rule: str
    code: int | None = INVALID_REQUEST
    request_id: RequestId | None = None


Received: TypeAlias = PeerRequest | Notification | Answered | ProtocolFault


class JSONRPCPeer:
    """One side of a connection. Pure: methods return the bytes to send.

    Args:
        tagged: each message has the member `jsonrpc`, as the standard says; Codex leaves it out.
    """

    def __init__(self, *, tagged: bool = True) -> None:
        self._tag = {"jsonrpc": "2.0"} if tagged else {}
        self._ours: dict[int, str] = {}
        self._theirs: set[RequestId] = set()
        self._next = 1

    def __repr__(self) -> str:
        return f"<JSONRPCPeer: {len(self._ours)} requests of ours, {len(self._theirs)} of the other side>"

    def request(self, method: str, params: JSONObject) -> tuple[int, bytes]:
        """Return the id of a new request and its bytes."""
        request_id = self._next
        self._next += 1
        self._ours[request_id] = method
        return request_id, self._line(id=request_id, method=method, params=params)

    def notify(self, method: str, params: JSONObject | None = None) -> bytes:
        """Return the bytes of a notification."""
        return self._line(method=method, **({} if params is None else {"params": params}))

    def respond(self, request_id: RequestId, result: JSONValue) -> bytes:
        """Return the bytes of a result; b"" if the request is not open."""
        return self._line(id=request_id, result=result) if self._close(request_id) else b""

    def fail(self, request_id: RequestId, code: int, message: str, data: JSONObject | None = None) -> bytes:
        """Return the bytes of an error; b"" if the request is not open."""
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        return self._line(id=request_id, error=error) if self._close(request_id) else b""

    def refuse(self, fault: ProtocolFault) -> bytes:
        """Return the bytes of the error that answers a fault; b"" if nothing answers the fault."""
        if fault.code is None:
            return b""
        return self._line(id=fault.request_id, error={"code": fault.code, "message": fault.rule})

    def withdraw(self, request_id: object) -> bool:
        """Forget a request that the other side has withdrawn; return True if it was open."""
        return isinstance(request_id, int | str) and self._close(request_id)

    def receive(self, message: JSONObject) -> Received:
        """Take a message of the other side."""
        params = message.get("params")
        request_id = message.get("id")
        named = isinstance(request_id, int | str) and not isinstance(request_id, bool)
        match message.get("method"):
            case str() as method if params is not None and not isinstance(params, dict):
                usable = request_id if named and isinstance(request_id, int | str) else None
                rule = f"the params of {method:.100} are not an object"
                return ProtocolFault(rule=rule, code=INVALID_PARAMS, request_id=usable)
            case str() as method if "id" not in message:
                return Notification(method=method, params=params or {})
            case str() as method if named and isinstance(request_id, int | str):
                return self._request(request_id, method, params or {})
            case str() as method:
                return ProtocolFault(rule=f"the id of the request {method:.100} is not a text or a whole number")
            case None if "id" in message:
                return self._answer(request_id, message)
            case _:
                return ProtocolFault(rule="the message has neither a method nor an id")

    def _request(self, request_id: RequestId, method: str, params: JSONObject) -> Received:
        if request_id in self._theirs:
            return ProtocolFault(rule=f"the id {request_id!r:.100} of a request is in use")
        if len(self._theirs) >= OPEN_LIMIT or len(str(request_id)) > _ID_LIMIT:
            return ProtocolFault(rule=f"more than {OPEN_LIMIT:,} requests are open, or an id is too long")
        self._theirs.add(request_id)
        return PeerRequest(request_id=request_id, method=method, params=params)

    def _answer(self, request_id: object, message: JSONObject) -> Received:
        method = self._ours.pop(request_id, None) if type(request_id) is int else None
        if method is None or type(request_id) is not int:
            return ProtocolFault(rule=f"an answer to no request ({request_id!r:.100})", code=None)
        error = message.get("error")
        if error is None:
            return Answered(request_id=request_id, method=method, result=message.get("result"))
        fields = error if isinstance(error, dict) else {}
        code, text = fields.get("code"), fields.get("message")
        return Answered(
            request_id=request_id,
            method=method,
            code=code if type(code) is int else INTERNAL_ERROR,
            error=text if isinstance(text, str) else "no message",
        )

    def _close(self, request_id: RequestId) -> bool:
        known = request_id in self._theirs
        self._theirs.discard(request_id)
        return known

    def _line(self, **members: object) -> bytes:
        return json_line({**self._tag, **members})


def json_line(value: object) -> bytes:
    """Return a value as one line of JSON. Half of a surrogate pair becomes a question mark."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
