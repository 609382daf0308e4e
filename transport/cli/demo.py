"""`greenroom demo`: the census agent on the user's own files."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import trio

import greenroom as gr

from ..demo.census import KEY, REPORT, census, folder_of, report_before
from ..demo.demo_model import task
from ..demo.files import Folder
from ..demo.writing import check_name
from ..terminal.open_screen import open_screen
from ..terminal.ticket_text import FileChange
from . import paths, tokens
from .chosen_model import model_options, with_model
from .collector import collect_rarely
from .hidden import hidden_values
from .inspect import info_of, newest_unfinished
from .run import how_to_answer, resuming
from .session import RunJob, work

PACE: Final = 0.4
"""Seconds per answer of the model on a terminal: long enough to read a line."""


def demo(args: argparse.Namespace) -> int:
    """Run the command."""
    database = paths.database(args.db)
    if args.resume is None:
        resume, folder = None, _folder(args.directory or Path())
        if args.db is None:
            paths.made(database)
    else:
        resume, folder = _to_resume(args, database)
    name = _name(args.report or REPORT)
    on_terminal = sys.stdout.isatty() and not args.json
    pace = args.pace if args.pace is not None else PACE if on_terminal else 0.0
    approve, token_shown = how_to_answer(args), tokens.shown()
    screen = open_screen(machine=args.json, secrets=hidden_values(args))
    job = RunJob(
        agent=with_model(census(pace=pace), args),
        text=task(folder.name or str(folder), name),
        resume=resume,
        database=database,
        approve=approve,
        by=paths.user(),
        secrets=hidden_values(args),
        workspace=str(folder),
        deps=folder_of,
        serve=approve == "ask" and not args.no_serve,
        shown=token_shown,
        again=resuming(["demo"], [*paths.flags({"--db": args.db}), *model_options(args)]),
        change=partial(change_of, folder),
    )
    collect_rarely()
    return trio.run(work, job, screen)


def _folder(path: Path) -> Path:
    """Return the folder of the census.

    Raises:
        UsageError: The folder does not exist or is not readable.
    """
    if not path.exists():
        raise gr.UsageError(f"there is no folder {path}; name one that exists")
    if not path.is_dir():
        raise gr.UsageError(f"{path} is not a folder; name the folder that it is in")
    if not os.access(path, os.R_OK | os.X_OK):
        raise gr.UsageError(f"{path} cannot be read; allow it, or name another folder")
    return Folder(path).root


def _name(name: str) -> str:
    try:
        return check_name(name)
    except gr.ToolError as error:
        raise gr.UsageError(f"--report: {error}") from error


def _to_resume(args: argparse.Namespace, database: Path) -> tuple[str, Path]:
    """Return the run to resume, and its folder.

    Raises:
        UsageError: There is no such run, or an option does not fit.
        StoreOpenError: The database cannot be read.
    """
    for option, value in (("DIRECTORY", args.directory), ("--report", args.report)):
        if value is not None:
            raise gr.UsageError(f"--resume continues a run that has its folder and report; omit {option} ({value})")
    info = trio.run(info_of, database, args.resume or trio.run(newest_unfinished, database, KEY, "demo"))
    if info.workspace is None:
        raise gr.UsageError(f"run {info.run_id} was not started by greenroom demo; continue it with greenroom run")
    return info.run_id, _folder(Path(info.workspace))


def change_of(folder: Path, ticket: gr.Ticket) -> FileChange | None:
    """Return the effect of a write_report call on its file."""
    name, content = ticket.arguments.get("name"), ticket.arguments.get("content")
    if ticket.tool != "write_report" or not isinstance(name, str) or not isinstance(content, str):
        return None
    return FileChange(argument="content", path=str(folder / name), before=report_before(folder, name), after=content)
