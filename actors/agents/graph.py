"""The agents that a run may be handed over to, as a graph: found, checked, and joined for the engine.

Theory of operation. A handoff names its agent by the object or by the key, so that two agents can name each other. The
graph of an agent is therefore known only where keys have agents: in a runtime. It is found when a run is started or
taken up, checked as a whole, and given to the engine as `AgentSpec.graph`: every agent's spec with what stays with the
first agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from greenroom.supervision.fields import did_you_mean

from ..contract.spec import AgentSpec
from ..contract.state import KeyId
from ..errors import AgentDefinitionError, UnknownAgent
from ..state.keys import StateKey
from .agent import Agent, check_prices

Find = Callable[[Agent[object] | str], Agent[object]]
"""(an agent, or a key) -> the agent. Raises UnknownAgent."""


def graph_of(agent: Agent[object], find: Find) -> Mapping[str, Agent[object]]:
    """Return the agents that a run of this agent may be handed over to, itself first, by key.

    Raises:
        UnknownAgent, UsageError: raised by `find`.
    """
    graph: dict[str, Agent[object]] = {agent.key: agent}
    todo = [agent]
    while todo:
        for handoff in todo.pop(0).handoffs:
            other = find(handoff.agent if isinstance(handoff.agent, str | Agent) else handoff.key)
            if other.key not in graph:
                graph[other.key] = other
                todo.append(other)
    return graph


def secrets_of(agents: Iterable[Agent[object]]) -> Iterator[str]:
    """Yield the secrets of agents' tools and toolsets, and of agents that they start or hand over to by the object."""
    todo, keys = list(agents), set[str]()
    while todo:
        agent = todo.pop()
        if agent.key in keys:
            continue
        keys.add(agent.key)
        for toolset in agent.toolsets:
            yield from toolset.secrets
        for tool in (*agent.tools, *agent.handoffs):
            yield from tool.secrets
            other = getattr(tool, "agent", None)
            todo += [other] if isinstance(other, Agent) else []


def check_graph(graph: Mapping[str, Agent[object]]) -> None:
    """Check that agents which hand a run over to each other agree on their state keys, and have prices if need be.

    Raises:
        AgentDefinitionError: two keys of one scope and name differ in type, merge or persistence, or a model of an
            agent has no price for the budget of the first agent.
    """
    keys: dict[KeyId, tuple[StateKey[Any], str]] = {}
    first = next(iter(graph.values()))
    for agent in graph.values():
        for key in agent.declared_state:
            other, where = keys.setdefault(key.id, (key, agent.key))
            if _form(other) != _form(key):
                text = (
                    f"the state key {str(key.id)!r} of agent {where!r} is another one than that of agent {agent.key!r}"
                )
                raise AgentDefinitionError(
                    f"{text}, and one hands runs over to the other; declare one key, or rename one"
                )
        check_prices(agent, attrs.evolve(agent.spec.policies, budget=first.spec.policies.budget))


def _form(key: StateKey[Any]) -> tuple[object, ...]:
    return key.type, key.merge, key.persistent


def joined_spec(graph: Mapping[str, Agent[object]]) -> AgentSpec:
    """Return the spec of the first agent with those of the graph."""
    first = next(iter(graph.values())).spec
    keys = {key: spec for agent in reversed([*graph.values()]) for key, spec in agent.spec.keys.items()}
    specs: dict[str, AgentSpec] = {}
    for key, agent in graph.items():
        specs[key] = attrs.evolve(agent.spec.within(first, keys), graph=specs)
    return specs[first.key]


def agents_below(agent: Agent[object], find: Find) -> Iterator[Agent[object]]:
    """Yield the agents whose runs may be child runs of a run of this agent, at any depth, each once."""
    todo, visited_keys = [agent], {agent.key}
    yielded_keys: set[str] = set()
    while todo:
        for acting in graph_of(todo.pop(0), find).values():
            for child in acting.children:
                if child.key not in yielded_keys:
                    yielded_keys.add(child.key)
                    yield child
                if child.key not in visited_keys:
                    visited_keys.add(child.key)
                    todo.append(child)


def finder(by_key: Mapping[str, Agent[object]]) -> Find:
    """Return a function that finds agents by object or key, without adding any."""

    def find(agent_or_key: Agent[object] | str) -> Agent[object]:
        agent = agent_or_key if isinstance(agent_or_key, Agent) else by_key.get(agent_or_key)
        if agent is None:
            raise unknown_agent(agent_or_key, by_key)
        return agent

    return find


def unknown_agent(key: object, by_key: Mapping[str, Agent[object]]) -> UnknownAgent:
    """Return the error about a key that no agent has."""
    keys, near = ", ".join(sorted(by_key)) or "none", did_you_mean(key, by_key)
    return UnknownAgent(f"no agent has the key {key!r}; {near}this runtime knows: {keys}")
