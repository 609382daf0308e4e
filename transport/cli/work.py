"""`greenroom work`: a coding agent works on a copy of a folder, and asks in the terminal."""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio

import greenroom as gr
from greenroom.actors.abc import Surroundings

from ..demo import acp_program
from ..terminal.open_screen import open_screen
from . import paths, places, session, tokens
from .collector import collect_rarely
from .hidden import hidden_values
from .inspect import info_of, newest_unfinished
from .places import Place
from .run import how_to_answer, resuming

KEY: Final = "coder"
DEMO: Final = "demo"
DEMO_TEXT: Final = "Count the lines of the files in this folder."
"""The input of the demo program's run if no other one is given."""
PACE: Final = 0.3
"""Seconds of each piece of the demo program's work in a terminal: long enough to read a line."""

PROGRAMS: Final[Mapping[str, Callable[[], gr.backends.Program]]] = {
    "claude": gr.backends.Claude,
    "codex": gr.backends.Codex,
    "gemini": gr.backends.GeminiCLI,
    "opencode": gr.backends.OpenCode,
}
"""The programs with a name; without --with the first one is taken that is installed."""


def work(args: argparse.Namespace) -> int:
    """Run the command."""
    folder = _folder(args.workspace or Path())
    place = places.chosen(args) or paths.database(None)
    resume = None if args.resume is None else _to_resume(args, folder, place)
    if isinstance(place, Path) and args.db is None:
        paths.made(place)
    name, program = _program(args)
    rules = None if args.rules is None else gr.ext.load_rules(args.rules)
    approve, token_shown, secrets = how_to_answer(args), tokens.shown(), hidden_values(args)
    screen = open_screen(machine=args.json, secrets=secrets)
    options = {"--with": name, "--workspace": folder, "--rules": args.rules}
    job = session.RunJob(
        agent=gr.backends.agent(KEY, program, rules=rules),
        text=_text(args, name) if resume is None else "",
        thread=args.thread,
        resume=resume,
        database=place,
        approve=approve,
        by=paths.user(),
        secrets=secrets,
        workspace=workspace_name(folder),
        workspaces=partial(_workspaces, folder, _state(place, folder)),
        serve=approve == "ask" and not args.no_serve,
        shown=token_shown,
        again=resuming(["work", *places.options(place)], paths.flags(options)),
    )
    screen.row(f"{name} works on a copy of {folder}", "dim")
    collect_rarely()
    return trio.run(session.work, job, screen)


def workspace_name(folder: Path) -> str:
    """Return the name of a folder as a workspace: no two folders have the same."""
    word = re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).strip("-._") or "folder"
    return f"{word[:40]}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _folder(path: Path) -> Path:
    """Return the folder to work on.

    Raises:
        UsageError: The folder does not exist.
    """
    folder = path.expanduser().resolve()
    if not folder.is_dir():
        raise gr.UsageError(f"--workspace {path}: there is no such folder; name one that exists")
    return folder


def _state(place: Place, folder: Path) -> Path:
    """Return the folder for the copies: beside the database; of a shared store, in the user's state folder.

    Raises:
        UsageError: It would be in the folder to work on.
    """
    database = place if isinstance(place, Path) else paths.demo_database().with_name("shared")
    state = database.with_name(f"{database.name}.workspaces").resolve()
    if state.is_relative_to(folder):
        raise gr.UsageError(
            f"--db {place} is in the folder to work on, and its copies cannot be; name a file elsewhere"
        )
    return state


async def _workspaces(folder: Path, state: Path) -> Surroundings:
    return await gr.ext.open_workspaces([gr.ext.Workspace(workspace_name(folder), folder)], state=state)


def _to_resume(args: argparse.Namespace, folder: Path, place: Place) -> str:
    """Return the run to resume.

    Raises:
        UsageError: There is no such run, it works on another folder, or an option does not fit.
        StoreOpenError: The database cannot be read.
    """
    for option, value in (("TEXT", args.text), ("--thread", args.thread)):
        if value is not None:
            raise gr.UsageError(f"--resume continues a run that has its input; omit {option} ({value!r:.200})")
    wanted = workspace_name(folder)
    run_id = args.resume or trio.run(partial(newest_unfinished, place, KEY, "work", workspace=wanted))
    info = trio.run(info_of, place, run_id)
    if info.workspace != wanted:
        raise gr.UsageError(f"run {info.run_id} works on {info.workspace or 'no folder'}; name it with --workspace DIR")
    return info.run_id


def _text(args: argparse.Namespace, name: str) -> str:
    text = args.text or (DEMO_TEXT if name == DEMO else "")
    if not text.strip():
        raise gr.UsageError('nothing to work on; write greenroom work "TEXT"')
    return text


def _program(args: argparse.Namespace) -> tuple[str, gr.backends.Program]:
    """Return the program, and its name for --with.

    Raises:
        UsageError: There is no such program, or none is installed.
        AgentDefinitionError: An argument is one that is never passed.
    """
    name = getattr(args, "with")
    if name is None:
        name = next((one for one, make in PROGRAMS.items() if shutil.which(make().command[0])), None)
        if name is None:
            raise gr.UsageError(f"none of {', '.join(PROGRAMS)} is installed; name a program with --with acp:COMMAND")
    kind, _, command = name.partition(":")
    if kind in ("acp", "plain") and command:
        return name, _named(kind, command, name)
    if name == DEMO:
        pace = f"{PACE if sys.stdout.isatty() and not args.json else 0.0}"
        return name, gr.backends.Acp((sys.executable, "-I", acp_program.__file__, "--pace", pace), name=DEMO)
    if name not in PROGRAMS:
        ways = ", ".join((*PROGRAMS, DEMO, "acp:COMMAND", "plain:COMMAND"))
        raise gr.UsageError(f"--with {name!r:.200} names no program; there are: {ways}")
    return name, PROGRAMS[name]()


def _named(kind: str, command: str, name: str) -> gr.backends.Program:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise gr.UsageError(f"--with {name!r:.200}: {error}; write the command as for a shell") from error
    if kind == "acp":
        return gr.backends.Acp(words)
    return gr.backends.Plain(words, unattended=True)  # who names such a program here knows that it asks nothing
