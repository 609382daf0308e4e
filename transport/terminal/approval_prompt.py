"""The prompt for a ticket: what exactly would happen, and the answer."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import attrs

from greenroom.actors.contract.decisions import ACTION_WORDS, Decision, Ticket, asks_outcome
from greenroom.actors.contract.secrets.redaction import WORKSPACE
from greenroom.actors.contract.secrets.secret_readers import HOME, MASK
from greenroom.actors.permission.remembered import FORMS, SCOPES, Always, suggested
from greenroom.supervision.fields import did_you_mean

from . import text_format
from .difference_text import proposal_of
from .keyboard import Keyboard
from .screen import Screen
from .ticket_text import Change, answerable_by_yes, details, read_value

INSTEAD: Final = "n TEXT says no, and the agent reads TEXT"
"""Says how to refuse the work of a program and let it go on."""
_REFUSAL: Final = re.compile(r"no?\s+(\S.*)", re.IGNORECASE)
"""A no with a text for the agent."""


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
