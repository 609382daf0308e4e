"""One way to the log: standard `logging`, and nothing that a handler does comes back.

A handler is code of the program: it may raise, and a log line is written in places that must be completed. What a
handler raises is said on standard error, as `logging` itself does, and goes no further.
"""

from __future__ import annotations

import logging
import sys
import traceback as tracebacks

from .border import failure_of_call
from .exits import leaves


def report(logger: logging.Logger, level: int, message: str, *, traceback: str | None = None, **fields: object) -> None:
    """Write one line, if anybody listens. Costs one look at the logger's level otherwise. Never raises.

    Args:
        logger: where to.
        level: one of `logging`'s.
        message: ready to be read; no formatting happens.
        traceback: text that formatters put behind the line. It is free of secrets already, which a formatter that was
            given the exception would not be.
        fields: attributes of the record, for formatters and filters; None is left out.

    Raises:
        KeyboardInterrupt: a real Ctrl-C has met a handler.
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
    """The traceback of an exception of foreign code, its causes included. Never raises.

    Python asks the exception and its causes for their truth, text and notes; what answers with an exception of its own
    keeps its place in the code, and loses the rest.

    Raises:
        KeyboardInterrupt: a real Ctrl-C has come meanwhile.
    """
    try:
        return "".join(tracebacks.format_exception(error)).rstrip("\n")
    except BaseException as broken:  # noqa: BLE001, ASYNC103 - the border to the methods of a foreign exception
        failure = failure_of_call(broken)
        places = "".join(line for one in (error, *leaves(error)) for line in tracebacks.format_tb(one.__traceback__))
        why = f"its own methods raised {type(failure).__name__} when its text was asked for"
        return f"Traceback (most recent call last):\n{places}{type(error).__name__}: ({why})"  # noqa: ASYNC104 - the border has raised what passes


def _clean(text: str) -> str:
    """A lone surrogate (of a file name that is no UTF-8) would make the handler of a file lose the whole line."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
