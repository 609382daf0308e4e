"""Run the gates of one call and find the strongest verdict: block > deny > suspend > set_result > allow.

Theory of operation. The tool's input guardrails come first, one after the other. Then all other gates run concurrently
on one snapshot. Of equal verdicts, that of the first registered plugin wins. The tool's own needs_approval predicate
counts as the gate registered last, and is not called if a block or denial makes it irrelevant. A gate that fails never
allows: the failure ends the run, or a person is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from ..contract.codec import shortened
from ..contract.decisions import Allow, Block, Deny, SetResult, Suspend, Verdict
from ..contract.guardrails import Tripped
from ..contract.phases import Phase
from ..engine.gates import APPROVAL
from ..engine.inputs import Allowed, Overruled, PhaseDone
from ..plugins.plugin import Plugin, name_of
from ..services.sanitize import InvalidValue, data_of, suspend_of, text_of
from ..state.access import State
from ..state.values import shown
from .approvals import BUILT_IN, NO, ApprovalNeed
from .calls import HookFailed, read_answer, together
from .hooks import HookRequest, call_hook, where

LONGEST_NOTE: Final = 1_000
"""Most characters of a gate's note about a call that passes."""
_RANK: Final = {Block: 4, Deny: 3, Suspend: 2, SetResult: 1}
_WORD: Final[dict[type, Any]] = {Block: "block", Deny: "deny", Suspend: "suspend", SetResult: "set_result"}


async def run_gates(
    request: HookRequest,
    *,
    approved: bool,
    built_in: Callable[[], Awaitable[ApprovalNeed]] | None,
    guardrails: Callable[[], Awaitable[Tripped | None]] | None = None,
) -> PhaseDone:
    """Run the gates of a call and return the strongest verdict; of equal verdicts, the first registered gate's.

    Args:
        request: the phase, with the call's context.
        approved: a person has approved exactly this action.
        built_in: finds out whether the tool itself needs an approval; counts as the gate registered last.
        guardrails: asks the input guardrails of the tool, before all other gates; these are asked only if all allow.
    """
    plugins = request.plugins
    faults: list[str] = []

    async def ask(plugin: Plugin) -> Verdict | None:
        try:
            answer = await call_hook(request, plugin, request.context(State(request.snapshot, keys), ()))
            return read_answer(where(plugin, request.phase), "answer", lambda: _verdict(plugin, answer))
        except HookFailed as failure:
            request.tell(name_of(plugin), failure)
            if plugin.on_error == "fail":
                raise
            faults.append(text_of(str(failure)))
            doubt = text_of(f"A person must look: {failure}.")
            return None if approved else Suspend(reason="tool_permission", message=doubt)

    keys = request.agent.spec.keys
    try:
        trip = None if guardrails is None else await guardrails()
        if trip is not None:
            return request.done(tripped=trip)
        verdicts = await together(plugins, ask)
    except HookFailed as failure:
        return request.done(failure=text_of(str(failure)), ignored=tuple(faults))
    votes = [(name_of(plugin), verdict) for plugin, verdict in zip(plugins, verdicts, strict=True)]
    need = NO
    if built_in is not None and not any(isinstance(verdict, Block | Deny) for verdict in verdicts):
        need = await built_in()  # with a block or denial no person is asked, so the predicate is not needed
    if need.doubt is not None:  # the deciding person must know that the predicate failed
        doubt = text_of(f"It is not known whether this is allowed: {need.doubt}.")
        votes.append((BUILT_IN, Suspend(reason="tool_permission", message=doubt)))
    elif need.needed:
        votes.append((BUILT_IN, APPROVAL))
    notes = tuple(
        Allowed(plugin=name, note=verdict.note)
        for name, verdict in votes
        if isinstance(verdict, Allow) and verdict.note
    )
    objections = [(name, verdict) for name, verdict in votes if verdict is not None and not isinstance(verdict, Allow)]
    # max returns the first of equals
    winner, strongest = max(objections, key=lambda pair: _RANK[_kind(pair[1])], default=("", Allow()))
    return request.done(
        verdict=strongest,
        overruled=tuple(
            Overruled(plugin=name, verdict=_WORD[_kind(verdict)], by=winner)
            for name, verdict in objections
            if name not in (winner, BUILT_IN)
        ),
        allowed=notes,
        ignored=tuple(faults),
        doubt=None if need.doubt is None else text_of(need.doubt),
    )


def _kind(verdict: object) -> type:
    return next(kind for kind in _RANK if isinstance(verdict, kind))  # programs may subclass Suspend


def _verdict(plugin: Plugin, answer: object) -> Verdict | None:
    hook = where(plugin, Phase.TOOL_GATE)
    try:
        match answer:
            case None:
                return None
            case Allow(note=str()):
                return Allow(note=text_of(shortened(answer.note, LONGEST_NOTE)))
            case Suspend():
                suspend = suspend_of(answer)
                return attrs.evolve(suspend, reason="tool_permission") if suspend.reason == "user_input" else suspend
            case SetResult(code=None | str()):
                code = answer.code if answer.code is None else text_of(answer.code)
                return SetResult(data_of(answer.value, "the result"), code)
            case Block(reason=str()):
                return Block(text_of(answer.reason))
            case Deny(text=str()):
                return Deny(text_of(answer.text))
            case _:
                way = "return gr.Block, Deny, Suspend, SetResult, Allow or None"
                raise HookFailed(f"{hook}: it returned {shown(answer)}; {way}")
    except InvalidValue as error:
        raise HookFailed(f"{hook}: it asked for what cannot be stored: {error}") from error
