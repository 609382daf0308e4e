"""What exactly would happen if a ticket is approved, as text for people."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

from greenroom.actors.contract.decisions import Ticket, asks_outcome

from . import text_format
from .difference_text import ProposedDifference, rows
from .screen import Style

PREVIEW: Final = 24
"""Lines of a long text that are shown by default, so that the text fits a terminal with its prompt."""

_FEW: Final = 6
"""This many further lines are shown rather than cut off."""

Row = tuple[str, Style]


@attrs.frozen(kw_only=True)
class FileChange:
    """The effect of a call on a file, for the person who decides.

    Attributes:
        argument: The call's argument with the new content.
        path: Path of the file.
        before: Present content; None if there is no such file.
        after: New content.
    """

    argument: str
    path: str
    before: str | None
    after: str


Change = FileChange | ProposedDifference


def answerable_by_yes(ticket: Ticket) -> bool:
    """Return True if a plain "yes" answers the ticket: no value is requested, and no effect can happen twice."""
    asks_value = ticket.response_schema is not None or ticket.resume_mode != "replay_tool_call"
    return not asks_outcome(ticket.reason, ticket.action) and not asks_value


NO_WORDS: Final = "This call needs an approval."
"""The message of a ticket whose tool has none of its own; not shown, since the title says the same."""
EXPIRIES: Final = {"deny": "it is denied", "cancel_run": "the run is cancelled", "set_result": "it gets a set result"}
"""on_expiry -> text about the effect."""


LIVE: Final = "decide soon: a process waits"
"""Says that the ticket is withdrawn if the process that waits ends."""


def barred(ticket: Ticket, by: str) -> str:
    """Return why this principal may not decide; empty if the principal may."""
    if not ticket.reviewers or by in ticket.reviewers:
        return ""
    who = text_format.one_line(" or ".join(ticket.reviewers), 200)
    return f"Only {who} may decide about {text_format.subject(ticket.tool)}; you are {text_format.one_line(by, 64)}."


def details(ticket: Ticket, change: Change | None = None, *, whole: bool = False) -> Iterator[Row]:
    """Yield exactly what would happen, as lines.

    Without `whole`, long texts are cut at `PREVIEW` lines, with a notice.
    """
    if ticket.message and ticket.message != NO_WORDS:
        yield text_format.clean(ticket.message), ""
    for name, data in (*ticket.arguments.items(), *ticket.parameters.items()):
        if isinstance(change, FileChange) and name == change.argument:
            yield from _changed(change, whole=whole)
        elif isinstance(data, str) and ("\n" in data or len(data) > 200):
            summary = f"{text_format.lines_of(data)}, {text_format.size(len(data.encode('utf-8', 'replace')))}"
            yield f"  {text_format.one_line(name, 40)}: {summary}", ""
            yield from _text([(f"  │ {line}", "") for line in text_format.clean(data).split("\n")], whole=whole)
        else:
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
            yield f"  {text_format.one_line(name, 40)}: {text_format.clean(text)}", ""
    if isinstance(change, ProposedDifference):
        yield from _text(list(rows(change.text)), whole=whole)
    if ticket.response_schema is not None:
        yield f"  the answer must satisfy {json.dumps(ticket.response_schema)}", "dim"
    if ticket.live:
        yield f"  {LIVE}", "dim"
    if ticket.expires_at is not None:
        yield f"  expires at {ticket.expires_at:%Y-%m-%d %H:%M:%S} UTC; then {EXPIRIES[ticket.on_expiry]}", "dim"
    if ticket.reviewers:
        yield f"  decided by {text_format.one_line(' or '.join(ticket.reviewers), 200)} only", "dim"


def _changed(change: FileChange, *, whole: bool) -> Iterator[Row]:
    new = text_format.clean(change.after).splitlines()
    summary = f"{text_format.plural(len(new), 'line')}, {text_format.size(len(change.after.encode()))}"
    if change.before is None:
        yield f"  file: {text_format.clean(change.path)} (new: {summary})", ""
        yield from _text([(f"  + {line}", "added") for line in new], whole=whole)
        return
    old = text_format.clean(change.before).splitlines()
    around = len(old) + len(new) if whole else 2
    rows: list[Row] = [(f"  {line}", _side(line)) for line in difflib.unified_diff(old, new, n=around, lineterm="")][2:]
    if not rows:
        yield f"  file: {text_format.clean(change.path)} (is there, and stays the same: {summary})", ""
        return
    yield f"  file: {text_format.clean(change.path)} (is replaced: {summary}; the changes are)", ""
    yield from _text(rows, whole=whole)


def _side(line: str) -> Style:
    return "added" if line.startswith("+") else "removed" if line.startswith("-") else "dim"


def _text(rows: list[Row], *, whole: bool) -> Iterator[Row]:
    if whole or len(rows) <= PREVIEW + _FEW:
        yield from rows
        return
    yield from rows[:PREVIEW]
    yield f"  … {text_format.plural(len(rows) - PREVIEW, 'more line')}; v shows all", "dim"


def read_value(typed: str) -> Any:
    """Parse a typed value: JSON if valid, otherwise the text; None if empty."""
    try:
        return json.loads(typed)
    except ValueError:
        return typed or None
