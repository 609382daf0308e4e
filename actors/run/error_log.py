"""What is logged of code that fails: once, with its traceback, without secrets, under the id that its event has.

`docs/logging.md` is the page for users: loggers, levels, fields.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import attrs

from greenroom.supervision.exits import leaves
from greenroom.supervision.reporting import report, traceback_text

from ..contract.codec import failure_text
from ..contract.redaction import Redactor
from ..errors import ModelError, ToolError

TRACEBACK_LIMIT: Final = 65_536
"""Characters of a traceback that are kept: its end, where the error is. It is cut after it was redacted."""

RUN: Final = logging.getLogger("greenroom.run")
TOOL: Final = logging.getLogger("greenroom.tool")
PLUGIN: Final = logging.getLogger("greenroom.plugin")
MODEL: Final = logging.getLogger("greenroom.model")
DEPS: Final = logging.getLogger("greenroom.deps")


@attrs.frozen(repr=False)
class ErrorLog:
    """The log of one runtime. Its methods never raise."""

    _redactor: Redactor

    def bug(self, logger: logging.Logger, what: str, error: BaseException, **fields: object) -> None:
        """Code of the program, or of Greenroom, has raised what it should not: ERROR, with the traceback."""
        if logger.isEnabledFor(logging.ERROR):
            text = what if failure_text(error) in what else f"{what}: {failure_text(error)}"
            report(logger, logging.ERROR, self._line(text), traceback=self.traceback(error), **fields)

    def note(self, logger: logging.Logger, level: int, what: str, **fields: Any) -> None:
        """Something that is no bug, or of which there is no traceback."""
        if logger.isEnabledFor(level):
            report(logger, level, self._line(what), **fields)

    def tool_failed(self, what: str, error: BaseException, *, code: str, **fields: object) -> None:
        """A body has failed. `error` is its ToolFailed, whose cause is what the body raised.

        A ToolError is what a tool says on purpose: INFO. Arguments that do not fit are the model's: DEBUG.
        """
        cause = error.__cause__
        if code == "tool_error" and cause is not None and not _all(cause, ToolError):
            self.bug(TOOL, what, cause, code=code, **fields)
        else:
            levels = {"tool_timeout": logging.WARNING, "invalid_arguments": logging.DEBUG}
            self.note(TOOL, levels.get(code, logging.INFO), f"{what}: {error}", code=code, **fields)

    def model_failed(self, what: str, error: BaseException, **fields: object) -> None:
        """A model could not be asked: a ModelError is how it says so (WARNING), anything else is a bug in its code."""
        if isinstance(error, ModelError):
            self.note(MODEL, logging.WARNING, f"{what}: {failure_text(error)}", code="model_error", **fields)
        else:
            self.bug(MODEL, what, error, code="model_bug", **fields)

    def traceback(self, error: BaseException) -> str:
        """The traceback of an error, its causes included, without secrets."""
        text = self._redactor.text(traceback_text(error))
        return text if len(text) <= TRACEBACK_LIMIT else f"[...]\n{text[-TRACEBACK_LIMIT:]}"

    def _line(self, text: str) -> str:
        """One line: what an exception says may not look like another line of the log."""
        return self._redactor.text(text).replace("\r", "\\r").replace("\n", "\\n")


def _all(error: BaseException, kind: type[BaseException]) -> bool:
    return all(isinstance(leaf, kind) for leaf in leaves(error))
