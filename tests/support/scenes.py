"""A life of a run as a scene: what the model says, what people do meanwhile, and what it came to.

    life = await play([call("pay", id="A"), call("look", id="C")], "done", do=[approve("A")])
    assert life.path == "running waiting applying running completed"
    assert life.calls == {"A": "new suspended resuming running succeeded", "C": "new running succeeded"}
    assert life.tool_texts == {"A": "paid 1", "C": "saw C"}

An act waits until the run is at rest; `after(seconds, act)` comes so many virtual seconds after the act before it,
whatever the run does then. What every life has to keep, whatever its scene is about, is in `promises.py`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import trio
from trio.testing import MockClock

import greenroom as gr
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.commits import Commit
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.lifecycle import STATUS, Stage
from greenroom.actors.contract.rows import RunRecord
from greenroom.actors.services.clock import Clock
from greenroom.actors.services.wakeup_timer import SPREAD
from greenroom.actors.stores.postgres._hints import IDLE_FLUSH
from greenroom.testing import ScriptedModel, delay

from .paced_clock import About, PacedClock, wait
from .promises import broken_history, broken_promises
from .recording_stores import WatchedShelf
from .runs import home
from .scene_tools import TOOLS, Outside

RUN, THREAD = "r", "t"
OWN = gr.ExecutionMode(bodies=8, suspended_blocks=False, batch=False, merges="together")
"""A mode of the program's own: of the scenes' few calls as many at once as there are."""
BIRTHDAY = datetime(2031, 5, 1, 12, tzinfo=UTC)
"""When every scene begins: one clock lasts over all processes of a scene."""
MILLISECONDS = 0.005
"""Seconds by which a few moments of whole milliseconds differ from the times of their timers."""
SETTLING = 60.0
"""Virtual seconds after the last act, for a run that rests already: what should not come has time to come."""


# --- acts ------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Scene:
    """What an act can reach.

    Attributes:
        replies: to all commands, in order: "accepted", "accepted early", "duplicate", "rejected run_done", ...
        details: the sentences that came with them.
        outside: the world.
        others: further runs of the scene, by the key of their agent. crew: their agents.
        forged: the scene has written rows itself, of which the events do not know.
        downs: The number of processes that have ended before the present one.
    """

    play: "Play"
    agent: gr.Agent[Any]
    outside: Outside = attrs.field(factory=Outside)
    replies: list[str] = attrs.field(factory=list)
    details: list[str | None] = attrs.field(factory=list)
    others: dict[str, gr.Run[Any]] = attrs.field(factory=dict)
    crew: dict[str, gr.Agent[Any]] = attrs.field(factory=dict)
    forged: bool = False
    downs: int = 0
    runtime: gr.Runtime = attrs.field(init=False)
    run: gr.Run[Any] = attrs.field(init=False)

    def note(self, answer: gr.CommandResult) -> None:
        """Keep an answer."""
        self.replies.append(f"{answer.status} {answer.code or ''}".strip())
        self.details.append(answer.detail)

    async def ticket(self, call_id: str) -> gr.Ticket:
        """The open ticket of a call."""
        tickets = {ticket.call_id: ticket for ticket in (await self.run.view()).tickets}
        assert call_id in tickets, f"{call_id} has no open ticket, but {sorted(map(str, tickets))} have"
        return tickets[call_id]


Act = Callable[[Scene], Awaitable[None]]


@attrs.frozen
class After:
    """An act that does not wait for the run to rest."""

    seconds: float
    act: Act


def after(seconds: float, act: Act) -> After:
    """So many virtual seconds after the act before it, whatever the run does then."""
    return After(seconds, act)


def approve(call_id: str, result: Any = None, **more: Any) -> Act:
    """The open ticket of the call is approved: exactly its action, by its fingerprint."""

    async def act(scene: Scene) -> None:
        decision = (await scene.ticket(call_id)).approve(result, by="ada")
        scene.note(await scene.run.decide(attrs.evolve(decision, **more)))

    return act


def deny(call_id: str, reason: str | None = None, by: str = "ada") -> Act:
    """The open ticket of the call is denied."""

    async def act(scene: Scene) -> None:
        scene.note(await scene.run.decide((await scene.ticket(call_id)).deny(reason, by=by)))

    return act


def decide(target: str, action: Any = "resume", **options: Any) -> Act:
    """Any decision, by ticket id or call id. The first ticket of a scene is "r.t1"."""

    async def act(scene: Scene) -> None:
        if "fingerprint" in options:
            values = {"decided_by": options.get("by", "ada"), **options}
            values.pop("by", None)
            scene.note(await scene.run.decide(gr.Decision(target=target, action=action, **values)))
        else:
            scene.note(await scene.run.decide(target, action, **{"by": "ada", **options}))

    return act


def send(text: str, **options: Any) -> Act:
    """New input."""

    async def act(scene: Scene) -> None:
        scene.note(await scene.run.send(text, **{"by": "ada", **options}))

    return act


def cancel(**options: Any) -> Act:
    """The run is cancelled."""

    async def act(scene: Scene) -> None:
        scene.note(await scene.run.cancel(**{"by": "ada", **options}))

    return act


def pause_run(**options: Any) -> Act:
    """The run is to be held."""

    async def act(scene: Scene) -> None:
        scene.note(await scene.run.pause(**{"by": "ada", **options}))

    return act


@attrs.frozen
class Down:
    """The process ends, in the middle of whatever it does, and another one begins so many virtual seconds later."""

    seconds: float = 0.0

    async def __call__(self, scene: Scene) -> None:
        """Between two processes no process is there to act."""
        await wait(self.seconds)


restart = Down()


def another(*script: Any, key: str = "next", **options: Any) -> Act:
    """Another run is started, by default in the same thread."""

    async def act(scene: Scene) -> None:
        agent = scene.crew[key] = scene.play.agent(*script, key=key)
        where = {"run_id": key, "thread_id": THREAD, "execution": scene.play.mode, **options}
        scene.others[key] = await scene.runtime.start(agent, f"{key}?", **where)

    return act


def pause(seconds: float) -> Act:
    """Time goes by."""

    async def act(scene: Scene) -> None:
        await wait(seconds)

    return act


# --- playing ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Play:
    """Plays scenes on one kind of store, in one mode of execution.

    Attributes:
        runtime: options for every runtime that is opened. store: for every store.
    """

    shelf: WatchedShelf
    mode: Any
    runtime: dict[str, Any] = attrs.field(factory=dict)
    store: dict[str, Any] = attrs.field(factory=dict)

    async def __call__(
        self,
        *script: Any,
        do: Sequence[Act | After] = (),
        ask: str = "hi",
        start: dict[str, Any] | None = None,
        behind: float | None = None,
        **agent: Any,
    ) -> "Life":
        """Play one scene to its rest.

        Args:
            script: what the model says, a step each.
            do: the acts, in order.
            ask: the run's input.
            start: options of `Runtime.start`; a deadline in virtual seconds from now. agent: options of the agent.
            behind: seconds for which another run holds the run's thread.
        """
        scene = Scene(self, self.agent(*script, **agent))
        front = self.agent([delay(behind or 0), "at last"], key="front")
        clock, acts = Clock(BIRTHDAY), iter(do)
        options: Any = {"run_id": RUN, "thread_id": THREAD, "execution": self.mode, **(start or {})}
        deadline = options.get("deadline")
        trio_clock = trio.lowlevel.current_clock()
        assert isinstance(trio_clock, MockClock | PacedClock), "a scene needs the fixture autojump_clock"
        while True:
            inside = {
                "clock": clock,
                "agents": [scene.agent, front, *scene.crew.values()],
                "deps": scene.outside,
                "drain": 0,
                **self.runtime,
            }
            async with AsyncExitStack() as process:
                with unhurried():
                    place = home(self.shelf.open(**self.store), **inside)
                    scene.runtime = await process.enter_async_context(place)
                    if isinstance(deadline, int | float):  # from the first start on
                        deadline = options["deadline"] = clock.now() + timedelta(seconds=deadline)
                    if behind is not None:
                        await scene.runtime.start(front, "me first", run_id="front", thread_id=THREAD)
                    scene.run = await scene.runtime.start(scene.agent, ask, **options)
                cut = await _live(scene, acts)
                if cut is None:
                    return await Life.of(scene)
                process.enter_context(unhurried())
                scene.downs += 1
            await cut(scene)

    def agent(self, *script: Any, key: str = "helper", **options: Any) -> gr.Agent[Any]:
        """An agent with the whole cast as its tools."""
        return gr.Agent(key, **{"tools": TOOLS, "model": ScriptedModel(list(script)), **options})


def unhurried() -> AbstractContextManager[None]:
    """A stretch in which a process begins or ends: it takes no virtual time, and little of a paced clock."""
    clock = trio.lowlevel.current_clock()
    return clock.unhurried() if isinstance(clock, PacedClock) else nullcontext()


async def _live(scene: Scene, acts: Iterator[Act | After]) -> Down | None:
    """One process: acts up to the next restart. None if there is none, and the run has come to its rest."""
    for act in acts:
        if isinstance(act, After):
            await trio.sleep(act.seconds)
            act = act.act  # noqa: PLW2901
        else:
            await scene.run.wait()
        if isinstance(act, Down):
            return act
        await act(scene)
    if isinstance(await scene.run.wait(), gr.Waiting):
        await wait(SETTLING)
    return None


@attrs.frozen(kw_only=True)
class Life:
    """What a run came to, as people outside can see it.

    Attributes:
        stages: every stage that the run was in, in order. statuses: the same for programs, without repetitions.
        path: the stages from running on; "waiting" is needs_approval.
        calls: call -> the statuses that it was in, in order.
        tickets: ticket -> (reason, how it was closed or "open").
        history: the thread: "role: content", "assistant: text (A, C)" for calls, "A: content" for their messages.
        tool_texts: call -> its tool message. replies: to the scene's commands.
        requests: what the model was sent. slack: seconds by which a time may be off: in real
            time; and on a shared store, where a process looks a moment later than the others (`SPREAD`), and one that
            ends gathers its last hints first (`IDLE_FLUSH`). Such a time is not rounded: that could exceed the slack.
    """

    frames: tuple[bytes, ...]
    events: tuple[gr.Event, ...]
    record: RunRecord
    view: gr.RunView
    outcome: Any
    scene: Scene
    slack: float = 0.0

    @classmethod
    async def of(cls, scene: Scene) -> "Life":
        """Look at a run at rest, and check what every life has to keep."""
        store, run = scene.runtime.store, scene.run
        frames = tuple(await store.events(run.id, limit=100_000))
        record = await store.load(run.id, calls="all")
        assert record is not None
        thread = await store.messages(run.thread_id)
        broken = [*broken_promises(frames, record, scene.play.shelf.log), *scene.outside.lost]
        broken += list(broken_history(thread, "the thread"))
        for number, request in enumerate(scene.agent.model.requests, 1):
            broken += list(broken_history(request.messages, f"request {number}"))
        assert not broken, broken
        view, outcome = await run.view(), await run.wait()
        events = tuple(decode_event(frame) for frame in frames)
        replayed = await scene.runtime.replay(run.id)
        assert replayed.equal or scene.forged or _changed(events), replayed
        life = cls(frames=frames, events=events, record=record, view=view, outcome=outcome, scene=scene)
        clock = trio.lowlevel.current_clock()
        slack = SPREAD + scene.downs * IDLE_FLUSH + MILLISECONDS if store.shared else 0.0
        return attrs.evolve(life, slack=clock.slack if isinstance(clock, PacedClock) else slack)

    @property
    def stages(self) -> tuple[str, ...]:
        """Every stage, in order."""
        return tuple(event.payload["to"] for event in self.events if "to" in event.payload)

    @property
    def statuses(self) -> tuple[str, ...]:
        """Every status, without repetitions."""
        found = [STATUS[Stage(stage)].value for stage in self.stages]
        return tuple(one for number, one in enumerate(found) if number == 0 or found[number - 1] != one)

    @property
    def path(self) -> str:
        """The stages from running on."""
        names = ("waiting" if stage == "needs_approval" else stage for stage in self.stages[4:])
        return " ".join(names)

    @property
    def calls(self) -> dict[str, str]:
        """Call -> its statuses in order."""
        found: dict[str, list[str]] = {}
        for event in self.events:
            if event.type.startswith("run.tool.") and "status" in event.payload:
                found.setdefault(event.payload["callId"], []).append(event.payload["status"])
        return {call_id: " ".join(statuses) for call_id, statuses in found.items()}

    @property
    def codes(self) -> dict[str, str | None]:
        """Call -> the code of its end."""
        return {payload["callId"]: payload.get("code") for payload in self.payloads("tool.result")}

    @property
    def tickets(self) -> dict[str, tuple[str, str]]:
        """Ticket -> its reason, and how it was closed."""
        closed = {payload["ticketId"]: payload["resolution"] for payload in self.payloads("approval.resolved")}
        return {
            payload["ticketId"]: (payload["reason"], closed.get(payload["ticketId"], "open"))
            for payload in self.payloads("approval.requested")
        }

    @property
    def history(self) -> list[str]:
        """The thread and what the step has added so far."""
        return [_line(message) for message in self.view.messages]

    @property
    def tool_texts(self) -> dict[str, str]:
        """Call -> what the model reads of it."""
        return {message.call_id or "": message.content for message in self.view.messages if message.role == "tool"}

    @property
    def replies(self) -> list[str]:
        """To the scene's commands."""
        return self.scene.replies

    @property
    def effects(self) -> list[str]:
        """The calls that touched the world, in order."""
        return self.scene.outside.effects

    @property
    def requests(self) -> tuple[gr.ModelRequest, ...]:
        """What the model was sent."""
        return self.scene.agent.model.requests  # type: ignore[union-attr]

    @property
    def log(self) -> list[Commit]:
        """The run's commits."""
        return [commit for commit in self.scene.play.shelf.log if commit.run_id == RUN]

    @property
    def types(self) -> list[str]:
        """The types of all events, without their prefix."""
        return [event.type.removeprefix("run.") for event in self.events]

    @property
    def end(self) -> Any:
        """The payload of the last event: the terminal one, if the run has ended."""
        payload = self.events[-1].payload
        if self.slack and "activeSeconds" in payload:
            return {**payload, "activeSeconds": self.about(payload["activeSeconds"])}
        return payload

    def about(self, seconds: float, unit: float = 1.0) -> float:
        """A time as it was measured; `unit`: how many of its units are a second."""
        return About.of(seconds, self.slack * unit) if self.slack else seconds

    def payloads(self, *names: str) -> list[Any]:
        """The payloads of the events of these types."""
        return [event.payload for event in self.events if event.type.removeprefix("run.") in names]

    def second(self, event: gr.Event) -> float:
        """When an event came: seconds since the run was created, to a tenth if no time may be off."""
        seconds = (event.timestamp - self.events[0].timestamp).total_seconds()
        return self.about(seconds) if self.slack else round(seconds, 1)

    def seconds(self, name: str, **values: Any) -> float:
        """When the first event of a type with these values came: seconds since the run was created."""
        values = {camel(field): value for field, value in values.items()}
        for event in self.events:
            if event.type == f"run.{name}" and values.items() <= event.payload.items():
                return self.second(event)
        raise AssertionError(f"no run.{name} with {values}: {self.types}")


CHANGES = ("agent_changed", "tool_changed")


def _changed(events: Sequence[gr.Event]) -> bool:
    """Whether the run continued with another agent than it started with: one alone does not explain its record."""
    return any(event.type == "run.degraded" and event.payload["reason"] in CHANGES for event in events)


def _line(message: gr.Message) -> str:
    who = message.call_id if message.role == "tool" else message.role
    calls = f"({', '.join(call.call_id for call in message.calls)})" if message.calls else ""
    return f"{who}: {' '.join(filter(None, [message.content, calls]))}".strip()
