"""The commands and their options. This module imports nothing that makes `--help` slow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from . import exits
from .helping import Formatter

N = TypeVar("N", int, float)

ORDERS: Final = ("newest", "waiting_longest")
STATUSES: Final = ("created", "running", "waiting", "done")

_DESCRIPTION: Final = """\
Greenroom runs AI agents as actors: durable, supervised, cancellable. A tool that needs an approval waits for yours.
"""
_EXAMPLES: Final = {
    "": """\
examples:
  greenroom demo                             an example agent, offline; asks before it writes its report
  greenroom run support.py:agent "refund order 7" --db support.db
  greenroom runs --db support.db             all runs, newest first
  greenroom show RUN_ID --db support.db      the story of one run
  greenroom serve support.py:agent --db support.db      a gateway with a console; from other terminals:
  greenroom follow RUN_ID --db support.db    a run live
  greenroom approve RUN_ID --db support.db   answer what it asks (also deny, cancel, pause, send)
""",
    "run": """\
examples:
  greenroom run support.py:agent "refund order 7"                    in memory; asks here
  greenroom run support.py:agent "refund order 7" --db support.db    durable: Ctrl-C, then --resume
  greenroom run support.py:agent --db support.db --resume run_4f1c   continues a run, after a crash too
  greenroom run support.py:agent "refund order 7" --yes --json       for scripts: one event per line, then the outcome
  greenroom run support.py:agent "..." --secret-env DB_PASSWORD      the variable's value is hidden wherever it appears
""",
    "demo": """\
examples:
  greenroom demo                        the files of the current folder
  greenroom demo ~/project --yes        another folder; the report is written without a question
  greenroom demo --resume               continues the newest run that is not finished
""",
    "runs": """\
examples:
  greenroom runs                                    those of the demo
  greenroom runs --db support.db --status waiting   those that wait for a person, the longest waiting first
  greenroom runs --db support.db --agent support --since 2d --text "order 7"
  greenroom runs --db support.db --json             one JSON object per line
""",
    "show": """\
examples:
  greenroom show run_4f1c --db support.db             the beginning of an id is enough, if no other run has it
  greenroom show run_4f1c --db support.db --events    every event
  greenroom show run_4f1c --db support.db --json --events
""",
    "replay": """\
examples:
  greenroom replay run_4f1c --db support.db --agent support.py          does every event come again as it is stored?
  greenroom replay run_4f1c --db support.db --agent support.py --step   input by input: state before, effects, events
  greenroom replay run_4f1c --db support.db --agent new.py:support      where would another agent go another way?
""",
    "prune": """\
examples:
  greenroom prune --older-than 30d --db support.db --dry-run    says what would go
  greenroom prune --older-than 30d --db support.db
""",
    "serve": """\
examples:
  greenroom serve support.py:agent --db support.db              http://127.0.0.1:8765, token in support.db.token
  greenroom serve support.py billing.py:agent --db all.db       several agents
  greenroom serve support.py --port 0                           a free port; runs in memory
  greenroom serve support.py --db s.db --host 0.0.0.0 --host-name runs.example.org --token-file /run/secrets/token
""",
    "follow": """\
examples:
  greenroom follow run_4f1c --db support.db                     the server of this database is found by its lock file
  greenroom follow run_4f1c --db support.db --after 17 --json   one event per line, from 18 on
  greenroom follow run_4f1c --url http://runs.example.org:8765 --token-file token
""",
    "approve": """\
examples:
  greenroom approve run_4f1c --db support.db                    shows what would happen, and asks
  greenroom approve run_4f1c t2 --db support.db --yes           the second ticket, without asking
  greenroom approve run_4f1c --edit '{"order": "7", "cents": 400}' --reason "not all of it"
  greenroom approve run_4f1c --result '"blue"'                  the answer to a question
""",
    "deny": """\
examples:
  greenroom deny run_4f1c --db support.db --reason "ask the customer first"
  greenroom deny run_4f1c --db support.db --all
  greenroom deny run_4f1c --db support.db --reason "spends too much" --text "Do not try again; ask the customer."
""",
    "cancel": """\
examples:
  greenroom cancel run_4f1c --db support.db --reason "no longer needed"
  greenroom cancel run_4f1c --db support.db --after-step        lets the current step end
""",
    "pause": """\
examples:
  greenroom pause run_4f1c --db support.db --reason "the shop is closed"
  greenroom approve run_4f1c --db support.db --result '"The shop is open again."'   continues, with a text for the model
""",
    "send": """\
examples:
  greenroom send run_4f1c "It was order 8, sorry." --db support.db
""",
}


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, like all other errors."""

    def error(self, message: str) -> NoReturn:
        chosen = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if chosen is not None:
            message = f"there is no command {chosen[1]!r}{nearest(chosen[1], re.findall(r'[a-z]+', chosen[2]))}"
        self.exit(exits.USAGE, f"greenroom: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    whole = _Parser(
        prog="greenroom",
        description=_DESCRIPTION,
        epilog=f"{_EXAMPLES['']}\n{exits.described()}",
        formatter_class=Formatter,
    )
    whole.add_argument("--version", action="store_true", help="say the version and end")
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
    _decide(commands, "approve", "let a call run that waits for a decision")
    _decide(commands, "deny", "refuse a call that waits for a decision")
    _cancel(commands)
    _pause(commands)
    _send(commands)
    return whole


_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _command(commands: _Commands[_Parser], name: str, summary: str, text: str) -> argparse.ArgumentParser:
    subparser = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"{_EXAMPLES[name]}\n{exits.described()}",
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
        "what is hidden",
        "Keys of known form, values under names such as password, and home directories always are. Name all other\n"
        "secrets: [redacted] takes their place in events, questions, errors and this output.",
    )
    hide.add_argument(
        "--secret-env", metavar="NAME", action="append", help="hide the value of this environment variable (repeatable)"
    )
    hide.add_argument(
        "--secrets-file", metavar="FILE", type=Path, action="append", help="hide each line of this file (repeatable)"
    )


def _where(subparser: argparse.ArgumentParser) -> None:
    place = subparser.add_argument_group(
        "where the run is",
        "The server of a database is found by its lock file, with its token. Nothing given: the demo's database, or\n"
        "what the variables GREENROOM_URL and GREENROOM_TOKEN say.",
    )
    place.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    place.add_argument("--url", metavar="URL", help="a server, such as http://127.0.0.1:8765, or its console's URL")
    place.add_argument("--token-file", metavar="FILE", type=Path, help="a file with the server's token")
    place.add_argument(
        "--token", metavar="TOKEN", help="the token itself; others on this machine can see what is typed"
    )


def _command_id(subparser: argparse.ArgumentParser) -> None:
    subparser.add_argument("--id", metavar="ID", help="the command's id: the same command again with it acts once")


def _answering(subparser: argparse.ArgumentParser) -> None:
    how = subparser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="approve every call that needs an approval")
    how.add_argument("--no-approve", action="store_true", help="ask nothing: leave the run waiting (exit code 3)")
    subparser.add_argument(
        "--json", action="store_true", help="one event per line as JSON, then the outcome; asks nothing"
    )


def _run(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "run",
        "run anybody's agent and follow it live",
        "Run an agent from a Python file or module, follow it live, and answer what it asks.",
    )
    subparser.add_argument(
        "agent",
        metavar="AGENT",
        help="file.py:name or package.module:name; the name may be left out if there is one agent",
    )
    subparser.add_argument("text", metavar="TEXT", nargs="?", help="what the agent is asked")
    subparser.add_argument(
        "--db", metavar="FILE", type=Path, help="keep the run in this SQLite file (default: in memory only)"
    )
    subparser.add_argument(
        "--run-id", metavar="ID", help="the new run's id; with the same id and text again it is the same run"
    )
    subparser.add_argument(
        "--title", metavar="TEXT", help="one line for lists of runs (default: the first line of TEXT)"
    )
    subparser.add_argument(
        "--resume", metavar="RUN_ID", help="continue this run of --db (the beginning of its id is enough)"
    )
    subparser.add_argument(
        "--serve",
        action="store_true",
        help="a console in the browser while it works, on a free port; with --json the first line says where",
    )
    _answering(subparser)


def _demo(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "demo",
        "run the example agent: a census of a folder",
        "Run an example agent on real files, offline: it lists, counts and reads the files of a folder, then asks\n"
        "whether it may write its report there. It never leaves the folder, and replaces no file but its own report.",
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
        help="time the model takes for an answer (default: 0.4 on a terminal, else 0)",
    )
    subparser.add_argument("--no-serve", action="store_true", help="no console in the browser while it asks")
    _answering(subparser)


def _runs(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "runs",
        "list runs, newest first, or the longest waiting first",
        "List the runs of a database with their titles and what they ask. Works while a process has it open.",
    )
    subparser.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    subparser.add_argument(
        "--status",
        choices=STATUSES,
        metavar="STATUS",
        help=f"only those: {', '.join(STATUSES)}; of waiting ones the longest waiting first",
    )
    subparser.add_argument("--agent", metavar="KEY", help="only those of this agent")
    subparser.add_argument("--by", metavar="NAME", help="only those that this user or principal started")
    subparser.add_argument("--text", metavar="TEXT", help="only those with this in their title or id")
    subparser.add_argument(
        "--since", metavar="TIME", type=_moment, help="started since: 2h, 3d, or 2026-01-31[T09:30[Z]]"
    )
    subparser.add_argument("--until", metavar="TIME", type=_moment, help="started before")
    subparser.add_argument("--order", choices=ORDERS, metavar="ORDER", help="newest, or waiting_longest")
    subparser.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default: 20)")
    subparser.add_argument("--cursor", metavar="CURSOR", help="the next page: as the page before says at its end")
    subparser.add_argument(
        "--json", action="store_true", help="one JSON object per line; the last one has the cursor of the next page"
    )


def _show(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "show",
        "tell the story of one run",
        "Show what a run has done, what it waits for, and how to continue it. Works while a process has it open.",
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    subparser.add_argument("--events", action="store_true", help="show every event")
    subparser.add_argument("--json", action="store_true", help="one JSON object")


def _replay(commands: _Commands[_Parser]) -> None:
    text = (
        "Run a stored run again from its record, and name the first event that does not come again as it is stored,\n"
        "with the input before it. No model and no tool is asked, nothing is written. Works while a process has the\n"
        "database open. Hide the same secrets as the process that worked on the run: they are hidden in its events."
    )
    subparser = _command(commands, "replay", "run a stored run again and compare", text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    subparser.add_argument(
        "--agent",
        metavar="AGENT",
        help="file.py:name or package.module:name; without a name, the agent with the run's key (default: the demo's)",
    )
    subparser.add_argument(
        "--step", action="store_true", help="show each input: the state it met, its effects, its events"
    )
    subparser.add_argument("--json", action="store_true", help="one JSON object; with --step one per input before it")


def _prune(commands: _Commands[_Parser]) -> None:
    text = (
        "Delete the runs of a database that ended long ago, with the messages of threads that have no run left, and\n"
        "give their room back. No other process may have the database open. Run ids stay taken."
    )
    subparser = _command(commands, "prune", "delete runs that ended long ago", text)
    subparser.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    subparser.add_argument(
        "--older-than", metavar="AGE", required=True, type=_age, help="since their end, such as 12h, 30d or 8w"
    )
    subparser.add_argument("--dry-run", action="store_true", help="say what would go, and delete nothing")
    subparser.add_argument("--json", action="store_true", help="one JSON object")


def _age(text: str) -> timedelta:
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) <= 9 and unit in seconds):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write a whole number and m, h, d or w, such as 30d")
    return timedelta(seconds=int(number) * seconds[unit])


def _serve(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "serve",
        "serve agents: HTTP, WebSocket and a console in the browser",
        "Serve agents to people and programs in other processes: a WebSocket to follow runs and decide, an HTTP API,\n"
        "the stream protocols of chat front ends, and a console. Runs of the database that are not done continue.",
    )
    subparser.add_argument(
        "agents",
        metavar="AGENT",
        nargs="+",
        help="file.py:name or package.module:name; without a name all agents of it",
    )
    subparser.add_argument(
        "--db", metavar="FILE", type=Path, help="keep runs in this SQLite file (default: in memory only)"
    )
    subparser.add_argument("--host", default="127.0.0.1", help="the address to bind (default: 127.0.0.1)")
    subparser.add_argument("--port", type=_port, default=8765, help="the port; 0 takes a free one (default: 8765)")
    subparser.add_argument(
        "--token-file", metavar="FILE", type=Path, help="the token; made if it is not there (default: DB.token)"
    )
    subparser.add_argument(
        "--host-name", metavar="NAME", action="append", default=[], help="a Host header to let in, such as name:8765"
    )
    subparser.add_argument(
        "--origin", metavar="URL", action="append", default=[], help="a page of another host that may use it"
    )
    subparser.add_argument(
        "--on-abort",
        choices=("continue", "cancel"),
        metavar="WHAT",
        default="continue",
        help="what becomes of a run whose chat page closes its stream: continue, or cancel (default: continue)",
    )
    subparser.add_argument("--max-running", metavar="N", type=_count, help="at most so many runs work at once")
    subparser.add_argument("--json", action="store_true", help="say where it serves as one line of JSON")


def _follow(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands,
        "follow",
        "follow a run of another process live",
        "Show what a run has done and does, until it ends. Of a run without an owner, show the recorded events.",
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument(
        "--after", metavar="N", type=_sequence, default=0, help="begin behind this event (default: 0)"
    )
    subparser.add_argument("--json", action="store_true", help="one event per line as JSON, then the outcome")
    _where(subparser)


def _decide(commands: _Commands[_Parser], name: str, summary: str) -> None:
    text = "Show what waits for a decision and decide it, while a server works on the run or while no process does."
    subparser = _command(commands, name, summary, text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument(
        "target", metavar="TARGET", nargs="?", help="the ticket, call or tool (default: the only one that is open)"
    )
    subparser.add_argument("--all", action="store_true", help="decide every open one")
    subparser.add_argument("--yes", action="store_true", help="do not ask again")
    if name == "deny":
        note = "; the model reads it too, unless --text or the agent's denial=... words it"
        subparser.add_argument("--reason", metavar="TEXT", help=f"why, for the log{note}")
        subparser.add_argument(
            "--text", metavar="TEXT", help="what the model reads, word for word; the log keeps --reason"
        )
    else:
        subparser.add_argument("--reason", metavar="TEXT", help="why, for the log")
        subparser.add_argument("--edit", metavar="JSON", help="run the call with these arguments instead")
        subparser.add_argument("--result", metavar="JSON", help="the answer that is asked for, or the call's result")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answers as JSON, one per line; asks nothing")
    _where(subparser)


def _cancel(commands: _Commands[_Parser]) -> None:
    subparser = _command(commands, "cancel", "ask a run to end", "Ask a run to end. What it has started is cancelled.")
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument("--after-step", action="store_true", help="let the current step end first")
    subparser.add_argument("--reason", metavar="TEXT", help="why")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    _where(subparser)


def _pause(commands: _Commands[_Parser]) -> None:
    text = "Let a run end its step and hold it there, until a person approves (the run continues) or denies (it ends)."
    subparser = _command(commands, "pause", "hold a run before its next step", text)
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument("--reason", metavar="TEXT", help="why")
    _command_id(subparser)
    subparser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    _where(subparser)


def _send(commands: _Commands[_Parser]) -> None:
    subparser = _command(
        commands, "send", "give a run more input", "Give a run more input; it reads it at its next step."
    )
    subparser.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    subparser.add_argument("text", metavar="TEXT", help="the input, word for word")
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
        which = f"greenroom {given.command}" if given.command else "greenroom"
        meant = _meant(whole, given.command, unknown)
        whole.exit(exits.USAGE, f"greenroom: unrecognized arguments: {' '.join(unknown)}{meant}; see {which} --help\n")
    if given.command is None and not given.version:
        whole.error("name a command")
    return given


def _meant(whole: argparse.ArgumentParser, command: str | None, unknown: Sequence[str]) -> str:
    """Return a suggestion for a misspelt option."""
    parsers = [whole]
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            parsers = [action.choices[command]]
    known = [name for candidate in parsers for action in candidate._actions for name in action.option_strings]
    wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    return nearest(wrong, known) if wrong else ""


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a suggestion as the end of a sentence; empty if no known word is similar."""
    matches = get_close_matches(word, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _default_text() -> str:
    return "greenroom/demo.db in the state folder, such as ~/.local/state"


def _seconds(text: str) -> float:
    return _within(text, float, 0, 60, "between 0 and 60")


def _count(text: str) -> int:
    return _within(text, int, 1, 1000, "between 1 and 1000")


def _port(text: str) -> int:
    return _within(text, int, 0, 65_535, "between 0 and 65535")


def _moment(text: str) -> datetime:
    """Parse a time: an age (30m, 2h, 3d), or a date with or without a time of day, in local time without a zone."""
    ago = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if ago is not None:
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
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
