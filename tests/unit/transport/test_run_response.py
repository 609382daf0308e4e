"""How the stream of a chat protocol ends when the log of its run can no longer be followed: whole, with the reason."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.services.event_buffer import EventSlice
from greenroom.transport.frontends.ag_ui import encoder as ag_ui
from greenroom.transport.frontends.ag_ui.routes import AgUiResponse
from greenroom.transport.frontends.ai_sdk import encoder as ai_sdk
from greenroom.transport.frontends.ai_sdk.response import AiSdkResponse
from greenroom.transport.gateway.access import Principal

from ...support.ag_ui_lives import SPEC, streams
from ...support.ag_ui_rules import check
from ...support.ai_sdk_rules import check_stream, read_sse
from ..engine.world import World


def begun() -> EventSlice:
    """The first events of a run, in the middle of a text."""
    world = World(SPEC)
    streams("hel")(world)
    drafts = [
        event if isinstance(event, EventDraft) else EventDraft("run.created", event) for event in world.store.events
    ]
    return EventSlice(1, EventEncoder(world.store.info, Redactor()).frames(0, world.now, drafts))


class Gateway:
    """Follows a run for one slice; then this happens."""

    epoch = "e"

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


ANN = Principal(name="ann", token="t" * 16)


def telling(gateway: Any) -> AgUiResponse:
    return AgUiResponse(gateway, ANN, "r", ag_ui.begin(thread_id="th", run_id="x"))


def sdk_telling(gateway: Any) -> AiSdkResponse:
    return AiSdkResponse(gateway, ANN, "r", ai_sdk.begin("r"))


def parsed(chunks: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in b"".join(chunks).decode().split("\n\n")[:-1]]


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
        events = parsed([chunk async for chunk in chunks])
    check(events, thread_id="th", run_id="x")
    assert events[-1]["code"] == code
    assert events[-2]["type"] == "STEP_FINISHED"
    assert gateway.failures == ([then] if code == "internal" else [])


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (None, ai_sdk.INTERRUPTED),
        (gr.RunDegradedError("r", "deps_missing", "nobody has any"), "nobody has any"),
        (gr.UnknownRun("r"), "'r'"),
        (gr.StoreUnavailable("busy"), "busy"),
        (gr.StoreDown("gone"), "gone"),
        (gr.StoreError("damaged"), "the log of the run cannot be read"),
        (gr.RuntimeClosed("closed"), "The server stops."),
    ],
)
async def test_a_stream_of_the_ai_sdk_is_whole_and_says_why_it_ends(then, reason):
    """After a log that cannot be read the stream broke off."""
    gateway = Gateway(then)
    response = sdk_telling(gateway)
    async with response.open() as chunks:
        reported = b"".join([chunk async for chunk in chunks])
    parts = read_sse(reported.decode())
    check_stream(parts, "v7", message_id="r")
    (error,) = [part for part in parts if part["type"] == "error"]
    assert reason in error["errorText"]
    assert "damaged" not in error["errorText"]
    assert reported.endswith(b"data: [DONE]\n\n")
    assert gateway.failures == ([then] if type(then) is gr.StoreError else [])
    assert response.last() == b""


async def test_a_runtime_that_is_closed_already_is_reported():
    async with telling(Gateway(None, closed=True)).open() as chunks:
        events = parsed([chunk async for chunk in chunks])
    check(events, thread_id="th", run_id="x")
    assert events[-1]["code"] == "closing"
    async with sdk_telling(Gateway(None, closed=True)).open() as chunks:
        parts = read_sse(b"".join([chunk async for chunk in chunks]).decode())
    check_stream(parts, "v7", message_id="r")
    assert "The server stops." in str(parts)


async def test_the_last_word_of_a_gateway_that_stops_goes_with_what_was_written_before():
    """A chunk counts as written when the next one is asked for: one that was lost on the way is not built upon."""
    teller = telling(Gateway(None))
    async with teller.open() as chunks:
        lost = [teller.last()]
        first = await anext(aiter(chunks))
        assert teller.last() == lost[0]
        rest = [first, await anext(aiter(chunks))]
    for events in (parsed(lost), parsed(rest)):
        check(events, thread_id="th", run_id="x")
    assert [event["type"] for event in parsed(lost)] == ["RUN_STARTED", "RUN_ERROR"]
    assert parsed(lost)[-1]["code"] == "closing"
