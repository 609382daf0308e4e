"""Logging that never raises: standard `logging`, with errors of handlers contained.

A log handler is code of the program and may raise, but log lines are written in steps that must be completed. An error
of a handler is reported on standard error, as `logging` itself does, and does not propagate.
"""

from __future__ import annotations

import logging
import sys
import traceback as tracebacks
from collections.abc import Iterator
from typing import Final

from .border import failure_of_call
from .exits import leaves

LONGEST_MESSAGE: Final = 65_536
"""Characters of an exception's message up to which its traceback is formatted whole."""


def report(logger: logging.Logger, level: int, message: str, *, traceback: str | None = None, **fields: object) -> None:
    """Write one log line if the level is enabled; otherwise the cost is one check of the logger's level.

    Args:
        logger: The logger.
        level: A level of `logging`.
        message: The complete text; no formatting happens.
        traceback: Text that formatters append to the line. The text is already redacted; a formatter that receives the
            exception itself would print secrets.
        fields: Attributes of the log record, for formatters and filters; None values are left out.

    Raises:
        KeyboardInterrupt: A real Ctrl-C arrived in a handler.
    """
    try:
        if not logger.isEnabledFor(level):
            return
        place, line, function, _ = logger.findCaller(stacklevel=2)
        extra = {name: value for name, value in fields.items() if value is not None}
        record = logger.makeRecord(logger.name, level, place, line, "%s", (_clean(message),), None, function, extra)
        record.exc_text = None if traceback is None else _clean(traceback)
        logger.handle(record)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - the border to handlers and filters
        failure = failure_of_call(error)
        if logging.raiseExceptions and sys.stderr is not None:
            sys.stderr.write(f"a log handler of {logger.name} raised {type(failure).__name__}; a line is lost\n")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of a foreign exception as text, causes included.

    Formatting calls `__bool__`, `__str__` and `__notes__` of the exception and of its causes. If one of these methods
    raises, the text has the frames and the type but not the message. Of a message of more than `LONGEST_MESSAGE`
    characters the text has the beginning and, again, only the frames: formatting copies a message several times.

    Raises:
        KeyboardInterrupt: A real Ctrl-C arrived meanwhile.
    """
    try:
        long = next((text for text in _texts(error) if len(text) > LONGEST_MESSAGE), None)
        if long is None:
            return "".join(tracebacks.format_exception(error)).rstrip("\n")
        why = f"{long[:LONGEST_MESSAGE]}…"
    except BaseException as print_error:  # noqa: BLE001, ASYNC103 - the border to the methods of a foreign exception
        failure = failure_of_call(print_error)
        why = f"(its own methods raised {type(failure).__name__} when its text was asked for)"
    places = "".join(line for leaf in (error, *leaves(error)) for line in tracebacks.format_tb(leaf.__traceback__))
    return f"Traceback (most recent call last):\n{places}{type(error).__name__}: {why}"  # noqa: ASYNC104 - the border has raised what passes


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the texts that an exception holds, and those of its causes, contexts and members; calls none of them."""
    seen_ids: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen_ids:
            continue
        seen_ids.add(id(link))
        yield from (text for text in (*link.args, *getattr(link, "__notes__", ())) if isinstance(text, str))
        waiting += (link.__cause__, link.__context__)
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions


def _clean(text: str) -> str:
    """Escape lone surrogates (from a file name that is not UTF-8), because a file handler would lose the whole line."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
