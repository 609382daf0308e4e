"""The port to what does the work of a call elsewhere: a program on this machine, or an agent on another one.

Theory of operation. A backend agent is an ordinary agent. Its model, the driver, calls the backend's tool with what
people have sent, and the result of the tool is the agent's answer. So threads, output types, guardrails, budgets,
handoffs, agents as tools, queues and replay need nothing of a backend.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from ..tools.definition import Tool


class Backend(abc.ABC):
    """Does the work of calls elsewhere.

    Attributes:
        name: Names the tool, the model of the agent and messages: `^[a-zA-Z0-9_-]{1,64}$`.
    """

    name: str
    proposes: ClassVar[bool] = False
    """The results of the tool are objects, with the id of a proposal that apply_changes can apply."""

    @abc.abstractmethod
    def tool(self) -> Tool[..., Any]:
        """Return the tool whose calls are the work; an agent takes it once, when it is made.

        The arguments are `{"prompt": str}`, and `{"instructions": str}` besides if the schema of the tool has that
        property; otherwise the instructions begin the prompt. The result is a text; if `proposes`, it is an object of
        `text` and `proposal`, which is null if nothing is changed. A failure ends the run (`on_error="raise"`). What
        has to hold before a run works is the tool's `prepare`.
        """

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold what calls share, such as connections; the default holds nothing. As `Model.open`."""
        yield
