"""`greenroom replay`: replay a stored run from its record, and report the first event that differs."""

from __future__ import annotations

import argparse
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.casing import wire, wire_of
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.engine.state import RunState
from greenroom.actors.replay.comparison import Replay
from greenroom.actors.replay.fold import FoldedEntry
from greenroom.actors.replay.report import shown, struct_text
from greenroom.actors.runtime.replay_run import BREATH, replay_of

from ..demo.census import KEY, census
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, places
from .agents import load_agents
from .hidden import hidden_values
from .inspect import info_of, reading
from .places import Place

WIDE: Final = 200
"""Maximum characters of an event's payload that are shown."""


def replay(args: argparse.Namespace) -> int:
    """Replay one run."""
    hidden = hidden_values(args)
    redactor, screen = Redactor(hidden), open_screen(machine=args.json, secrets=hidden)
    return trio.run(_replayed, args, redactor, screen)


async def _replayed(args: argparse.Namespace, redactor: Redactor, screen: Screen) -> int:
    database = places.kept(args)
    info = await info_of(database, args.run_id)
    agent, agents = _agent_for(info.agent, args.agent, database)
    async with reading(database) as store:
        replayed = await replay_of(store, info.run_id, agent, redactor, own=agent.key == info.agent, known=agents)
    walk, number = _Walk(screen, redactor), 0
    for folded in replayed.steps():
        if folded is not None:
            number += 1
            if args.step:
                walk.show(number, folded)
        if folded is None or number % BREATH == 0:
            await trio.lowlevel.checkpoint()
    return _told(replayed, screen)


def _agent_for(key: str, target: str | None, database: Place) -> tuple[gr.Agent[object], dict[str, gr.Agent[object]]]:
    """Return the agent with the run's key in the named file, or its only agent, and all agents of the file by key.

    Raises:
        UsageError: There is no such agent.
        AgentLoadError: The file has no agent.
    """
    if target is None:
        if key == KEY:
            return census(), {}
        way = "name it: --agent FILE.py"
        raise gr.UsageError(f"the run is of the agent {key!r}, which {database} does not hold; {way}")
    agents = load_agents(target)
    same = [agent for agent in agents if agent.key == key]
    if same or len(agents) == 1:
        return (same or list(agents))[0], {agent.key: agent for agent in agents}
    raise gr.UsageError(f"{target} has no agent {key!r}; name another one to try it: {target}:NAME")


def _told(replayed: Replay, screen: Screen) -> int:
    report = replayed.report()
    difference, gap = report.difference, report.unreplayable
    outcome = "equal" if report.equal else "different" if difference is not None else "unreplayable"
    screen.outcome(
        {
            "type": "replay",
            "runId": report.run_id,
            "result": outcome,
            "events": report.events,
            "difference": None if difference is None else wire_of(difference, ("sequence", "path", "text", "input")),
            "unreplayable": wire(gap),
        }
    )
    events = text_format.plural(report.events, "event")
    if report.equal:
        screen.row(f"{report.run_id}: {events}, each of them as it is stored", "good")
        return exits.COMPLETED
    screen.row(f"{report.run_id}: {events} as stored, then:", "bad")
    if difference is not None:
        if difference.input:
            screen.row(text_format.clean(f"  after {difference.input}"))
        screen.row(text_format.clean(f"  {difference.text}"))
    elif gap is not None:
        screen.row(text_format.clean(f"  {gap.text}"))
    return exits.FAILED


@attrs.frozen
class _Walk:
    """Shows a replay input by input: the state before the input, the input, and its effects and events."""

    screen: Screen
    redactor: Redactor

    def show(self, number: int, folded: FoldedEntry) -> None:
        """Show one entry of the record."""
        state = "" if folded.before is None else _state(folded.before)
        head = shown(number, folded.taken, self.redactor)
        effects = [struct_text(effect, self.redactor) for effect in folded.effects]
        events = [decode_event(frame) for frame in folded.frames]
        self.screen.outcome(
            {
                "type": "step",
                "number": number,
                "state": state,
                "input": head,
                "effects": effects,
                "events": [{"sequence": event.sequence, "type": event.type} for event in events],
            }
        )
        if state:
            self._row(f"  state   {state}", "dim")
        self._row(head)
        for effect in effects:
            self._row(f"  effect  {effect}", "dim")
        for event in events:
            self._row(f"  event   {event.sequence} {event.type} {text_format.value(event.payload, WIDE)}")

    def _row(self, text: str, style: Any = "") -> None:
        self.screen.row(text_format.clean(text).replace("\n", " "), style)


def _state(state: RunState) -> str:
    """Describe the state of a run: stage, position, step, and the calls of the step."""
    row = state.row
    calls = ", ".join(f"{call.call_id} {call.status.value} at {call.at.value}" for call in state.calls.values())
    place = f"{row.stage.value}, {row.position.value}, step {row.step}, event {row.last_sequence}, inbox {row.inbox}"
    return f"{place}; calls: {calls}" if calls else place
