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

from ..contract.preparation import Preparation
from ..tools.definition import Tool
from ..tools.preparing import PreparationContext


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
        property; otherwise the instructions begin the prompt. The result is a text, or a list of a text and
        attachments; if `proposes`, it is an object of `text` and `proposal`, which is null if nothing is changed. A
        failure ends the run (`on_error="raise"`).

        The body finds the images and files of the input with `new_parts(await ctx.messages(), tool_name)`.
        """

    async def prepare(self, ctx: PreparationContext[Any]) -> Preparation | None:
        """Check that the work can be done, once before the first step of a run; the default checks nothing.

        Called again if the process ends meanwhile; see `tool(prepare=...)` for the time limit.

        Raises:
            PreparationError: the work cannot be done now; the run fails with its code, and its text says the way out.
        """
        return None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold what calls share, such as connections; the default holds nothing. As `Model.open`."""
        yield
