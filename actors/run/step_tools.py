"""The tools of toolsets in a run: those of its newest step, and that of one call.

Theory of operation. The owner that begins a step asks the toolsets in the phase before_inference, where the run can
report what fails, and keeps the answer for the requests and the calls of the step. An owner that takes the run up in
the middle of a step asks again, for a request with `tools_of_step`, for a call with `tool_of_call`.
"""

from __future__ import annotations

from functools import partial

from ..agents.agent import Agent
from ..contract.phases import Phase
from ..contract.spec import OfferedTool
from ..engine.effects import RunPhase
from ..engine.state import RunState
from ..plugins.contexts import PhaseContext
from ..services.error_log import TOOL
from ..state.access import State
from ..tools.definition import Tool
from ..tools.toolset import Toolset
from ..user_code.hook_deadlines import HookDeadlines
from ..user_code.toolsets import StepTools, ask_toolsets, find_tool
from .model_request import hook_request
from .run_context import RunContext


async def ask_for_step(
    run: RunContext, agent: Agent[object], ctx: PhaseContext, watch: HookDeadlines | None
) -> StepTools:
    """Ask the toolsets of an agent, and keep their answer for the step. A failure is logged. Cancelled passes."""
    report = partial(_log, run)
    run.step_tools = await ask_toolsets(agent, ctx, opened=partial(_opened, run), watch=watch, report=report)
    return run.step_tools


async def tools_of_step(run: RunContext, agent: Agent[object], state: RunState) -> StepTools:
    """Return the tools for a request of the run's newest step; the toolsets are asked only if nobody here has."""
    newest, step = run.step_tools, state.row.step
    if newest is not None and (newest.agent, newest.step) == (agent.key, step):
        return newest
    history = await run.history_for(state)
    effect = RunPhase(phase=Phase.BEFORE_INFERENCE, step=step, state=state.snapshot)
    request = hook_request(effect, state, agent, run, history)
    return await ask_for_step(run, agent, request.context(State(state.snapshot, agent.spec.keys), ()), None)


async def tool_of_call(
    run: RunContext, agent: Agent[object], offered: OfferedTool, *, again: bool = False
) -> Tool[..., object] | str | None:
    """Return the tool of a call; None if there is none any more, or why its toolset did not answer.

    `again`: time has passed since the step, so the toolset is asked. Cancelled passes.
    """
    tool = run.tool(agent, offered.name)
    if tool is not None and not again:
        return tool
    answer = await find_tool(agent, offered, run.info, opened=partial(_opened, run), of_step=tool)
    if isinstance(answer, Tool):
        newest = run.step_tools
        others = newest.tools if newest is not None and newest.agent == agent.key else {}
        # step 0, so that a request of the step asks for all of its tools
        run.step_tools = StepTools(agent=agent.key, step=0, tools={**others, offered.name: answer})
    return answer


async def _opened(run: RunContext, toolset: Toolset) -> Toolset:
    return await run.services.models.toolset(toolset, run.info.run_id)


def _log(run: RunContext, toolset: str, why: str, error: BaseException | None) -> None:
    """Log a failure of a toolset, once per run and text in this process."""
    if (toolset, why) in run.toolset_faults:
        return
    run.toolset_faults |= {(toolset, why)}
    what = f"run {run.info.run_id}: toolset {toolset!r}: {why}"
    run.log.fault(TOOL, what, error, code="toolset_unavailable", toolset=toolset)
