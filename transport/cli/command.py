"""`greenroom cancel`, `greenroom pause` and `greenroom send`: commands to a run of any process."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

import trio

import greenroom as gr

from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen, complain
from . import exits, owner
from .command_target import CommandTarget, Mode, open_target
from .decide import answered
from .hidden import hidden_values

HandIn = Callable[[CommandTarget, str], Awaitable[gr.CommandResult]]


def cancel(given: argparse.Namespace) -> int:
    """Ask a run to end.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    mode: Mode = "after_step" if given.after_step else "now"

    async def hand_in(desk: CommandTarget, run_id: str) -> gr.CommandResult:
        return await desk.cancel(run_id, mode, given.reason, given.id)

    return _run(given, hand_in, "The run will end.")


def pause(given: argparse.Namespace) -> int:
    """Pause a run before its next step.

    Raises:
        GreenroomError: The command failed; the message says why.
    """

    async def hand_in(desk: CommandTarget, run_id: str) -> gr.CommandResult:
        return await desk.pause(run_id, given.reason, given.id)

    return _run(given, hand_in, "The run waits before its next step, until a decision.")


def send(given: argparse.Namespace) -> int:
    """Give a run more input.

    Raises:
        GreenroomError: The command failed; the message says why.
    """

    async def hand_in(desk: CommandTarget, run_id: str) -> gr.CommandResult:
        return await desk.send(run_id, given.text, given.id)

    return _run(given, hand_in, "The run reads it at its next step.")


def _run(given: argparse.Namespace, hand_in: HandIn, done: str) -> int:
    place, screen = trio.run(owner.find_in_time, given), open_screen(machine=given.json, secrets=hidden_values(given))
    return trio.run(_command, given, place, screen, hand_in, done)


async def _command(
    given: argparse.Namespace,
    place: owner.ServedBy | owner.Unowned | owner.Shared,
    screen: Screen,
    hand_in: HandIn,
    done: str,
) -> int:
    async with open_target(place) as desk:
        run_id = await desk.whole_id(given.run_id)
        result = await hand_in(desk, run_id)
        screen.outcome({"type": "answer", "runId": run_id, **answered(result)})
        if not result.ok:
            complain(f"{given.command}: not accepted ({result.code}): {result.detail or 'no reason was given'}")
            return exits.FAILED
        screen.row(f"accepted by {run_id}; {done[0].lower()}{done[1:]}", "good")
        later = None if given.command == "cancel" else await desk.later(run_id)  # a cancel needs no agent
        if later is not None:
            screen.row(f"No process works on the run now; the command acts when the run is resumed: {later}", "warn")
    return exits.COMPLETED
