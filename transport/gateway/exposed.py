"""Which agents a gateway offers over A2A, and who may read their cards: the options of `serve`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, get_args

import attrs

from greenroom.actors.errors import UsageError
from greenroom.actors.options import unknown_value

Cards = Literal["private", "public"]
CARDS: Final[tuple[str, ...]] = get_args(Cards)


@attrs.frozen(kw_only=True)
class A2AOptions:
    """The agents that a gateway offers over A2A.

    Attributes:
        agents: Keys of agents; None offers all.
        default: The agent whose card is at the root; None: the only one.
        cards: "public" shows cards without a token.
    """

    agents: frozenset[str] | None = None
    default: str | None = None
    cards: Cards = "private"

    def offers(self, key: str) -> bool:
        """Return True if an agent is offered."""
        return self.agents is None or key in self.agents

    def root(self, known: Iterable[str]) -> str | None:
        """Return the agent whose card is at the root; None if there is not exactly one and none was named.

        Args:
            known: The keys of the agents of this process, and of the others on its store.
        """
        if self.default is not None:
            return self.default
        offered = [key for key in known if self.offers(key)]
        return offered[0] if len(offered) == 1 else None


def a2a_options(agents: Iterable[str] | None, default: str | None, cards: Cards, known: Collection[str]) -> A2AOptions:
    """Return the options of `serve`, checked.

    Args:
        agents: Keys of agents; None offers all.
        default: The agent whose card is at the root.
        cards: "private" or "public".
        known: The keys of the agents of this process, and of the others on its store.

    Raises:
        UsageError: a name is not one of an agent, or `cards` is unknown.
    """
    if isinstance(agents, str) or (agents is not None and not isinstance(agents, Iterable)):
        raise UsageError(f"a2a={agents!r:.100}: give the keys of agents, such as ('support',), or None for all")
    keys = None if agents is None else tuple(agents)
    for option, key in [*(("a2a", key) for key in keys or ()), *([("a2a_default", default)] if default else [])]:
        if not isinstance(key, str) or key not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{option}: no agent has the key {key!r:.100}; there are {names}")
    if cards not in CARDS:
        raise unknown_value("a2a_cards", cards, CARDS)
    options = A2AOptions(agents=None if keys is None else frozenset(keys), default=default, cards=cards)
    if default is not None and not options.offers(default):
        raise UsageError(f"a2a_default={default!r} is not offered; add it to a2a={sorted(options.agents or ())}")
    return options
