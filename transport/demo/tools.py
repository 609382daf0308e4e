"""The tools of the census agent: list, count and read in one folder and, once approved, write one report there.

All four are plain functions, so they run in threads and may block. `ctx.deps` is the folder: a run derives it from its
workspace, also when another process resumes the run. `ctx.progress` also raises in a thread whose result is no longer
wanted.
"""

from __future__ import annotations

from typing import Any, Final

import greenroom as gr

from .files import Folder
from .writing import write_report as write_file

_EVERY: Final = 20
"""Files between two reports of progress: more frequent ones would only be merged."""


@gr.tool(replay="safe")
def list_directory(ctx: gr.SyncToolContext[Folder], path: str) -> dict[str, Any]:
    """List what a folder holds. The path is relative to the folder that the census is about; "." is that folder."""
    listing = ctx.deps.listing(path)
    return {
        "path": path,
        "folders": list(listing.folders),
        "files": list(listing.files),
        "skipped": listing.skipped,
        "summary": ", ".join(
            (_many(len(listing.folders), "folder"), _many(len(listing.files), "file"), f"{listing.skipped} skipped")
        ),
    }


@gr.tool(replay="safe", timeout=120.0)
def count_lines(ctx: gr.SyncToolContext[Folder], path: str, deep: bool = True) -> dict[str, Any]:
    """Count the lines of all text files in a folder by language, with the folders in it if deep."""

    def heed(number: int, name: str) -> None:
        if number % _EVERY == 0:
            ctx.progress(1 - 1 / (1 + number / 200), name)  # the total is unknown: the fraction approaches 100 %

    total = ctx.deps.count(path, deep=deep, heed=heed)
    return {
        "path": path,
        "deep": deep,
        "lines": dict(total.lines),
        "files": dict(total.files),
        "largest": [list(item) for item in total.largest],
        "binary": total.binary,
        "unreadable": total.unreadable,
        "summary": f"{_many(total.files.total(), 'file')}, {_many(total.lines.total(), 'line')}",
    }


@gr.tool(replay="safe")
def read_file(ctx: gr.SyncToolContext[Folder], path: str) -> dict[str, Any]:
    """Read the beginning of a text file."""
    text = ctx.deps.read(path)
    title = next((line.strip() for line in text.splitlines() if line.strip()), "")
    ctx.output(title[:120] + "\n")
    return {"path": path, "text": text, "summary": _many(len(text.splitlines()), "line")}


@gr.tool(effect="write", needs_approval=True)
def write_report(ctx: gr.SyncToolContext[Folder], name: str, content: str) -> dict[str, Any]:
    """Write the report as a new file in the folder, or over a former report; never over anything else."""
    write_file(ctx.deps.root, name, content)
    return {"written": name, "bytes": len(content.encode()), "summary": f"wrote {name}"}


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
