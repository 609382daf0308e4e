"""A run as an AI SDK response: events in, server-sent events out, from whichever sequence the reader needs."""

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
STOPS: Final = "The server stops. The run goes on when it is there again: resume the stream then."

_encode = msgspec.json.Encoder().encode


class AiSdkResponse:
    """The chunks of one response: an iterator, gone through once.

    Args:
        gateway: where the events come from.
        run_id: whose.
        state: the stream, before the first event.
        skip: a sequence; the parts of the events up to it are the reader's already, as it came back with their id.
        notices: parts that are told behind the first one.
        who: on whose behalf; the run of a principal that hangs up may be cancelled (`Gateway.abandoned`).
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
        self._told = self._next = state  # what the client has, and what it will have after the chunk that is on its way
        self._follower: gr.Follower | None = None

    def __repr__(self) -> str:
        return f"<Telling of {self._run_id}>"

    def response(self) -> Streamed:
        """The response that tells it."""
        return Streamed(chunks=self.open, headers=HEADERS, last=self.last, abandoned=self.abandoned)

    async def abandoned(self) -> None:
        """The client has hung up. If all was on its way, the run had come to rest."""
        if not self._next.ended:
            await self._gateway.abandoned(self._who, self._run_id)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """For the time of the response."""
        async with AsyncExitStack() as stack:
            try:
                self._follower = await stack.enter_async_context(self._gateway.follow(self._run_id, until="rest"))
            except gr.RuntimeClosed:
                self._follower = None
            yield self

    def last(self) -> bytes:
        """What ends the stream if the gateway stops."""
        return b"" if self._told.ended else self._end(self._told, STOPS)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._told = self._next  # whoever asks for more has written what was there
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
        """The parts, with what is to be noticed behind `start`."""
        notices, self._notices = self._notices, ()
        return (parts[0], *notices, *parts[1:]) if notices else parts

    @staticmethod
    def _frames(parts: Sequence[Part], name: str | None) -> bytes:
        """Parts as server-sent events. The id comes with the last part: with it, all of the event has been told."""
        frames = [b"data: %b\n\n" % _encode(part) for part in parts]
        if name is not None:
            frames[-1] = b"id: %b\n%b" % (name.encode(), frames[-1])
        return b"".join(frames)
