"""`greenroom cancel`, `greenroom pause` and `greenroom send`: commands to a run of any process."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Literal

import trio

import greenroom as gr

from ..terminal.open_screen import open_screen
from ..terminal.screen import complain
from . import exits
from .command_target import open_target
from .decide import SLEEPS, answered
from .hidden import hidden_values
from .owner import find_in_time

HandIn = Callable[[gr.RunAccess, str], Awaitable[gr.CommandResult]]


def cancel(given: argparse.Namespace) -> int:
    """Ask a run to end."""

    async def hand_in(runs: gr.RunAccess, run_id: str) -> gr.CommandResult:
        mode: Literal["now", "after_step"] = "after_step" if given.after_step else "now"
        return await runs.cancel(run_id, mode=mode, reason=given.reason, command_id=given.id)

    return trio.run(_command, given, hand_in, "the run will end.")


def pause(given: argparse.Namespace) -> int:
    """Pause a run before its next step."""

    async def hand_in(runs: gr.RunAccess, run_id: str) -> gr.CommandResult:
        return await runs.pause(run_id, reason=given.reason, command_id=given.id)

    return trio.run(_command, given, hand_in, "the run waits before its next step, until a decision.")


def send(given: argparse.Namespace) -> int:
    """Give a run more input."""

    async def hand_in(runs: gr.RunAccess, run_id: str) -> gr.CommandResult:
        return await runs.send(run_id, given.text, command_id=given.id)

    return trio.run(_command, given, hand_in, "the run reads it at its next step.")


async def _command(given: argparse.Namespace, hand_in: HandIn, done: str) -> int:
    place = await find_in_time(given)
    screen = open_screen(machine=given.json, secrets=hidden_values(given))
    async with open_target(place) as target:
        run_id = await target.whole_id(given.run_id)
        result = await hand_in(target.access, run_id)
        screen.outcome({"type": "answer", "runId": run_id, **answered(result)})
        if not result.ok:
            complain(f"{given.command}: not accepted ({result.code}): {result.detail or 'no reason was given'}")
            return exits.FAILED
        screen.row(f"accepted by {run_id}; {done}", "good")
        later = None if given.command == "cancel" else await target.later(run_id)  # a cancel needs no agent
        if later is not None:
            screen.row(f"{SLEEPS} {later}", "warn")
    return exits.COMPLETED
