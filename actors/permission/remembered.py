"""Remembered rules: a person's "always" beside an approval, kept for a run, a thread or a workspace.

Theory of operation. A remembered rule is made of a ticket that the gate of `Permission` has opened, after the approval
was accepted. Its id is a digest of the ticket, so that writing it twice keeps one. It covers later calls of the tool:
the same call, the same words of a command, or every call. It turns an ask into an allow and nothing else; whatever may
not be remembered (`may_be_remembered`) is asked about again, also with a rule that an older release has kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, assert_never, get_args

import attrs

from ..contract.decisions import Ticket
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..errors import UsageError
from ..options import unknown_value
from .subject import Subject, subject_of

RememberScope = Literal["run", "thread", "workspace"]
RememberAs = Literal["call", "tool", "argv"]
SCOPES: Final[tuple[str, ...]] = get_args(RememberScope)
FORMS: Final[tuple[str, ...]] = get_args(RememberAs)
PERMISSION: Final = "permission"
"""The parameter of a ticket with which the gate says what it has asked about."""


@attrs.frozen(kw_only=True)
class RememberedRule:
    """A rule that a person made with "always".

    Attributes:
        rule_id: A digest of the ticket.
        scope: What the rule holds for: "run", "thread" or "workspace".
        holder: The id of that run or thread, or the name of that workspace.
        form: What it covers: "call" (the same arguments), "argv" (the same words of a command) or "tool" (every call).
        tool: The tool.
        covered: A digest of the arguments or of the words; "" for "tool".
        by: The principal that decided.
        at: When, UTC.
        ticket_id: The ticket.
        revoked: The rule covers nothing any more.
    """

    rule_id: str
    scope: RememberScope
    holder: str
    form: RememberAs
    tool: str
    covered: str
    by: str | None
    at: datetime
    ticket_id: str
    revoked: bool = False

    def covers(self, subject: Subject, arguments: JSONObject) -> bool:
        """Return True if the rule covers a call that may be remembered."""
        if self.revoked or self.tool != subject.tool:
            return False
        match self.form:
            case "tool":
                return True
            case "call":
                return self.covered == content_digest(arguments)
            case "argv":
                return self.covered == _words_digest(subject)
            case _ as never:
                assert_never(never)

    def __str__(self) -> str:
        revoked = ", revoked" if self.revoked else ""
        return f"{self.form} of {self.tool} for the {self.scope}, by {self.by} at {self.at:%Y-%m-%d %H:%M}{revoked}"


def remember(
    ticket: Ticket,
    *,
    scope: RememberScope,
    form: RememberAs,
    holder: str,
    at: datetime,
    by: str | None = None,
    arguments: JSONObject | None = None,
) -> RememberedRule:
    """Return the rule that "always" beside the approval of a ticket makes. Twice the same ticket gives the same id.

    Args:
        ticket: A ticket of the gate of `Permission`.
        scope: What the rule holds for.
        form: What it covers.
        holder: The id of the run or thread, or the name of the workspace.
        at: When the approval was accepted, UTC.
        by: The principal that decided.
        arguments: The edited arguments of the approval; None: the ticket's own.

    Raises:
        UsageError: scope or form is unknown, the ticket is of another gate, or the call may not be remembered.
    """
    if scope not in SCOPES:
        raise unknown_value("scope", scope, SCOPES)
    if form not in FORMS:
        raise unknown_value("as", form, FORMS)
    asked = ticket.parameters.get(PERMISSION)
    if not isinstance(asked, Mapping):
        raise UsageError(f"the ticket {ticket.ticket_id} is not of gr.ext.Permission; only its answers are remembered")
    arguments = ticket.arguments if arguments is None else arguments
    subject = subject_of(ticket.tool, str(asked.get("effect")), arguments)
    if not asked.get("remember") or not may_be_remembered(subject):
        way = "publishing, deploying, secrets, compound commands and rules with remember = false are asked each time"
        raise UsageError(f"the answer to ticket {ticket.ticket_id} is not remembered: {way}")
    covered = {"tool": "", "call": content_digest(arguments), "argv": _words_digest(subject)}[form]
    if covered is None:
        raise UsageError(f"as={form!r}: {ticket.tool} runs no command; use 'call' or 'tool'")
    return RememberedRule(
        rule_id=content_digest([ticket.run_id, ticket.ticket_id]),
        scope=scope,
        holder=holder,
        form=form,
        tool=ticket.tool,
        covered=covered,
        by=by,
        at=at,
        ticket_id=ticket.ticket_id,
    )


def may_be_remembered(subject: Subject) -> bool:
    """Return True if a person may answer "always" about a call: the subject is read, simple, and nothing leaves."""
    return not (subject.compound or subject.unread or subject.effects & {"publish", "deploy", "secret"})


def _words_digest(subject: Subject) -> str | None:
    argv = None if subject.command is None else subject.command.argv
    return None if argv is None else content_digest([subject.tool, argv])
