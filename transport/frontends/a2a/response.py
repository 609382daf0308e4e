"""A run as the answer to an A2A request: a stream of items, or the A2A task once it rests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import A2AFault, Binding
from greenroom.actors.backends.a2a_values import A2AArtifact, A2AItem, A2ATask, ArtifactUpdate, item_field
from greenroom.actors.contract.envelope import decode_event

from ...gateway.access import Principal
from ...gateway.http import JSON, Streamed
from ...gateway.run_response import RunResponse
from ...protocol.codes import Refused
from .encoder import A2AStream, finish, step
from .errors import fault_of
from .files import MOST_BYTES, FileKey, filled, keys_of
from .view import RunTask, fold

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

PAGE: Final = 500
"""Events of one read of a log."""
PAGE_BYTES: Final = 1_048_576
"""Bytes after which such a read ends."""

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class AnswerForm:
    """The form of an answer.

    Attributes:
        binding: HTTP+JSON or JSON-RPC.
        request_id: The id of the JSON-RPC request.
        refused: Decisions of the request that were refused: ticketId, code and message of each.
    """

    binding: Binding
    request_id: str | float | None = None
    refused: Sequence[dict[str, Any]] = ()

    def result(self, result: object) -> bytes:
        """Return the body of a result."""
        data: Any = result
        return _encode(codec.written_result(self.binding, self.request_id, data))

    def item(self, item: A2AItem) -> bytes:
        """Return an item, or an answer to a message, as a body."""
        return self.result({item_field(item): self.noted(item)})

    def noted(self, item: A2AItem) -> A2AItem:
        """Return an A2A task with the decisions that were refused; any other item as it is."""
        if not self.refused or not isinstance(item, A2ATask):
            return item
        return replace(item, metadata={**item.metadata, "refused": list(self.refused)})

    def fault(self, fault: A2AFault) -> bytes:
        """Return the body of an error."""
        return _encode(codec.written_fault(self.binding, self.request_id, fault)[1])


class A2AResponse(RunResponse[A2AStream]):
    """The items of a stream, as server-sent events; their id is `<epoch>-<sequence>`."""

    def __init__(self, gateway: Gateway, who: Principal, state: A2AStream, form: AnswerForm) -> None:
        super().__init__(gateway, who, state.task.run, state)
        self._form = form
        self._items: list[tuple[int, A2AItem]] = []

    def response(self) -> Streamed:
        """Return the response. A lost connection cancels nothing, whatever `on_abort` says."""
        return attrs.evolve(super().response(), abandoned=None)

    async def _prepare(self, found: gr.EventSlice) -> None:
        """Fold the events, and read the files that the items name."""
        items = self._folded(found)
        self._items = [(sequence, await with_files(self._gateway, self._run_id, item)) for sequence, item in items]

    def _folded(self, found: gr.EventSlice) -> list[tuple[int, A2AItem]]:
        state, items = self._told, list[tuple[int, A2AItem]]()
        for sequence, frame in enumerate(found.frames, found.first):
            state, more = step(state, decode_event(frame))
            items += [(sequence, item) for item in more]
        self._next = state
        return items

    def _encoded(self, found: gr.EventSlice) -> bytes:
        """Return the items. Only the last one of an event has the id: with it, the client has the whole event."""
        del found  # `_prepare` has folded it
        epoch, lines = self._gateway.epoch, list[bytes]()
        for index, (sequence, item) in enumerate(self._items):
            data = b"data: %b\n\n" % self._form.item(item)
            is_last = index + 1 == len(self._items) or self._items[index + 1][0] != sequence
            lines.append(b"id: %b-%d\n%b" % (epoch.encode(), sequence, data) if is_last else data)
        return b"".join(lines)

    async def _prepare_end(self) -> None:
        state, items = finish(self._told)
        self._items = [(state.sequence, await with_files(self._gateway, self._run_id, item)) for item in items]

    def _ended(self, state: A2AStream, cause: Exception | None) -> tuple[A2AStream, bytes]:
        """Return the last item of a run that rests; a stream that is cut off has an error, or at a stop nothing."""
        state, _ = finish(state)
        if cause is None:
            return state, self._encoded(gr.EventSlice(1, ()))
        if isinstance(cause, gr.RuntimeClosed):
            return state, b""  # the client subscribes again
        return state, b"event: error\ndata: %b\n\n" % self._form.fault(cut_off(cause))


class A2AAnswer(A2AResponse):
    """The A2A task as JSON, once it rests; white space keeps the connection alive until then."""

    content_type = JSON
    comment = b"\n"
    _answer: A2AItem | None = None

    async def _prepare(self, found: gr.EventSlice) -> None:
        self._folded(found)
        if self._next.ended:
            await self._read_answer(self._next)

    def _encoded(self, found: gr.EventSlice) -> bytes:
        return b"" if self._answer is None else self._form.item(self._answer)

    async def _prepare_end(self) -> None:
        await self._read_answer(self._told)

    async def _read_answer(self, state: A2AStream) -> None:
        self._answer = await with_files(self._gateway, self._run_id, _task(state))

    def _ended(self, state: A2AStream, cause: Exception | None) -> tuple[A2AStream, bytes]:
        """Return the A2A task as it stands: the client asks for it again, if it does not rest."""
        return finish(state)[0], self._form.item(self._answer or _task(state))


def _task(state: A2AStream) -> A2ATask:
    return state.task.task(history=state.history)


def cut_off(cause: Exception) -> A2AFault:
    """Return the error of a stream whose run cannot be followed any more."""
    match cause:
        case gr.UnknownRun():
            return fault_of(Refused("unknown_run", str(cause)))
        case gr.RunDegradedError() | gr.StoreUnavailable() | gr.StoreDown():
            return fault_of(Refused("store_unavailable", f"{cause}; subscribe again"))
        case _:
            return fault_of(Refused("internal", "the log of the run cannot be read"))


# --- snapshots -------------------------------------------------------------------------------------------------------


async def folded(gateway: Gateway, run_id: str, thread_id: str) -> RunTask:
    """Return a run as an A2A task, from its whole log.

    Raises:
        StoreUnavailable, StoreDown, StoreError: the log cannot be read.
    """
    task, after = RunTask(run=run_id, thread=thread_id), 0
    while True:
        frames = await gateway.runtime.reader.events(run_id, after=after, limit=PAGE, max_bytes=PAGE_BYTES)
        for frame in frames:
            task = fold(task, decode_event(frame))
        after += len(frames)
        if not frames:
            return task


async def with_files(gateway: Gateway, run_id: str, item: A2AItem) -> A2AItem:
    """Return an item with the bytes of its small images and files; those that are lost stay named.

    Raises:
        StoreUnavailable, StoreDown: the store does not answer.
    """
    artifacts: Iterable[A2AArtifact]
    if isinstance(item, A2ATask):
        artifacts = item.artifacts
    elif isinstance(item, ArtifactUpdate):
        artifacts = (item.artifact,)
    else:
        return item
    keys = keys_of(artifacts)
    if not keys:
        return item
    bytes_of, room = dict[FileKey, bytes](), MOST_BYTES
    for key in keys:
        body = await _bytes(gateway, run_id, key)
        if body is not None and len(body) <= room:  # the size in a part may be what a foreign tool says
            room -= len(body)
            bytes_of[key] = body
    if isinstance(item, A2ATask):
        return replace(item, artifacts=tuple(filled(artifact, bytes_of) for artifact in item.artifacts))
    return replace(item, artifact=filled(item.artifact, bytes_of))


async def _bytes(gateway: Gateway, run_id: str, key: FileKey) -> bytes | None:
    reader = gateway.runtime.reader
    try:
        if key.artifact_id:
            return (await reader.artifact(run_id, key.artifact_id)).data
        return await reader.part(run_id, key.sha256)
    except (gr.UnknownArtifact, gr.UsageError):
        return None
