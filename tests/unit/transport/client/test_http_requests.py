"""Looking at runs over HTTP: what a gateway answers, and what comes in its place."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.transport.client import Forbidden, NotAGateway, NotAllowed, NotAuthenticated, NotReachable
from greenroom.transport.client.endpoint import Endpoint
from greenroom.transport.client.http_requests import fetch, lines_of, run_path, view_of

TICKET = {
    "ticketId": "t1",
    "callId": "c1",
    "tool": "refund",
    "arguments": {"order": "7"},
    "fingerprint": "f1",
    "reason": "tool_permission",
    "action": "",
    "message": "may it?",
    "parameters": {},
    "responseSchema": None,
    "resumeMode": "replay_tool_call",
    "requestedAt": "2026-01-01T00:00:00Z",
    "expiresAt": None,
}
VIEW = {
    "run": "r1",
    "thread": "t",
    "agent": "support",
    "activeAgent": "support",
    "by": "ann",
    "title": "Refund order 7",
    "stage": "needs_approval",
    "status": "waiting",
    "termination": None,
    "calls": {"c1": "suspended"},
    "tickets": [TICKET],
    "tasks": {"c0.task1": {"taskId": "c0.task1", "tool": "crawl", "status": "running"}},
    "usage": {"input": 3, "output": 4},
    "step": 1,
    "sequence": 9,
    "pending": 0,
    "degraded": None,
    "artifacts": [],
    "waitingFor": {"kind": "thread", "detail": "another run works on its thread", "run": "r0"},
}
LINE = {
    name: value
    for name, value in VIEW.items()
    if name not in ("calls", "tickets", "tasks", "waitingFor", "activeAgent", "artifacts")
} | {
    "usage": {},
    "createdAt": "2026-01-01T00:00:00Z",
    "endedAt": None,
    "held": False,
    "queue": "helper",
    "owner": None,
    "dead": None,
    "waitingSince": "2026-01-01T00:00:01Z",
    "asked": [],
    "askedCount": 0,
}


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[Endpoint, list[bytes]]]:
    """A server that answers every request so, and what it was asked."""
    asked: list[bytes] = []

    async def talk(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        asked.append(head)
        await stream.send_all(answer(head))
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, talk, 0)
        yield Endpoint(host="127.0.0.1", port=listeners[0].socket.getsockname()[1], prefix="/team"), asked
        nursery.cancel_scope.cancel()


def http(status: int, body: Any) -> Callable[[bytes], bytes]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda _: b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text)


async def test_a_request_says_who_asks_and_below_which_path() -> None:
    async with answering(http(200, {"runs": []})) as (address, asked):
        found = await fetch(address, "/v1/runs", {"status": "waiting", "agent": None}, token="secret")
    assert found == {"runs": []}
    lines = asked[0].decode().split("\r\n")
    assert lines[0] == "GET /team/v1/runs?status=waiting HTTP/1.1"
    assert "authorization: Bearer secret" in lines
    assert f"host: 127.0.0.1:{address.port}" in lines


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "unknown_run", gr.UnknownRun),
        (403, "not_allowed", NotAllowed),
        (422, "unprocessable", gr.UsageError),
        (503, "store_unavailable", gr.StoreUnavailable),
        (401, "unauthenticated", NotAuthenticated),
        (403, "forbidden_origin", Forbidden),
        (404, "not_found", NotAGateway),
    ],
)
async def test_an_error_is_raised_as_what_it_is(status: int, code: str, kind: type[Exception]) -> None:
    error = {"error": {"code": code, "message": "because", "retry": False}}
    async with answering(http(status, error)) as (address, _):
        with pytest.raises(kind):
            await fetch(address, run_path("r 1/2"), token=None, ids={"run_id": "r 1/2"})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (http(200, b"<html>"), NotAGateway),
        (http(200, [1]), NotAGateway),
        (http(404, b"nothing here"), NotAGateway),
        (http(502, b"bad gateway"), NotReachable),
        (lambda _: b"SSH-2.0\r\n\r\n", NotReachable),
        (lambda _: b"", NotReachable),
        (lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", NotReachable),
    ],
)
async def test_what_is_no_answer_of_a_gateway_is_said_so(
    answer: Callable[[bytes], bytes], kind: type[Exception]
) -> None:
    async with answering(answer) as (address, _):
        with pytest.raises(kind):
            await fetch(address, "/v1/runs", token=None)


def test_a_view_is_the_runs_own_without_what_is_private() -> None:
    view = view_of(Endpoint(host="h", port=1), VIEW)
    assert isinstance(view, gr.RunView)
    assert (view.run_id, view.status, view.stage) == ("r1", gr.RunStatus.WAITING, gr.Stage.NEEDS_APPROVAL)
    (ticket,) = view.tickets
    assert (ticket.run_id, ticket.tool, ticket.requested_at) == ("r1", "refund", datetime(2026, 1, 1, tzinfo=UTC))
    assert ticket.approve().fingerprint == "f1"
    assert view.usage.input == 3
    assert view.waiting_for == gr.WaitingFor(kind="thread", detail="another run works on its thread", run_id="r0")
    ended = {"kind": "cancelled", "code": "cancelled", "detail": "enough", "by": "ann"}
    view = view_of(Endpoint(host="h", port=1), VIEW | {"termination": ended, "stage": "cancelled", "status": "done"})
    assert view.termination is not None
    assert view.termination.by == "ann"


def test_a_page_of_runs() -> None:
    page = lines_of(Endpoint(host="h", port=1), {"runs": [LINE], "cursor": "next", "counts": None})
    assert page.cursor == "next"
    assert (page.runs[0].run_id, page.runs[0].created_at) == ("r1", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "spoil", [{"stage": "odd"}, {"tickets": [{}]}, {"usage": 7}, {"calls": None}, {"waitingFor": {}}]
)
def test_a_view_that_cannot_be_read_says_so(spoil: dict[str, Any]) -> None:
    with pytest.raises(NotAGateway, match="sent a run that cannot be read"):
        view_of(Endpoint(host="h", port=1), VIEW | spoil)


def test_a_page_that_cannot_be_read_says_so() -> None:
    with pytest.raises(NotAGateway, match="sent a list of runs"):
        lines_of(
            Endpoint(host="h", port=1), {"runs": [LINE | {"createdAt": "yesterday"}], "cursor": None, "counts": None}
        )
