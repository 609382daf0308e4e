"""`greenroom artifacts`: the artifacts of a run, and the bytes of one as a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import trio

import greenroom as gr
from greenroom.actors.contract.artifacts import facts_on_wire

from ..terminal import text_format
from ..terminal.screen import Screen
from . import exits
from .command_target import CommandTarget, at_run


def artifacts(args: argparse.Namespace) -> int:
    """List the artifacts of a run, or write one into a file."""

    async def act(target: CommandTarget, run_id: str, screen: Screen) -> int:
        published = (await target.access.view(run_id)).artifacts
        if args.name is None:
            _list(published, screen)
            return exits.COMPLETED
        artifact = _named(run_id, published, args.name)
        body = await target.access.artifact(run_id, artifact.artifact_id)
        path = Path(artifact.name) if args.output is None else args.output
        await trio.to_thread.run_sync(_write, path, body)
        screen.outcome({**facts_on_wire(artifact), "file": str(path)})
        screen.row(f"{text_format.clean(str(path))}: {text_format.size(len(body))}", "good")
        return exits.COMPLETED

    return at_run(args, act)


def _list(published: Sequence[gr.Artifact], screen: Screen) -> None:
    for artifact in published:
        screen.outcome(facts_on_wire(artifact))
        screen.row(f"{text_format.clean(artifact.artifact_id)}  {text_format.published(facts_on_wire(artifact))}")
    if not published:
        screen.row("no artifacts", "dim")


def _named(run_id: str, published: Sequence[gr.Artifact], name: str) -> gr.Artifact:
    """Return the artifact with this id, else the newest with this name.

    Raises:
        UnknownArtifact: There is none.
    """
    for artifact in reversed(published):
        if name in (artifact.artifact_id, artifact.name):
            return artifact
    raise gr.UnknownArtifact(f"run {run_id} has no artifact {name!r:.200}; list them without a name")


def _write(path: Path, body: bytes) -> None:
    """Write a new file.

    Raises:
        UsageError: The file exists, or cannot be written.
    """
    try:
        with path.open("xb") as file:
            file.write(body)
    except OSError as error:
        raise gr.UsageError(f"{path}: {error.strerror}; choose another file with --output") from error
