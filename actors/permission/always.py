"""What a person's "always" beside an approval makes, and what it covers.

Theory of operation. A remembered rule is made of a ticket that the gate of `Permission` has opened, after the approval
was accepted. Its id is a digest of the holder and the ticket, so that writing it twice keeps one, and the rules of one
holder lie side by side in the store. It covers later calls of the tool: the same call, the same words of a command, or
every call. It turns an ask into an allow and nothing else; whatever may not be remembered (`may_be_remembered`), or is
a question for other reviewers, is asked about again, also with a rule that an older release has kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, assert_never

from ..contract.codec import shortened
from ..contract.decisions import Ticket
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..errors import UsageError
from .remembered import HALF, PERMISSION, Always, Holder, RememberedRule
from .subject import Subject, subject_of

ABOUT_LIMIT: Final = 500
"""Most characters of the text that says what a rule covers."""


def remember(
    ticket: Ticket,
    always: Always,
    *,
    holder: str,
    at: datetime,
    by: str | None = None,
    arguments: JSONObject | None = None,
) -> RememberedRule:
    """Return the rule that "always" beside the approval of a ticket makes. Twice the same ticket gives the same id.

    Args:
        ticket: A ticket of the gate of `Permission`.
        always: What the rule holds for, and what it covers.
        holder: The id of the run or thread, or the name of the workspace.
        at: When the approval was accepted, UTC.
        by: The principal that decided.
        arguments: The edited arguments of the approval; None: the ticket's own.

    Raises:
        UsageError: The ticket is of another gate, or the call may not be remembered.
    """
    question = ticket.parameters.get(PERMISSION)
    if not isinstance(question, Mapping):
        raise UsageError(f"the ticket {ticket.ticket_id} is not of gr.ext.Permission; only its answers are remembered")
    arguments = ticket.arguments if arguments is None else arguments
    subject = subject_of(ticket.tool, str(question.get("effect")), arguments)
    if not question.get("remember") or not may_be_remembered(subject):
        way = "publishing, deploying, secrets, compound commands and rules with remember = false are asked each time"
        raise UsageError(f"the answer to ticket {ticket.ticket_id} is not remembered: {way}")
    covered = {"tool": "", "call": content_digest(arguments), "argv": _words_digest(subject)}[always.form]
    if covered is None:
        raise UsageError(f"form={always.form!r}: {ticket.tool} runs no command; use 'call' or 'tool'")
    name = content_digest([ticket.run_id, ticket.ticket_id])[:HALF]
    return RememberedRule(
        rule_id=Holder(scope=always.scope, name=holder).prefix + name,
        scope=always.scope,
        holder=holder,
        form=always.form,
        tool=ticket.tool,
        covered=covered,
        by=by,
        at=at,
        run_id=ticket.run_id,
        ticket_id=ticket.ticket_id,
        definition=str(question.get("definition") or ""),
        about=shortened(subject.headline, ABOUT_LIMIT),
    )


def covers(rule: RememberedRule, subject: Subject, arguments: JSONObject, definition: str = "") -> bool:
    """Return True if a rule covers a call that may be remembered. `definition`: of its tool; "" is unknown."""
    if rule.revoked_at is not None or rule.tool != subject.tool:
        return False
    if definition and rule.definition and definition != rule.definition:
        return False
    match rule.form:
        case "tool":
            return True
        case "call":
            return rule.covered == content_digest(arguments)
        case "argv":
            return rule.covered == _words_digest(subject)
        case _ as never:
            assert_never(never)


def may_be_remembered(subject: Subject) -> bool:
    """Return True if a person may answer "always" about a call: the subject is read, simple, and nothing leaves."""
    return not (subject.compound or subject.unread or subject.effects & {"publish", "deploy", "secret"})


def _words_digest(subject: Subject) -> str | None:
    argv = None if subject.command is None else subject.command.argv
    return None if argv is None else content_digest([subject.tool, argv])
