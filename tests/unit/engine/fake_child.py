"""A child run as the parent's machine can see it: it works, asks, is decided from either side, and ends at random."""

import random
from datetime import datetime
from typing import Any

import attrs
from msgspec.structs import replace

from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.decisions import Decision, Ticket
from greenroom.actors.contract.lifecycle import RunStatus, Stage
from greenroom.actors.contract.messages import Usage
from greenroom.actors.engine import inputs as inp

ENDS = ((Stage.COMPLETED, CallStatus.SUCCEEDED), (Stage.FAILED, CallStatus.FAILED))
CUT = (Stage.CANCELLED, CallStatus.CANCELLED)


@attrs.define(eq=False)
class FakeChild:
    """One child run; its rows survive every crash of its parent."""

    run_id: str
    usage: Usage = attrs.field(factory=lambda: Usage(requests=1, input=3))
    tickets: dict[str, Ticket] = attrs.field(factory=dict)
    refused: inp.RefusedDecision | None = None
    outcome: inp.ChildOutcome | None = None

    def asks(self, now: datetime) -> None:
        """It opens a ticket."""
        name = f"{self.run_id}.t{len(self.tickets) + 1}"
        self.tickets[name] = Ticket(
            ticket_id=name,
            run_id=self.run_id,
            call_id="inner",
            tool="pay",
            arguments={},
            fingerprint=name,
            reason="tool_permission",
            requested_at=now,
        )

    def takes(self, decision: Decision) -> None:
        """A decision arrives: the first one counts."""
        ticket = self.tickets[decision.target]
        if ticket.status == "open":
            how: Any = "denied" if decision.action == "cancel" else "approved"
            self.tickets[decision.target] = replace(
                ticket, status=how, decided_by=decision.decided_by, decision_reason=f"child of {decision.reason}"
            )
        elif ticket.decided_by != decision.decided_by:
            self.refused = inp.RefusedDecision(decision_id=decision.decision_id, code="already_decided", detail="late")

    def moves(self, rng: random.Random, now: datetime) -> None:
        """It does something, or somebody decides its own ticket."""
        waiting = [name for name, ticket in self.tickets.items() if ticket.status == "open"]
        match rng.choice(("ask", "decided", "end", "nothing")):
            case "ask" if self.outcome is None:
                self.asks(now)
            case "decided" if waiting:
                self.takes(Decision(target=rng.choice(waiting), action="resume", reason="direct", decided_by="eve"))
            case "end" if not waiting:
                self.ends(*rng.choice((*ENDS, CUT)), fatal=rng.random() < 0.1)

    def ends(self, stage: Stage, status: CallStatus, *, fatal: bool = False) -> None:
        """It is done; open tickets are withdrawn."""
        if self.outcome is not None:
            return
        self.tickets = {
            name: replace(ticket, status="withdrawn") if ticket.status == "open" else ticket
            for name, ticket in self.tickets.items()
        }
        code = (
            None if status is CallStatus.SUCCEEDED else "child_failed" if status is CallStatus.FAILED else "cancelled"
        )
        result = "said" if status is CallStatus.SUCCEEDED else None
        self.outcome = inp.ChildOutcome(
            stage=stage,
            status=status,
            shown="said",
            result=result,
            call_code=code,
            fatal=fatal and code == "child_failed",
        )

    def seen(self, call_id: str) -> inp.ChildSeen:
        """What a watcher reports now."""
        waits = any(ticket.status == "open" for ticket in self.tickets.values())
        status = RunStatus.DONE if self.outcome is not None else RunStatus.WAITING if waits else RunStatus.RUNNING
        refused, self.refused = self.refused, None
        return inp.ChildSeen(
            call_id=call_id,
            status=status,
            agent="inner",
            tickets=tuple(self.tickets.values()),
            outcome=self.outcome,
            usage=self.usage,
            refused=refused,
        )
