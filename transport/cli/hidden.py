"""The secrets given to the command line: values of variables and lines of files, never typed values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.errors import UsageError

from .places import STORE, SharedStore


def hidden_values(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the secrets that the options name, with the password of the store; empty for a command without them.

    Raises:
        UsageError: A variable is not set, a file cannot be read, or a value is too short or too long to be searched
            for. The message names the variable or the line, never the value.
    """
    values: list[str] = []
    for name in getattr(args, "secret_env", None) or ():
        value = os.environ.get(name)
        if value is None:
            raise UsageError(f"--secret-env {name}: the environment has no such variable; set it, or omit the option")
        values += _checked(f"--secret-env {name}", [value])
    for path in getattr(args, "secrets_file", None) or ():
        values += _checked(f"--secrets-file {path}", _lines(path))
    url = getattr(args, "store", None) or (os.environ.get(STORE) if "store" in args else None)
    values += SharedStore(url).secrets if url else ()
    return tuple(dict.fromkeys(values))


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--secrets-file {path} cannot be read: {why}") from error
    return [line for line in text.splitlines() if line.strip()]


def _checked(where: str, values: Iterable[str]) -> Iterable[str]:
    for number, value in enumerate(values, 1):
        try:
            Redactor([value])
        except ValueError as error:
            raise UsageError(f"{where}: {f'value {number}: ' if number > 1 else ''}{error}") from error
        yield value
