"""Checks for resources that remain after the end of a supervisor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ref import Ref
from ..registry import Registry
from .scheduling import program_tasks


def find_leaks(*, registries: Iterable[Registry] = (), refs: Iterable[Ref[Any]] = ()) -> list[str]:
    """Return one sentence per registered name and per actor without an exit; call this after the supervisor's block."""
    leaks = [f"the name {name!r} is still registered" for registry in registries for name in registry.names()]
    leaks += [f"{ref.name!r} has no exit" for ref in refs if ref.exit is None]
    return leaks


def find_live_tasks(*, except_names: Iterable[str] = ()) -> list[str]:
    """Return one sentence per live task; call this inside of the run, with the names of the tasks that may be alive."""
    allowed_names = set(except_names)
    return [f"the task {task.name!r} is still alive" for task in program_tasks() if task.name not in allowed_names]
