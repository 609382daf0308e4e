"""`tools/call`: an agent's run, the answers of a repeated call, and the result of a run; and streams that go on."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from greenroom.actors.contract.plain import JSONObject

from ...gateway.access import Principal
from ...gateway.http import Streamed
from .commands import decide, run_of, start
from .messages import INVALID_PARAMS, RUN, McpFault, McpRequest, check_params, read_id
from .reading import may_read
from .results import failed, unfinished
from .sessions import McpCaller, opened_by
from .stream import EVENT, STATE, CallStream, EventId, McpCall, RequestState
from .tasks import task_of
from .tools import LONGEST_WAIT, RUN_RESULT, McpTool, agent_tools

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

QUICK: Final = 0.5
"""Seconds for which a call of a client with tasks may take before the call is a task."""


def tools_of(gateway: Gateway) -> dict[str, McpTool]:
    """Return the tools of this process by name."""
    return agent_tools(gateway.runtime.agents, gateway.mcp)


async def tools_call(gateway: Gateway, who: Principal, caller: McpCaller, call: McpRequest) -> JSONObject | Streamed:
    """Call a tool; the run of an agent is durable when this returns.

    Raises:
        McpFault, Refused: Nothing was started or decided.
    """
    who.need("start")
    name, arguments = call.params.get("name"), call.params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise McpFault(INVALID_PARAMS, f"arguments={arguments!r:.100} is not an object")
    tools = tools_of(gateway)
    if name == RUN_RESULT and tools:
        return await _run_result(gateway, who, caller, call, arguments)
    tool = tools.get(name) if isinstance(name, str) else None
    if tool is None:
        raise McpFault(INVALID_PARAMS, f"no tool has the name {name!r:.100}; tools/list names those there are")
    if caller.modern:
        check_params(caller.headers, tool.input_schema, arguments)
    plan = _plan(caller, call, _run_id(who, caller, call), structured=tool.output_schema is not None)
    if caller.capabilities.tasks:
        plan = attrs.evolve(plan, kind="task", wait=QUICK)
    if "requestState" in call.params:
        run_id, dismissed = await _answers(gateway, who, tool, call.params)
        after = await _head(gateway, run_id)
        return _streamed(gateway, who, attrs.evolve(plan, run_id=run_id, dismissed=dismissed, after=after))
    try:
        text = tool.input_of(arguments)
    except ValueError as misfit:
        return failed(str(misfit))  # an answer that the model of the client reads, so that it can call again
    await start(gateway, who, tool, text, plan.run_id)
    return _streamed(gateway, who, plan)


def resumed(gateway: Gateway, who: Principal, caller: McpCaller, last: str) -> Streamed:
    """Return the rest of a call's stream, behind the event with this id.

    Raises:
        McpFault: The id was not made for this client.
    """
    run_id, request_id, after, token, kind, structured = opened_by(who, EVENT, last, "Last-Event-ID", EventId)
    call = McpCall(
        request_id=request_id,
        run_id=run_id,
        version=caller.version,
        capabilities=caller.capabilities,
        token=token,
        kind=kind,
        wait=0.0 if kind == "result" else None,
        structured=structured,
        after=after,
    )
    return _streamed(gateway, who, call)


def _streamed(gateway: Gateway, who: Principal, call: McpCall) -> Streamed:
    late = partial(task_of, gateway) if call.kind == "task" else _unfinished
    return CallStream(gateway, who, call, partial(late, call.run_id)).response()


def _plan(caller: McpCaller, call: McpRequest, run_id: str, **more: Any) -> McpCall:
    token = call.meta.get("progressToken")
    return McpCall(
        request_id=call.id,
        run_id=run_id,
        version=caller.version,
        capabilities=caller.capabilities,
        token=None if token is None else read_id("progressToken", token),
        **more,
    )


def _run_id(who: Principal, caller: McpCaller, call: McpRequest) -> str:
    """Return the id of the run that a call starts.

    It is the same for the same request of an MCP session, so that a cancel finds the run. In the modern era the client
    may name the run.
    """
    if not caller.modern:
        return run_of(who, caller.name, call.id)
    run_id = call.meta.get(RUN, f"run_{uuid.uuid4().hex[:16]}")
    if not isinstance(run_id, str):
        raise McpFault(INVALID_PARAMS, f"_meta {RUN} = {run_id!r:.100} is not a run's id")
    return run_id


async def _answers(gateway: Gateway, who: Principal, tool: McpTool, params: JSONObject) -> tuple[str, dict[str, str]]:
    """Post the answers of a repeated call; return its run, and why answers decided nothing, by ticket."""
    run_id, asked = opened_by(who, STATE, params["requestState"], "requestState", RequestState)
    answers = params.get("inputResponses", {})
    if not isinstance(answers, dict):
        raise McpFault(INVALID_PARAMS, f"inputResponses={answers!r:.100} is not an object")
    info = await gateway.runtime.reader.info(run_id)
    if info is None or info.agent != tool.key or not may_read(who, info):
        raise McpFault(INVALID_PARAMS, f"requestState is not one of the tool {tool.name}")
    dismissed: dict[str, str] = {}
    for key, (ticket_id, fingerprint) in asked.items():
        if key in answers:
            why_not = await decide(gateway, who, run_id, (ticket_id, fingerprint), answers[key], lists=True)
            dismissed |= {} if why_not is None else {ticket_id: f"{ticket_id}: {why_not}"}
    return run_id, dismissed


async def _run_result(
    gateway: Gateway, who: Principal, caller: McpCaller, call: McpRequest, arguments: JSONObject
) -> JSONObject | Streamed:
    run_id, wait = arguments.get("run"), arguments.get("wait", 0)
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 <= wait <= LONGEST_WAIT:
        return failed(f"wait={wait!r:.100}: give seconds, 0 to {LONGEST_WAIT}")
    info = await gateway.runtime.reader.info(run_id) if isinstance(run_id, str) else None
    if info is None or info.by != who.name or not who.sees(info):
        return failed(f"no call of yours has started the run {run_id!r:.100}")
    after = await _head(gateway, info.run_id)
    return _streamed(gateway, who, _plan(caller, call, info.run_id, kind="result", wait=float(wait), after=after))


async def _head(gateway: Gateway, run_id: str) -> int:
    """Return the sequence of the newest event of a run, behind which a call goes on."""
    outline = await gateway.runtime.reader.outline(run_id)
    return 0 if outline is None else outline.last_sequence


async def _unfinished(run_id: str) -> JSONObject:
    return unfinished(run_id, "has not ended")
