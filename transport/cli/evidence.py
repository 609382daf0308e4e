"""`greenroom evidence`: who allowed what in a run, and a file to compare its log with later."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import trio

import greenroom as gr
from greenroom.actors.contract.casing import wire
from greenroom.actors.contract.envelope import timestamp
from greenroom.actors.evidence.account import CallEvidence, RunEvidence, TicketEvidence
from greenroom.actors.evidence.file import EvidenceWriter, LogDifference, LogEvidence, compare, digest, read
from greenroom.actors.runtime.evidence_of import ReadLog, frames_of, read_log

from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, places
from .hidden import hidden_values
from .inspect import info_of, reading
from .places import Place

LONGEST_LINE = 1024 * 1024
"""Bytes of a line of an evidence file; an event has fewer (`envelope.FRAME_BYTES`), and the account is in the first."""
LONGEST_HEAD = 64 * 1024 * 1024
"""Bytes of the first line."""


def evidence(given: argparse.Namespace) -> int:
    """Show, export or check the evidence of one run."""
    screen = open_screen(machine=given.json, secrets=hidden_values(given))
    if given.export is not None and given.check is not None:
        raise gr.UsageError("--export and --check are two commands: first one, then the other")
    place = places.kept(given)
    if given.check is not None:
        return _checked(trio.run(_differences, place, given.run_id, Path(given.check)), screen)
    log = trio.run(_read, place, given.run_id)
    if given.export is not None:
        _export(log, given.export)
        return exits.COMPLETED
    screen.outcome(wire(log.account))
    for line in _lines(log.account):
        screen.row(text_format.clean(line))
    return exits.COMPLETED


async def _read(place: Place, wanted: str) -> ReadLog:
    run_id = (await info_of(place, wanted)).run_id
    async with reading(place) as store:
        return await read_log(store, run_id)


# --- a file ----------------------------------------------------------------------------------------------------------


def _export(log: ReadLog, target: str) -> None:
    """Write a file whole or not at all: beside its place, then renamed.

    Raises:
        UsageError: The file cannot be written.
    """
    path = Path(target)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            file.writelines(_file(log))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise gr.UsageError(f"--export {target}: {error.strerror}") from error


def _file(log: ReadLog) -> Iterator[bytes]:
    writer = EvidenceWriter()
    yield writer.head(log.account, timestamp(datetime.now(UTC)))
    for one in log.logs():
        yield from writer.log(one.account.run_id, one.frames, terminal=one.account.terminal)
    yield writer.end()


async def _differences(place: Place, wanted: str, path: Path) -> list[LogDifference]:
    """Compare each log of a file with the one that is stored."""
    run_id = (await info_of(place, wanted)).run_id
    differences = []
    async with reading(place) as store:
        for log in _logs(path, run_id):
            now = [digest(frame) async for frame in frames_of(store, log.run_id)]
            difference = compare(log, now)
            if difference is not None:
                differences.append(difference)
    return differences


def _logs(path: Path, run_id: str) -> tuple[LogEvidence, ...]:
    """Read a file.

    Raises:
        UsageError: The file cannot be read.
        EvidenceFileError: The file is no evidence of this run.
    """
    try:
        with path.open("rb") as file:
            return read(_file_lines(file), run_id)
    except OSError as error:
        raise gr.UsageError(f"--check {path}: {error.strerror}") from error


def _file_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; a longer one than any that is written ends it, which `read` takes for a cut."""
    yield file.readline(LONGEST_HEAD)
    while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
        yield line


def _checked(differences: list[LogDifference], screen: Screen) -> int:
    screen.outcome({"type": "check", "equal": not differences, "differences": wire(differences)})
    for difference in differences:
        screen.row(f"{difference}", "bad")
    if not differences:
        screen.row("every event is as it was when the file was made", "good")
    return exits.FAILED if differences else exits.COMPLETED


# --- the account for people ------------------------------------------------------------------------------------------


def _lines(account: RunEvidence, indent: str = "") -> Iterator[str]:
    place = f" in the workspace {account.workspace}" if account.workspace else ""
    yield f"{indent}{account.run_id}: {account.agent}{place}, started by {account.by} at {account.created_at}"
    yield f"{indent}  asked: {_one_line(account.input)}"
    for call in account.calls:
        yield from _call(call, f"{indent}  ")
    for ticket in account.tickets:
        yield f"{indent}  {_question(ticket)}"
    for text in (*account.commands, *(f"with a restriction: {text}" for text in account.restrictions)):
        yield f"{indent}  {_one_line(text)}"
    for artifact in account.artifacts:
        yield f"{indent}  published {text_format.published(artifact)}, sha256 {artifact['sha256'] or 'none'}"
    for child in account.children:
        yield from _lines(child, f"{indent}    ")
    end = f"ended as {account.termination} at {account.ended_at}" if account.terminal else "has not ended"
    yield f"{indent}  {account.stage}: {end}" + (f" ({account.code})" if account.code else "")


def _call(call: CallEvidence, indent: str) -> Iterator[str]:
    arguments = text_format.value(call.arguments, 120)
    yield f"{indent}{call.call_id} {call.tool} [{call.effect}] {_one_line(arguments)}"
    for text in (*(f"allowed by {note}" for note in call.allowed), *(f"overruled: {text}" for text in call.overruled)):
        yield f"{indent}    {_one_line(text)}"
    for text in call.guardrails:
        yield f"{indent}    guardrail {_one_line(text)}"
    for ticket in call.tickets:
        yield f"{indent}    {_question(ticket)}"
    if call.ran_unasked and not call.allowed:
        yield f"{indent}    ran without a question"
    times = ", then ".join(call.started_at)
    began = f"started {times}" if times else "never started"
    yield f"{indent}    {began}; {call.status}" + (f" ({call.code})" if call.code else "")


def _question(ticket: TicketEvidence) -> str:
    asked = f"asked at {ticket.asked_at} ({ticket.reason})"
    if ticket.resolution is None:
        return f"{asked}: open"
    edits = ", with edits" if ticket.edited else ""
    why = f": {_one_line(ticket.why)}" if ticket.why else ""
    by = f" by {ticket.by}" if ticket.by else ""
    return f"{asked}: {ticket.resolution}{by}{edits} at {ticket.resolved_at}{why}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
