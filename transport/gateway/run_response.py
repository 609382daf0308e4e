"""`RunResponse`: a run as a streamed response of a chat protocol, from the first event to the run's first rest.

The protocols differ in the encoding of events and in the end of a stream; what a stream does when the log of the run
can no longer be followed is the same: it ends well-formed, with the cause, and the client can ask again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import greenroom as gr

from .access import Principal
from .http import COMMENT, EVENT_STREAM, Streamed

if TYPE_CHECKING:
    from .gateway import Gateway


class StreamState(Protocol):
    """The state of an encoder."""

    @property
    def ended(self) -> bool:
        """True after the last part of the stream."""


S = TypeVar("S", bound=StreamState)


class RunResponse(ABC, Generic[S]):
    """The chunks of one response: an iterator for one pass.

    Args:
        gateway: Source of the events.
        who: The principal on whose behalf the run may be cancelled after a disconnect (`Gateway.abandoned`).
        run_id: The run.
        state: The state of the encoder before the first event.
    """

    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = EVENT_STREAM
    comment: bytes = COMMENT

    def __init__(self, gateway: Gateway, who: Principal, run_id: str, state: S) -> None:
        self._gateway, self._who, self._run_id = gateway, who, run_id
        self._told = self._next = state  # the client's state, and its state after the chunk that is being written
        self._follower: gr.Follower | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._run_id}>"

    async def _prepare(self, found: gr.EventSlice) -> None:
        """Read what the events name and do not have, before `_encoded`."""

    async def _prepare_end(self) -> None:
        """Read what the end of the stream names and does not have, before `_ended`."""

    @abstractmethod
    def _encoded(self, found: gr.EventSlice) -> bytes:
        """Fold events, set `_next`, and return the parts as bytes."""

    @abstractmethod
    def _ended(self, state: S, cause: Exception | None) -> tuple[S, bytes]:
        """Return the closed state and the end of the stream.

        `cause` is the reason that the run cannot be followed; None if its events have ended without an end of the run.
        """

    def response(self) -> Streamed:
        """Return the response."""
        return Streamed(
            chunks=self.open,
            content_type=self.content_type,
            headers=self.headers,
            comment=self.comment,
            last=self.last,
            abandoned=self.abandoned,
            run=self._run_id,
        )

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
        return b"" if self._told.ended else self._ended(self._told, gr.RuntimeClosed())[1]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._told = self._next  # the caller has written the previous chunk before it asks for the next
        if self._told.ended:
            raise StopAsyncIteration
        try:
            found = None if self._follower is None else await anext(self._follower)
            if found is not None:
                await self._prepare(found)
        except StopAsyncIteration:
            await self._prepare_end()
            return self._end(None)
        except (gr.RunDegradedError, gr.UnknownRun, gr.StoreError, gr.RuntimeClosed) as error:
            known = gr.StoreUnavailable | gr.StoreDown | gr.LogReplaced
            if isinstance(error, gr.StoreError) and not isinstance(error, known):
                self._gateway.log_failure(self, error)  # an unreadable log does not become readable by itself
            return self._end(error)
        return self._end(gr.RuntimeClosed()) if found is None else self._encoded(found)

    def _end(self, cause: Exception | None) -> bytes:
        self._next, data = self._ended(self._told, cause)
        return data
