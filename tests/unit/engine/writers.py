"""Writers of state in random lives: what each of them left, and what must have become of it.

Each batch carries a token of its own: an update of a commutative key always, and it is added to some exclusive lists
that the writer has read before. So a write that was lost, made twice, made by halves or overwritten shows in the end.
"""

import operator
import random
from collections import Counter
from typing import Any

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.state import Batch, KeyId, Keys
from greenroom.actors.state.access import WritableState
from greenroom.actors.state.keys import StateKey, commutative
from greenroom.actors.state.snapshot import StateSnapshot

from .world import World


def plus(value: list[str], more: list[str]) -> list[str]:
    return [*value, *more]


def turn(value: int, number: int) -> int:
    """A reducer that fails if another body has written meanwhile."""
    if number != value + 1:
        raise ValueError(f"it is not the turn of {number}")
    return number


LOG = StateKey("log", list[str], default=[], merge=commutative(plus))
BRIEF = StateKey("brief", int, default=0, merge=commutative(operator.add), persistent=False)
TURN = StateKey("turn", int, default=0, merge=commutative(turn))
ALONE = (
    StateKey("x", list[str], default=[]),
    StateKey("y", list[str], default=[]),
    StateKey("z", list[str], default=[], scope="thread"),
)
KEYS: Keys = {key.id: key.spec for key in (LOG, BRIEF, TURN, *ALONE)}


class Writers:
    """Makes the batches of one life, and judges what became of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.left: dict[str, frozenset[KeyId]] = {}

    def write(self, by: str, snapshot: StateSnapshot) -> tuple[str, Batch, Keys]:
        """A writer that has read this snapshot leaves a batch: its token, the batch and the keys in it."""
        token, state = f"{by}/{len(self.left)}", WritableState(snapshot)
        keys = self.rng.sample(ALONE, self.rng.choice((0, 1, 2, 3)))
        for key in keys:
            state.set(key, [*state[key], token])
        state.update(LOG, [token])
        if self.rng.random() < 0.2:
            state.update(BRIEF, 1)
        if self.rng.random() < 0.3:
            state.update(TURN, state[TURN] + 1)
        self.left[token] = frozenset(key.id for key in keys)
        batch = state.batch()
        assert batch is not None
        return token, batch, state.used

    def has(self, world: World, token: str) -> bool:
        """True if what was left with this token is part of the state."""
        return token in _tokens(world.state.snapshot, LOG.id)

    def check(self, world: World) -> None:
        """What must hold in the end."""
        snapshot = world.state.snapshot
        found = {key: _tokens(snapshot, key) for key in KEYS}
        for key, tokens in found.items():
            assert all(number == 1 for number in tokens.values()), f"{key} was written twice with one batch: {tokens}"
        merged = found[LOG.id]
        for token, keys in self.left.items():
            for key in keys:
                assert (token in found[key]) is (token in merged), (
                    f"{token} in {key}: a batch by halves, or overwritten"
                )
        conflicts = Counter(
            e.payload.writer
            for e in world.store.events[1:]
            if isinstance(e.payload, ev.StateConflict) and not e.payload.retried
        )
        for writer, token in _results(world):
            assert (token in merged) is not bool(conflicts[writer]), f"nobody knows what became of {token} of {writer}"


def _tokens(snapshot: StateSnapshot, key: KeyId) -> Counter[str]:
    cell = snapshot.cells.get(key)
    return Counter(cell.value) if cell is not None and isinstance(cell.value, list) else Counter()


def _results(world: World) -> list[tuple[str, str]]:
    """Who has ended with a result that says what it has written, and its token."""
    calls: list[tuple[str, Any]] = [
        (call.call_id, call.result) for call in world.store.calls.values() if call.status is CallStatus.SUCCEEDED
    ]
    payloads = [event.payload for event in world.store.events[1:]]
    tasks = [(p.task_id, p.result) for p in payloads if isinstance(p, ev.TaskFinished) and p.status == "succeeded"]
    return [
        (who, result["wrote"]) for who, result in (*calls, *tasks) if isinstance(result, dict) and "wrote" in result
    ]
