"""Random lives in which bodies, tasks and hooks write to state, and hooks do what plugins can make them do."""

from typing import Any

import attrs

from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.rows import RequestChanges
from greenroom.actors.contract.state import Batch, KeyId, Keys, KeySpec, Write
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp
from greenroom.actors.state.snapshot import Snapshot

from .chaos import TOOLS, Chaos
from .world import Key


def added(value: Any, update: Any) -> Any:
    return value + update


def refused(value: Any, update: Any) -> Any:
    raise ValueError(f"not {update}")


SPECS = (
    KeySpec(key=KeyId("run", "last")),
    KeySpec(key=KeyId("run", "count"), reduce=added),
    KeySpec(key=KeyId("thread", "count"), reduce=added),
    KeySpec(key=KeyId("thread", "topic")),
    KeySpec(key=KeyId("run", "cache"), persistent=False),
    KeySpec(key=KeyId("run", "broken"), reduce=refused),
)
KEYS: Keys = {spec.key: spec for spec in SPECS}
RETRYING = {**TOOLS, "read": attrs.evolve(TOOLS["read"], on_conflict="retry")}
"""A body that may run again, and does if what it wrote clashes."""


class Scribes(Chaos):
    """Plays one run with a seed."""

    def wrote(self, read: Snapshot) -> dict[str, Any]:
        """What somebody who has read a snapshot writes: often nothing."""
        rng = self.rng
        if rng.random() < 0.5:
            return {}
        chosen = [rng.choice(SPECS) for _ in range(rng.randint(1, 2))]
        writes = tuple(self.write(spec, read) for spec in chosen)
        return {"batch": Batch(base=read.revision, writes=writes), "keys": {spec.key: spec for spec in chosen}}

    def write(self, spec: KeySpec, read: Snapshot) -> Write:
        cell, value = read.cells.get(spec.key), self.rng.randrange(9)
        adds = spec.reduce is not None
        result = value + (cell.value if adds and cell is not None else 0)
        return Write(
            name=spec.key.name,
            scope=spec.key.scope,
            persistent=spec.persistent,
            op="update" if adds else "set",
            value=value,
            result=result,
        )

    def body(self, effect: fx.StartCall | fx.StartTask, name: str) -> tuple[inp.Input, bool]:
        message, final = super().body(effect, name)
        if isinstance(message, inp.CallReturned) and not message.large:
            message = attrs.evolve(message, **self.wrote(effect.state))
        return message, final

    def hooks(self, effect: fx.RunPhase) -> inp.PhaseDone:
        rng, done = self.rng, super().hooks(effect)
        done = attrs.evolve(done, revision=effect.state.revision)
        if rng.random() < 0.1:
            done = attrs.evolve(done, ignored=("plugin 'a': oh", "plugin 'b': no")[: rng.randint(1, 2)])
        if effect.phase is not Phase.TOOL_GATE:
            done = attrs.evolve(done, **self.wrote(effect.state))
        elif rng.random() < 0.1:
            done = attrs.evolve(done, overruled=(inp.Overruled(plugin="a", verdict="set_result", by="b"),))
        if effect.phase is Phase.BEFORE_INFERENCE and rng.random() < 0.3:
            done = attrs.evolve(done, request=RequestChanges(exclude=(rng.choice(tuple(TOOLS)),)))
        if effect.phase is Phase.AFTER_INFERENCE:
            done = attrs.evolve(done, edits=tuple(self.edits()))
        return done

    def edits(self) -> Any:
        for call in self.world.state.calls.values():
            match self.rng.choices(("keep", "edit", "drop"), (8, 1, 1))[0]:
                case "edit" if call.status is CallStatus.NEW:
                    yield inp.CallEdit(call_id=call.call_id, by="a", arguments={"n": 5})
                case "drop":
                    yield inp.CallEdit(call_id=call.call_id, by="a", text="not now")

    def hold(self, effect: fx.RunPhase) -> None:
        message = self.hooks(effect)
        wish = attrs.evolve(self.suspend(), reason="external_event")
        self.world.answer(attrs.evolve(message, hold=wish))

    def calmly(self, key: Key) -> None:
        effect = self.world.outstanding[key]
        if isinstance(effect, fx.RunPhase):  # on the state that they were given; else gates would be asked for ever
            done = inp.PhaseDone(phase=effect.phase, step=effect.step, call_id=effect.call_id)
            self.world.answer(attrs.evolve(done, revision=effect.state.revision))
        else:
            super().calmly(key)
