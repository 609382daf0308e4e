"""Plugins of the scenes: a diary that notes each hook and does as ordered, and gates."""

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

import trio

import greenroom as gr

Hook = Callable[[Any], Any]
"""What a hook of a scene does: a function of the context, async or not."""


def line(ctx: gr.PhaseContext[Any]) -> str:
    """A line of the diary."""
    return f"{ctx.phase}" if ctx.call is None else f"{ctx.phase} {ctx.call.call_id}"


async def done(answer: Any) -> Any:
    """The answer, when it is there."""
    return await answer if isawaitable(answer) else answer


class Scripted(gr.Plugin):
    """A plugin of a scene; what it holds outlives the processes of the scene.

    Attributes:
        lines: of a diary.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def count(self, wanted: str) -> int:
        """How often a line is there; all lines of a phase if it names no call."""
        return sum(wanted in (one, one.split()[0]) for one in self.lines)


def scripted(
    name: str = "scripted", *, timeout: float | None = 30.0, on_error: str = "fail", **hooks: Hook
) -> Scripted:
    """A plugin that has these hooks and no others."""

    def method(hook: Hook) -> Callable[[Scripted, Any], Coroutine[Any, Any, Any]]:
        async def run(self: Scripted, ctx: Any) -> Any:
            return await done(hook(ctx))

        return run

    made = {phase: method(hook) for phase, hook in hooks.items()}
    plugin: Scripted = type("Given", (Scripted,), {"name": name, "timeout": timeout, "on_error": on_error, **made})()
    return plugin


def diary(*only: str, name: str = "diary", every: Hook | None = None, **hooks: Hook) -> Scripted:
    """A plugin with a hook in each phase, or in some only, that writes a line, and does what `hooks` says there."""

    def noting(phase: str) -> Hook:
        async def run(ctx: gr.PhaseContext[Any]) -> Any:
            plugin.lines.append(line(ctx))
            if every is not None:
                await done(every(ctx))
            return await done(hooks[phase](ctx)) if phase in hooks else None

        return run

    phases = [phase.value for phase in gr.Phase if not only or phase.value in only]
    plugin = scripted(name, **{phase: noting(phase) for phase in phases})
    return plugin


def gate(name: str, verdict: Any, **options: Any) -> Scripted:
    """A plugin whose gate says always the same, or what a function of the context says."""
    return scripted(name, tool_gate=lambda ctx: verdict(ctx) if callable(verdict) else verdict, **options)


def slow(seconds: float, answer: Any = None) -> Hook:
    """A hook that takes so long."""

    async def run(ctx: Any) -> Any:
        await trio.sleep(seconds)
        return answer

    return run


async def hide(seconds: float) -> None:
    """Work that no cancel ends."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


class NestedRules(gr.Plugin):
    """Asks people about each nested call with an effect; reads are allowed, and a secret is denied."""

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        if ctx.call.parent is None or ctx.call.effect == "read":
            return None
        if ctx.call.effect == "secret":
            return gr.Deny("that is a secret")
        if ctx.decision is not None and ctx.decision.action == "resume":
            return None
        return gr.Suspend(message=f"May {ctx.tool} run?", reason="tool_permission")
