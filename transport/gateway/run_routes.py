"""The HTTP API: health, runs, events as pages and as server-sent events, commands."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import msgspec

import greenroom as gr
from greenroom.actors.contract.casing import wire, wire_of
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import event_type
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.run_lists import LISTED_OUTCOMES

from ..protocol import up
from ..protocol.codes import Refused
from ..protocol.up import MAX_ID
from .api import plain_view
from .gateway import Gateway
from .http import EVENT_STREAM, Request, Response, Route, Streamed, json_response
from .listing import visible_counts
from .metrics.metrics import CONTENT_TYPE

RUNS_PAGE: Final = 50
EVENTS_PAGE: Final = 500
MOST: Final = 1000
"""Maximum number of items per page."""
PAGE_BYTES: Final = 1_048_576
"""Bytes after which a page of events ends, which bounds the gateway's memory per request."""
RETRY: Final = b"retry: 1000\n\n"
"""Milliseconds before an EventSource reconnects."""

_encode = msgspec.json.Encoder().encode
_QUEUE: Final = ("name", "max_running", "paused", "ready", "working", "oldest", "scheduled", "later")


# --- health ----------------------------------------------------------------------------------------------------------


async def healthz(_: Gateway, __: Request) -> Response:
    """Report that the process is alive."""
    return json_response({"status": "ok"})


async def readyz(gateway: Gateway, _: Request) -> Response:
    """Report that the process accepts work: gateway and runtime are open, and the store can be read.

    Parts that have crashed within the last minute are named, each with its number of crashes.
    """
    gateway.ready_or_refuse()
    await gateway.runtime.runs(limit=1)
    crashed = {**gateway.runtime.reader.crashed(), **gateway.crashes.counts()}
    return json_response({"status": "ready", **({"crashed": crashed} if crashed else {})})


async def measured(gateway: Gateway, _: Request) -> Response:
    """Serve the metrics for Prometheus."""
    return Response(body=await gateway.scrapes.text(), content_type=CONTENT_TYPE)


# --- runs ------------------------------------------------------------------------------------------------------------


async def me(_: Gateway, request: Request) -> Response:
    """Tell a client who it is; a page asks before its person has signed in, so nobody is an answer, too."""
    who = request.principal
    return json_response({"principal": None if who is None else who.name, "scopes": sorted(who.scopes) if who else []})


async def agents(gateway: Gateway, _: Request) -> Response:
    """List the agents that can be started by key: those of this process, and of the others on its store."""
    here = gateway.runtime.agents
    elsewhere = await gateway.runtime.store.agents()
    digests = {key: {text.partition(" ")[0] for text in names} for key, names in elsewhere.items()}  # mode behind it
    for key, agent in here.items():
        digests.setdefault(key, set()).add(agent.spec.digest)
    lines = [
        {
            "key": key,
            "description": here[key].description if key in here else "",
            "tools": [tool.name for tool in here[key].tools] if key in here else [],
            "digests": sorted(digests[key]),
            "here": key in here,
        }
        for key in sorted(digests)
    ]
    return json_response({"agents": lines})


async def queues(gateway: Gateway, _: Request) -> Response:
    """List the queues of the store."""
    lines = [wire_of(queue, _QUEUE) for queue in await gateway.api.queues()]
    return json_response({"queues": lines})


async def set_queue(gateway: Gateway, request: Request) -> Response:
    """Limit or pause a queue."""
    order = request.read(up.LimitQueue, "queue")
    return json_response(wire_of(await gateway.api.set_queue(request.who, request.params["queue"], order), _QUEUE))


async def prune(gateway: Gateway, request: Request) -> Response:
    """Delete runs that ended long ago."""
    pruned = await gateway.api.prune(request.who, request.read(up.PruneRuns, "prune"))
    sizes = {"runs": pruned.runs, "messages": pruned.messages}
    return json_response(sizes | {"freedBytes": pruned.freed, "reusableBytes": pruned.reusable})


async def revive_run(gateway: Gateway, request: Request) -> Response:
    """Let a dead letter be claimed again."""
    run = request.params["run"]
    return json_response({"run": run, "revived": await gateway.api.revive(request.who, run)})


async def list_runs(gateway: Gateway, request: Request) -> Response:
    """List a page of runs."""
    fields = {**request.query, "limit": request.number("limit", RUNS_PAGE, least=1, most=MOST)}
    counted = request.query.get("counts", "false")
    if counted not in ("true", "false"):
        raise Refused("bad_message", f"counts={counted!r:.40}: give true or false")
    page = await gateway.api.runs(request.who, gateway.api.query(request.who, fields))
    counts = await visible_counts(gateway.runtime.reader, request.who) if counted == "true" else None
    return json_response({"runs": page.rows, "cursor": page.cursor, "counts": counts})


async def start_run(gateway: Gateway, request: Request) -> Response:
    """Start a run."""
    data = request.json()
    data.setdefault("id", _key(request))
    order = up.structure(data, up.Start, "start")
    ack = await gateway.api.start(request.who, order)
    body = {"run": ack.run, "thread": ack.thread, "status": ack.status}
    return json_response(body, status=201 if ack.status == "accepted" else 200)


async def fork_run(gateway: Gateway, request: Request) -> Response:
    """Start a run at a step of another run."""
    data = request.json()
    if "run" in data:
        raise Refused("bad_message", "run is no field of the body: the path has it")
    data.setdefault("id", _key(request))
    ack = await gateway.api.fork(request.who, up.structure(data | {"run": request.params["run"]}, up.Fork, "fork"))
    body = {"run": ack.run, "thread": ack.thread, "status": ack.status}
    return json_response(body, status=201 if ack.status == "accepted" else 200)


async def one_run(gateway: Gateway, request: Request) -> Response:
    """Serve one consistent snapshot of a run."""
    return json_response(plain_view(await gateway.api.view(request.who, request.params["run"])))


async def evidence(gateway: Gateway, request: Request) -> Response:
    """Serve the account of a run."""
    return json_response(wire(await gateway.api.evidence(request.who, request.params["run"])))


async def command(gateway: Gateway, request: Request) -> Response:
    """Accept a command to a run."""
    data = request.json()
    for name in ("run", "id"):
        if name in data:
            raise Refused(
                "bad_message", f"{name} is no field of the body: run is in the path, id in the header Idempotency-Key"
            )
    order = up.read_command(data | {"run": request.params["run"], "id": _key(request)})
    ack = await gateway.api.command(request.who, order)
    return json_response({"id": ack.id, "run": ack.run, "status": ack.status, "code": ack.code}, status=202)


def _key(request: Request) -> str:
    """Return the command's id: the header Idempotency-Key, or a new one.

    Raises:
        Refused: bad_message.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return str(uuid.uuid4())
    key = key.strip().strip('"')
    if not 0 < len(key) <= MAX_ID or not key.isprintable():
        raise Refused("bad_message", f"the header Idempotency-Key must hold 1 to {MAX_ID} printable characters")
    return key


# --- events ----------------------------------------------------------------------------------------------------------


async def events(gateway: Gateway, request: Request) -> Response | Streamed:
    """Serve a run's events: a page, or a live stream."""
    if EVENT_STREAM in request.headers.get("accept", ""):
        return await _live(gateway, request)
    run, after = request.params["run"], request.number("after", 0, most=2**53 - 1)
    head = await gateway.api.head(request.who, run)
    limit = request.number("limit", EVENTS_PAGE, least=1, most=MOST)
    _check_cursor(after, head)
    reader = gateway.runtime.reader
    frames = await reader.events(run, after=after, limit=limit, max_bytes=PAGE_BYTES)
    newest = frames or await reader.events(run, after=max(0, after - 1), limit=1)
    last = after + len(frames)
    page: JSONObject = {
        "run": run,
        "epoch": gateway.epoch,
        "events": [msgspec.Raw(frame) for frame in frames],
        "head": max(head, last),
        "next": last,
        "done": bool(newest) and event_type(newest[-1]) in TERMINAL_EVENTS,
    }
    return Response(body=_encode(page))


async def _live(gateway: Gateway, request: Request) -> Streamed:
    run = request.params["run"]
    head = await gateway.api.head(request.who, run)
    after = resumed_after(gateway, request)
    _check_cursor(after, head)

    @asynccontextmanager
    async def chunks() -> AsyncIterator[AsyncIterator[bytes]]:
        async with gateway.follow(run, after) as follower:
            async with aclosing(_sent(gateway, follower)) as chunks:
                yield chunks

    return Streamed(chunks=chunks, run=run)


def _check_cursor(after: int, head: int) -> None:
    if after > head:
        raise Refused("reset", f"the newest event is {head}, not {after}; read the run and start after its sequence")


async def _sent(gateway: Gateway, follower: Any) -> AsyncGenerator[bytes, None]:
    yield RETRY
    try:
        async for part in follower:
            yield part.encoded(gateway.server_sent)
    except (gr.RunDegradedError, gr.UnknownRun, gr.RuntimeClosed, gr.StoreError) as error:
        yield b": %b\n\n" % str(error).encode().replace(b"\n", b" ").replace(b"\r", b" ")


def resumed_after(gateway: Gateway, request: Request) -> int:
    """Return the sequence to continue after: Last-Event-ID of a reconnecting client, otherwise `after`.

    Raises:
        Refused: bad_message; reset: the id is of another log.
    """
    last = request.headers.get("last-event-id")
    if not last:
        return request.number("after", 0, most=2**53 - 1)
    epoch, _, sequence = last.rpartition("-")
    if not sequence.isascii() or not sequence.isdigit() or len(sequence) > 16:
        raise Refused("bad_message", f"Last-Event-ID {last!r:.100} is invalid; its form is <epoch>-<sequence>")
    if epoch != gateway.epoch:
        raise Refused("reset", f"Last-Event-ID is of another log ({epoch!r:.40}); read the run and start again")
    return int(sequence)


# --- the table -------------------------------------------------------------------------------------------------------

_LIST: Final = {
    "status": "created, running, waiting or done",
    "agent": "an agent's key",
    "thread": "a thread's id",
    "prefix": "what the run's id begins with",
    "by": "the principal that started it",
    "since": "created at this time or later, such as 2026-01-31T09:30:00Z",
    "until": "created before this time",
    "text": "what its id, title, input, output or reason of failure contains; upper and lower case are the same",
    "outcome": f"how it has ended: {', '.join(LISTED_OUTCOMES)}",
    "code": "the code of its end, such as model_error",
    "tool": "a tool that it has called",
    "order": "newest (default), or waiting_longest: waiting runs only, the longest waiting first",
    "counts": "true: also count the runs that are not done",
    "limit": f"at most so many, 1 to {MOST} (default {RUNS_PAGE})",
    "cursor": "from the page before; good for the same query only",
}
_PAGE: Final = {
    "after": "sequence of the last event that is known (default 0)",
    "limit": f"at most so many, 1 to {MOST} (default {EVENTS_PAGE}); a page ends after {PAGE_BYTES} bytes, too",
}
_KEY: Final = {"Idempotency-Key": "the command's id: sent again, it acts once (one is made if it is missing)"}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/healthz", handler=healthz, scope=None, tag="health",
        summary="The process serves", responses={200: ("It serves.", "Health")},
    ),
    Route(
        method="GET", template="/readyz", handler=readyz, scope=None, tag="health",
        summary="The process takes work", responses={200: ("It takes work.", "Health"), 503: ("Not now.", "ErrorBody")},
    ),
    Route(
        method="GET", template="/metrics", handler=measured, scope="admin", tag="health",
        summary="Metrics for Prometheus", responses={200: ("Prometheus text.", "text/plain")},
    ),
    Route(
        method="GET", template="/v1/me", handler=me, scope="maybe", tag="health",
        summary="Who sends the request", responses={200: ("Its principal.", "Me")},
    ),
    Route(
        method="GET", template="/v1/agents", handler=agents, scope="start",
        summary="The agents that can be started", responses={200: ("Their keys and tools.", "AgentList")},
    ),
    Route(
        method="GET", template="/v1/queues", handler=queues, scope="admin",
        summary="The queues of runs", responses={200: ("Their lengths and limits.", "QueueList")},
    ),
    Route(
        method="POST", template="/v1/queues/{queue}", handler=set_queue, scope="admin",
        summary="Limit a queue, or pause it", body=up.LimitQueue,
        responses={200: ("Its lengths and limits.", "QueueLine")},
    ),
    Route(
        method="POST", template="/v1/prune", handler=prune, scope="admin",
        summary="Delete runs that ended long ago", body=up.PruneRuns,
        responses={200: ("What was deleted.", "PrunedBody")},
    ),
    Route(
        method="GET", template="/v1/runs", handler=list_runs, scope="follow",
        summary="List runs", query=_LIST, responses={200: ("A page.", "RunList")},
    ),
    Route(
        method="POST", template="/v1/runs", handler=start_run, scope="start",
        summary="Start a run", body=up.Start, headers=_KEY,
        responses={200: ("It was there.", "Started"), 201: ("Durable.", "Started")},
    ),
    Route(
        method="GET", template="/v1/runs/{run}", handler=one_run, scope="follow",
        summary="A run as it is", responses={200: ("One consistent snapshot.", "RunBody")},
    ),
    Route(
        method="GET", template="/v1/runs/{run}/evidence", handler=evidence, scope="follow",
        summary="Who allowed what in a run, and what came of it",
        responses={200: ("The account of its log, child runs included.", "RunEvidence")},
    ),
    Route(
        method="GET", template="/v1/runs/{run}/events", handler=events, scope="follow",
        summary="A run's events: a page, or live with Accept: text/event-stream", query=_PAGE,
        headers={"Last-Event-ID": "where a stream continues: <epoch>-<sequence> of the last event"},
        responses={
            200: ("A page, or a stream.", ("EventPage", EVENT_STREAM)),
            410: ("The cursor is of another log, or beyond its head.", "ErrorBody"),
        },
    ),
    Route(
        method="POST", template="/v1/runs/{run}/fork", handler=fork_run, scope="start",
        summary="Start a run where another one stood at the end of a step", body=up.Fork, headers=_KEY,
        responses={200: ("It was there.", "Started"), 201: ("Durable.", "Started")},
    ),
    Route(
        method="POST", template="/v1/runs/{run}/revive", handler=revive_run, scope="start",
        summary="Let a dead letter be claimed again",
        responses={200: ("The run may be claimed, if it was a dead letter.", "Revived")},
    ),
    Route(
        method="POST", template="/v1/runs/{run}/commands", handler=command, scope="any",
        summary="Decide, cancel, send or pause", body="Command", headers=_KEY,
        responses={202: ("Durable.", "Accepted")},
    ),
)  # fmt: skip
