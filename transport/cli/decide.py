"""`greenroom approve` and `greenroom deny`: decide tickets of a run of any process.

The affected action is shown first, and the fingerprint binds the decision to exactly this action.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs

import greenroom as gr
from greenroom.actors.contract.casing import wire_of
from greenroom.actors.contract.decisions import ACTION_WORDS, asks_outcome
from greenroom.actors.permission.remembered import Always
from greenroom.actors.runtime.remembering import NOT_REMEMBERED

from ..terminal import text_format
from ..terminal.difference import difference_of
from ..terminal.difference_text import ProposedDifference
from ..terminal.keyboard import Keyboard, is_interactive
from ..terminal.screen import Screen, complain
from ..terminal.ticket_text import answerable_by_yes, barred, details, read_value
from . import exits, paths
from .command_target import CommandTarget, at_run
from .outcome_output import plain_ticket
from .owner import where

SLEEPS: Final = "No process works on the run now; the command acts when the run is resumed, by a server or by:"


def approve(args: argparse.Namespace) -> int:
    """Approve calls, or give them their answer."""
    args.text = None
    args.result = None if args.result is None else read_value(args.result)
    args.edit = None if args.edit is None else _edited(args.edit)
    if args.scope is not None and args.always is None:
        raise gr.UsageError("--scope says for what --always holds; add --always, or omit --scope")
    return _run(args)


def deny(args: argparse.Namespace) -> int:
    """Deny calls."""
    args.result = args.edit = args.always = None
    return _run(args)


def decision_about(ticket: gr.Ticket, args: argparse.Namespace) -> gr.Decision:
    """Return the requested decision, bound to the action of this ticket."""
    if args.command == "approve":
        plain = ticket.approve(args.result, reason=args.reason)
    else:
        plain = ticket.deny(args.reason, text=args.text)
    return attrs.evolve(plain, edited_arguments=args.edit, decision_id=args.id or "")


def _edited(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise gr.UsageError(f"--edit is no JSON ({error}); write an object such as '{{\"cents\": 400}}'") from error
    if not isinstance(value, dict):
        raise gr.UsageError("--edit must be a JSON object with all arguments of the call")
    return value


def _run(args: argparse.Namespace) -> int:
    if args.all and (args.target is not None or args.id is not None):
        raise gr.UsageError(f"--all decides every open ticket; omit {'--id' if args.target is None else 'TARGET'}")
    return at_run(args, partial(decide, args))


async def decide(args: argparse.Namespace, target: CommandTarget, run_id: str, screen: Screen) -> int:
    """Show the selected tickets of a run, ask for confirmation, and hand the decisions in; returns the exit code.

    Raises:
        UsageError: The selection or an option does not fit.
    """
    tickets = _chosen(args, await target.access.view(run_id), screen)
    if tickets is None:
        return exits.USAGE
    if len(tickets) > 1 and (args.edit is not None or args.result is not None):
        raise gr.UsageError("--edit and --result are for one decision; name it as TARGET")
    run_tickets = [ticket.ticket_id for ticket in tickets if ticket.call_id is None]
    if args.text is not None and run_tickets:
        way = "omit --text (--reason has the reason), or name another TARGET"
        raise gr.UsageError(
            f"{run_tickets[0]} holds the run: to deny it ends the run, and the model reads nothing of it; {way}"
        )
    for ticket in tickets:
        _show(ticket, args, screen, await difference_of(target.access, ticket))
        if reason := barred(ticket, target.access.principal):
            raise gr.UsageError(f"{ticket.ticket_id}: {reason[0].lower()}{reason[1:]}")
    if not await _confirmed(args, tickets, screen):
        screen.row("Nothing was decided.", "dim")
        return exits.WAITING
    codes = [await _hand_in(target.access, args, ticket, screen) for ticket in tickets]
    later = await target.later(run_id)
    if later is not None and exits.COMPLETED in codes:
        screen.row(f"{SLEEPS} {later}", "warn")
    return max(codes)


def _chosen(args: argparse.Namespace, view: gr.RunView, screen: Screen) -> Sequence[gr.Ticket] | None:
    """Return the selected tickets; None if the selection is ambiguous, which has been reported.

    Raises:
        UsageError: There is no open ticket.
    """
    if not view.tickets:
        look = paths.typed("follow", view.run_id, *where(args))
        raise gr.UsageError(f"nothing of run {view.run_id} waits for a decision (it is {view.stage.value}); see {look}")
    if args.target is not None:
        return [_meant(args.target, view)]
    if args.all or len(view.tickets) == 1:
        return view.tickets
    for ticket in view.tickets:
        screen.outcome({"type": "ticket", "runId": view.run_id, **plain_ticket(ticket)})
        screen.row(
            f"{ticket.ticket_id}  {text_format.subject(ticket.tool, 40)} {text_format.arguments(ticket.arguments, 100)}"
        )
    complain(f"{len(view.tickets)} decisions of {view.run_id} are open; name one of them as TARGET, or say --all")
    return None


def _meant(target: str, view: gr.RunView) -> gr.Ticket:
    """Find a ticket by its id, the call's id, the tool's name, or the last part of the ticket's id."""
    for name in ("ticket_id", "call_id", "tool"):
        matching = [ticket for ticket in view.tickets if target and getattr(ticket, name) == target]
        if len(matching) == 1:
            return matching[0]
    matching = [ticket for ticket in view.tickets if ticket.ticket_id.endswith(f".{target}")]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(ticket.ticket_id for ticket in view.tickets)
    raise gr.UsageError(f"{target!r} is no open ticket of run {view.run_id}; there are: {names}")


def _show(ticket: gr.Ticket, args: argparse.Namespace, screen: Screen, difference: ProposedDifference | None) -> None:
    tool = text_format.subject(ticket.tool)
    title = f"{tool} ({ticket.ticket_id})"
    if asks_outcome(ticket.reason, ticket.action):
        title = f"{tool}: it is unknown whether it took effect ({ticket.ticket_id})"
    screen.row(title, "strong")
    for text, style in details(ticket, difference, whole=True):
        screen.row(text, style)
    if args.edit is not None:
        screen.row("  with these arguments instead:", "warn")
        for name, data in args.edit.items():
            screen.row(f"  {text_format.one_line(name, 40)}: {text_format.clean(json.dumps(data, ensure_ascii=False))}")
    if args.result is not None:
        screen.row(f"  with the result: {text_format.clean(json.dumps(args.result, ensure_ascii=False))}", "warn")
    if args.text is not None:
        screen.row(f"  the model reads: {text_format.clean(args.text)}", "warn")


async def _confirmed(args: argparse.Namespace, tickets: Sequence[gr.Ticket], screen: Screen) -> bool:
    """Return True if the decision is confirmed: by --yes, at the prompt, or implicitly in a script.

    Raises:
        UsageError: A script would have to guess.
    """
    if args.yes:
        return True
    if args.json or not is_interactive():
        odd = [ticket for ticket in tickets if args.command == "approve" and not answerable_by_yes(ticket)]
        if odd and args.result is None:
            ask = "did it take effect?" if asks_outcome(odd[0].reason, odd[0].action) else "it asks for an answer"
            raise gr.UsageError(
                f"{odd[0].ticket_id} wants more than a yes ({ask}): give --result JSON, or say --yes to run it"
            )
        return True
    verb = args.command.capitalize()
    question = f"{verb} it? " if len(tickets) == 1 else f"{verb} these {len(tickets)}? "
    keyboard = Keyboard()
    keyboard.forget()  # before the prompt: later input is an answer
    screen.prompt(f"{question}y yes · n no ? ")
    reply = await keyboard.line()
    if reply is None:
        screen.row()
    word = (reply or "").lower()
    return word in ("y", "yes") or ACTION_WORDS.get(word) == ACTION_WORDS[args.command]


async def _hand_in(runs: gr.RunAccess, args: argparse.Namespace, ticket: gr.Ticket, screen: Screen) -> int:
    always = None if args.always is None else Always(form=args.always, scope=args.scope or "thread")
    result = await runs.decide(ticket.run_id, decision_about(ticket, args), remember=always)
    about = wire_of(ticket, ("run_id", "ticket_id", "tool"))
    screen.outcome({"type": "answer", **about, "decision": args.command, **answered(result)})
    if args.all and result.code == "already_decided":
        screen.row(f"{ticket.ticket_id} was decided meanwhile: {result.detail}", "dim")
        return exits.COMPLETED
    if not result.ok:
        complain(f"{ticket.ticket_id} was not decided ({result.code}): {result.detail or 'no reason was given'}")
        return exits.FAILED
    verdict = "approved" if args.command == "approve" else "denied"
    again = " (already, by the same id)" if result.status == "duplicate" else ""
    screen.row(f"{verdict} {text_format.subject(ticket.tool)}{again}", "good" if args.command == "approve" else "warn")
    if result.code == NOT_REMEMBERED:
        complain(f"{ticket.ticket_id}: {result.detail}")
        return exits.FAILED
    if always is not None:
        look = paths.typed("rules", "list", *where(args))
        screen.row(f"remembered for the {always.scope}; the rules: {look}", "dim")
    return exits.COMPLETED


def answered(result: gr.CommandResult) -> dict[str, Any]:
    """Return a command result as plain data."""
    return wire_of(result, ("status", "code", "detail", "command_id"))
