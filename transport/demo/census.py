"""The census agent: model, tools and instructions combined."""

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
    """Return an agent that takes a census of its run's folder (see `folder_of`); `task` returns its input.

    Args:
        pace: Seconds that the model takes for each answer.
    """
    return gr.Agent(
        KEY,
        instructions="Count what is in the folder, then write a short report. Take no for an answer.",
        tools=[list_directory, count_lines, read_file, write_report],
        model=FunctionModel(thinking(pace), chunk=16),
        execution="parallel_streaming",
    )


def folder_of(info: gr.RunInfo) -> Folder:
    """Return the deps of a run: its folder. The folder is stored with the run, so every process can resume the run.

    Raises:
        LookupError: The run was started without a folder.
    """
    if info.workspace is None:
        raise LookupError(f"run {info.run_id} has no workspace")
    return Folder(Path(info.workspace))


def report_before(folder: Path, name: str) -> str | None:
    """Return the previous report that a new one would replace; None if there is none that may be replaced."""
    try:
        return former_report(folder / check_name(name))
    except gr.ToolError:
        return None
