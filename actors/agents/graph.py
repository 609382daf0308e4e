"""The agents that a run may be handed over to, as a graph: found, checked, and joined for the engine.

Theory of operation. A handoff names its agent by the object or by the key, so that two agents can name each other. The
graph of an agent is therefore known only where keys have agents: in a runtime. It is found when a run is started or
taken up, checked as a whole, and given to the engine as `AgentSpec.graph`: every agent's spec with what stays with the
first agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

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


def check_outputs(graph: Mapping[str, Agent[object]]) -> None:
    """Check that a run of the first agent ends with an output of a type that the agent's own type names.

    The type of an agent names its output type and, for each handoff, those of the other agent (`Agent[T | U]`); a
    handoff by key adds only its `output_type`.

    Raises:
        AgentDefinitionError: a run may be handed over, by key, to an agent with another output type.
    """
    first = next(iter(graph.values()))
    named_types = tuple(_named_outputs(first))
    for agent in graph.values():
        kind = _output(agent)
        if not all(any(_covers(one, member) for one in named_types) for member in _members(kind)):
            raise AgentDefinitionError(
                f"agent {first.key!r}: its runs may be handed over to agent {agent.key!r}, whose output type"
                f" {_shown(kind)} the type of {first.key!r} does not name, because a handoff names a key; write"
                f" gr.handoff(key, output_type={_shown(kind)}) there, or give the agent itself"
            )


def _named_outputs(first: Agent[object]) -> Iterator[object]:
    """Yield the output types that the type of an agent names."""
    todo, visited_ids = [first], set[int]()
    while todo:
        agent = todo.pop()
        if id(agent) in visited_ids:
            continue
        visited_ids.add(id(agent))
        yield from _members(_output(agent))
        for handoff in agent.handoffs:
            if isinstance(handoff.agent, Agent):
                todo.append(handoff.agent)
            elif handoff.output_type is not None:
                yield from _members(handoff.output_type)


def _output(agent: Agent[object]) -> object:
    return Any if isinstance(agent.output_type, Mapping) else agent.output_type


def _members(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _covers(named_type: object, kind: object) -> bool:
    """Return True if each value of a type is one of another type, as far as classes tell."""
    if named_type in (kind, Any, object):
        return True
    if isinstance(named_type, type) and isinstance(kind, type) and get_origin(kind) is get_origin(named_type) is None:
        return issubclass(kind, named_type)
    return False


def _shown(kind: object) -> str:
    return "object" if kind is Any else kind.__name__ if isinstance(kind, type) else str(kind)


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
