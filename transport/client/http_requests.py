"""The HTTP requests of a client: one-time reads, in contrast to subscriptions."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import h11
import msgspec

from greenroom import __version__
from greenroom.actors.abc import Pruned
from greenroom.actors.contract.artifacts import Artifact
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.casing import from_wire
from greenroom.actors.contract.codec import SchemaError, parse
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.lifecycle import RunStatus, Stage, Termination
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.tasks import TaskView
from greenroom.actors.contract.waiting_for import WaitingFor
from greenroom.actors.processes import QueueInfo
from greenroom.actors.run.view import RunView

from ..protocol.lines import Counts, RunLine
from .close_reasons import rejected
from .endpoint import Endpoint
from .errors import NotAGateway, refusal
from .http_exchange import HttpExchange
from .list_buffer import ListedRuns, counts_of
from .trio_streams import TRIO
from .waiting import Loop


async def fetch(
    address: Endpoint,
    path: str,
    query: JSONObject | None = None,
    *,
    token: str | None,
    context: ssl.SSLContext | None = None,
    ids: Mapping[str, str] | None = None,
    body: JSONObject | None = None,
    loop: Loop = TRIO,
) -> dict[str, Any]:
    """GET a JSON object; with a body, POST that. `ids`: the run_id or thread_id that a refusal is about.

    Raises:
        NotReachable: The gateway does not answer now.
        NotAGateway: The answer is not a gateway's.
        UnknownRun, RequestRefused...: The gateway refused the request.
    """
    status, answer = await _asked(address, path, query, token=token, context=context, body=body, loop=loop)
    return _json(address, status, answer, ids)


async def fetch_bytes(
    address: Endpoint,
    path: str,
    *,
    token: str | None,
    context: ssl.SSLContext | None = None,
    ids: Mapping[str, str] | None = None,
    loop: Loop = TRIO,
) -> bytes:
    """GET the bytes of an artifact or a part.

    Raises:
        NotReachable: The gateway does not answer now.
        NotAGateway: The answer is not a gateway's.
        UnknownArtifact, UnknownPart, UnknownRun, RequestRefused...: The gateway refused the request.
    """
    status, answer = await _asked(address, path, token=token, context=context, loop=loop)
    if status >= 300:
        _json(address, status, answer, ids)
    return answer


async def _asked(
    address: Endpoint,
    path: str,
    query: JSONObject | None = None,
    *,
    token: str | None,
    context: ssl.SSLContext | None,
    loop: Loop,
    body: JSONObject | None = None,
) -> tuple[int, bytes]:
    target = address.prefix + path
    fields = {name: value for name, value in (query or {}).items() if value is not None}
    target += f"?{urlencode(fields)}" if fields else ""
    headers = [("host", address.authority), ("user-agent", f"greenroom/{__version__}"), ("connection", "close")]
    if token:
        headers.append(("authorization", f"Bearer {token}"))
    data = b"" if body is None else msgspec.json.encode(body)
    if body is not None:
        headers += [("content-type", "application/json"), ("content-length", str(len(data)))]
    request = h11.Request(method="GET" if body is None else "POST", target=target, headers=headers)
    exchange = HttpExchange(request, data)
    await loop.exchange(address, exchange, context)
    return exchange.status, exchange.body


def _json(address: Endpoint, status: int, body: bytes, ids: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the JSON object of an answer, or raise what a refusal says."""
    try:
        data = msgspec.json.decode(body)
        if status < 300:
            return dict(data)
        error = data["error"]
        code, message = str(error["code"]), str(error["message"])
    except (msgspec.DecodeError, UnicodeError, KeyError, TypeError, ValueError):
        raise rejected(address, status, body).error from None
    if code in ("unauthenticated", "forbidden_origin", "not_found"):
        raise rejected(address, status, body).error
    raise refusal(code, message, **ids or {}, retry=bool(error.get("retry")), current=error.get("current"))


def run_path(run_id: str) -> str:
    """Return the path of a run."""
    return f"/v1/runs/{quote(run_id, safe='')}"


def view_of(address: Endpoint, data: JSONObject) -> RunView:
    """Parse the snapshot of a run. Messages and state do not leave the run's process, and are empty here.

    Raises:
        NotAGateway: The data is not a snapshot.
    """
    try:
        termination, waits = data["termination"], data["waitingFor"]
        return RunView(
            run_id=data["run"],
            agent=data["agent"],
            active_agent=data["activeAgent"],
            thread_id=data["thread"],
            by=data["by"],
            stage=Stage(data["stage"]),
            status=RunStatus(data["status"]),
            termination=None if termination is None else parse(Termination, from_wire(Termination, termination)),
            calls={call_id: CallStatus(status) for call_id, status in dict(data["calls"]).items()},
            tickets=tuple(_ticket(data["run"], ticket) for ticket in data["tickets"]),
            tasks={name: parse(TaskView, from_wire(TaskView, task)) for name, task in dict(data["tasks"]).items()},
            usage=parse(Usage, data["usage"]),
            messages=(),
            state={},
            step=data["step"],
            last_sequence=data["sequence"],
            pending=data["pending"],
            degraded=data["degraded"],
            title=data["title"],
            artifacts=tuple(parse(Artifact, from_wire(Artifact, line)) for line in data["artifacts"]),
            waiting_for=None
            if waits is None
            else parse(WaitingFor, {"kind": waits["kind"], "detail": waits["detail"], "run_id": waits["run"]}),
        )
    except (KeyError, TypeError, ValueError, SchemaError) as error:
        raise unreadable(address, "run", error) from error


def _ticket(run_id: str, data: JSONObject) -> Ticket:
    return parse(Ticket, {**from_wire(Ticket, data), "run_id": run_id})


def lines_of(address: Endpoint, data: JSONObject) -> ListedRuns:
    """Parse a page of runs.

    Raises:
        NotAGateway: The data is not a page of runs.
    """
    try:
        rows = msgspec.convert(data["runs"], tuple[RunLine, ...])
        counts = None if data["counts"] is None else msgspec.convert(data["counts"], Counts)
        return ListedRuns(
            runs=rows,
            cursor=data["cursor"],
            counts=None if counts is None else counts_of(counts),
        )
    except (KeyError, TypeError, ValueError, SchemaError) as error:
        raise unreadable(address, "list of runs", error) from error


def agents_of(address: Endpoint, data: JSONObject) -> tuple[str, ...]:
    """Parse the keys of a list of agents.

    Raises:
        NotAGateway: The data is not a list of agents.
    """
    try:
        return tuple(str(line["key"]) for line in data["agents"])
    except (KeyError, TypeError) as error:
        raise unreadable(address, "list of agents", error) from error


def queues_of(address: Endpoint, data: JSONObject) -> tuple[QueueInfo, ...]:
    """Parse the queues of a store.

    Raises:
        NotAGateway: The data is not a list of queues.
    """
    try:
        return tuple(parse(QueueInfo, from_wire(QueueInfo, line)) for line in data["queues"])
    except (KeyError, TypeError, ValueError, SchemaError) as error:
        raise unreadable(address, "list of queues", error) from error


def pruned_of(address: Endpoint, data: JSONObject) -> Pruned:
    """Parse what a prune has deleted.

    Raises:
        NotAGateway: The data says nothing of it.
    """
    try:
        runs, messages, size, reusable = (
            int(data[name]) for name in ("runs", "messages", "freedBytes", "reusableBytes")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(address, "result", error) from error
    return Pruned(runs=runs, messages=messages, freed=size, reusable=reusable)


def unreadable(address: Endpoint, what: str, error: Exception) -> NotAGateway:
    """Return the error for an answer that this client cannot read."""
    way = "use the client of the server's release"
    return NotAGateway(f"{address.url} sent a {what} that cannot be read ({error}); {way}", url=address.url)
