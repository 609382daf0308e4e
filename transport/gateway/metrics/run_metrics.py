"""Metrics of runs, from the events of their commits; no part of a run knows of metrics.

The first scrape begins to listen. Before it nobody could have seen a counter change, because a counter is only ever
compared with an earlier scrape; so a gateway that nobody scrapes pays nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

import greenroom as gr
from greenroom.actors.contract.envelope import event_type
from greenroom.actors.contract.messages import Usage

from .metrics import Metrics

MOST_TICKETS: Final = 10_000
"""Open tickets whose time is remembered; the times of others are read from the store."""
MOST_UNKNOWN: Final = 100
"""Decisions between two scrapes whose tickets are read from the store; further ones are in no histogram."""
_STAMP: Final = b'"timestamp":"'
_STAMP_BYTES: Final = 24
"""Length of 2026-01-31T09:30:00.000Z."""
_DECIDED: Final = ("approved", "denied")


class _MeasuredPayload(msgspec.Struct, frozen=True, rename="camel"):
    termination: str = ""
    code: str | None = None
    active_seconds: float = 0.0
    model: str | None = None
    usage: Usage | None = None
    duration_ms: int = 0
    tool: str = ""
    status: str = ""
    ticket_id: str = ""
    reason: str | None = None
    resolution: str = ""


class _MeasuredEvent(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str
    timestamp: str
    payload: _MeasuredPayload
    agent_id: str | None = None


_decode = msgspec.json.Decoder(_MeasuredEvent).decode
_OUTCOMES: Final = {"run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}


class RunMetrics:
    """Counts the events of runs that this process commits, from `listen` on."""

    def __init__(self, metrics: Metrics, reader: gr.RunReader, now: Callable[[], datetime]) -> None:
        self._metrics, self._reader, self._now = metrics, reader, now
        self._end: Callable[[], None] | None = None
        self._opened = OrderedDict[tuple[str, str], datetime]()
        self._unknown = deque[tuple[str, str, str, datetime]](maxlen=MOST_UNKNOWN)
        self._counts: Mapping[str, Callable[[_MeasuredEvent], None]] = {
            "run.created": self._started,
            **dict.fromkeys(_OUTCOMES, self._ended),
            "run.inference.completed": self._answered,
            "run.inference.retried": self._retried,
            "run.inference.cut": self._cut,
            "run.usage.spent": self._spent,
            "run.tool.result": self._called,
            "run.task.finished": self._task,
            "run.approval.requested": self._asked,
            "run.approval.resolved": self._resolved,
        }
        self._type = ""

    def __repr__(self) -> str:
        return f"<RunMetrics {'off' if self._end is None else 'on'}>"

    def listen(self) -> None:
        """Begin to count; twice is once."""
        if self._end is None:
            self._end = self._reader.on_change(self._committed, lambda: None)

    def close(self) -> None:
        """Stop counting."""
        if self._end is not None:
            self._end()
            self._end = None

    async def settle(self) -> None:
        """Read the times of decided tickets that were opened before `listen`, or in another process.

        Raises StoreUnavailable, StoreDown, StoreError, RuntimeClosed.
        """
        while self._unknown:
            run_id, ticket_id, resolution, at = self._unknown.popleft()
            ticket = await self._reader.ticket(run_id, ticket_id)
            if ticket is not None:
                self._decided(resolution, ticket.requested_at, at)

    def _committed(self, run_id: str, frames: Sequence[bytes]) -> None:
        if not frames:
            return
        for frame in frames:
            self._type = event_type(frame)
            count = self._counts.get(self._type)
            if count is not None:
                count(_decode(frame))
        newest = frames[-1]
        at = newest.index(_STAMP) + len(_STAMP)
        written_at = datetime.fromisoformat(newest[at : at + _STAMP_BYTES].decode())
        seconds = max(0.0, (self._now() - written_at).total_seconds())
        self._metrics.observe("greenroom_store_commit_seconds", value=seconds)

    # --- one method for each event -----------------------------------------------------------------------------------

    def _agent(self, event: _MeasuredEvent) -> str:
        return self._metrics.bounded("agent", event.agent_id or "")

    def _started(self, event: _MeasuredEvent) -> None:
        self._metrics.count("greenroom_runs_started_total", self._agent(event))

    def _ended(self, event: _MeasuredEvent) -> None:
        metrics, agent, payload = self._metrics, self._agent(event), event.payload
        outcome = "stopped" if payload.termination == "stopped" else _OUTCOMES[self._type]
        metrics.count("greenroom_runs_finished_total", agent, outcome)
        metrics.observe("greenroom_run_active_seconds", agent, value=payload.active_seconds)
        if outcome in ("failed", "stopped"):
            code = metrics.bounded("code", payload.code or "unknown")
            metrics.count("greenroom_run_failures_total", agent, code)

    def _answered(self, event: _MeasuredEvent) -> None:
        model = self._metrics.bounded("model", event.payload.model or "unknown")
        self._metrics.observe("greenroom_model_request_seconds", model, value=event.payload.duration_ms / 1000)
        self._tokens(model, event.payload.usage)

    def _retried(self, event: _MeasuredEvent) -> None:
        code = self._metrics.bounded("code", event.payload.code or "unknown")
        self._metrics.count("greenroom_model_retries_total", self._agent(event), code)
        self._tokens("unknown", event.payload.usage)

    def _cut(self, event: _MeasuredEvent) -> None:
        self._metrics.count("greenroom_model_requests_cut_total", self._agent(event))
        self._tokens("unknown", event.payload.usage)

    def _spent(self, event: _MeasuredEvent) -> None:
        self._tokens("unknown", event.payload.usage)

    def _tokens(self, model: str, usage: Usage | None) -> None:
        if usage is None:
            return
        for kind in ("input", "output", "cached", "reasoning", "stored"):
            count = getattr(usage, kind)
            if count:  # `stored` may be UNSET, which is false
                self._metrics.count("greenroom_model_tokens_total", model, kind, amount=count)

    def _called(self, event: _MeasuredEvent) -> None:
        tool = self._metrics.bounded("tool", event.payload.tool)
        self._metrics.count("greenroom_tool_calls_total", tool, event.payload.status)
        self._metrics.observe("greenroom_tool_call_seconds", tool, value=event.payload.duration_ms / 1000)

    def _task(self, event: _MeasuredEvent) -> None:
        tool = self._metrics.bounded("tool", event.payload.tool)
        self._metrics.count("greenroom_background_tasks_total", tool, event.payload.status)

    def _asked(self, event: _MeasuredEvent) -> None:
        self._metrics.count("greenroom_tickets_opened_total", event.payload.reason or "")
        self._opened[event.run_id, event.payload.ticket_id] = datetime.fromisoformat(event.timestamp)
        if len(self._opened) > MOST_TICKETS:
            self._opened.popitem(last=False)

    def _resolved(self, event: _MeasuredEvent) -> None:
        payload = event.payload
        self._metrics.count("greenroom_tickets_resolved_total", payload.resolution)
        opened_at = self._opened.pop((event.run_id, payload.ticket_id), None)
        if payload.resolution not in _DECIDED:
            return
        at = datetime.fromisoformat(event.timestamp)
        if opened_at is None:
            self._unknown.append((event.run_id, payload.ticket_id, payload.resolution, at))
        else:
            self._decided(payload.resolution, opened_at, at)

    def _decided(self, resolution: str, opened_at: datetime, at: datetime) -> None:
        seconds = max(0.0, (at - opened_at).total_seconds())
        self._metrics.observe("greenroom_ticket_decision_seconds", resolution, value=seconds)
