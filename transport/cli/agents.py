"""Loading of a user's agent: `file.py:name` or `package.module:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from greenroom.actors.agents.agent import Agent
from greenroom.actors.errors import AgentLoadError
from greenroom.supervision import Raised, capture

T = TypeVar("T")
_OURS: Final = f"{Path(__file__).parents[2]}/"
"""Folder of this package; the error of a user's file is never attributed to a frame in it."""
_AS: Final = "greenroom_agent_file"
"""Module name of a loaded file; not a name that programs import."""


class _Beside(MetaPathFinder):
    """A finder of modules in the folder of an agent's file, after all installed modules."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in the folder; packages find their own submodules."""
        return PathFinder.find_spec(fullname, [self._folder], target) if path is None else None


def load_agent(target: str) -> Agent[object]:
    """Return the agent of `file.py`, `file.py:name`, `module` or `module:name`.

    Raises:
        AgentLoadError: There is no such file or module, the import fails, or it has no such agent; the message lists
            the existing agents.
    """
    module, place, name = _loaded(target)
    return _agent_of(module, place, name)


def load_agents(target: str) -> tuple[Agent[object], ...]:
    """Return the named agent, or all agents of a file or module, in order of definition.

    Raises:
        AgentLoadError: As for `load_agent`.
    """
    module, place, name = _loaded(target)
    by_identity = {id(value): value for value in vars(module).values() if isinstance(value, Agent) and not name}
    return tuple(by_identity.values()) or (_agent_of(module, place, name),)


def _loaded(target: str) -> tuple[ModuleType, str, str]:
    """Return the module, its place, and the name in it; the output of the import goes to standard error."""
    place, _, name = target.partition(":")
    with redirect_stdout(sys.stderr):
        return _module(place, target), place, name


def _module(place: str, target: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        return _from_file(Path(place), target)
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise AgentLoadError(f"{target!r} names no agent; write file.py:name or package.module:name")
    sys.meta_path.append(_Beside(Path.cwd()))
    module: ModuleType = _imported(place, lambda: importlib.import_module(place))
    return module


def _from_file(path: Path, target: str) -> ModuleType:
    if path.is_dir():
        raise AgentLoadError(f"{path} is a folder; name a file in it, as in {path}/agent.py:name")
    if not path.is_file():
        raise AgentLoadError(f"there is no file {path}; write FILE.py:AGENT with the path of a Python file")
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(_AS, path)
    if spec is None or spec.loader is None:
        raise AgentLoadError(f"{target!r} is not a Python file; its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_AS] = module  # annotations of tools are resolved here
    sys.meta_path.append(_Beside(path.parent))
    loader = spec.loader
    _imported(path.name, lambda: loader.exec_module(module))
    return module


def _imported(what: str, load: Callable[[], T]) -> T:
    """Run foreign code; any exception means that no agent can be loaded from it."""
    loaded = capture(load)
    if isinstance(loaded, Raised):
        raise AgentLoadError(f"{what} cannot be imported: {_last_line(loaded.error)}") from loaded.error
    return loaded.value


def _last_line(error: BaseException) -> str:
    """Return the error and its place: the last line of the traceback and the line in the user's own file."""
    last = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        return f"{last} ({Path(error.filename or '?').name}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    own = [frame for frame in frames if not frame.filename.startswith(_OURS) and "importlib" not in frame.filename]
    if isinstance(error, SystemExit):
        last = f"it exits ({last}); put what runs it behind if __name__ == '__main__'"
    return f"{last} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else last


def _agent_of(module: ModuleType, place: str, name: str) -> Agent[object]:
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    names = f"its agents are: {', '.join(agents)}" if agents else "it has no agent (an object made by greenroom.Agent)"
    if not name:
        distinct = list({id(agent): agent for agent in agents.values()}.values())
        if len(distinct) == 1:
            return distinct[0]
        way = f"; name one, as in {place}:{next(iter(agents))}" if agents else ""
        raise AgentLoadError(f"{place}: {names}{way}")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise AgentLoadError(f"{place} has no {name!r}; {names}")
        value = getattr(value, part)
    if not isinstance(value, Agent):
        raise AgentLoadError(f"{place}:{name} is of type {type(value).__name__}, not an agent; {names}")
    return value
