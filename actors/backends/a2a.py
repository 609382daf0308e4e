"""`A2A`: a backend that is an agent on a server of A2A 1.0."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from ..contract.preparation import Preparation
from ..environment import EnvironmentValue, text_of_variable
from ..errors import AgentDefinitionError, PreparationError, UsageError
from ..models.codecs.settings import is_header
from ..tools.context import ToolContext
from ..tools.definition import Tool
from ..tools.preparing import PreparationContext
from .a2a_body import GRACE, RemoteCall, Result
from .a2a_http import A2AConnection, Away, Unusable, is_safe, origin_of, secret_parts
from .a2a_talk import Patience
from .backend import Backend

_SCHEMA = {
    "type": "object",
    "properties": {"prompt": {"type": "string"}},
    "required": ["prompt"],
    "additionalProperties": False,
}


@attrs.frozen(eq=False)
class A2A(Backend):
    """An agent on a server of A2A 1.0, reached over HTTP+JSON or JSON-RPC.

    A thread is one conversation there. A message is sent once: after a crash the task is found again, and a person is
    asked if it cannot be.

    Attributes:
        url: The address of the agent, whose card is at /.well-known/agent-card.json below it, or the address of the
            card (.json).
        name: The name of the tool.
        headers: Sent with each request to the origin of `url`, each value a text or `gr.env(...)`. A runtime masks
            the values in all that people see.
        offline: Seconds for which the server may be gone before the run fails (target_offline); its task goes on.
        idle: Seconds without a sign of life of a server that has taken a message.
        insecure: Plain http to other machines is allowed.

    Raises:
        AgentDefinitionError: a value is invalid; names the value.
    """

    url: str
    name: str = attrs.field(default="a2a", kw_only=True)
    headers: Mapping[str, str | EnvironmentValue] = attrs.field(factory=dict, kw_only=True, repr=False)
    offline: float = attrs.field(default=300.0, kw_only=True)
    idle: float = attrs.field(default=300.0, kw_only=True)
    insecure: bool = attrs.field(default=False, kw_only=True)
    _connection: A2AConnection = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        try:
            origin_of(self.url)
        except (ValueError, TypeError, AttributeError):
            raise self._fault("url", "give an address of http or https, without a password") from None
        if not (self.insecure or is_safe(self.url)):
            raise self._fault("url", "use https, or say insecure=True")
        for option in ("offline", "idle"):
            value = getattr(self, option)
            if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf):
                raise self._fault(option, "give seconds, more than 0")
        for name, value in self.headers.items():
            if not (isinstance(value, EnvironmentValue) or is_header((name, value))):
                raise AgentDefinitionError(f"A2A(headers={{{name!r:.100}: ...}}): give printable ASCII, or gr.env(...)")
        connection = A2AConnection(self.name, self.url, self.headers, insecure=self.insecure)
        object.__setattr__(self, "_connection", connection)

    def _fault(self, option: str, way: str) -> AgentDefinitionError:
        return AgentDefinitionError(f"A2A({option}={getattr(self, option)!r:.200}): {way}")

    def tool(self) -> Tool[..., Any]:
        """Return the tool whose calls are the work."""
        tool = Tool.from_schema(
            self._body,
            schema=_SCHEMA,
            name=self.name,
            description=f"Let {self.name} work on a prompt.",
            effect="delegate",
            replay="safe",
            on_error="raise",
            grace=GRACE,
        )
        return attrs.evolve(tool, secrets=tuple(self._secret_values()))

    def _secret_values(self) -> set[str]:
        """Return the values that no event shows; of a variable that is not set there is none."""
        values = set[str]()
        for name, value in self.headers.items():
            try:
                values.update(secret_parts(name, text_of_variable(value)))
            except UsageError:
                continue
        return values

    async def prepare(self, ctx: PreparationContext[Any]) -> Preparation:
        """Fetch the card, and choose how to speak to the agent.

        Raises:
            PreparationError: there is no card, or no interface in it can be used.
        """
        try:
            return Preparation(facts={self.name: (await self._connection.target()).facts})
        except (Away, Unusable, UsageError) as error:
            raise PreparationError("runtime_unavailable", f"{self.name}: {error}", reason="unreachable") from None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the connections to the server open for later calls."""
        async with self._connection.open():
            yield

    async def _body(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> Result:
        patience = Patience(idle=self.idle, offline=self.offline)
        return await RemoteCall(ctx, self.name, self.url, self._connection, patience).outcome(arguments["prompt"])
