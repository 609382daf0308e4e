"""`greenroom cancel`, `greenroom pause` and `greenroom send`: commands to a run of any process."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

import greenroom as gr

from ..terminal.screen import Screen, complain
from . import exits
from .command_target import CommandTarget, at_run
from .decide import SLEEPS, answered


def cancel(args: argparse.Namespace) -> int:
    """Ask a run to end."""
    return _command(
        args,
        "the run will end.",
        lambda runs, run_id: runs.cancel(
            run_id, mode="after_step" if args.after_step else "now", reason=args.reason, command_id=args.id
        ),
    )


def pause(args: argparse.Namespace) -> int:
    """Pause a run before its next step."""
    effect = "the run waits before its next step, until a decision."
    return _command(args, effect, lambda runs, run_id: runs.pause(run_id, reason=args.reason, command_id=args.id))


def send(args: argparse.Namespace) -> int:
    """Give a run more input."""
    effect = "the run reads it at its next step."
    return _command(args, effect, lambda runs, run_id: runs.send(run_id, args.text, command_id=args.id))


def _command(
    args: argparse.Namespace, effect: str, submit: Callable[[gr.RunAccess, str], Awaitable[gr.CommandResult]]
) -> int:
    async def act(target: CommandTarget, run_id: str, screen: Screen) -> int:
        result = await submit(target.access, run_id)
        screen.outcome({"type": "answer", "runId": run_id, **answered(result)})
        if not result.ok:
            complain(f"{args.command}: not accepted ({result.code}): {result.detail or 'no reason was given'}")
            return exits.FAILED
        screen.row(f"accepted by {run_id}; {effect}", "good")
        later = None if args.command == "cancel" else await target.later(run_id)  # a cancel needs no agent
        if later is not None:
            screen.row(f"{SLEEPS} {later}", "warn")
        return exits.COMPLETED

    return at_run(args, act)
