"""`Agents`: the agents of a runtime, and the models and dependencies of their runs.

Theory of operation. A stored run names its agent by key and carries no code, so each owner looks agent, model and deps
up again when it takes the run up. If one is missing, the run is left unchanged and counts as degraded here
(`RunUnavailable`); another process may have it. A deps provider that raises LookupError has no deps for the run; any
other failure may be temporary, so the provider is called again later.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from greenroom.supervision import Raised, capture, failure_of

from ..abc import Model, Surroundings
from ..agents.agent import Agent
from ..agents.graph import agents_below, check_graph, check_outputs, graph_of, joined_spec, unknown_agent
from ..contract.codec import failure_text, message_of
from ..contract.ids import error_id
from ..contract.rows import RunInfo
from ..contract.secrets.redaction import Redactor
from ..contract.spec import AgentSpec
from ..errors import AgentDefinitionError, UnknownAgent, UsageError
from ..host_loop import HOST_LOOP, no_host
from ..plugins.policies import fallbacks_of
from ..state.keys import StateKey
from .error_log import DEPS, ErrorLog

DepsProvider = Callable[[RunInfo], Any]
"""(RunInfo) -> deps, sync or async. Called at each activation of a run without live deps.

A provider that raises leaves the run unchanged and degraded (deps_missing). LookupError means that there are no deps:
the run waits for a command, for `resume`, or for the next start. Any other exception may be temporary: the provider is
called again, with back-off from one second to one minute.
"""

MISFIT: Final = "state_mismatch"
"""Degraded code of a run whose stored state keys differ from the agent's declarations."""

OFFLINE: Final = "target_offline"
"""Degraded code of a run whose workspace is at a place that is not here, or that no live process has."""

NO_PROVIDER: Final = "it was started with deps of its own and the runtime has no provider"


class RunUnavailable(Exception):
    """A run cannot be worked on now.

    Attributes:
        reason: deps_missing, agent_unknown, target_offline or state_mismatch.
        passing: trying again may help without any action here.
    """

    def __init__(self, reason: str, detail: str, *, passing: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.passing = passing


def _check_loops(agents: Iterable[Agent[object]]) -> None:
    """Check that the tools of agents can run in this program.

    Raises:
        AgentDefinitionError: a tool runs on asyncio, and the runtime has no host on asyncio.
    """
    for agent in agents:
        for tool in agent.tools:
            if tool.loop == "asyncio" and HOST_LOOP.get() is None:
                raise no_host(f"the tool {tool.name!r} of agent {agent.key!r}")


@attrs.frozen(eq=False)
class Override:
    """A model in place of those of some agents, or of all (None); see `Runtime.override`."""

    model: Model | str
    agents: frozenset[str] | None


@attrs.define(eq=False, repr=False)
class Agents:
    """The agents of one runtime by key, with the deps and the surroundings given to `open_runtime`.

    Attributes:
        by_key: the agents; `find` adds those that a start brings along.
        surroundings: the workspaces of this process; None: `start(workspace=)` takes any text.
        places: their names, each with its place.
        overrides: The overrides in effect, the newest last.
        failing: runs for which the provider of deps failed the last time, which was logged.
    """

    by_key: dict[str, Agent[object]]
    _deps: Any
    _redactor: Redactor
    _log: ErrorLog
    _model_by_name: Callable[[str], Model]
    surroundings: Surroundings | None = None
    places: Mapping[str, str] = attrs.field(factory=dict)
    overrides: list[Override] = attrs.field(init=False, factory=list)
    failing: set[str] = attrs.field(init=False, factory=set)
    _graphs: dict[str, Mapping[str, Agent[object]]] = attrs.field(init=False, factory=dict)
    _joined_specs: dict[str, AgentSpec] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._add(tuple(other for agent in self.by_key.values() for other in agent.reached))
        _check_loops(self.by_key.values())

    def __repr__(self) -> str:
        return f"<Agents {', '.join(sorted(self.by_key)) or 'none'}>"

    def get(self, key: str) -> Agent[object] | None:
        """Return the agent with this key, or None."""
        return self.by_key.get(key)

    def find(self, agent_or_key: Agent[object] | str) -> Agent[object]:
        """Return the agent that a caller named or handed in. An agent with a new key is added.

        Raises:
            UnknownAgent: no agent has this key.
            UsageError: another agent has the key of the given one.
        """
        if isinstance(agent_or_key, Agent):
            if self.by_key.get(agent_or_key.key) is not agent_or_key:
                self._add((agent_or_key,))
            return agent_or_key
        agent = self.by_key.get(agent_or_key) if isinstance(agent_or_key, str) else None
        if agent is None:
            raise unknown_agent(agent_or_key, self.by_key)
        return agent

    def _add(self, agents: tuple[Agent[object], ...]) -> None:
        """Add agents, and those that their runs may reach, each once: agents that share others are not a tree.

        Raises:
            UsageError: two agents have one key; none is added then.
            AgentDefinitionError: a tool runs on asyncio, and the runtime has no host on asyncio; none is added then.
        """
        new: dict[str, Agent[object]] = {}
        todo, seen_ids = [*reversed(agents)], set[int]()
        while todo:
            agent = todo.pop()
            other = self.by_key.get(agent.key) or new.setdefault(agent.key, agent)
            if other.spec.digest != agent.spec.digest:
                raise UsageError(f"another agent has the key {agent.key!r} in this runtime; keys must be unique")
            if id(agent) not in seen_ids:
                seen_ids.add(id(agent))
                todo += reversed(agent.reached)
        _check_loops(new.values())
        self.by_key |= new

    def graph(self, agent: Agent[object]) -> Mapping[str, Agent[object]]:
        """Return the agents that a run of this agent may be handed over to, itself first, by key.

        Raises:
            UnknownAgent, UsageError: as `find`, about an agent of a handoff.
        """
        if not agent.handoffs:
            return {agent.key: agent}
        graph = self._graphs.get(agent.key)
        if graph is None:
            graph = self._graphs[agent.key] = graph_of(agent, self.find)
        return graph

    def declared_state(self, agent: Agent[object]) -> Iterable[StateKey[Any]]:
        """Return the state keys that an agent declares, and those that its runs may be handed over to."""
        if not agent.handoffs:
            return agent.declared_state
        return [key for one in self.graph(agent).values() for key in one.declared_state]

    def spec_of(self, agent: Agent[object]) -> AgentSpec:
        """Return the agent as the engine sees it, with the agents that its runs may be handed over to.

        Raises:
            UnknownAgent, UsageError: as `graph`.
            AgentDefinitionError: the agents of the graph do not fit together.
        """
        if not agent.handoffs:
            return agent.spec
        spec = self._joined_specs.get(agent.key)
        if spec is None:
            graph = self.graph(agent)
            check_graph(graph)
            check_outputs(graph)
            spec = self._joined_specs[agent.key] = joined_spec(graph)
        return spec

    def acting(self, agent: Agent[object], key: str | None) -> Agent[object]:
        """Return the active agent of a run of `agent`. `key`: as in the run's row.

        Raises:
            UnknownAgent: the agents that the run may be handed over to have no such key.
        """
        if key is None or key == agent.key:
            return agent
        graph = self.graph(agent)
        if key not in graph:
            raise unknown_agent(key, graph)
        return graph[key]

    def present(self, agent: Agent[object] | None, key: str | None) -> Agent[object] | None:
        """Return the active agent as `acting` does; None if it is not here."""
        try:
            return None if agent is None else self.acting(agent, key)
        except UnknownAgent:
            return None

    def below(self, agent: Agent[object]) -> Iterator[Agent[object]]:
        """Yield the agents whose runs may be child runs of a run of this agent, at any depth."""
        return agents_below(agent, self.find)

    def startable(self, agent_or_key: Agent[object] | str) -> Agent[object]:
        """Return an agent as `find` does, and check that it has a model that can be asked with its settings.

        Raises:
            UnknownAgent, UsageError: as `find`; also about an agent of a handoff.
            AgentDefinitionError: the agent, or one that works for it, has no model, or the model refuses the settings;
                or agents that hand runs over to each other do not fit together.
        """
        before = frozenset(self.by_key)
        agent = self.find(agent_or_key)
        try:
            self._check(agent)
            if agent.handoffs or agent.children:
                self.spec_of(agent)
                for other in self.graph(agent).values():
                    self._check(other)
                for child in self.below(agent):
                    self.spec_of(child)
                    self._check(child)
        except BaseException:  # whatever it is, it is raised again
            for key in self.by_key.keys() - before:  # the key is free for the agent that is made right
                del self.by_key[key]
            self._graphs.clear()  # both are caches, and may hold agents that are not known any more
            self._joined_specs.clear()
            raise
        return agent

    def _check(self, agent: Agent[object]) -> None:
        for number in range(1 + len(fallbacks_of(agent.plugins))):
            model = self.model_for(agent, number)
            if type(model).check is Model.check:  # most models take any settings
                continue
            fault = capture(model.check, agent.settings)
            if isinstance(fault, Raised):
                why = failure_text(fault.error)
                text = f"agent {agent.key!r}: model {model.name!r} could not check its settings: {why}"
                raise AgentDefinitionError(text) from fault.error
            if fault.value is not None:
                raise AgentDefinitionError(f"agent {agent.key!r}: {fault.value}")

    def model_for(self, agent: Agent[object], fallback: int = 0, chosen: Model | str | None = None) -> Model:
        """Return the model of a request: the newest override, else the chosen one, else the agent's own.

        Args:
            agent: The agent that asks.
            fallback: number of a fallback of the agent, from 1; 0: its model.
            chosen: The model that a hook chose for this request.

        Raises:
            AgentDefinitionError: the agent has none, or no provider makes a model of this name.
        """
        model = agent.model if not fallback else fallbacks_of(agent.plugins)[fallback - 1]
        if chosen is not None:
            model = chosen
        for override in self.overrides:  # the newest one last
            if override.agents is None or agent.key in override.agents:
                model = override.model
        if isinstance(model, str):
            return self._model_by_name(model)
        if model is None:
            raise AgentDefinitionError(f"agent {agent.key!r} has no model; give it one: Agent(..., model=...)")
        return model

    def agent_for(self, info: RunInfo, active: str | None = None) -> Agent[object]:
        """Return the agent of a run that is taken up.

        Args:
            info: The facts of the run.
            active: key of the active agent, if the run was handed over.

        Raises:
            RunUnavailable: no agent has the key, or the agent has no model that can be asked; or the same is true of
                the active agent; or an agent that the run may be handed over to is not here.
        """
        agent = self.by_key.get(info.agent)
        if agent is None:
            raise RunUnavailable("agent_unknown", f"no agent has the key {info.agent!r}")
        try:
            self._check(agent)
            self.spec_of(agent)
            if active is not None:
                self._check(self.acting(agent, active))
        except (AgentDefinitionError, UnknownAgent, UsageError) as error:
            raise RunUnavailable("agent_unknown", str(error)) from error
        return agent

    def has_place(self, info: RunInfo) -> bool:
        """Return True if a run may work here: it has no place, or its place is here."""
        return info.place is None or info.place in self.places.values()

    def check_place(self, info: RunInfo) -> None:
        """Check that a run may work here.

        Raises:
            RunUnavailable: the place of its workspace is not here.
        """
        if not self.has_place(info):
            raise RunUnavailable(OFFLINE, offline(info))

    @property
    def has_provider(self) -> bool:
        """True if the deps come from a provider, which is called for each run (`ask_deps`)."""
        return callable(self._deps)

    @property
    def has_deps(self) -> bool:
        """True if runs that were started with separate deps get deps: from a value for all runs, or a provider."""
        return self._deps is not None

    def own_deps(self, info: RunInfo) -> Any:
        """Return the runtime's deps for a run without live ones; for a runtime without a provider.

        Raises:
            RunUnavailable: the run was started with its own deps, and the runtime has none.
        """
        if info.has_deps and self._deps is None:
            raise RunUnavailable("deps_missing", NO_PROVIDER)
        return self._deps

    async def ask_deps(self, info: RunInfo) -> Any:
        """Return the provider's deps for a run without live ones.

        Raises:
            RunUnavailable: the provider has none; `passing` if the provider failed and will be called again.
        """
        try:
            deps = self._deps(info)
            if inspect.isawaitable(deps):
                deps = await deps
        except LookupError as error:
            raise RunUnavailable(
                "deps_missing", self._redactor.text(f"the provider has none: {message_of(error)}")
            ) from error
        except BaseException as error:  # noqa: BLE001 - user code; the failure may be temporary
            failure = failure_of(error)
            name, what = error_id(info.run_id, "deps"), f"the deps provider failed for run {info.run_id}"
            fields = {"error_id": name, "code": "deps_missing", "run_id": info.run_id, "agent": info.agent}
            if info.run_id in self.failing:  # logged with its traceback before
                self._log.note(DEPS, logging.WARNING, f"{what} again: {failure_text(failure)}", **fields)
            else:
                self.failing.add(info.run_id)
                self._log.bug(DEPS, what, failure, **fields)
            report = f"the provider failed, and is asked again: {failure_text(failure)} (error_id {name})"
            text = self._redactor.text(report)
            raise RunUnavailable("deps_missing", text, passing=True) from failure  # noqa: ASYNC104 - the border has raised what passes
        self.failing.discard(info.run_id)
        return deps

    def can_revive(self, info: RunInfo) -> bool:
        """Return True if agent and deps can be had again once the run has left memory."""
        return info.agent in self.by_key and (not info.has_deps or callable(self._deps))

    def missing_requirement(self, info: RunInfo, *, has_agent: bool, has_deps: bool) -> tuple[str, str] | None:
        """Return the requirement of a run that is missing here and that its owner lacks (code, sentence), or None.

        A provider counts as having deps: it is called only when the run is woken.
        """
        if not has_agent and info.agent not in self.by_key:
            return "agent_unknown", f"no agent has the key {info.agent!r}"
        if not self.has_place(info):
            return OFFLINE, offline(info)
        available = has_deps or self.has_deps
        return ("deps_missing", NO_PROVIDER) if info.has_deps and not available else None


def offline(info: RunInfo) -> str:
    """Return why a run is not worked on where its place is not."""
    return f"the place of its workspace {info.workspace!r:.100} is not here; open a runtime with it where it is"
