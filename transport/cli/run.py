"""`greenroom run`: run any agent."""

from __future__ import annotations

import argparse
import mimetypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import trio

from greenroom.actors.agents.attachments import attachment_of
from greenroom.actors.contract.parts import MAX_BYTES, Attachment, detected
from greenroom.actors.errors import UsageError

from ..terminal.keyboard import is_interactive
from ..terminal.open_screen import open_screen
from . import paths, places, tokens
from .agents import load_agent
from .chosen_model import model_options, with_model
from .collector import collect_rarely
from .hidden import hidden_values
from .session import RunJob, work


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.resume is not None:
        _check_resume(args)
    elif not (args.text or "").strip() and not args.attach:
        raise UsageError('nothing to ask the agent; write greenroom run FILE.py:AGENT "TEXT"')
    approve, token_shown = how_to_answer(args), tokens.shown()
    screen = open_screen(machine=args.json, secrets=hidden_values(args))
    agent, place = with_model(load_agent(args.agent), args), places.chosen(args)
    where = () if place is None else places.options(place)
    job = RunJob(
        agent=agent,
        text=args.text or "",
        run_id=args.run_id,
        resume=args.resume,
        database=place,
        approve=approve,
        by=paths.user(),
        title=args.title,
        attachments=tuple(map(attached, args.attach or ())),
        serve=args.serve,
        shown=token_shown,
        secrets=hidden_values(args),
        again=resuming(["run", args.agent, *where], model_options(args)),
    )
    collect_rarely()
    return trio.run(work, job, screen)


def attached(path: Path) -> Attachment:
    """Return the image or the file at a path; its bytes show the type, or the end of its name.

    Raises:
        UsageError: The file cannot be read, is too large, or its type is unknown.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # bounded: the path may be a device without an end
    except OSError as error:
        raise UsageError(f"--attach {path}: {error.strerror or error}; give a file that can be read") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"--attach {path}: more than {MAX_BYTES:,} bytes; give a smaller file")
    try:
        return attachment_of(data, detected(data) or mimetypes.guess_type(path.name)[0], path.name)
    except UsageError as error:
        raise UsageError(f"--attach {path}: {error}") from error


def _check_resume(args: argparse.Namespace) -> None:
    if places.chosen(args) is None:
        raise UsageError(f"--resume {args.resume} needs the database that the run is in: add --db FILE or --store URL")
    for name, value in (
        ("TEXT", args.text),
        ("--run-id", args.run_id),
        ("--title", args.title),
        ("--attach", args.attach),
    ):
        if value is not None:
            raise UsageError(f"--resume continues a run that has its input; omit {name} ({value!r})")


def how_to_answer(args: argparse.Namespace) -> Literal["ask", "yes", "leave"]:
    """Return how tickets are answered: by the options, otherwise at the terminal, otherwise not at all."""
    if args.yes:
        return "yes"
    if args.no_approve or args.json or not is_interactive():
        return "leave"
    return "ask"


def resuming(before: Sequence[str], after: Sequence[str]) -> Callable[[str], str]:
    """Return a function that makes, of a run's id, the command that resumes the run."""
    return lambda run_id: paths.typed(*before, "--resume", run_id, *after)
