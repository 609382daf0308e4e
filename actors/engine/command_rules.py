"""Judge commands: accept or reject, as a pure function of the rows that the store looked up.

Theory of operation. The store calls `CommandRules` inside the transaction of `post`, so the answer holds for exactly
the rows that were read. The order of the checks is fixed, so that the same double fault always yields the same code:
not_allowed, known id (duplicate or decision_id_conflict, also after the run's end), unknown_target, already_decided,
run_done, expired, fingerprint_mismatch, invalid_arguments, invalid_result, busy. A rejection leaves no trace, and its
id may be used again. `busy` is last: a repeated command that already waits is a duplicate, not busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal

import attrs

from ..contract.calls import SETTLED
from ..contract.decisions import Command, CommandResult, Decision, Ticket, asks_outcome, supplies_result
from ..contract.json_schema.faults import schema_fault
from ..contract.lifecycle import TERMINAL
from ..contract.pending_input import MAX_INPUT_BYTES, MAX_INPUTS, text_size
from ..contract.plain import JSONObject
from ..contract.rows import CallRow, CommandContext

MAX_PENDING: Final = 256
"""Most commands that may wait in one run's inbox; further commands are rejected as busy."""

ArgumentCheck = Callable[[str, JSONObject], str | None]
"""(tool, arguments) -> None, or what is invalid about the arguments."""

_UNUSABLE = "the ticket's response_schema cannot be used ({}); deny, or cancel the run"


ToolState = Literal["same", "changed", "gone"]
"""A tool as it is now: as a ticket shows it, of another definition, or not there. An unknown one counts as the same."""


@attrs.frozen(kw_only=True)
class MirroredTool:
    """The tool of a child run's ticket, as it is now.

    Attributes:
        state: The state of the tool, compared with the ticket.
        check: arguments -> None, or what is invalid about them.
    """

    state: ToolState
    check: Callable[[JSONObject], str | None]


@attrs.frozen
class CommandRules:
    """Judges the commands of one runtime.

    Attributes:
        now: the time for expiry, UTC.
        check_arguments: validates edited arguments.
        definition: (tool, digest of the definition that was shown) -> its state.
        mirrored_tool: a mirror -> the tool of its child run, which judges decisions about it; None for an unknown tool.
    """

    now: datetime
    check_arguments: ArgumentCheck
    definition: Callable[[str, str], ToolState] = lambda _, __: "same"
    mirrored_tool: Callable[[Ticket], MirroredTool | None] = lambda _: None

    def __call__(self, facts: CommandContext, command: Command) -> CommandResult:
        """Return the result for `command`. "accepted" means that the store journals it."""
        refusal = self.reviewer(facts.ticket, command)
        if refusal is not None:
            return refusal
        if facts.known is not None:
            first, result = facts.known
            if first.content() == command.content():
                return attrs.evolve(result, status="duplicate")
            text = f"the id {command.command_id!r} was used for another command; take a new one"
            return reject(command, "decision_id_conflict", text)
        if command.kind in ("decide", "expire"):
            return self._decide(facts, command)
        if facts.stage in TERMINAL:
            return reject(command, "run_done", f"the run is {facts.stage.value}; nothing can be asked of it any more")
        if command.kind == "pause" and facts.leaving:
            return reject(command, "run_done", "the run is on its way out; it begins no step that could be held back")
        return self._room(facts, command) or accept(command)

    def reviewer(self, ticket: Ticket | None, command: Command) -> CommandResult | None:
        """Return None if the command's sender may decide the ticket, else the rejection."""
        if ticket is None or not ticket.reviewers or command.kind != "decide" or command.by in ticket.reviewers:
            return None
        who = "a command without a principal" if command.by is None else repr(command.by)
        return reject(command, "not_allowed", f"{who} may not decide {ticket.ticket_id}: its reviewers are named")

    def _room(self, facts: CommandContext, command: Command) -> CommandResult | None:
        if facts.pending >= MAX_PENDING:
            return reject(command, "busy", f"{facts.pending} commands wait for this run; try again shortly")
        if command.kind != "send" or facts.inputs == 0:
            return None
        size = text_size(command.text)
        if facts.inputs < MAX_INPUTS and facts.input_bytes + size <= MAX_INPUT_BYTES:
            return None
        text = (
            f"{facts.inputs} texts of {facts.input_bytes} bytes wait for the run's next step; {MAX_INPUTS} texts of "
            f"{MAX_INPUT_BYTES} bytes may wait, and this one has {size}. Try again when a step has begun"
        )
        return reject(command, "busy", text)

    def _decide(self, facts: CommandContext, command: Command) -> CommandResult:
        decision = command.decision
        if decision is None:
            raise ValueError(f"command {command.command_id!r} of kind {command.kind!r} carries no decision")
        return (
            self._target(facts, command, decision)
            or self.fits(facts, command, decision)
            or self._room(facts, command)
            or accept(command, early=facts.ticket is None)
        )

    def _target(self, facts: CommandContext, command: Command, decision: Decision) -> CommandResult | None:
        ticket, call = facts.ticket, facts.call
        if ticket is None and call is None:
            return reject(command, "unknown_target", f"no ticket or call of this run is named {decision.target!r}")
        if ticket is None and call is not None and call.status in SETTLED:
            return reject(
                command, "unknown_target", f"{call.call_id} is {call.status.value} and never asked for a decision"
            )
        if ticket is not None and ticket.status not in ("open", "expired"):
            return self._closed(facts, command, ticket)
        prior = facts.prior
        when = "" if prior is None or prior.posted_at is None else f" at {prior.posted_at.isoformat()}"
        if prior is not None and prior.kind != "expire":
            denied = prior.decision is not None and prior.decision.action == "cancel"
            what = decision.target if ticket is None else ticket.ticket_id
            text = f"{what} was {'denied' if denied else 'approved'} by {prior.by or 'an unnamed principal'}{when}"
            return reject(command, "already_decided", text)
        if facts.stage in TERMINAL:
            return reject(command, "run_done", f"the run is {facts.stage.value}")
        return None if prior is None else reject(command, "expired", f"the ticket expired{when}")

    @staticmethod
    def _closed(facts: CommandContext, command: Command, ticket: Ticket) -> CommandResult:
        """Return the rejection of a decision about a closed ticket. A ticket withdrawn with its run has no decider."""
        when = "" if ticket.decided_at is None else f" at {ticket.decided_at.isoformat()}"
        by = "" if ticket.decided_by is None else f" by {ticket.decided_by}"
        closing = f"{ticket.ticket_id} was {ticket.status}{by}{when}"
        if ticket.status != "withdrawn":
            return reject(command, "already_decided", closing)
        why = "" if ticket.decision_reason is None else f" ({ticket.decision_reason})"
        if facts.stage in TERMINAL:
            return reject(command, "run_done", f"the run is {facts.stage.value}; {closing}{why}")
        newer = None if facts.call is None else facts.call.ticket
        digest = None if command.decision is None else command.decision.fingerprint
        if newer is not None and newer.status == "open" and digest is not None and digest != newer.fingerprint:
            text = (
                f"decided {digest}, but the action is {newer.fingerprint} now: {closing}{why}; decide {newer.ticket_id}"
            )
            return reject(command, "fingerprint_mismatch", text)
        return reject(command, "already_decided", f"{closing}{why}")

    def fits(self, facts: CommandContext, command: Command, decision: Decision) -> CommandResult | None:
        """Return None if the decision fits the ticket (not expired, same action, valid values), else the rejection."""
        ticket, call = facts.ticket, facts.call
        late = ticket is not None and ticket.expires_at is not None and self.now >= ticket.expires_at
        if ticket is not None and (ticket.status == "expired" or (late and command.kind != "expire")):
            until = "" if ticket.expires_at is None else f" at {ticket.expires_at.isoformat()}"
            return reject(command, "expired", f"{ticket.ticket_id} expired{until}")
        if command.kind == "expire":
            return None
        unfit = None if decision.action == "cancel" else self._unfit(ticket, call, decision)  # a denial is always valid
        if unfit is not None:
            return reject(command, "fingerprint_mismatch", unfit)
        fingerprint = ticket.fingerprint if ticket is not None else call.fingerprint if call is not None else ""
        if decision.fingerprint is not None and decision.fingerprint != fingerprint:
            return reject(
                command, "fingerprint_mismatch", f"decided {decision.fingerprint}, but the action is {fingerprint}"
            )
        refusal = self._arguments(facts, command, decision)
        if refusal is not None or ticket is None or ticket.response_schema is None or decision.action == "cancel":
            return refusal
        wrong = schema_fault(ticket.response_schema, decision.result, unusable=_UNUSABLE)
        return None if wrong is None else reject(command, "invalid_result", wrong)

    def _unfit(self, ticket: Ticket | None, call: CallRow | None, decision: Decision) -> str | None:
        """Return None if an approval can act, else why not: the tool was changed or removed; of a mirror, the child's.

        Without its tool a call can still have the result that the decision brings.
        """
        if (ticket is not None and ticket.live) or (call is not None and call.parent is not None):
            return None  # a nested call has no tool
        if ticket is not None and ticket.child_run_id is not None:
            theirs = self.mirrored_tool(ticket)
            state: ToolState = "same" if theirs is None else theirs.state
            tool, what, run = ticket.tool, ticket.ticket_id, "the child run"
        elif call is not None:
            # only the body finds out whether the tool of a toolset is another one now, and asks then
            state = "same" if call.offered is not None else self.definition(call.tool, call.definition)
            tool, what, run = call.tool, call.call_id, "the run"
        else:
            return None
        if state == "changed":
            return f"the tool {tool} has changed since {what} was shown; {run} asks again, with a new ticket"
        if state == "same" or supplies_result(ticket, decision):
            return None
        if ticket is not None and asks_outcome(ticket.reason, ticket.action):
            return f"the tool {tool} is not there any more, so {what} cannot run again; give the result, or deny"
        return f"the tool {tool} is not there any more, so {what} cannot run; {run} withdraws the question"

    def _arguments(self, facts: CommandContext, command: Command, decision: Decision) -> CommandResult | None:
        arguments = decision.edited_arguments
        ticket = facts.ticket
        tool = ticket.tool if ticket is not None else facts.call.tool if facts.call is not None else ""
        if arguments is not None and ticket is not None and ticket.call_id is None:
            return reject(
                command, "invalid_arguments", f"{ticket.ticket_id} holds the run itself: nothing can be edited"
            )
        has_result = decision.action == "resume" and supplies_result(ticket, decision)
        if arguments is not None and ticket is not None and has_result:
            text = f"the decision's result is what {ticket.call_id} comes to: no body runs, so nothing can be edited"
            return reject(command, "invalid_arguments", text)
        nested = (
            facts.call is not None and facts.call.parent is not None and (ticket is None or not ticket.child_run_id)
        )
        if arguments is not None and nested:
            return refuse_edit(facts.call, command)
        if arguments is not None and decision.result is not None and _passes(ticket, decision):
            text = (
                f"{tool} takes the decision's result as its arguments, and edited_arguments are given beside it; "
                "give one of the two"
            )
            return reject(command, "invalid_arguments", text)
        if arguments is not None:
            wrong = self._check(facts, tool, arguments)
            return None if wrong is None else reject(command, "invalid_arguments", wrong)
        if _passes(ticket, decision):
            if not isinstance(decision.result, Mapping):
                kind = type(decision.result).__name__
                return reject(
                    command,
                    "invalid_arguments",
                    f"{tool} takes the result as its arguments: give an object, not {kind}",
                )
            wrong = None if nested else self._check(facts, tool, decision.result)
            return None if wrong is None else reject(command, "invalid_arguments", wrong)
        return None

    def _check(self, facts: CommandContext, tool: str, arguments: JSONObject) -> str | None:
        """Check arguments with the tool of the run that will run it: of a mirror, the child run."""
        ticket, call = facts.ticket, facts.call
        if ticket is not None and ticket.live:
            return None  # the child run judges
        if ticket is not None and ticket.child_run_id is not None:
            theirs = self.mirrored_tool(ticket)
            return self.check_arguments(tool, arguments) if theirs is None else theirs.check(arguments)
        offered_tool = None if call is None else call.offered
        return self.check_arguments(tool, arguments) if offered_tool is None else offered_tool.check(arguments)


def _passes(ticket: Ticket | None, decision: Decision) -> bool:
    """Return True if a body runs with the decision's result as its arguments."""
    return ticket is not None and ticket.resume_mode == "pass_decision_to_tool" and decision.action == "resume"


def accept(command: Command, *, early: bool = False) -> CommandResult:
    """Return the result of a journaled command."""
    return CommandResult(status="accepted", code="early" if early else None, command_id=command.command_id)


def reject(command: Command, code: str, detail: str) -> CommandResult:
    """Return the result of a rejected command, with the reason."""
    return CommandResult(status="rejected", code=code, detail=detail, command_id=command.command_id)


def refuse_edit(call: CallRow | None, command: Command) -> CommandResult | None:
    """Return None if a program takes other arguments for its nested call, any object, else the rejection."""
    if call is None or call.editable:
        return None
    text = f"the program that asks for {call.call_id} takes no other arguments: approve them as they are, or deny"
    return reject(command, "invalid_arguments", text)
