"""Build the inputs of a model and of hooks from the run's state at that moment.

Theory of operation. A request is derived, never stored: instructions and tools come from the agent, messages from the
thread, changes from the step's before_inference hooks, and so does the text of an instructions function. Messages of
hooks are placed around the thread and do not join it:

    system: instructions | "system" | "session" | thread ... | "conversation" | newest user message ... | "suffix"

Hooks receive copies, because their code may change what it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import attrs

from ..agents.agent import Agent
from ..contract.calls import CallStatus
from ..contract.facts import CallFacts
from ..contract.inference import ContextMessage
from ..contract.messages import Message, ModelRequest, ToolInfo
from ..contract.phases import Phase
from ..engine.effects import CallModel, RunPhase
from ..engine.inputs import CallEdit
from ..engine.state import RunState
from ..plugins.contexts import GateContext, PhaseContext
from ..state.access import State
from ..state.values import copied_message
from ..user_code.hooks import HookRequest
from .run_context import RunContext

_CUT: Final = attrgetter("cut")

# --- the model -------------------------------------------------------------------------------------------------------


def model_request(
    agent: Agent[object],
    run_id: str,
    effect: CallModel,
    history: list[Message],
    *,
    model: str,
    native: bool = False,
    offered: tuple[ToolInfo, ...] = (),
) -> ModelRequest:
    """Build the request of a step: instructions, thread and tools, with the changes of hooks.

    Args:
        agent: asks.
        run_id: the run.
        effect: the request, as the machine makes it.
        history: the messages of the thread.
        model: names the asked model.
        native: the model itself enforces the form of the final answer; else the system text describes it.
        offered: the tools of toolsets.
    """
    changes, instructions = effect.changes, agent.instructions
    if not isinstance(instructions, str):
        instructions = "" if changes is None else changes.instructions or ""
    text = "\n\n".join(filter(None, (instructions, "" if native else agent.output_words)))
    system = (Message(id="system", role="system", content=text),) if text else ()
    messages, tools, settings = (*system, *history), agent.tool_infos + offered, agent.settings
    if changes is not None:
        if changes.hidden:
            hidden_ids = frozenset(changes.hidden)
            history = [message for message in history if message.id not in hidden_ids]
            messages = (*system, *history)
        at: dict[str, list[Message]] = {"system": [], "session": [], "conversation": [], "suffix": []}
        for index, addition in enumerate(changes.messages):
            at[addition.placement].append(_context(index, addition))
        newest = next((i for i in range(len(history) - 1, -1, -1) if history[i].role == "user"), len(history))
        before = (*system, *at["system"], *at["session"], *history[:newest])
        messages = (*before, *at["conversation"], *history[newest:], *at["suffix"])
        tools = tuple(info for info in tools if changes.offers(info.name))
        settings = {**settings, **changes.settings}
    if any(map(_CUT, history)):
        messages = tuple(
            part
            for message in messages
            for part in (message, Message(id=f"{message.id}.cut", role="user", content=CUT_NOTE))
            if part is message or message.cut
        )
    if effect.prefix or effect.cut_calls:
        messages = (*messages, *_continuation(effect.prefix, effect.cut_calls))
    choice = effect.tool_choice
    if (
        choice != "auto"
        and choice not in (("required", "none") if tools else ("none",))
        and all(tool.name != choice for tool in tools)
    ):
        choice = "auto"  # the step does not offer the demanded tool, and a provider would refuse the request
    return ModelRequest(
        agent=agent.key,
        messages=messages,
        tools=tools,
        settings=settings,
        run_id=run_id,
        step=effect.step,
        model_attempts=effect.model_attempts,
        output_schema=agent.output_schema,
        prefix=effect.prefix,
        cut_calls=effect.cut_calls,
        attempt=effect.attempt,
        model=model,
        tool_choice=choice,
    )


CUT_NOTE = "Your answer above was cut off: the run was ended while you wrote it."
"""Follows an answer that was cut, as a separate message, so that the shown text stays unchanged."""


def _continuation(prefix: str, cut_calls: Iterable[str]) -> Iterator[Message]:
    """Yield the messages of a request that follows a broken stream.

    The text so far is not the last message: newer models refuse an answer that the caller begins.
    """
    words = []
    if prefix:
        yield Message(id="prefix", role="assistant", content=prefix)
        words.append("Your answer was cut off. Continue exactly where the text above ends, and repeat nothing of it.")
    else:
        words.append("Your last answer was cut off. Answer again.")
    names = ", ".join(dict.fromkeys(cut_calls))
    if names:
        words.append(f"It had begun to call: {names}. None of these calls ran; make them again if they are needed.")
    yield Message(id="continuation", role="user", content=" ".join(words))


def _context(index: int, message: ContextMessage) -> Message:
    return Message(id=f"context.{index}", role=message.role, content=message.content)


# --- hooks -----------------------------------------------------------------------------------------------------------


def hook_request(
    effect: RunPhase, state: RunState, agent: Agent[object], run: RunContext, history: list[Message]
) -> HookRequest:
    """Build a phase's request to its hooks, about the run as it is now."""
    rows = state.calls
    row = None if effect.call_id is None else state.calls[effect.call_id]
    length, draft = len(history), state.row.draft  # the list may grow while hooks run

    def messages() -> tuple[Message, ...]:
        return tuple(map(copied_message, (*history[:length], *(() if draft is None else (draft,)))))

    common: dict[str, Any] = {
        "phase": effect.phase,
        "run_id": state.info.run_id,
        "thread_id": state.info.thread_id,
        "agent": agent.key,
        "by": state.info.by,
        "step": effect.step,
        "deps": run.deps,
        "workspace": run.workspace,
        "usage": state.row.usage,
        "text": state.row.answer,
        "termination": state.row.termination if effect.phase is Phase.RUN_END else None,
        "read_messages": messages,
        "answer_request": run.models_for(agent).answer,
        "read_values": run.stored_values,
    }

    def context(view: State, edits: tuple[CallEdit, ...]) -> PhaseContext:
        def calls() -> tuple[CallFacts, ...]:
            return tuple(_edited(CallFacts.of(row), edits) for row in rows.values())

        call = None if row is None else CallFacts.of(row)
        if effect.phase is Phase.TOOL_GATE and call is not None:
            return GateContext(state=view, calls=calls, call=call, **common)
        return PhaseContext(state=view, calls=calls, call=call, **common)

    return HookRequest(
        phase=effect.phase,
        step=effect.step,
        call_id=effect.call_id,
        agent=agent,
        snapshot=effect.state,
        context=context,
    )


def _edited(facts: CallFacts, edits: tuple[CallEdit, ...]) -> CallFacts:
    for edit in edits:
        if edit.call_id == facts.call_id and edit.arguments is not None:
            return attrs.evolve(facts, arguments=edit.arguments)
        if edit.call_id == facts.call_id:
            return attrs.evolve(facts, status=CallStatus.CANCELLED, text=edit.text, code="dropped")
    return facts
