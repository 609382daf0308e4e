"""`greenroom diff` and `greenroom apply`: what a run proposes to change in a folder, and the approval to apply it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import greenroom as gr
from greenroom.actors.workspaces.proposals import MOST_TEXT

from ..terminal.difference import difference_of
from ..terminal.difference_text import differences, proposal_of, rows
from ..terminal.screen import Screen
from . import exits, paths
from .command_target import CommandTarget, at_run
from .decide import decide
from .owner import where

_HEADER: Final = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)


def diff(args: argparse.Namespace) -> int:
    """Show the difference that waits for a decision, or else the newest one."""
    return at_run(args, partial(_show, args))


def apply(args: argparse.Namespace) -> int:
    """Approve the apply of a proposal, or of some of its files."""
    return at_run(args, partial(_apply, args))


async def _show(args: argparse.Namespace, target: CommandTarget, run_id: str, screen: Screen) -> int:
    view = await target.access.view(run_id)
    waiting = [proposal for ticket in view.tickets if (proposal := proposal_of(ticket)) is not None]
    published = differences(view.artifacts)
    proposal = next((one for one in (*waiting, *reversed(published)) if one in published), None)
    if proposal is None:
        raise gr.UsageError(f"run {run_id} has published no difference (it is {view.stage.value})")
    artifact = published[proposal]
    text = (await target.access.artifact(run_id, artifact.artifact_id)).decode(errors="replace")
    state = "waiting" if proposal in waiting else "decided"
    screen.outcome({"type": "difference", "runId": run_id, "proposal": proposal, "state": state, "text": text})
    for line, style in rows(text):
        screen.row(line.removeprefix("  "), style)
    if proposal in waiting:
        screen.row(f"apply it:   {paths.typed('apply', run_id, *where(args))}", "dim")
    return exits.COMPLETED


async def _apply(args: argparse.Namespace, target: CommandTarget, run_id: str, screen: Screen) -> int:
    """Approve the open ticket of a proposal."""
    view = await target.access.view(run_id)
    tickets = [ticket for ticket in view.tickets if proposal_of(ticket) is not None]
    if not tickets:
        raise gr.UsageError(f"no proposal of run {run_id} waits for a decision (it is {view.stage.value})")
    if len(tickets) > 1:
        names = ", ".join(ticket.ticket_id for ticket in tickets)
        raise gr.UsageError(f"{len(tickets)} proposals of run {run_id} wait: {names}; approve one by its ticket")
    (ticket,) = tickets
    difference = await difference_of(target.access, ticket)
    if args.paths and difference is not None:
        _check_paths(args.paths, difference.text)
    edit = {**ticket.arguments, "paths": args.paths} if args.paths else None
    nothing = {"result": None, "text": None, "all": False, "always": None}
    options = {**vars(args), **nothing, "command": "approve", "target": ticket.ticket_id, "edit": edit}
    return await decide(argparse.Namespace(**options), target, run_id, screen)


def _check_paths(paths: Sequence[str], text: str) -> None:
    """Refuse a path that a difference does not change, as far as the names are all there and plain.

    Raises:
        UsageError: The difference changes no such file.
    """
    names = [name for line in _HEADER.finditer(text) for name in line.groups()]
    is_whole = len(text.encode()) < MOST_TEXT and '\ndiff --git "' not in f"\n{text}"
    unknown = next((path for path in paths if path not in names), None)
    if unknown is not None and is_whole:
        changed = ", ".join(dict.fromkeys(names))
        raise gr.UsageError(f"the proposal changes no file {unknown!r:.300}; it changes {changed:.1000}")
