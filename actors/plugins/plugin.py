"""`Plugin`: one method per phase of a run."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Literal

from ..contract.decisions import Verdict
from ..contract.phases import Phase
from ..contract.plain import exact
from ..errors import AgentDefinitionError
from ..state.keys import StateKey
from .contexts import GateContext, PhaseContext
from .mutation import Mutation


class Plugin:
    """Code that runs in the phases of a run. Override the methods of the phases that matter; the others cost nothing.

    The hooks of a phase run concurrently, on one frozen snapshot, and return mutations. These take effect when all
    hooks have returned, as one revision of the state. So the order of plugins does not matter, except where two request
    the same: of two that write one exclusive key, or edit one call, the later registered one runs again and sees the
    changes of the first.

    Additional methods may have any name that is not close to a phase's name: such a name is refused as a misspelled
    hook.

    Delivery: at least once. A hook runs again if the state that it wrote has changed meanwhile, and after a crash. An
    effect on the world belongs in a tool, or must be idempotent. Cancelling the run cancels its hooks, except run_end,
    which runs after all work has stopped.

    Attributes:
        name: unique among an agent's plugins; default: the class's name.
        timeout: seconds for one hook; None: no limit (in run_end: 30).
        on_error: the effect of a hook that raises or takes too long: "fail" ends the run with the code plugin_error (in
            run_end it is only recorded); "ignore" records the failure and continues. A gate that fails never lets a
            call pass: with "ignore" a person is asked.
        state: the state keys that the plugin writes. Declare commutative keys, so that they can be merged after a
            crash.
    """

    name: ClassVar[str] = ""
    timeout: ClassVar[float | None] = 30.0
    on_error: ClassVar[Literal["fail", "ignore"]] = "fail"
    state: ClassVar[tuple[StateKey[Any], ...]] = ()

    async def run_start(self, ctx: PhaseContext) -> Mutation | None:
        """Run once per run, before the first step (at least once: again after a crash in this phase)."""

    async def step_start(self, ctx: PhaseContext) -> Mutation | None:
        """Run at the beginning of each step."""

    async def before_inference(self, ctx: PhaseContext) -> Mutation | None:
        """Run before the model request, and may change the request of this step.

        Not run again for retries of the model.
        """

    async def after_inference(self, ctx: PhaseContext) -> Mutation | None:
        """Run when the model has answered; may edit or drop its calls, or end the run."""

    async def tool_gate(self, ctx: GateContext) -> Verdict | None:
        """Decide whether a call may run: return None or `Allow()`, `SetResult`, `Suspend`, `Deny` or `Block`.

        Called for each call in the model's order before any call runs, again when the state has changed since, and
        again after a decision, with `ctx.decision`.
        """

    async def before_tool_execute(self, ctx: PhaseContext) -> Mutation | None:
        """Run before each attempt of an allowed call."""

    async def after_tool_execute(self, ctx: PhaseContext) -> Mutation | None:
        """Run when a call has ended: also a failed call, and a call with a set result; not a cancelled one."""

    async def step_end(self, ctx: PhaseContext) -> Mutation | None:
        """Run at the end of each step, before its stop conditions are evaluated."""

    async def run_end(self, ctx: PhaseContext) -> Mutation | None:
        """Run once if the run began, however it ends, after all work has stopped and before the terminal event."""


_PHASES: Final = tuple(Phase)
_NAMES: Final = tuple(phase.value for phase in _PHASES)
_NEAR: Final = 0.7
"""Similarity (0 to 1) of a method's name and a phase above which the name counts as misspelled."""


def hooked(plugins: Iterable[Plugin]) -> frozenset[Phase]:
    """Return the phases for which at least one plugin overrides the method."""
    return frozenset(phase for phase in _PHASES for plugin in plugins if has_hook(plugin, phase))


def has_hook(plugin: Plugin, phase: Phase) -> bool:
    """Return True if the plugin overrides the method of the phase."""
    return getattr(type(plugin), phase.value) is not getattr(Plugin, phase.value)


def name_of(plugin: Plugin) -> str:
    """Return the plugin's name."""
    name = plugin.name or type(plugin).__name__
    return exact(name) if isinstance(name, str) else name  # `check_plugins` refuses any other


def check_plugins(where: str, plugins: object) -> tuple[Plugin, ...]:
    """Return an agent's plugins, checked.

    Raises:
        AgentDefinitionError: an item is not a plugin, or one of its parts is invalid; names it and says what to give.
    """
    if not isinstance(plugins, tuple):
        raise AgentDefinitionError(f"{where}: plugins={plugins!r}: give a list of plugins")
    names: set[str] = set()
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            way = "give an instance, as Audit()" if isinstance(plugin, type) else "derive its class from gr.Plugin"
            raise AgentDefinitionError(f"{where}: {plugin!r} is not a plugin; {way}")
        name = name_of(plugin)
        if not isinstance(name, str) or not name.isprintable() or " " in name:
            raise AgentDefinitionError(f"{where}: plugin name {name!r}: use printable characters without spaces")
        if name in names:
            raise AgentDefinitionError(f"{where}: two plugins are named {name!r}; give one another `name`")
        names.add(name)
        _check_parts(f"{where}: plugin {name!r}", plugin)
    return plugins


def _check_parts(where: str, plugin: Plugin) -> None:
    limit: Any = plugin.timeout
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (number and 0 < limit < math.inf):
        raise AgentDefinitionError(f"{where}: timeout={limit!r}: give seconds, more than 0, or None for no limit")
    if plugin.on_error not in ("fail", "ignore"):
        raise AgentDefinitionError(f"{where}: on_error={plugin.on_error!r}: use 'fail' or 'ignore'")
    if not isinstance(plugin.state, tuple | list):
        raise AgentDefinitionError(f"{where}: state={plugin.state!r}: give a tuple of state keys")
    for phase in _PHASES:
        if has_hook(plugin, phase):
            _check_hook(where, getattr(plugin, phase.value), phase)
        elif phase.value in getattr(plugin, "__dict__", ()):
            way = "define it as a method of its class"
            raise AgentDefinitionError(f"{where}: {phase.value} is set on the instance and is never called; {way}")
    _check_names(where, plugin)


def _check_names(where: str, plugin: Plugin) -> None:
    """Refuse methods whose name is close to a phase: a misspelled gate is never called and lets everything pass."""
    kind = type(plugin)
    public = [name for name in dir(kind) if not name.startswith("_") and name not in _NAMES]
    others = [name for name in public if inspect.iscoroutinefunction(getattr(kind, name))]
    for name in others:
        near = _nearest(name.removeprefix("on_"))
        if near is not None:
            way = f"did you mean {near!r}? If it is something else, give it another name, such as _{name}"
            raise AgentDefinitionError(f"{where}: {name} is not a phase and is never called; {way}")
    if others and not any(has_hook(plugin, phase) for phase in _PHASES):
        way = f"the phases are: {', '.join(_NAMES)}"
        raise AgentDefinitionError(f"{where}: it has a method for no phase ({', '.join(others)} is none); {way}")


def _nearest(name: str) -> str | None:
    """Return the phase whose name is similar, or has the same words in another order; else None."""
    same_words = (phase for phase in _NAMES if sorted(phase.split("_")) == sorted(name.split("_")))
    return next(same_words, None) or next(iter(difflib.get_close_matches(name, _NAMES, n=1, cutoff=_NEAR)), None)


def _check_hook(where: str, hook: object, phase: Phase) -> None:
    if not inspect.iscoroutinefunction(hook):
        raise AgentDefinitionError(f"{where}: {phase.value} is not async; define it with `async def`")
    try:
        inspect.signature(hook).bind(None)
    except TypeError as error:
        raise AgentDefinitionError(f"{where}: {phase.value} must take one argument, the context ({error})") from error
