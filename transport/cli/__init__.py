"""The command line: `greenroom run | demo | runs | show | replay | prune | serve | follow | approve | deny | ...`.

    greenroom demo                                    an example agent, offline; asks before it writes its report
    greenroom run support.py:agent "refund order 7"   any agent from a file or module
    greenroom serve support.py:agent --db support.db  agents behind a gateway; the commands after it talk to it

Exit codes: 0 completed · 1 failed · 2 wrong usage (an option, a file, an agent, a run id) · 3 the run waits for a
decision and cannot ask · 4 cancelled · 5 the database is unusable · 130 interrupted (a run in a database can be
resumed). `exits.py` has the complete list.

Errors go to standard error as one line that names the value and a remedy; `--debug` shows the traceback as well.
"""

from __future__ import annotations

import argparse
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from greenroom import __version__
from greenroom.actors.errors import GreenroomError, RuntimeFailed, StoreError, UnknownRun, UsageError

from ..terminal.screen import complain, prepare_streams
from . import exits, options
from .commands import COMMANDS

__all__ = ["main"]

_COMMANDS: Final = {name: command.place for name, command in COMMANDS.items()} | {
    "runs revive": "store_commands:revive"
}
"""Command -> module and function."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Exits as argparse does on --help (0) and invalid options (2)."""
    args = options.parse(arguments)
    prepare_streams()
    _prepare_logging(debug=args.debug)
    out = sys.stdout
    try:
        return _command(args)(args)
    except KeyboardInterrupt:
        return _interrupted()
    except BaseExceptionGroup as group:  # Ctrl-C, and what failed in another task at the same time
        if group.subgroup(KeyboardInterrupt) is not None:
            return _interrupted()
        if isinstance(group, Exception):
            return _failed(group, args)
        raise
    except BrokenPipeError:
        # The reader has closed the pipe, as in `| head`. Python must not fail at exit when it flushes its buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.UNREAD
    except Exception as error:  # noqa: BLE001 - the last boundary: users get a line, not a traceback
        return _failed(error, args)
    finally:
        sys.stdout = out


def _interrupted() -> int:
    complain("interrupted")
    return exits.INTERRUPTED


def _command(args: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Return the function of the named command; its module is imported only now."""
    if args.version:
        return _version
    place = _COMMANDS.get(f"{args.command} {getattr(args, 'action', None)}") or _COMMANDS[args.command]
    command: Callable[[argparse.Namespace], int] = pkgutil.resolve_name(f"{__name__}.{place}")
    return command


def _prepare_logging(*, debug: bool) -> None:
    """Show the runtime's log only with --debug; otherwise the error itself is reported once, in one line."""
    log = logging.getLogger("greenroom")
    log.propagate = False
    log.handlers[:] = [logging.StreamHandler() if debug else logging.NullHandler()]


def _version(_: argparse.Namespace) -> int:
    sys.stdout.write(f"greenroom {__version__}\n")
    return exits.COMPLETED


def _failed(error: Exception, args: argparse.Namespace) -> int:
    if args.debug:
        sys.stderr.write(_shown(args, "".join(traceback.format_exception(error))))
    if isinstance(error, UnknownRun):
        complain(f"no run has the id {error.run_id!r}; {_where_runs_are(args)}")
        return exits.USAGE
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), None)
    if code is not None:
        complain(_shown(args, str(error)))
        return code
    text = _shown(args, f"{type(error).__name__}: {error}")
    complain(f"{text}; a bug in Greenroom: greenroom --debug ... shows where")
    return exits.FAILED


_CODES: Final = (
    (UsageError, exits.USAGE),
    ((StoreError, RuntimeFailed), exits.STORE),
    ((GreenroomError, OSError), exits.FAILED),
)
"""The first kind that an error is of gives the exit code; other errors are bugs."""


def _shown(args: argparse.Namespace, text: str) -> str:
    """Return an error text without the secrets that the options name, as far as the secrets are readable."""
    from greenroom.actors.contract.secrets.redaction import Redactor  # noqa: PLC0415 - only needed for an error

    from .hidden import hidden_values  # noqa: PLC0415 - needed with the redactor only
    from .places import SharedStore  # noqa: PLC0415 - needed with the redactor only

    try:
        url = getattr(args, "store", None) or ""
        if url.strip():  # an error may repeat the URL, also without these options
            text = text.replace(url, str(SharedStore(url)))
        return Redactor(hidden_values(args)).text(text)
    except UsageError:  # this error is the one being reported
        return Redactor().text(text)


def _where_runs_are(args: argparse.Namespace) -> str:
    """Return the command that lists the runs of the place that was searched."""
    from . import owner, paths, places  # noqa: PLC0415 - `--help` does not need their import time

    url = owner.named(args)
    if url is not None:
        return f"the console at {url.partition('#')[0]} lists those that you may see"
    place = places.chosen(args)
    where = () if place is None else places.options(place)
    return f"list the known ones with `{paths.typed('runs', *where)}`"
