"""Remembered rules: a person's "always" beside an approval, kept for a run, a thread or a workspace. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, get_args

import attrs

from ..contract.decisions import Ticket
from ..contract.ids import content_digest
from ..errors import UsageError
from ..options import checks_fields, unknown_value

RememberScope = Literal["run", "thread", "workspace"]
RememberAs = Literal["call", "tool", "argv"]
SCOPES: Final[tuple[RememberScope, ...]] = get_args(RememberScope)
FORMS: Final[tuple[RememberAs, ...]] = get_args(RememberAs)
PERMISSION: Final = "permission"
"""The parameter of a ticket with which the gate says what it has asked about."""
HALF: Final = 16
"""Hex digits of each of the two digests in an id: of the holder, and of the ticket."""


def _scope(_: object, __: object, value: object) -> None:
    if value not in SCOPES:
        raise unknown_value("scope", value, SCOPES)


def _form(_: object, __: object, value: object) -> None:
    if value not in FORMS:
        raise unknown_value("form", value, FORMS)


@checks_fields(UsageError)
@attrs.frozen(kw_only=True)
class Always:
    """A person's "always" beside an approval: `run.decide(ticket.approve(), remember=gr.ext.Always(scope="thread"))`.

    Attributes:
        scope: What the rule holds for: "run", "thread" or "workspace".
        form: What it covers: "call" (the same arguments), "argv" (the same words of a command) or "tool" (every call of
            the tool).

    Raises:
        UsageError: scope or form is unknown.
    """

    scope: RememberScope = attrs.field(default="thread", validator=_scope)
    form: RememberAs = attrs.field(default="call", validator=_form)


def suggested(ticket: Ticket) -> Always | None:
    """Return the "always" that people are offered beside an approval; None if the answer is never remembered."""
    question = ticket.parameters.get(PERMISSION)
    if not isinstance(question, Mapping) or question.get("remember") is not True:
        return None
    return Always(form="argv" if question.get("command") else "call")


@attrs.frozen(kw_only=True)
class Holder:
    """What a remembered rule holds for.

    Attributes:
        scope: The kind: "run", "thread" or "workspace".
        name: The id of the run or thread, or the name of the workspace.
    """

    scope: RememberScope
    name: str

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its rules."""
        return content_digest([self.scope, self.name])[:HALF]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}"


@attrs.frozen(kw_only=True)
class RememberedRule:
    """A rule that a person made with "always".

    Attributes:
        rule_id: 32 hex digits, digests of the holder and of the ticket.
        scope: What the rule holds for: "run", "thread" or "workspace".
        holder: The id of that run or thread, or the name of that workspace.
        form: What it covers: "call" (the same arguments), "argv" (the same words of a command) or "tool" (every call).
        tool: The tool.
        definition: The digest of the tool's definition; a tool that has changed is asked about again. "": unknown.
        covered: A digest of the arguments or of the words; "" for "tool".
        about: What the person was asked, for people: the command, the address or the path; redacted, shortened.
        by: The principal that decided.
        at: When, UTC.
        run_id, ticket_id: The question.
        revoked_at: When it was revoked, UTC; None: it holds.
        revoked_by: The principal that revoked it.
    """

    rule_id: str
    scope: RememberScope
    holder: str
    form: RememberAs
    tool: str
    covered: str
    by: str | None
    at: datetime
    run_id: str
    ticket_id: str
    definition: str = ""
    about: str = ""
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def __str__(self) -> str:
        revoked = "" if self.revoked_at is None else f", revoked by {self.revoked_by}"
        return f"{self.form} of {self.tool} for the {self.scope}, by {self.by} at {self.at:%Y-%m-%d %H:%M}{revoked}"
