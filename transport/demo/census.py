"""The census agent, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import greenroom as gr
from greenroom.actors.testing import FunctionModel

from .demo_model import thinking
from .files import Folder
from .tools import count_lines, list_directory, read_file, write_report
from .writing import check_name, former_report

KEY: Final = "census"
REPORT: Final = "CENSUS.md"


def census(*, pace: float = 0.0) -> gr.Agent[str]:
    """An agent that takes a census of the folder that its run was started for, see `folder_of`; ask it with `task`.

    Args:
        pace: seconds that the model takes for each answer.
    """
    return gr.Agent(
        KEY,
        instructions="Count what is in the folder, then write a short report. Take no for an answer.",
        tools=[list_directory, count_lines, read_file, write_report],
        model=FunctionModel(thinking(pace), chunk=16),
        execution="parallel_streaming",
    )


def folder_of(info: gr.RunInfo) -> Folder:
    """The deps of a run: the folder that it was started for. The run knows it, so every process can go on with it.

    Raises:
        LookupError: the run was started without one.
    """
    if info.workspace is None:
        raise LookupError(f"run {info.run_id} has no workspace")
    return Folder(Path(info.workspace))


def report_before(folder: Path, name: str) -> str | None:
    """The former report that a new one would replace; None if there is none, or something that will not be replaced."""
    try:
        return former_report(folder / check_name(name))
    except gr.ToolError:
        return None
