"""What dialects on JSON-RPC share: the peer, and the questions that are requests of the program."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Final

from ...contract.plain import JSONObject, JSONValue
from ..dialect import AskAnswer, Declined
from ..items import Item, Notice, SendBytes, Withdrawn
from ..jsonrpc import METHOD_NOT_FOUND, Answered, JSONRPCPeer, Notification, PeerRequest, ProtocolFault
from .json_lines import JSONLinesDialect

ASKS_LIMIT: Final = 256
"""Most questions that are open at the same time; more are refused."""

Responder = Callable[[AskAnswer], JSONValue]
"""Makes the result of a request from the answer to its question."""


class RPCDialect(JSONLinesDialect):
    """A dialect whose program is one side of JSON-RPC, and this is the other.

    Args:
        tagged: see `JSONRPCPeer`.
    """

    def __init__(self, *, tagged: bool) -> None:
        super().__init__()
        self._peer = JSONRPCPeer(tagged=tagged)
        self._asks: dict[str, tuple[PeerRequest, Responder]] = {}

    @abc.abstractmethod
    def requested(self, request: PeerRequest) -> Iterator[Item]:
        """Yield the items of a request of the program; answer it, or `ask` with it."""

    @abc.abstractmethod
    def notified(self, notification: Notification) -> Iterator[Item]:
        """Yield the items of a notification."""

    @abc.abstractmethod
    def answered(self, answer: Answered) -> Iterator[Item]:
        """Yield the items of the answer to a request of ours."""

    def take(self, message: JSONObject) -> Iterator[Item]:
        """Yield the items of one message."""
        match self._peer.receive(message):
            case PeerRequest() as request:
                yield from self.requested(request)
            case Notification() as notification:
                yield from self.notified(notification)
            case Answered() as answer:
                yield from self.answered(answer)
            case ProtocolFault(rule=rule):
                yield from self.unparsed(rule)

    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return the response to the request of a question."""
        ask = self._asks.pop(ask_id, None)
        return b"" if ask is None else self._peer.respond(ask[0].request_id, ask[1](answer))

    # --- for subclasses ---

    def ask(self, request: PeerRequest, respond: Responder, item: Callable[[str], Item]) -> Iterator[Item]:
        """Yield the question of a request, or refuse it if too many are open."""
        # a text and a number may look alike, and are two ids
        ask_id = f"{type(request.request_id).__name__[0]}{request.request_id}"
        self._asks[ask_id] = (request, respond)
        if len(self._asks) > ASKS_LIMIT:
            yield from self.refuse(request, self._asks.pop(ask_id)[1])
            return
        yield item(ask_id)

    def refuse(self, request: PeerRequest, respond: Responder) -> Iterator[Item]:
        """Yield the refusal of a request that becomes no question."""
        yield SendBytes(data=self._peer.respond(request.request_id, respond(Declined())))
        yield Notice(kind="refused", text=request.method)

    def reject(self, request: PeerRequest, *, known: bool = False) -> Iterator[Item]:
        """Yield the error for a request that this side does not know, or (`known`) does not offer."""
        text = f"{request.method:.100} is not supported"
        yield SendBytes(data=self._peer.fail(request.request_id, METHOD_NOT_FOUND, text))
        if not known:
            yield from self.unknown(request.method)

    def withdraw(self, request_id: object) -> Iterator[Item]:
        """Yield that the program no longer waits for the answer to a request."""
        for ask_id, (request, _) in tuple(self._asks.items()):
            if request.request_id == request_id and type(request.request_id) is type(request_id):
                del self._asks[ask_id]
                self._peer.withdraw(request_id)
                yield Withdrawn(ask_id=ask_id)
