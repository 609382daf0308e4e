"""The log of failing code: each failure once, with its traceback, without secrets, under the id that its event carries.

Theory of operation. A failure of user code becomes a code in an event, without its traceback, because events are shown.
The log has the rest, and both carry one id (`contract.ids.error_id`). Texts are redacted before they are cut, so that
no part of a secret survives. A handler that raises harms no run. `docs/logging.md` is the users' page: loggers, levels,
fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import attrs

from greenroom.supervision.exits import leaves
from greenroom.supervision.reporting import report, traceback_text

from ..contract.codec import failure_text
from ..contract.secrets.redaction import Redactor
from ..errors import ModelError, ToolError

TRACEBACK_LIMIT: Final = 65_536
"""Characters kept of a traceback: its end, where the error is.

It is cut after redaction, so that no part of a secret survives.
"""

RUN: Final = logging.getLogger("greenroom.run")
TOOL: Final = logging.getLogger("greenroom.tool")
PLUGIN: Final = logging.getLogger("greenroom.plugin")
MODEL: Final = logging.getLogger("greenroom.model")
DEPS: Final = logging.getLogger("greenroom.deps")


@attrs.frozen(repr=False)
class ErrorLog:
    """The log of one runtime, or of a part of it. Its methods never raise."""

    _redactor: Redactor
    _fields: Mapping[str, Any] = attrs.field(factory=dict)

    def bind(self, **fields: Any) -> ErrorLog:
        """Return this log with fields of every line; None values are left out of a line."""
        return attrs.evolve(self, fields={**self._fields, **fields})

    def bug(self, logger: logging.Logger, what: str, error: BaseException, **fields: Any) -> None:
        """Log an exception that is a bug of the program or of Greenroom: ERROR, with its traceback."""
        if logger.isEnabledFor(logging.ERROR):
            text = what if failure_text(error) in what else f"{what}: {failure_text(error)}"
            report(
                logger, logging.ERROR, self._line(text), traceback=self.traceback(error), **{**self._fields, **fields}
            )

    def note(self, logger: logging.Logger, level: int, what: str, **fields: Any) -> None:
        """Log a message that is not a bug, or that has no traceback."""
        if logger.isEnabledFor(level):
            report(logger, level, self._line(what), **{**self._fields, **fields})

    def fault(
        self,
        logger: logging.Logger,
        what: str,
        error: BaseException | None,
        *,
        level: int = logging.ERROR,
        **fields: Any,
    ) -> None:
        """Log a failure of user code: as a bug if it raised an exception, otherwise as a message of this level."""
        if error is None:
            self.note(logger, level, what, **fields)
        else:
            self.bug(logger, what, error, **fields)

    def tool_failed(self, what: str, error: BaseException, *, code: str, **fields: object) -> None:
        """Log a failed body. `error` is its ToolFailed, whose cause is the exception of the body.

        A ToolError is a deliberate answer: INFO. Invalid arguments are the model's fault: DEBUG.
        """
        cause = error.__cause__
        if (
            code == "tool_error"
            and cause is not None
            and not all(isinstance(leaf, ToolError) for leaf in leaves(cause))
        ):
            self.bug(TOOL, what, cause, code=code, **fields)
        else:
            levels = {"tool_timeout": logging.WARNING, "invalid_arguments": logging.DEBUG}
            self.note(TOOL, levels.get(code, logging.INFO), f"{what}: {error}", code=code, **fields)

    def model_failed(self, what: str, error: BaseException, **fields: object) -> None:
        """Log a failed model request: a ModelError is expected (WARNING), any other exception is a bug of the model."""
        if isinstance(error, ModelError):
            self.note(MODEL, logging.WARNING, f"{what}: {failure_text(error)}", code="model_error", **fields)
        else:
            self.bug(MODEL, what, error, code="model_bug", **fields)

    def traceback(self, error: BaseException) -> str:
        """Return the redacted traceback of an error, including its causes."""
        text = self._redactor.text(traceback_text(error))
        return text if len(text) <= TRACEBACK_LIMIT else f"[...]\n{text[-TRACEBACK_LIMIT:]}"

    def _line(self, text: str) -> str:
        """Return the text as one redacted line, so that an exception's text cannot imitate another log line."""
        return self._redactor.text(text).replace("\r", "\\r").replace("\n", "\\n")
