"""A run as an AI SDK response: events in, server-sent events out, from the sequence that the reader needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event

from ...gateway.access import Principal
from ...gateway.run_response import RunResponse
from . import encoder as ai_sdk
from .builder import AiSdkState, Part

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

HEADERS: Final = (("x-vercel-ai-ui-message-stream", "v1"),)
DONE: Final = b"data: [DONE]\n\n"
STOPS: Final = "The server stops. The run continues when the server is back: resume the stream then."
UNREADABLE: Final = "the log of the run cannot be read"

_encode = msgspec.json.Encoder().encode


class AiSdkResponse(RunResponse[AiSdkState]):
    """The chunks of one response.

    Args:
        skip: Sequence up to which the client has the parts, from its Last-Event-ID.
        notices: Parts that follow the first part.
        gateway, who, run_id, state: See `RunResponse`.
    """

    headers = HEADERS

    def __init__(
        self,
        gateway: Gateway,
        who: Principal,
        run_id: str,
        state: AiSdkState,
        *,
        skip: int = 0,
        notices: Sequence[Part] = (),
    ) -> None:
        super().__init__(gateway, who, run_id, state)
        self._skip, self._notices = skip, tuple(notices)

    def _encoded(self, found: gr.EventSlice) -> bytes:
        state, out = self._told, list[bytes]()
        for sequence, frame in enumerate(found.frames, found.first):
            state, parts = ai_sdk.step(state, decode_event(frame))
            if parts and sequence > self._skip:
                out.append(self._frames(self._noticed(parts), f"{self._gateway.epoch}-{sequence}"))
        if state.ended:
            out.append(DONE)
        self._next = state
        return b"".join(out)

    def _ended(self, state: AiSdkState, cause: Exception | None) -> tuple[AiSdkState, bytes]:
        closed, parts = ai_sdk.finish(state, reason=_reason(cause))
        return closed, self._frames(self._noticed(parts), None) + DONE

    def _noticed(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return the parts with the notices behind `start`."""
        notices, self._notices = self._notices, ()
        return (parts[0], *notices, *parts[1:]) if notices else parts

    @staticmethod
    def _frames(parts: Sequence[Part], name: str | None) -> bytes:
        """Encode parts as server-sent events.

        Only the last part has the id: with it, the client has the whole event.
        """
        frames = [b"data: %b\n\n" % _encode(part) for part in parts]
        if name is not None:
            frames[-1] = b"id: %b\n%b" % (name.encode(), frames[-1])
        return b"".join(frames)


def _reason(cause: Exception | None) -> str:
    """Return the error text of a stream that ends before its run rests."""
    match cause:
        case None:
            return ai_sdk.INTERRUPTED
        case gr.RuntimeClosed():
            return STOPS
        case gr.RunDegradedError() | gr.UnknownRun() | gr.StoreUnavailable() | gr.StoreDown():
            return str(cause)
        case _:
            return UNREADABLE
