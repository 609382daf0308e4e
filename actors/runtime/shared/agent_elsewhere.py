"""An agent that other processes have: as much of it as a start and a judge need, in the text that processes publish.

Theory of operation. A run is created with its agent's key, digest and execution mode, and a decision that brings
arguments is judged by the tools of the run's active agent. A process without the agent has no `Agent`, so each process
publishes these facts with its agents (`Claims.publish`): the digest, and behind a blank a JSON object. Several releases
of an agent may live side by side: what one of them takes is taken, because its process, too, may work on the run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs
import msgspec
import trio
from cattrs import BaseValidationError

from ...abc import Store
from ...agents.agent import Agent
from ...contract.converters import converter
from ...contract.decisions import Ticket
from ...contract.ids import fingerprint
from ...contract.json_schema.faults import schema_fault
from ...contract.plain import JSONObject
from ...contract.spec import AgentSpec, Execution, execution_data

FRESH: Final = 3.0
"""Seconds for which published definitions count as fresh: a decision that older ones refuse is judged again, after a
second read."""
LARGEST: Final = 256 * 1024
"""Bytes of the schemas that are published of one agent; only the process that works on the run checks the others."""

_DEFAULT = AgentSpec(key="").execution


def published(agent: Agent[object]) -> str:
    """Return the text that a process publishes about an agent."""
    facts: dict[str, Any] = {}
    if agent.execution != _DEFAULT:
        facts["execution"] = execution_data(agent.execution)
    if agent.spec.on_new_input != "queue":
        facts["onNewInput"] = agent.spec.on_new_input
    tools, size = dict[str, list[Any]](), 0
    own_tools = [tool for tool in map(agent.tool, agent.spec.tools) if tool is not None]
    for tool in sorted(own_tools, key=lambda one: (len(msgspec.json.encode(one.schema)), one.name)):
        size += len(msgspec.json.encode(tool.schema))
        tools[tool.name] = [agent.spec.definition(tool.name, ""), tool.schema if size <= LARGEST else None]
    if tools:
        facts["tools"] = tools
    if agent.toolsets:
        facts["offers"] = True
    return f"{agent.spec.digest} {msgspec.json.encode(facts).decode()}" if facts else agent.spec.digest


@attrs.frozen(kw_only=True)
class PublishedTool:
    """A tool of an agent that another process has.

    Attributes:
        definition: digest of its definition.
        schema: JSON Schema of its arguments; None: it is too large to be published.
    """

    definition: str
    schema: JSONObject | None

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        fault = None if self.schema is None else schema_fault(self.schema, arguments)
        return None if fault is None else f"Invalid arguments: {fault}."


@attrs.frozen(kw_only=True)
class PublishedAgent:
    """An agent that another process has; of a newer release's text, what this release can read.

    Attributes:
        offers: it has toolsets, so that it may also have tools of any other name.
    """

    key: str
    digest: str
    execution: Execution = _DEFAULT
    on_new_input: str = "queue"
    tools: Mapping[str, PublishedTool] = attrs.field(factory=dict)
    offers: bool = False

    @classmethod
    def read(cls, key: str, text: str) -> PublishedAgent:
        """Read an agent as another process published it."""
        digest, _, rest = text.partition(" ")
        facts: Any = {}
        with suppress(msgspec.DecodeError):
            facts = msgspec.json.decode(rest) if rest else {}
        if not isinstance(facts, dict):
            facts = {}
        execution: Execution = _DEFAULT
        with suppress(BaseValidationError, LookupError, ValueError, TypeError):
            execution = converter.structure(facts["execution"], Execution)  # type: ignore[arg-type]
        tools = dict[str, PublishedTool]()
        with suppress(AttributeError, ValueError, TypeError):
            for name, (definition, schema) in facts.get("tools", {}).items():
                tools[name] = PublishedTool(definition=definition, schema=schema)
        return cls(
            key=key,
            digest=digest,
            execution=execution,
            on_new_input=str(facts.get("onNewInput", "queue")),
            tools=tools,
            offers=facts.get("offers") is True,
        )

    @property
    def spec(self) -> AgentSpec:
        """Key, digest and execution mode, for a start."""
        return AgentSpec(key=self.key, digest=self.digest, execution=self.execution)


Published = Mapping[str, Sequence[PublishedAgent]]
"""By key the agents of all live processes, each in all its releases."""


def is_action(ticket: Ticket, agent: str, definition: str) -> bool:
    """Return whether a ticket shows the action of this agent with the ticket's tool in this definition."""
    with_definition = fingerprint(agent, ticket.tool, ticket.arguments, definition)
    # a call of an older release, whose definition is unknown
    return ticket.fingerprint in (with_definition, fingerprint(agent, ticket.tool, ticket.arguments))


def tools_of_mirror(agents: Published, ticket: Ticket) -> tuple[Collection[PublishedTool], Collection[PublishedTool]]:
    """Return the tools that a child run's ticket may be about: those of its fingerprint, and all of its name."""
    same_name = [
        (agent.key, agent.tools[ticket.tool])
        for releases in agents.values()
        for agent in releases
        if ticket.tool in agent.tools
    ]
    return [tool for key, tool in same_name if is_action(ticket, key, tool.definition)], [tool for _, tool in same_name]


class AgentsElsewhere(Protocol):
    """The agents of other processes."""

    @property
    def known(self) -> Published:
        """The agents as they were read last."""

    @property
    def fresh(self) -> Published | None:
        """The agents as they were read a moment ago; None if that is too long ago."""

    async def read(self) -> Published:
        """Read the present publications of the processes.

        Raises:
            StoreUnavailable, StoreDown: the store does not answer.
        """

    async def places(self) -> Mapping[str, Sequence[str]]:
        """Read the workspaces of all live processes: name -> places, in a fixed order. Raises as `read`."""

    async def find(self, key: str) -> AgentSpec | None:
        """Read the facts of one agent that a start needs; None if no live process has the agent. Raises as `read`."""


class NoAgents:
    """The publications of a store that no other process has open (`AgentsElsewhere`)."""

    known: Published = MappingProxyType({})
    fresh = known

    async def read(self) -> Published:
        """Return nothing."""
        return self.known

    async def places(self) -> Mapping[str, Sequence[str]]:
        """Return nothing."""
        return MappingProxyType({})

    async def find(self, key: str) -> AgentSpec | None:
        """Return None."""
        return None


@attrs.define(eq=False)
class PublishedAgents:
    """The agents that the processes of a shared store publish, read on demand, and kept for a moment."""

    _store: Store
    known: Published = attrs.field(init=False, factory=dict)
    _good_until: float = attrs.field(init=False, default=-math.inf)

    @property
    def fresh(self) -> Published | None:
        """See `AgentsElsewhere.fresh`."""
        return self.known if trio.current_time() < self._good_until else None

    async def read(self) -> Published:
        """See `AgentsElsewhere.read`."""
        texts = await self._store.agents()
        self.known = {key: [PublishedAgent.read(key, text) for text in sorted(group)] for key, group in texts.items()}
        self._good_until = trio.current_time() + FRESH
        return self.known

    async def places(self) -> Mapping[str, Sequence[str]]:
        """See `AgentsElsewhere.places`."""
        places = dict[str, set[str]]()
        for process in await self._store.processes():
            for name, place in () if process.dead else process.places.items():
                places.setdefault(name, set()).add(place)
        return {name: sorted(group) for name, group in places.items()}

    async def find(self, key: str) -> AgentSpec | None:
        """See `AgentsElsewhere.find`. Of several releases of the agent, the same one each time."""
        texts = (await self._store.agents()).get(key)
        return PublishedAgent.read(key, min(texts)).spec if texts else None
