"""Commands of a shell, read twice: exactly, to allow them, and generously, to find what they may do.

Theory of operation. The exact reading yields words only if every shell yields the same ones: a command with a character
that a shell gives a meaning to (`_COMPOUND`), also inside of quotes, is compound and has no words. The generous reading
splits the text at all of these characters, drops quotes and looks through programs that start others (`sudo`, `env`,
`sh -c`). So the exact reading misses no second command, and the generous one may see commands where there are none. The
generous reading is a help and no wall: a shell has more ways to spell a command (`$X`, `eval`) than any reader knows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import attrs

COMMAND_LIMIT: Final = 32 * 1024
"""Most characters of a command that is read; reading so many takes about ten milliseconds."""
_COMPOUND: Final = re.compile(r"[;&|<>$(){}`\x00-\x08\x0a-\x1f\x7f]")
"""Besides operators and expansions: control characters, which end a command or are read differently by each shell."""
_ODD_SPACE: Final = re.compile(r"[^\S \t]")
"""Blanks beyond ASCII: some shells end a word there, others do not."""
_PIECE: Final = re.compile(r"([ \t]+)|([^ \t'\"\\]+)|\\(.)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
"""A piece of a simple command: blanks, plain text, an escaped character, and the two kinds of quotes."""
_IN_QUOTES: Final = re.compile(r"\\([\"\\])")
_STEPS: Final = re.compile(r"[;&|<>$(){}`\x00-\x08\x0a-\x1f\x7f]+")
_UNQUOTED: Final = str.maketrans("", "", "'\"\\")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_STARTERS: Final = frozenset(
    (
        *("sudo", "doas", "su", "env", "nohup", "time", "nice", "ionice", "chrt", "timeout", "stdbuf", "setsid", "ssh"),
        *("command", "builtin", "exec", "eval", "xargs", "parallel", "watch", "find", "strace", "unshare", "chroot"),
        *("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "cmd", "pwsh", "powershell"),
        *("npx", "bunx", "uvx", "pipx", "npm", "pnpm", "yarn", "bun", "uv", "poetry", "pdm", "hatch", "rye", "bundle"),
        *("python", "python3", "docker", "podman", "mise", "direnv", "dotenv", "op", "doppler"),
        *("!", "if", "then", "elif", "else", "while", "until", "do", "coproc"),
    )
)
"""Programs and words of a shell that start the program which follows them, after options of their own."""
_FAR: Final = 64
"""Words after a program's name among which its subcommands and flags are looked for."""


class Step(NamedTuple):
    """A program that a command may start: its name without folders, and its place among the words of the step."""

    program: str
    words: Sequence[str]
    place: int


@attrs.frozen(kw_only=True)
class ShellCommand:
    """A command of a shell, as text or as words.

    Attributes:
        text: The command as a shell reads it.
        argv: The words, if every shell splits the text into the same ones; None for a compound command.
        compound: The command has a character with which a shell starts, joins or replaces commands; or its quotes are
            not closed.
    """

    text: str
    argv: tuple[str, ...] | None
    compound: bool

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The programs that the command may start, read generously."""
        steps = list(_programs(self.argv or ()))
        if self.argv is not None and all(step.program not in _STARTERS for step in steps):
            return tuple(steps)
        for part in _STEPS.split(self.text.replace("\\\n", "")):
            steps += _programs(part.translate(_UNQUOTED).split())
        return tuple(steps)


def read_command(command: str | Sequence[str]) -> ShellCommand:
    """Return a command that was given as text, or as words that run without a shell.

    Words are compound if they start a program which may give their characters a meaning (`sh -c TEXT`).
    """
    if not isinstance(command, str):
        argv = tuple(command)
        starts = bool(argv) and argv[0].rpartition("/")[2] in _STARTERS
        compound = starts and any(_COMPOUND.search(word) for word in argv)
        return ShellCommand(text=shlex.join(argv), argv=None if compound else argv, compound=compound)
    if _COMPOUND.search(command) or _ODD_SPACE.search(command):
        return ShellCommand(text=command, argv=None, compound=True)
    words = _words(command)
    return ShellCommand(text=command, argv=words, compound=words is None)


_SHELLS: Final = frozenset(f"{folder}{name}" for folder in ("", "/bin/", "/usr/bin/") for name in ("bash", "sh", "zsh"))


def inner_command(command: str | Sequence[str]) -> str | None:
    """Return TEXT of the command `bash -lc TEXT`, as some programs wrap each command of theirs; None for others."""
    match _words(command) if isinstance(command, str) else tuple(command):
        case (shell, "-c" | "-lc", text) if shell in _SHELLS:
            return text
        case _:
            return None


def subcommand(step: Step, verbs: Sequence[str]) -> bool:
    """Return True if these subcommands follow the program's name, with any options between them.

    A word after an option may be the option's value, and counts as either. A verb that begins with `--` is a flag that
    may stand anywhere.
    """
    words = step.words[step.place + 1 : step.place + 1 + _FAR]
    plain = [verb for verb in verbs if not verb.startswith("--")]
    if any(verb not in words for verb in verbs if verb.startswith("--")):
        return False
    found, may_be_value = 0, False
    for word in words:
        if found == len(plain):
            break
        if word == plain[found]:
            found, may_be_value = found + 1, False
        elif word.startswith("-"):
            may_be_value = "=" not in word
        elif may_be_value:
            may_be_value = False
        else:
            return False
    return found == len(plain)


def _words(text: str) -> tuple[str, ...] | None:
    """Return the words of a text without compound characters; None if a quote is not closed."""
    words = list[str]()
    word: str | None = None
    end = 0
    for piece in _PIECE.finditer(text):
        if piece.start() != end:
            return None
        end = piece.end()
        blank, plain, escaped, single, double = piece.groups()
        if blank is not None:
            if word is not None:
                words.append(word)
            word = None
            continue
        if word is None and plain is not None and plain.startswith("#"):
            return tuple(words)  # a comment, also with an open quote in it
        part = next(part for part in (plain, escaped, single, double) if part is not None)
        word = (word or "") + (_IN_QUOTES.sub(r"\1", part) if double is not None else part)
    if end != len(text):
        return None
    return (*words, word) if word is not None else tuple(words)


def _programs(words: Sequence[str]) -> Iterator[Step]:
    place = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    for n in range(place, min(len(words), place + _FAR)):
        program = words[n].rpartition("/")[2]
        yield Step(program, words, n)
        if n == place and program not in _STARTERS:
            return
