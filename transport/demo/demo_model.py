"""A function in place of a language model: reads the conversation and returns the next request.

The function works offline and depends only on the messages, including real tool results, so a run that another process
resumes continues where it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

import greenroom as gr
from greenroom.actors.testing import Step, call, delay, text

from .report import report, summary

SEVERAL: Final = 6
"""Folders that are counted in one step, concurrently."""
MOST: Final = 24
"""Maximum number of folders counted one by one; with more, the whole tree is counted in one call."""
_TASK: Final = re.compile(r"Take a census of (?P<folder>.+) and write it to (?P<name>\S.*)", re.DOTALL)
_NOTABLE: Final = ("readme", "license", "licence", "copying")


@attrs.frozen
class ToolOutcome:
    """One call of the conversation and its result: an object if it succeeded, otherwise the text for the model."""

    tool: str
    arguments: Any
    result: dict[str, Any] | None
    words: str


def tool_outcomes(request: gr.ModelRequest) -> list[ToolOutcome]:
    """Return all calls so far, in order."""
    tool_results = {message.call_id: message.content for message in request.messages if message.role == "tool"}
    calls = [call for message in request.messages for call in message.calls]
    return [_said(call, tool_results[call.call_id]) for call in calls if call.call_id in tool_results]


def _said(call: gr.CallRequest, content: str) -> ToolOutcome:
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    return ToolOutcome(call.tool, call.arguments, data if isinstance(data, dict) else None, content)


def task(folder: str, name: str) -> str:
    """Return the agent's input: a census of a folder (by name), and a report with this name."""
    return f"Take a census of {folder} and write it to {name}"


def thinking(pace: float) -> Callable[[gr.ModelRequest], Step]:
    """Return the function behind the model.

    Args:
        pace: Seconds that each answer takes, so that a viewer can follow.
    """

    def answer(request: gr.ModelRequest) -> Step:
        question = next((message.content for message in request.messages if message.role == "user"), "")
        match = _TASK.fullmatch(question)
        if match is None:
            return f"I only take a census; ask me: {task('FOLDER', 'REPORT.md')}"
        parts = _next(tool_outcomes(request), match["folder"], match["name"])
        return [delay(pace), *parts] if pace else parts

    return answer


def _next(outcomes: list[ToolOutcome], folder: str, name: str) -> list[Any]:
    if not outcomes:
        return [text("First I look at what is there."), call("list_directory", path=".")]
    listing = outcomes[0].result
    if listing is None:
        return [text(f"I cannot look into the folder: {outcomes[0].words}")]
    waiting = [
        step for step in _plan(listing) if not any((outcome.tool, outcome.arguments) == step for outcome in outcomes)
    ]
    if waiting:
        opening = [text("Now I count, and read what the folder says of itself.")] if len(outcomes) == 1 else []
        return [*opening, *(call(tool, arguments) for tool, arguments in waiting[:SEVERAL])]
    return _write(outcomes, folder, name)


def _plan(listing: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return all calls of the census, in order."""
    folders = listing["folders"]
    notable = [file for file in listing["files"] if file.lower().startswith(_NOTABLE)]
    counts: list[tuple[str, bool]] = [(".", False), *((folder, True) for folder in folders)]
    if len(folders) > MOST:
        counts = [(".", True)]
    reads = [("read_file", {"path": file}) for file in notable[:4]]
    return [*reads, *(("count_lines", {"path": path, "deep": deep}) for path, deep in counts)]


def _write(outcomes: list[ToolOutcome], folder: str, name: str) -> list[Any]:
    """Propose the report, under another name if the first is taken; accept a denial."""
    counts = [outcome.result for outcome in outcomes if outcome.tool == "count_lines" and outcome.result is not None]
    page = report(folder, counts, _notes(outcomes), _faults(outcomes))
    tries = [outcome for outcome in outcomes if outcome.tool == "write_report"]
    if not tries:
        return [text("The census is done; here is the report."), call("write_report", name=name, content=page)]
    last, counted = tries[-1], summary(counts)
    if last.result is not None and "written" in last.result:
        return [text(f"{counted} The report is in {last.result['written']}.")]
    if "left alone" in last.words and len(tries) < 3:
        other = f"{name.removesuffix('.md')}-{len(tries) + 1}.md"
        return [text(f"{last.words} I try another name."), call("write_report", name=other, content=page)]
    return [text(f"{counted} No report was written: {last.words}")]


def _notes(outcomes: Sequence[ToolOutcome]) -> list[str]:
    notes = []
    for outcome in outcomes:
        if outcome.tool == "read_file" and outcome.result is not None:
            lines = [line.strip().strip("#= ") for line in outcome.result["text"].splitlines()]
            first = next((line for line in lines if line), "(empty)")
            notes.append(f"{outcome.result['path']}: {first[:160]}")
    return notes


def _faults(outcomes: Sequence[ToolOutcome]) -> list[str]:
    return [
        f"{outcome.tool} {outcome.arguments['path']}: {outcome.words}"
        for outcome in outcomes
        if outcome.result is None and outcome.tool != "write_report"
    ]
