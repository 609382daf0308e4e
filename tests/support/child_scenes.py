"""Scenes with a child run: its agent, acts on it, and what it came to, as people outside can see it."""

from typing import Any

import attrs

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.ids import child_run_id
from greenroom.actors.contract.rows import RunRecord
from greenroom.testing import ScriptedModel, call

from .promises import broken_history, broken_promises
from .scene_tools import TOOLS
from .scenes import RUN, Act, Scene

K = call("expert", input="do it", id="K")
CHILD = child_run_id(RUN, "K")
"""The child run of every scene."""


def expert(*script: Any, key: str = "expert", **options: Any) -> gr.Agent[Any]:
    """An agent that works in child runs, with the whole cast as its tools."""
    return gr.Agent(key, model=ScriptedModel(list(script)), description="Knows.", **{"tools": TOOLS, **options})


def with_expert(*script: Any, tool: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """The cast, and the expert as a tool."""
    return [*TOOLS, expert(*script, **options).as_tool(**(tool or {}))]


def in_child(target: str, action: Any = "resume", run_id: str = CHILD, **options: Any) -> Act:
    """A decision about a ticket or a call of the child run itself."""

    async def act(scene: Scene) -> None:
        child = await scene.runtime.get(run_id)
        scene.note(await child.decide(target, action, **{"by": "eve", **options}))

    return act


@attrs.define(eq=False)
class ChildLife:
    """What a child run came to; filled by `look`, an act of the scene."""

    events: tuple[gr.Event, ...] = ()
    record: RunRecord | None = None
    view: gr.RunView | None = None
    state: dict[str, Any] = attrs.field(factory=dict)

    def look(self, run_id: str = CHILD) -> Act:
        """Look at the child run now, and check what every life has to keep."""

        async def act(scene: Scene) -> None:
            store = scene.runtime.store
            frames = tuple(await store.events(run_id, limit=100_000))
            record = await store.load(run_id, calls="all")
            assert record is not None
            broken = list(broken_promises(frames, record, scene.play.shelf.log))
            broken += list(broken_history(await store.messages(record.info.thread_id), "the child's thread"))
            assert not broken, broken
            assert (await scene.runtime.replay(run_id)).equal
            self.record, self.events = record, tuple(decode_event(frame) for frame in frames)
            self.view = await (await scene.runtime.get(run_id)).view()

        return act

    @property
    def stage(self) -> str:
        """The stage of the child run."""
        assert self.record is not None
        return self.record.row.stage.value

    def payloads(self, *names: str) -> list[Any]:
        """The payloads of the events of these types."""
        return [event.payload for event in self.events if event.type.removeprefix("run.") in names]


@attrs.define(eq=False)
class Spy:
    """Keeps the result of an act: the value that a function of the scene returns."""

    found: list[Any] = attrs.field(factory=list)

    def see(self, ask: Any) -> Act:
        """An act that keeps what `ask(scene)` returns."""

        async def act(scene: Scene) -> None:
            self.found.append(await ask(scene))

        return act
