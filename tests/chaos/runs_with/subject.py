"""A run of the sweeps with one part of the agent loop in it, and what must hold of that run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from ..stage import World

Named = Callable[[str], bool]
"""Whether a task of this name is meant."""


def exactly(name: str) -> Named:
    return name.__eq__


def beginning(*names: str) -> Named:
    return lambda name: name.startswith(names)


@attrs.frozen
class Subject:
    """What the sweeps strike.

    Attributes:
        world: variant, folder, execution, options of `World` -> a new world.
        check: variant, world -> one sentence per broken promise.
        victims: the actors that crash, by what a test calls them.
        variants: each is a run of its own; sweeps visit all.
        plan: kinds of store, with the mode of execution on each.
        points: how many steps a sweep strikes unless it is a full one.
        cancels: the run is ordered to cancel, too.
    """

    world: Callable[..., World]
    check: Callable[[Any, Any], Iterator[str]]
    victims: Mapping[str, Named]
    variants: Sequence[Any] = (None,)
    plan: Sequence[tuple[str, str]] = (("memory", "parallel_streaming"), ("sqlite", "sequential"))
    points: int = 8
    cancels: bool = True

    def checks(self, variant: Any) -> Callable[[Any], Iterator[str]]:
        return partial(self.check, variant)
