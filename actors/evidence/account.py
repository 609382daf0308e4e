"""The account of a run: who started it, what it did with whose permission, and how it ended. A fold of its log.

The account says nothing that the log does not say: `account` reads events and no row. Types that it does not know, such
as those of a newer release, change nothing but the count of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ..contract.casing import camel
from ..contract.envelope import Event, timestamp
from ..contract.plain import JSONValue

LONGEST: Final = 4_096
"""Characters of a text in an account; the log has all of it."""
_ENDS: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})


class TicketEvidence(Struct, frozen=True, kw_only=True, rename=camel):
    """A question, and what a person answered.

    Attributes:
        ticket_id: The id of the ticket.
        reason: Why a person was asked: tool_permission, user_input, outcome_unknown, manual_pause, ...
        message: The question.
        fingerprint: The action that the ticket was about.
        asked_at: When the ticket became durable, RFC 3339.
        resolution: How the ticket was closed: approved, denied, expired, withdrawn, ...; None while it is open.
        by: The principal that decided; None if a time or the runtime closed the ticket.
        why: The reason that the principal gave.
        edited: The principal changed the action.
        resolved_at: When; None while the ticket is open.
    """

    ticket_id: str
    reason: str
    message: str | None
    fingerprint: str
    asked_at: str
    resolution: str | None = None
    by: str | None = None
    why: str | None = None
    edited: bool = False
    resolved_at: str | None = None


class CallEvidence(Struct, frozen=True, kw_only=True, rename=camel):
    """A tool call: what the model asked for, who let it pass, and what came of it.

    Attributes:
        call_id: The id of the call. tool: The name of the tool. effect: Its effect, such as read, write, shell.
        step: The step in which the model asked.
        parent_call_id: The call whose body has made this one; None for a call of the model.
        arguments: What the body got, or would have got: after edits of plugins and of people.
        requested_at: When the model asked.
        allowed: The notes with which gates let the call pass, as "plugin: note".
        overruled: The verdicts of gates that gave way, as "plugin: verdict".
        guardrails: The guardrails that did not allow what they judged, as "name: verdict".
        tickets: The questions about the call.
        started_at: When each attempt of the body started; empty if none did.
        ended_at: When the call ended; None while it works or waits.
        status: succeeded, failed or cancelled; the newest status while it works or waits.
        code: Why the call has failed or was cancelled.
        background: The call went on as a background task; its end is the task's.
        child_run_id: The run that worked for the call.
    """

    call_id: str
    tool: str
    effect: str
    step: int
    parent_call_id: str | None
    arguments: JSONValue
    requested_at: str
    allowed: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    tickets: tuple[TicketEvidence, ...] = ()
    started_at: tuple[str, ...] = ()
    ended_at: str | None = None
    status: str = "new"
    code: str | None = None
    background: bool = False
    child_run_id: str | None = None

    @property
    def ran_unasked(self) -> bool:
        """A body ran, and no person was asked before."""
        return bool(self.started_at) and not self.tickets


class RunEvidence(Struct, frozen=True, kw_only=True, rename=camel):
    """The account of a run and of the runs that worked for its calls.

    Attributes:
        run_id: The id of the run. thread_id: The thread in which it worked. agent: The key of its agent.
        by: The principal that started it. input: What it was started with, the first 4,096 characters.
        workspace: The name of its workspace; None without one.
        created_at: When it was created.
        stage: The newest stage: created, running, needs_approval, completed, failed, cancelled, ...
        termination: How it ended; None if it has not. code: Why, if it failed or was stopped. ended_at: When.
        calls: All calls, in the order in which they were asked for.
        tickets: The questions that were about no call, such as manual pauses.
        commands: What people said to the run beside decisions, as "cancel by ada: reason", in order.
        restrictions: With what restriction it continued, as "reason: detail".
        artifacts: What it published, as the payloads say: names, kinds, sizes, digests.
        proposals: What it proposed for a folder, and what became of that.
        usage: The tokens and requests of the whole run; None before its end.
        events: The number of events that were read.
        children: The accounts of the runs that worked for its calls.
    """

    run_id: str
    thread_id: str = ""
    agent: str = ""
    by: str = ""
    input: str = ""
    workspace: str | None = None
    created_at: str = ""
    stage: str = ""
    termination: str | None = None
    code: str | None = None
    ended_at: str | None = None
    calls: tuple[CallEvidence, ...] = ()
    tickets: tuple[TicketEvidence, ...] = ()
    commands: tuple[str, ...] = ()
    restrictions: tuple[str, ...] = ()
    artifacts: tuple[Mapping[str, JSONValue], ...] = ()
    proposals: tuple[Mapping[str, JSONValue], ...] = ()
    usage: Mapping[str, JSONValue] | None = None
    events: int = 0
    children: tuple[RunEvidence, ...] = ()

    @property
    def terminal(self) -> bool:
        """The run has ended."""
        return self.ended_at is not None


class AccountFold:
    """An account that grows event by event, for logs that are read in pages.

    Memory grows with the calls, questions and artifacts of the run, not with its text.
    """

    def __init__(self, run_id: str) -> None:
        self._account = RunEvidence(run_id=run_id)
        self._calls: dict[str, CallEvidence] = {}
        self._tickets: dict[str, tuple[str | None, TicketEvidence]] = {}
        self._lists: dict[str, list[Any]] = {}

    def __repr__(self) -> str:
        return f"<AccountFold of {self._account.run_id}: {self._account.events} events>"

    def add(self, event: Event) -> None:
        """Read one event; call with each event of the log, in order."""
        changes: dict[str, Any] = {"events": self._account.events + 1}
        payload = event.payload
        if "to" in payload and event.type.startswith("run."):
            changes["stage"] = payload["to"]
        if event.type in _ENDS:
            changes |= {"termination": payload.get("termination"), "usage": payload.get("usage")}
            changes |= {"code": payload.get("code"), "ended_at": timestamp(event.timestamp)}
        self._account = replace(self._account, **changes)
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, payload, timestamp(event.timestamp))

    def account(self, children: tuple[RunEvidence, ...] = ()) -> RunEvidence:
        """Return the account of the events so far, with the accounts of child runs."""
        by_call: dict[str | None, list[TicketEvidence]] = {}
        for call_id, ticket in self._tickets.values():
            by_call.setdefault(call_id if call_id in self._calls else None, []).append(ticket)
        calls = (replace(call, tickets=tuple(by_call.get(name, ()))) for name, call in self._calls.items())
        lists = {name: tuple(values) for name, values in self._lists.items()}
        return replace(
            self._account, calls=tuple(calls), tickets=tuple(by_call.get(None, ())), children=children, **lists
        )

    def _note(self, name: str, value: object) -> None:
        self._lists.setdefault(name, []).append(value)

    def _change_call(self, payload: Mapping[str, Any], **changes: object) -> None:
        call = self._calls.get(payload.get("callId") or "")
        if call is not None:
            self._calls[call.call_id] = replace(call, **changes)

    def _append_to_call(self, payload: Mapping[str, Any], name: str, value: str) -> None:
        call = self._calls.get(payload.get("callId") or "")
        if call is not None:
            self._change_call(payload, **{name: (*getattr(call, name), value)})

    # --- one method for each type of event that says something -------------------------------------------------------

    def _created(self, payload: Mapping[str, Any], at: str) -> None:
        self._account = replace(
            self._account,
            thread_id=payload.get("threadId", ""),
            agent=payload.get("agent", ""),
            by=payload.get("by", ""),
            input=_short(payload.get("input", "")),
            workspace=payload.get("workspace"),
            created_at=at,
        )

    def _called(self, payload: Mapping[str, Any], at: str) -> None:
        self._calls[payload["callId"]] = CallEvidence(
            call_id=payload["callId"],
            tool=payload["tool"],
            effect=payload["effect"],
            step=payload["step"],
            parent_call_id=payload.get("parentCallId"),
            arguments=_short(payload["arguments"]),
            requested_at=at,
        )

    def _edited(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, arguments=_short(payload["arguments"]))

    def _resumed(self, payload: Mapping[str, Any], at: str) -> None:
        edits = {"arguments": _short(payload["arguments"])} if payload.get("arguments") is not None else {}
        self._change_call(payload, status=payload["status"], **edits)

    def _suspended(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, status=payload["status"])

    def _started(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, status=payload["status"])
        self._append_to_call(payload, "started_at", at)

    def _ended(self, payload: Mapping[str, Any], at: str) -> None:
        call = self._calls.get(payload["callId"])
        if call is not None and not call.background:  # the result of a background call says only that it goes on
            self._change_call(payload, status=payload["status"], code=payload.get("code"), ended_at=at)

    def _task_started(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, background=True, status="running", ended_at=None)
        self._append_to_call(payload, "started_at", at)

    def _task_finished(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, status=payload["status"], code=payload.get("code"), ended_at=at)

    def _gate_allowed(self, payload: Mapping[str, Any], at: str) -> None:
        call, text = self._calls.get(payload["callId"]), f"{payload['plugin']}: {payload['note']}"
        if call is not None and text not in call.allowed:  # a gate that is asked again says the same again
            self._change_call(payload, allowed=(*call.allowed, text))

    def _gate_overruled(self, payload: Mapping[str, Any], at: str) -> None:
        self._append_to_call(payload, "overruled", f"{payload['plugin']}: {payload['verdict']}")

    def _tripped(self, payload: Mapping[str, Any], at: str) -> None:
        text = f"{payload['guardrail']}: {payload['verdict']}"
        if payload.get("callId") in self._calls:
            self._append_to_call(payload, "guardrails", text)
        else:
            self._note("restrictions", f"guardrail {text}")

    def _child_started(self, payload: Mapping[str, Any], at: str) -> None:
        self._change_call(payload, child_run_id=payload["childRunId"])

    def _asked(self, payload: Mapping[str, Any], at: str) -> None:
        ticket = TicketEvidence(
            ticket_id=payload["ticketId"],
            reason=payload["reason"],
            message=_short(payload.get("message") or payload.get("action") or "") or None,
            fingerprint=payload["fingerprint"],
            asked_at=at,
        )
        self._tickets[ticket.ticket_id] = payload.get("callId"), ticket

    def _answered(self, payload: Mapping[str, Any], at: str) -> None:
        call_id, ticket = self._tickets.get(payload["ticketId"], (None, None))
        if ticket is not None:
            self._tickets[ticket.ticket_id] = (
                call_id,
                replace(
                    ticket,
                    resolution=payload["resolution"],
                    by=payload.get("by"),
                    why=_short(payload.get("reason")),
                    edited=payload.get("edited", False),
                    resolved_at=at,
                ),
            )

    def _commanded(self, verb: str, payload: Mapping[str, Any]) -> None:
        why = payload.get("reason")
        self._note(
            "commands", f"{verb} by {payload.get('by') or 'an unnamed principal'}" + (f": {_short(why)}" if why else "")
        )

    def _cancel(self, payload: Mapping[str, Any], at: str) -> None:
        self._commanded("cancel", payload)

    def _pause(self, payload: Mapping[str, Any], at: str) -> None:
        self._commanded("pause", payload)

    def _input(self, payload: Mapping[str, Any], at: str) -> None:
        self._commanded("input", payload)

    def _degraded(self, payload: Mapping[str, Any], at: str) -> None:
        detail = payload.get("detail")
        self._note("restrictions", payload["reason"] + (f": {_short(detail)}" if detail else ""))

    def _program_missing(self, payload: Mapping[str, Any], at: str) -> None:
        self._note("restrictions", f"{payload['code']}: {payload['runtime']}: {_short(payload['reason'])}")

    def _program_silent(self, payload: Mapping[str, Any], at: str) -> None:
        self._note("restrictions", f"{payload['runtime']}: no word for {payload['seconds']:g} s ({payload['which']})")

    def _program_unread(self, payload: Mapping[str, Any], at: str) -> None:
        self._note("restrictions", f"{payload['source']}: line {payload['line']} breaks the rule {payload['rule']}")

    def _artifact(self, payload: Mapping[str, Any], at: str) -> None:
        self._note("artifacts", {**payload, "at": at})

    def _proposal(self, payload: Mapping[str, Any], at: str) -> None:
        self._note("proposals", {**payload, "at": at})


_HANDLERS: Final[Mapping[str, Callable[[AccountFold, Mapping[str, Any], str], None]]] = {
    "run.created": AccountFold._created,
    "run.tool.call": AccountFold._called,
    "run.tool.edited": AccountFold._edited,
    "run.tool.suspended": AccountFold._suspended,
    "run.tool.resumed": AccountFold._resumed,
    "run.tool.started": AccountFold._started,
    "run.tool.result": AccountFold._ended,
    "run.task.started": AccountFold._task_started,
    "run.task.finished": AccountFold._task_finished,
    "run.gate.allowed": AccountFold._gate_allowed,
    "run.gate.overruled": AccountFold._gate_overruled,
    "run.guardrail.tripped": AccountFold._tripped,
    "run.child.started": AccountFold._child_started,
    "run.approval.requested": AccountFold._asked,
    "run.approval.resolved": AccountFold._answered,
    "run.cancel.requested": AccountFold._cancel,
    "run.pause.requested": AccountFold._pause,
    "run.input.received": AccountFold._input,
    "run.degraded": AccountFold._degraded,
    "runtime.unavailable": AccountFold._program_missing,
    "runtime.timeout": AccountFold._program_silent,
    "schema.validation_failed": AccountFold._program_unread,
    "run.artifact.ready": AccountFold._artifact,
    "run.preview.ready": AccountFold._artifact,
    "run.diff.ready": AccountFold._proposal,
    "run.patch.applied": AccountFold._proposal,
    "run.patch.conflicted": AccountFold._proposal,
    "run.patch.discarded": AccountFold._proposal,
}


def _short(value: Any) -> Any:
    """A value whose texts keep at most `LONGEST` characters each."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]} ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {name: _short(item) for name, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, (list, tuple)) else value


def account(run_id: str, events: Iterable[Event]) -> RunEvidence:
    """Return the account of a run from its events, in the order of the log, without child runs."""
    fold = AccountFold(run_id)
    for event in events:
        fold.add(event)
    return fold.account()
