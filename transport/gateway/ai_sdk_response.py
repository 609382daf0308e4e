"""A run as an AI SDK response: events in, server-sent events out, from the sequence that the reader needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

import msgspec

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event

from ..encoders import ai_sdk
from ..encoders.ai_sdk_builder import AiSdkState, Part
from .access import Principal
from .http import Streamed

if TYPE_CHECKING:
    from .gateway import Gateway

HEADERS: Final = (("x-vercel-ai-ui-message-stream", "v1"),)
DONE: Final = b"data: [DONE]\n\n"
STOPS: Final = "The server stops. The run continues when the server is back: resume the stream then."

_encode = msgspec.json.Encoder().encode


class AiSdkResponse:
    """The chunks of one response: an iterator for one pass.

    Args:
        gateway: Source of the events.
        run_id: The run.
        state: The stream's state before the first event.
        skip: Sequence up to which the client has the parts, from its Last-Event-ID.
        notices: Parts that follow the first part.
        who: The principal on whose behalf the run may be cancelled after a disconnect (`Gateway.abandoned`).
    """

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
        self._who = who
        self._gateway, self._run_id, self._skip, self._notices = gateway, run_id, skip, tuple(notices)
        self._told = self._next = state  # the client's state, and its state after the chunk that is being written
        self._follower: gr.Follower | None = None

    def __repr__(self) -> str:
        return f"<Telling of {self._run_id}>"

    def response(self) -> Streamed:
        """Return the response."""
        return Streamed(chunks=self.open, headers=HEADERS, last=self.last, abandoned=self.abandoned)

    async def abandoned(self) -> None:
        """Handle a client that disconnects early. If all chunks were being written, the run had come to rest."""
        if not self._next.ended:
            await self._gateway.abandoned(self._who, self._run_id)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Follow the run while the response is open."""
        async with AsyncExitStack() as stack:
            try:
                self._follower = await stack.enter_async_context(self._gateway.follow(self._run_id, until="rest"))
            except gr.RuntimeClosed:
                self._follower = None
            yield self

    def last(self) -> bytes:
        """Return the end of the stream for a stopping gateway."""
        return b"" if self._told.ended else self._end(self._told, STOPS)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._told = self._next  # the caller has written the previous chunk before it asks for the next
        if self._told.ended:
            raise StopAsyncIteration
        try:
            if self._follower is None:
                return self._end(self._told, STOPS)
            found = await anext(self._follower)
        except StopAsyncIteration:
            return self._end(self._told, ai_sdk.INTERRUPTED)
        except gr.RuntimeClosed:
            return self._end(self._told, STOPS)
        except (gr.RunDegradedError, gr.UnknownRun, gr.StoreUnavailable, gr.StoreDown) as error:
            return self._end(self._told, str(error))
        state, out = self._told, list[bytes]()
        for sequence, frame in enumerate(found.frames, found.first):
            state, parts = ai_sdk.step(state, decode_event(frame))
            if parts and sequence > self._skip:
                out.append(self._frames(self._noticed(parts), f"{self._gateway.epoch}-{sequence}"))
        if state.ended:
            out.append(DONE)
        self._next = state
        return b"".join(out)

    def _end(self, state: AiSdkState, reason: str) -> bytes:
        self._next, parts = ai_sdk.finish(state, reason=reason)
        return self._frames(self._noticed(parts), None) + DONE

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
