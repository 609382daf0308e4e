"""The commands and their options. This module imports nothing that makes `--help` slow."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from greenroom.supervision.fields import nearest

from . import exits, store_options
from .examples import EXAMPLES
from .helping import Formatter

N = TypeVar("N", int, float)

# Written again, for `--help` must not wait for the import of the runtime; a test compares.
ORDERS: Final = ("newest", "waiting_longest")
STATUSES: Final = ("created", "running", "waiting", "done")
STAGES: Final = ("planned", "accepted", "preparing", "needs_approval", "applying", "completed", "failed", "cancelled")

_DESCRIPTION: Final = """\
Greenroom runs AI agents as actors: durable, supervised, cancellable. Tools that need an approval wait for it.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, like all other errors."""

    words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = sys.argv[1:] if args is None else tuple(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        # argparse takes the value of an option that it does not know for an argument, and complains of the argument
        unknown = next((word for word in self.words if word.startswith("--") and not self._knows(word)), None)
        if unknown is not None and re.match(r"argument [A-Za-z_]+: invalid choice", message):
            near = suggested(unknown.partition("=")[0], [*self._option_string_actions])
            message = f"unrecognized arguments: {unknown}{near}"
        chosen = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if chosen is not None:
            message = f"there is no command {chosen[1]!r}{suggested(chosen[1], re.findall(r'[a-z]+', chosen[2]))}"
        lacking = re.match(r"argument (?:-\w/)?(--[a-z-]+): expected one argument$", message)
        if lacking is not None:
            option = lacking[1]
            message = f"{option} lacks its value (a value that begins with - is written as {option}=VALUE)"
        self.exit(exits.USAGE, f"greenroom: {_without_password(message)}; see {self.prog} --help\n")

    def _knows(self, word: str) -> bool:
        name = word.partition("=")[0]
        return any(option.startswith(name) for option in self._option_string_actions)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    whole = _Parser(
        prog="greenroom",
        description=_DESCRIPTION,
        epilog=f"{EXAMPLES['']}\n{exits.described()}",
        formatter_class=Formatter,
    )
    whole.add_argument("--version", action="store_true", help="print the version")
    whole.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    _run(commands)
    _demo(commands)
    _runs(commands)
    _show(commands)
    _replay(commands)
    _prune(commands)
    _serve(commands)
    _follow(commands)
    _decide(commands, "approve", "approve a call that waits for a decision")
    _decide(commands, "deny", "deny a call that waits for a decision")
    _cancel(commands)
    _pause(commands)
    _send(commands)
    store_options.queues(commands, _command, _where)
    store_options.db(commands, _command, store)
    return whole


_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _command(commands: _Commands[_Parser], name: str, summary: str, text: str) -> argparse.ArgumentParser:
    subparser = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"{EXAMPLES[name]}\n{exits.described()}",
        formatter_class=Formatter,
    )
    subparser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    if name not in _REDACTED_BY_OTHERS:
        _secrets(subparser)
    return subparser


_REDACTED_BY_OTHERS: Final = ("follow",)
"""Commands whose output was redacted when it was written, with the secrets of the writing process."""


def _secrets(subparser: argparse.ArgumentParser) -> None:
    hide = subparser.add_argument_group(
        "hidden values",
        "Keys of a known form, values under names such as password, and home directories are always hidden. Name all "
        "other secrets: events, questions, errors and this output show [redacted] in their place.",
    )
    hide.add_argument(
        "--secret-env", metavar="NAME", action="append", help="hide the value of this environment variable (repeatable)"
    )
    hide.add_argument(
        "--secrets-file", metavar="FILE", type=Path, action="append", help="hide each line of this file (repeatable)"
    )


def _kept(subparser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str = "the demo's") -> None:
    subparser.add_argument("--db", metavar="FILE", type=Path, help=f"the SQLite file (default: {default})")
    store(subparser)


def store(subparser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option that names a shared store."""
    subparser.add_argument(
        "--store",
        metavar="URL",
        help="a shared store, such as postgresql://user@host/database or service=NAME (default: GREENROOM_STORE); keep "
        "its password in a service file, a password file or PGPASSWORD: others see a command line",
    )


def _where(subparser: argparse.ArgumentParser) -> None:
    place = subparser.add_argument_group(
        "location of the run",
        "The lock file of a database leads to its server and token; a shared store is opened directly. Default: the "
        "server in the variables GREENROOM_URL and GREENROOM_TOKEN, otherwise the store in GREENROOM_STORE, otherwise "
        "the demo's database.",
    )
    _kept(place)
    place.add_argument("--url", metavar="URL", help="a server, such as http://127.0.0.1:8765, or its console's URL")
    place.add_argument("--token-file", metavar="FILE", type=Path, help="a file with the server's token")
    place.add_argument(
        "--token", metavar="TOKEN", help="the token; other users of this machine can see the command line"
    )


def _command_id(subparser: argparse.ArgumentParser) -> None:
    subparser.add_argument(
        "--id", metavar="ID", help="id of the command: repeated with the same id, a command acts once"
    )


def _answering(subparser: argparse.ArgumentParser) -> None:
    how = subparser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="approve every call that needs an approval")
    how.add_argument("--no-approve", action="store_true", help="do not ask: leave the run waiting (exit code 3)")
    subparser.add_argument(
        "--json", action="store_true", help="one event per line as JSON, then the outcome; does not ask"
    )


def _model(subparser: argparse.ArgumentParser) -> None:
    subparser.add_argument(
        "--model", metavar="NAME", help="ask this model, such as openai:gpt-5-mini, in place of the agent's own"
    )
    subparser.add_argument(
        "--base-url", metavar="URL", help="where the model's provider is, such as http://127.0.0.1:8080/v1"
    )


def _run(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "run",
        "run an agent and follow it live",
        "Run an agent from a Python file or module, follow it live, and decide its calls.",
    )
    subparser.add_argument(
        "agent",
        metavar="AGENT",
        help="file.py:name or package.module:name; the name is optional if there is one agent",
    )
    subparser.add_argument("text", metavar="TEXT", nargs="?", help="the input of the run")
    _kept(subparser, "in memory only")
    subparser.add_argument(
        "--run-id", metavar="ID", help="id of the new run; the same id and text again continue the same run"
    )
    subparser.add_argument(
        "--title", metavar="TEXT", help="one line for lists of runs (default: the first line of TEXT)"
    )
    subparser.add_argument(
        "--attach", metavar="FILE", type=Path, action="append", help="an image or a file of the input; repeat for more"
    )
    subparser.add_argument("--resume", metavar="RUN_ID", help="continue this run of --db or --store (a prefix will do)")
    subparser.add_argument(
        "--serve",
        action="store_true",
        help="serve a console during the run, on a free port; with --json the first line has its address",
    )
    _model(subparser)
    _answering(subparser)


def _demo(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "demo",
        "run the example agent: a census of a folder",
        "Run an example agent on real files, offline: the agent lists, counts and reads the files of a folder, then "
        "asks whether it may write its report there. The agent never leaves the folder and replaces no file but its "
        "own report.",
    )
    subparser.add_argument(
        "directory", metavar="DIRECTORY", type=Path, nargs="?", help="the folder (default: the current one)"
    )
    subparser.add_argument("--report", metavar="NAME", help="file name of the report (default: CENSUS.md)")
    subparser.add_argument(
        "--db", metavar="FILE", type=Path, help=f"keep the run in this SQLite file (default: {_default_text()})"
    )
    subparser.add_argument(
        "--resume", metavar="RUN_ID", nargs="?", const="", help="continue this run, or the newest unfinished one"
    )
    subparser.add_argument(
        "--pace",
        metavar="SECONDS",
        type=_seconds,
        help="time of the model for an answer (default: 0.4 on a terminal, else 0)",
    )
    subparser.add_argument("--no-serve", action="store_true", help="serve no console while a question is open")
    _model(subparser)
    _answering(subparser)


def _runs(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "runs",
        "list runs, newest first or longest wait first",
        "List the runs of a database with their titles and questions, also while a process has the database open.",
    )
    _kept(subparser)
    subparser.add_argument(
        "action", metavar="revive", nargs="?", choices=("revive",), help="let a dead letter be claimed again"
    )
    subparser.add_argument("run_id", metavar="RUN_ID", nargs="?", help="with revive: id of the run, or a prefix of it")
    subparser.add_argument(
        "--status",
        "--stage",
        choices=(*STATUSES, *STAGES),
        metavar="STATUS",
        help=f"only runs of this status: {', '.join(STATUSES)}; waiting lists the longest wait first; or of this"
        f" stage: {', '.join(STAGES)}",
    )
    subparser.add_argument("--agent", metavar="KEY", help="only runs of this agent")
    subparser.add_argument("--by", metavar="NAME", help="only runs that this user or principal started")
    subparser.add_argument("--text", metavar="TEXT", help="only runs with this text in their title or id")
    subparser.add_argument(
        "--since", metavar="TIME", type=_moment, help="started at this time or later: 2h, 3d, or 2026-01-31[T09:30[Z]]"
    )
    subparser.add_argument("--until", metavar="TIME", type=_moment, help="started before this time")
    subparser.add_argument("--order", choices=ORDERS, metavar="ORDER", help="newest, or waiting_longest")
    subparser.add_argument("--limit", metavar="N", type=_count, default=20, help="maximum number of runs (default: 20)")
    subparser.add_argument("--cursor", metavar="CURSOR", help="the next page; printed at the end of a page")
    subparser.add_argument(
        "--json", action="store_true", help="one JSON object per line; the last one has the cursor of the next page"
    )


def _show(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "show",
        "show one run from start to end",
        "Show the history of a run, its open questions and the command that continues the run. Works while a process "
        "has the database open.",
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    _kept(subparser)
    subparser.add_argument("--events", action="store_true", help="show every event")
    subparser.add_argument("--json", action="store_true", help="one JSON object")


def _replay(commands: _Commands[_Parser]) -> None:
    text = (
        "Replay a stored run from its record, and report the first event that differs from the stored one, with the "
        "input before it. No model and no tool is called, nothing is written. Works while a process has the database "
        "open. Name the same secrets as the process that worked on the run: its events hide them."
    )
    subparser = _command(commands, "replay", "replay a stored run and compare", text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    _kept(subparser)
    subparser.add_argument(
        "--agent",
        metavar="AGENT",
        help="file.py:name or package.module:name; without a name, the agent with the run's key (default: the demo's)",
    )
    subparser.add_argument(
        "--step", action="store_true", help="show each input with the state before, its effects and events"
    )
    subparser.add_argument(
        "--json", action="store_true", help="one JSON object; with --step, one object per input before"
    )


def _prune(commands: _Commands[_Parser]) -> None:
    text = (
        "Delete the runs of a database that ended long ago, with the messages of threads that have no run left, and "
        "return their space. A server that has the database open does it. The ids of deleted runs stay in use."
    )
    subparser = _command(commands, "prune", "delete runs that ended long ago", text)
    _kept(subparser)
    subparser.add_argument(
        "--older-than",
        metavar="AGE",
        required=True,
        type=_age,
        help="time since the end of the runs, such as 12h, 30d or 8w",
    )
    subparser.add_argument("--dry-run", action="store_true", help="report what would be deleted, and delete nothing")
    subparser.add_argument("--json", action="store_true", help="one JSON object")


def _age(text: str) -> timedelta:
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) <= 9 and unit in seconds):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write a whole number and m, h, d or w, such as 30d")
    try:
        return timedelta(seconds=int(number) * seconds[unit])
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text} is too long; give a shorter time") from None


def _serve(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "serve",
        "serve agents: HTTP, WebSocket and a console in the browser",
        "Serve agents to people and programs in other processes: a WebSocket to follow runs and decide, an HTTP API, "
        "the stream protocols of chat front ends, and a console. Unfinished runs of the database continue.",
    )
    subparser.add_argument(
        "agents",
        metavar="AGENT",
        nargs="*",
        help="file.py:name or package.module:name; without a name, all its agents; none, with a shared store: a "
        "gateway for the runs that other processes work on",
    )
    _kept(subparser, "in memory only")
    subparser.add_argument(
        "--workers",
        metavar="N",
        type=_workers,
        help="processes that work on the runs of a shared store and accept connections on one port; a process that "
        "ends is replaced, and its runs continue elsewhere at once",
    )
    subparser.add_argument("--worker", help=argparse.SUPPRESS)
    subparser.add_argument("--host", default="127.0.0.1", help="the address to bind (default: 127.0.0.1)")
    subparser.add_argument("--port", type=_port, default=8765, help="the port; 0 for a free one (default: 8765)")
    subparser.add_argument(
        "--token-file", metavar="FILE", type=Path, help="file with the token; created if missing (default: DB.token)"
    )
    subparser.add_argument(
        "--host-name", metavar="NAME", action="append", default=[], help="an accepted Host header, such as name:8765"
    )
    subparser.add_argument(
        "--origin", metavar="URL", action="append", default=[], help="an accepted origin of pages of another host"
    )
    subparser.add_argument(
        "--on-abort",
        choices=("continue", "cancel"),
        metavar="WHAT",
        default="continue",
        help="effect on a run whose chat page closes its stream: continue, or cancel (default: continue)",
    )
    subparser.add_argument("--max-running", metavar="N", type=_count, help="maximum number of runs that work at once")
    subparser.add_argument("--json", action="store_true", help="print the address as one line of JSON")


def _follow(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "follow",
        "follow a run of another process live",
        "Show the history of a run, then its events live to its end. A run without an owner has only recorded events.",
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    subparser.add_argument(
        "--after", metavar="N", type=_sequence, default=0, help="begin after this event (default: 0)"
    )
    subparser.add_argument("--json", action="store_true", help="one event per line as JSON, then the outcome")
    _where(subparser)


def _decide(commands: _Commands[_Parser], name: str, summary: str) -> None:
    text = (
        "Show the open tickets of a run and decide them, through the server that works on the run or in its database."
    )
    subparser = _command(commands, name, summary, text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    subparser.add_argument(
        "target", metavar="TARGET", nargs="?", help="the ticket, call or tool (default: the only open ticket)"
    )
    subparser.add_argument("--all", action="store_true", help="decide every open ticket")
    subparser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    if name == "deny":
        note = "; the model reads the reason, too, unless --text or the agent's denial=... gives another text"
        subparser.add_argument("--reason", metavar="TEXT", help=f"the reason, for the log{note}")
        subparser.add_argument(
            "--text", metavar="TEXT", help="the text that the model reads, unchanged; the log has --reason"
        )
    else:
        subparser.add_argument("--reason", metavar="TEXT", help="the reason, for the log")
        subparser.add_argument("--edit", metavar="JSON", help="run the call with these arguments instead")
        subparser.add_argument("--result", metavar="JSON", help="the requested answer, or the result of the call")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answers as JSON, one per line; does not ask")
    _where(subparser)


def _cancel(commands: _Commands[_Parser]) -> None:
    subparser = _command(commands, "cancel", "ask a run to end", "Ask a run to end; its calls and tasks are cancelled.")
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    subparser.add_argument("--after-step", action="store_true", help="let the current step end first")
    subparser.add_argument("--reason", metavar="TEXT", help="the reason")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    _where(subparser)


def _pause(commands: _Commands[_Parser]) -> None:
    text = "Let a run end its step, and hold the run until an approval, which continues it, or a denial, which ends it."
    subparser = _command(commands, "pause", "hold a run before its next step", text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    subparser.add_argument("--reason", metavar="TEXT", help="the reason")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    _where(subparser)


def _send(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands, "send", "give a run more input", "Give a run more input, which the run reads at its next step."
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="id of the run, or a prefix of the id")
    subparser.add_argument("text", metavar="TEXT", help="the input")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    _where(subparser)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        SystemExit: --help (0), or the command line is invalid (2).
    """
    whole = parser()
    given, unknown = whole.parse_known_args(arguments)
    if unknown:
        unknown = [_without_password(word) for word in unknown]
        which = f"greenroom {given.command}" if given.command else "greenroom"
        meant = _meant(whole, given.command, unknown)
        whole.exit(exits.USAGE, f"greenroom: unrecognized arguments: {' '.join(unknown)}{meant}; see {which} --help\n")
    if given.command is None and not given.version:
        whole.error("name a command")
    return given


def _without_password(text: str) -> str:
    return re.sub(r"://\S*@", "://...@", text)


def _meant(whole: argparse.ArgumentParser, command: str | None, unknown: Sequence[str]) -> str:
    """Return a suggestion for a misspelt option."""
    parsers = [whole]
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            parsers = [action.choices[command]]
    known = [name for candidate in parsers for action in candidate._actions for name in action.option_strings]
    wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    return suggested(wrong, known) if wrong else ""


def suggested(word: str, known: Sequence[str]) -> str:
    """Return a suggestion as the end of a sentence; empty if no known word is similar."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near}?"


def _default_text() -> str:
    return "greenroom/demo.db in the state folder, such as ~/.local/state"


def _seconds(text: str) -> float:
    return _within(text, float, 0, 60, "between 0 and 60")


def _count(text: str) -> int:
    return _within(text, int, 1, 1000, "between 1 and 1000")


def _workers(text: str) -> int:
    return _within(text, int, 1, 64, "between 1 and 64")


def _port(text: str) -> int:
    return _within(text, int, 0, 65_535, "between 0 and 65535")


def _moment(text: str) -> datetime:
    """Parse a time: an age (30m, 2h, 3d), or a date with or without a time of day, in local time without a zone."""
    ago = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: outside of the years 1 to 9999
        raise argparse.ArgumentTypeError(f"{text} is no time: write 30m, 2h, 3d, or 2026-01-31T09:30") from None


_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def _sequence(text: str) -> int:
    return _within(text, int, 0, 2**53 - 1, "the number of an event")


def _within(text: str, kind: Callable[[str], N], low: int, high: int, named: str) -> N:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is not {named}")
    return value
