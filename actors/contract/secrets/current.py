"""The redactor of the runtime in whose task code runs, for code that logs and knows no runtime."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from .redaction import Redactor

REDACTOR: Final[ContextVar[Redactor]] = ContextVar("greenroom.redactor")
"""Set in the tasks in which a runtime holds models and toolsets open, and in all tasks that these start."""
