"""How a stream of AG-UI ends when the run's log cannot be followed any more: whole, and with the reason."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.contract.rows import EventDraft
from greenroom.actors.run.event_buffer import EventSlice
from greenroom.transport.encoders import ag_ui
from greenroom.transport.gateway.access import Principal
from greenroom.transport.gateway.ag_ui import AgUiResponse

from ...support.ag_ui_lives import SPEC, streams
from ...support.ag_ui_rules import check
from ..engine.world import World


def begun() -> EventSlice:
    """The first events of a run, in the middle of a text."""
    world = World(SPEC)
    streams("hel")(world)
    drafts = [one if isinstance(one, EventDraft) else EventDraft("run.created", one) for one in world.store.events]
    return EventSlice(1, EventEncoder(world.store.info, Redactor()).frames(0, world.now, drafts))


class Gateway:
    """Follows a run for one slice; then this happens."""

    def __init__(self, then: BaseException | None, *, closed: bool = False) -> None:
        self.then, self.closed = then, closed
        self.failures: list[BaseException] = []

    @asynccontextmanager
    async def follow(self, run_id: str, *, until: str) -> AsyncIterator[AsyncIterator[EventSlice]]:
        assert (run_id, until) == ("r", "rest")
        if self.closed:
            raise gr.RuntimeClosed("closed")
        yield self._slices()

    async def _slices(self) -> AsyncIterator[EventSlice]:
        yield begun()
        if self.then is not None:
            raise self.then

    def log_failure(self, what: object, error: BaseException) -> None:
        assert "r" in repr(what)
        self.failures.append(error)


def telling(gateway: Any) -> AgUiResponse:
    return AgUiResponse(gateway, Principal(name="ann", token="t" * 16), "r", ag_ui.begin(thread_id="th", run_id="x"))


def parsed(chunks: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(one.removeprefix("data: ")) for one in b"".join(chunks).decode().split("\n\n")[:-1]]


@pytest.mark.parametrize(
    ("then", "code"),
    [
        (None, "interrupted"),
        (gr.RunDegradedError("r", "deps_missing", "nobody has any"), "degraded"),
        (gr.UnknownRun("r"), "unknown_run"),
        (gr.StoreUnavailable("busy"), "store_unavailable"),
        (gr.StoreDown("gone"), "store_unavailable"),
        (gr.StoreError("damaged"), "internal"),
        (gr.RuntimeClosed("closed"), "closing"),
    ],
)
async def test_whatever_happens_to_the_log_the_stream_is_whole_and_says_why_it_ends(then, code):
    gateway = Gateway(then)
    async with telling(gateway).open() as chunks:
        told = parsed([chunk async for chunk in chunks])
    check(told, thread_id="th", run_id="x")
    assert told[-1]["code"] == code
    assert told[-2]["type"] == "STEP_FINISHED"
    assert gateway.failures == ([then] if code == "internal" else [])


async def test_a_runtime_that_is_closed_already_is_told_of():
    async with telling(Gateway(None, closed=True)).open() as chunks:
        told = parsed([chunk async for chunk in chunks])
    check(told, thread_id="th", run_id="x")
    assert told[-1]["code"] == "closing"


async def test_the_last_word_of_a_gateway_that_stops_goes_with_what_was_written_before():
    """A chunk counts as written when the next one is asked for: one that was lost on the way is not built upon."""
    teller = telling(Gateway(None))
    async with teller.open() as chunks:
        lost = [teller.last()]
        first = await anext(aiter(chunks))
        assert teller.last() == lost[0]
        rest = [first, await anext(aiter(chunks))]
    for told in (parsed(lost), parsed(rest)):
        check(told, thread_id="th", run_id="x")
    assert [event["type"] for event in parsed(lost)] == ["RUN_STARTED", "RUN_ERROR"]
    assert parsed(lost)[-1]["code"] == "closing"
