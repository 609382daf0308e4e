"""The prompt for a ticket: what exactly would happen, and the answer."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from greenroom.actors.contract.decisions import ACTION_WORDS, Decision, Ticket, asks_outcome
from greenroom.actors.contract.secrets.redaction import WORKSPACE
from greenroom.actors.contract.secrets.secret_readers import HOME, MASK
from greenroom.actors.permission.remembered import FORMS, SCOPES, Always, suggested
from greenroom.supervision.fields import did_you_mean

from . import text_format
from .difference import ProposedDifference, proposal_of, rows
from .keyboard import Keyboard
from .screen import Screen, Style

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
INSTEAD: Final = "n TEXT says no, and the agent reads TEXT"
"""Says how to refuse the work of a program and let it go on."""
_REFUSAL: Final = re.compile(r"no?\s+(\S.*)", re.IGNORECASE)
"""A no with a text for the agent."""


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


_DECIDING: Final = {"resume": "yra", "cancel": "nc"}
"""Action -> the keys that decide so; a form selects the first key that it has for the words approve and deny."""


@attrs.frozen
class _Form:
    """One kind of prompt: its title, and its keys with their labels."""

    title: str
    keys: dict[str, str]


def _form(ticket: Ticket) -> _Form:
    tool = text_format.subject(ticket.tool)
    after = {"v": "show all", "q": "leave it waiting"}
    if asks_outcome(ticket.reason, ticket.action):
        title = f"Did {tool} take effect?"
        return _Form(title, {"r": "run it again", "u": "use a result", "c": "cancel the call", **after})
    if ticket.call_id is None:
        return _run_form(ticket, after)
    action = "" if ticket.action in ("", f"tool:{ticket.tool}") else f": {text_format.one_line(ticket.action, 200)}"
    if answerable_by_yes(ticket):
        more = {"a": "always"} if suggested(ticket) is not None else {}
        more |= {"e": "edit"} if ticket.arguments else {}
        return _Form(f"May {tool} run?{action}", {"y": "yes", **more, "n": "no", **after})
    return _Form(f"{tool} asks for an answer{action}", {"a": "answer", "n": "no", **after})


def _run_form(ticket: Ticket, after: dict[str, str]) -> _Form:
    """Return the form of a ticket that holds the run itself, without a call."""
    action = "" if ticket.action in ("", "run:resume") else f": {text_format.one_line(ticket.action, 200)}"
    if not answerable_by_yes(ticket):
        return _Form(f"The run waits for an answer{action}", {"a": "answer", "n": "no, end the run", **after})
    keys = {"y": "yes", "a": "yes, and tell it why", "n": "no, end the run", **after}
    return _Form(f"The run is held. May it continue?{action}", keys)


@attrs.frozen
class PromptAnswer:
    """The answer to a prompt: a decision, and what of it is to be remembered."""

    decision: Decision
    remember: Always | None = None


@attrs.frozen
class _OpenPrompt:
    """A prompt that is open in a terminal."""

    ticket: Ticket
    form: _Form
    keyboard: Keyboard
    screen: Screen

    async def answer(self, key: str | None, typed: str) -> PromptAnswer | None:
        """Return the answer of a key, after further prompts if needed; None for no answer.

        Without a key, `typed` is invalid.
        """
        offer = suggested(self.ticket)
        if key == "a" and offer is not None:
            return await self._always(offer)
        decision = await self._decision(key, typed)
        return None if decision is None else PromptAnswer(decision)

    async def _always(self, offer: Always) -> PromptAnswer | None:
        """Prompt for what is remembered, and approve."""
        kinds = f"{' or '.join(FORMS)}, for the {' or '.join(SCOPES)}"
        self.screen.prompt(f"Remember {kinds} (Enter: {offer.form} {offer.scope})? ", long=True)
        line = await self.keyboard.line()
        if line is None:
            return None
        fields: dict[str, Any] = {}
        for word in line.lower().replace(",", " ").split():
            name = "form" if word in FORMS else "scope"
            if name == "scope" and word not in SCOPES:
                near = did_you_mean(word, (*FORMS, *SCOPES), quoted=False)
                self.screen.row(f"{near}type one of: {', '.join((*FORMS, *SCOPES))}", "dim")
                return None
            fields[name] = word
        return PromptAnswer(self.ticket.approve(), attrs.evolve(offer, **fields))

    async def _decision(self, key: str | None, typed: str) -> Decision | None:
        match key:
            case "y" | "r":
                return self.ticket.approve()
            case "e":
                return await self._edited()
            case "n" | "c":
                self.screen.prompt("Why not? (Enter for no reason) ", long=True)
                return self.ticket.deny(await self.keyboard.line() or None)
            case "u" | "a":
                wanted = "result" if key == "u" else "answer"
                self.screen.prompt(f"The {wanted} (JSON, or text): ", long=True)
                value = read_value(await self.keyboard.line() or "")
                return None if value is None else self.ticket.approve(value)
            case _:
                near = did_you_mean(typed.lower(), (*self.form.keys.values(), *ACTION_WORDS), quoted=False)
                self.screen.row(f"{near}type one of: {', '.join(self.form.keys)}", "dim")
                return None

    async def _edited(self) -> Decision | None:
        """Prompt for changed arguments, merge them into the call's arguments, and approve."""
        text = json.dumps(dict(self.ticket.arguments), ensure_ascii=False, default=str)
        self.screen.row(f"now: {text_format.clean(text)}", "dim")
        if any(mask in text for mask in (MASK, HOME, WORKSPACE)):
            self.screen.row(_MASKED, "warn")
        self.screen.prompt("Arguments to change (JSON object; Enter to leave them): ", long=True)
        line = await self.keyboard.line()
        if not line:
            return None
        try:
            value = json.loads(line)
        except ValueError as error:
            self.screen.row(f'that is no JSON ({error}); write an object such as {{"cents": 400}}', "bad")
            return None
        if not isinstance(value, dict):
            self.screen.row("write a JSON object: the arguments to change, by their names", "bad")
            return None
        return self.ticket.approve(edited_arguments={**self.ticket.arguments, **value})


_MASKED: Final = (
    f"{MASK}, {HOME} and {WORKSPACE} stand for what is hidden. A value that you leave as shown keeps it; "
    "in a value that you change, write the real text."
)


async def ask(
    ticket: Ticket, *, keyboard: Keyboard, screen: Screen, change: Change | None = None
) -> PromptAnswer | None:
    """Prompt until there is an answer; None (also on Ctrl-D) leaves the run waiting."""
    form = _form(ticket)
    prompt = _OpenPrompt(ticket, form, keyboard, screen)
    keyboard.forget()
    screen.row()
    screen.row(form.title, "warn")
    for text, style in details(ticket, change):
        screen.row(text, style)
    if ticket.live or proposal_of(ticket) is not None:
        screen.row(f"  {INSTEAD}", "dim")
    choices = " · ".join(f"{key} {text}" for key, text in form.keys.items())
    while True:
        screen.prompt(f"{choices} ? ")
        line = await keyboard.line()
        key = "q" if line is None else _chosen(line, form)
        if line is None:
            screen.row()
        if key == "q":
            return None
        if key == "v":
            for text, style in details(ticket, change, whole=True):
                screen.row(text, style)
            continue
        refusal = _REFUSAL.fullmatch(line or "") if ticket.call_id is not None and "n" in form.keys else None
        if refusal is not None:
            return PromptAnswer(ticket.deny(refusal[1], text=refusal[1]))
        answer = await prompt.answer(key, line or "")
        if answer is not None:
            return answer


def _chosen(typed: str, form: _Form) -> str | None:
    """Return the key for an input: the key itself, its label, or a word of a decision."""
    word = typed.lower()
    keys = _DECIDING.get(ACTION_WORDS.get(word, ""), "")
    return next((key for key, text in form.keys.items() if word in (key, text) or key in keys), None)


def read_value(typed: str) -> Any:
    """Parse a typed value: JSON if valid, otherwise the text; None if empty."""
    try:
        return json.loads(typed)
    except ValueError:
        return typed or None
