"""The command line is parsed: what is wrong is said in one line, with a suggestion."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from greenroom.supervision.fields import nearest

from . import exits
from .commands import COMMANDS, DEBUG, PROGRAM, SECRETS, Group, Option
from .helping import Formatter

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
        choice = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if choice is not None:
            message = f"there is no command {choice[1]!r}{suggested(choice[1], re.findall(r'[a-z]+', choice[2]))}"
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
    whole = _Parser(prog="greenroom", description=_DESCRIPTION, epilog=_after(PROGRAM), formatter_class=Formatter)
    whole.add_argument("--version", action="store_true", help="print the version")
    _add(whole, [DEBUG])
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.summary,
            description=command.text,
            epilog=_after(command.examples),
            formatter_class=Formatter,
        )
        _add(one, [_DEBUG, *([SECRETS] if command.redacts else []), *command.options])
        if command.actions:
            actions = one.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
            for action, (summary, options) in command.actions.items():
                _add(actions.add_parser(action, help=summary), [*options, _DEBUG])
    return whole


_DEBUG: Final = Option(DEBUG.names, {**DEBUG.keywords, "default": argparse.SUPPRESS})
"""After the command; the default is that of the option before the command."""


def _after(examples: str) -> str:
    return f"examples:\n{examples}\n{exits.described()}"


def _add(parser: argparse._ActionsContainer, options: Iterable[Option | Group]) -> None:
    for one in options:
        if isinstance(one, Option):
            parser.add_argument(*one.names, **one.keywords)
        elif one.title:
            _add(parser.add_argument_group(one.title, one.text), one.options)
        else:
            _add(parser.add_mutually_exclusive_group(), one.options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        SystemExit: --help (0), or the command line is invalid (2).
    """
    whole = parser()
    args, unknown = whole.parse_known_args(arguments)
    if unknown:
        unknown = [_without_password(word) for word in unknown]
        which = f"greenroom {args.command}" if args.command else "greenroom"
        near = _meant(whole, args.command, unknown)
        whole.exit(exits.USAGE, f"greenroom: unrecognized arguments: {' '.join(unknown)}{near}; see {which} --help\n")
    if args.command is None and not args.version:
        whole.error("name a command")
    return args


def _without_password(text: str) -> str:
    return re.sub(r"://\S*@", "://...@", text)


def _meant(whole: argparse.ArgumentParser, command: str | None, unknown: Sequence[str]) -> str:
    """Return a suggestion for a misspelt option."""
    parsers = [whole]
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            parsers = [action.choices[command]]
    names = [name for candidate in parsers for action in candidate._actions for name in action.option_strings]
    wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    return suggested(wrong, names) if wrong else ""


def suggested(word: str, names: Sequence[str]) -> str:
    """Return a suggestion as the end of a sentence; empty if no known word is similar."""
    near = nearest(word, names)
    return "" if near is None else f"; did you mean {near}?"
