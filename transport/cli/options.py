"""What may be typed: the commands and their options. Nothing is imported here that makes `--help` slow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from . import exits

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
""",
    "run": """\
examples:
  greenroom run support.py:agent "refund order 7"                    in memory; asks here
  greenroom run support.py:agent "refund order 7" --db support.db    durable: Ctrl-C, then --resume
  greenroom run support.py:agent --db support.db --resume run_4f1c   goes on with a run, after a crash too
  greenroom run support.py:agent "refund order 7" --yes --json       for scripts: one event per line, then the outcome
""",
    "demo": """\
examples:
  greenroom demo                        the files of the current folder
  greenroom demo ~/project --yes        another folder; the report is written without a question
  greenroom demo --resume               goes on with the newest run that is not finished
""",
    "runs": """\
examples:
  greenroom runs                                    those of the demo
  greenroom runs --db support.db --status waiting   those that wait for somebody
  greenroom runs --db support.db --json             one JSON object per line
""",
    "show": """\
examples:
  greenroom show run_4f1c --db support.db             the beginning of an id is enough, if no other run has it
  greenroom show run_4f1c --db support.db --events    every event
  greenroom show run_4f1c --db support.db --json --events
""",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all other errors are said."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.USAGE, f"greenroom: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = _Parser(
        prog="greenroom",
        description=_DESCRIPTION,
        epilog=f"{_EXAMPLES['']}\n{exits.described()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="store_true", help="say the version and end")
    whole.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    _run(commands)
    _demo(commands)
    _runs(commands)
    _show(commands)
    return whole


_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _command(commands: _Commands[_Parser], name: str, summary: str, text: str) -> argparse.ArgumentParser:
    one = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"{_EXAMPLES[name]}\n{exits.described()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    return one


def _answering(one: argparse.ArgumentParser) -> None:
    how = one.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="approve every call that needs an approval")
    how.add_argument("--no-approve", action="store_true", help="ask nothing: leave the run waiting (exit code 3)")
    one.add_argument("--json", action="store_true", help="one event per line as JSON, then the outcome; asks nothing")


def _run(commands: _Commands[_Parser]) -> None:
    one = _command(
        commands,
        "run",
        "run anybody's agent and follow it live",
        "Run an agent from a Python file or module, follow it live, and answer what it asks.",
    )
    one.add_argument(
        "agent",
        metavar="AGENT",
        help="file.py:name or package.module:name; the name may be left out if there is one agent",
    )
    one.add_argument("text", metavar="TEXT", nargs="?", help="what the agent is asked")
    one.add_argument(
        "--db", metavar="FILE", type=Path, help="keep the run in this SQLite file (default: in memory only)"
    )
    one.add_argument(
        "--run-id", metavar="ID", help="the new run's id; with the same id and text again it is the same run"
    )
    one.add_argument("--resume", metavar="RUN_ID", help="go on with this run of --db instead of starting one")
    _answering(one)


def _demo(commands: _Commands[_Parser]) -> None:
    one = _command(
        commands,
        "demo",
        "run the example agent: a census of a folder",
        "Run an example agent on real files, offline: it lists, counts and reads the files of a folder, then asks\n"
        "whether it may write its report there. It never leaves the folder, and replaces no file but its own report.",
    )
    one.add_argument(
        "directory", metavar="DIRECTORY", type=Path, nargs="?", help="the folder (default: the current one)"
    )
    one.add_argument("--report", metavar="NAME", help="file name of the report (default: CENSUS.md)")
    one.add_argument(
        "--db", metavar="FILE", type=Path, help=f"keep the run in this SQLite file (default: {_default_text()})"
    )
    one.add_argument(
        "--resume", metavar="RUN_ID", nargs="?", const="", help="go on with this run, or with the newest unfinished one"
    )
    one.add_argument(
        "--pace",
        metavar="SECONDS",
        type=_seconds,
        help="time the model takes for an answer (default: 0.4 on a terminal, else 0)",
    )
    _answering(one)


def _runs(commands: _Commands[_Parser]) -> None:
    one = _command(
        commands,
        "runs",
        "list runs, newest first",
        "List the runs of a database, newest first. Works while a process has it open.",
    )
    one.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    one.add_argument("--status", choices=STATUSES, help="only those")
    one.add_argument("--agent", metavar="KEY", help="only those of this agent")
    one.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default: 20)")
    one.add_argument("--json", action="store_true", help="one JSON object per line")


def _show(commands: _Commands[_Parser]) -> None:
    one = _command(
        commands,
        "show",
        "tell the story of one run",
        "Tell what a run has done, what it waits for, and how to go on with it. Works while a process has it open.",
    )
    one.add_argument("run_id", metavar="RUN_ID", help="the run's id, or the beginning of it")
    one.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file (default: the demo's)")
    one.add_argument("--events", action="store_true", help="show every event")
    one.add_argument("--json", action="store_true", help="one JSON object")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: --help (0), or it can not be (2).
    """
    whole = parser()
    given = whole.parse_args(arguments)
    if given.command is None and not given.version:
        whole.error("name a command")
    return given


def _default_text() -> str:
    return "greenroom/demo.db in the state folder, such as ~/.local/state"


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 60")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 1000")
    return value
