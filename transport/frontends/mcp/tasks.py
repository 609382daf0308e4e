"""The tasks extension: a run as an MCP task. A task is a view of rows; nothing else is stored.

| MCP task | the run |
|---|---|
| working | not done; also while others than the client's person decide |
| input_required | has open tickets that the client's person may decide; `inputRequests` has a form for each |
| completed | completed, stopped or failed: the result of the call, with isError for a failure |
| failed | failed by a bug (internal_error) |
| cancelled | cancelled |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import greenroom as gr
from greenroom.actors.contract.envelope import timestamp
from greenroom.actors.contract.lifecycle import RunStatus, TerminationKind
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.rows import RunRecord

from ...gateway.access import Principal
from .commands import cancel, decide
from .forms import form
from .messages import INTERNAL, INVALID_PARAMS, MISSING_CAPABILITY, RUN, TASKS, McpFault, McpRequest
from .reading import askable, ended_result, newest_at, open_tickets
from .sessions import McpCaller

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

POLL: Final = 1_000
"""Milliseconds between two reads of a task."""
KEPT: Final = 86_400_000
"""Milliseconds for which a task can be read at least: prune later than that."""


async def task_of(gateway: Gateway, run_id: str) -> JSONObject:
    """Return the answer of a call that goes on as a task."""
    record = await gateway.runtime.reader.record(run_id)
    if record is None:
        raise gr.UnknownRun(run_id)
    return {"resultType": "task", **await _facts(gateway, record, "working"), "_meta": {RUN: run_id}}


async def tasks_get(gateway: Gateway, who: Principal, caller: McpCaller, request: McpRequest) -> JSONObject:
    """Return a task as it is.

    Raises:
        McpFault: The client has not declared the extension, or sees no such task.
    """
    who.need("follow")
    record = await _record(gateway, who, caller, request)
    if record.row.status is RunStatus.DONE:
        return await _ended(gateway, record)
    tickets = [ticket for ticket in await open_tickets(gateway, record) if askable(who, caller.capabilities, ticket)]
    if not tickets:
        return await _facts(gateway, record, "working")
    forms = {
        ticket.ticket_id: {"method": "elicitation/create", "params": form(ticket, lists=True)} for ticket in tickets
    }
    return {**await _facts(gateway, record, "input_required"), "inputRequests": forms}


async def tasks_update(gateway: Gateway, who: Principal, caller: McpCaller, request: McpRequest) -> JSONObject:
    """Decide tickets of a task, one after the other; an unknown key is passed over.

    Raises:
        McpFault: As `tasks_get`; or an answer does not fit its ticket, after the others have acted.
    """
    who.need("decide")
    record = await _record(gateway, who, caller, request)
    answers = request.params.get("inputResponses", {})
    if not isinstance(answers, dict):
        raise McpFault(INVALID_PARAMS, f"inputResponses={answers!r:.100} is not an object")
    reasons = list[str]()
    for ticket in await open_tickets(gateway, record):
        answer = answers.get(ticket.ticket_id)
        if answer is None or (isinstance(answer, dict) and answer.get("action") == "cancel"):
            continue
        question = (ticket.ticket_id, ticket.fingerprint)
        why_not = await decide(gateway, who, record.info.run_id, question, answer, lists=True)
        reasons += [] if why_not is None else [f"{ticket.ticket_id}: {why_not}"]
    if reasons:
        raise McpFault(INVALID_PARAMS, "; ".join(reasons))
    return {}


async def tasks_cancel(gateway: Gateway, who: Principal, caller: McpCaller, request: McpRequest) -> JSONObject:
    """Cancel a task; one that has ended stays as it is.

    Raises:
        McpFault: As `tasks_get`.
    """
    who.need("start")
    record = await _record(gateway, who, caller, request)
    await cancel(gateway, who, record.info.run_id, "the client has cancelled its task")
    return {}


async def _record(gateway: Gateway, who: Principal, caller: McpCaller, request: McpRequest) -> RunRecord:
    if not caller.capabilities.tasks:
        needed: JSONObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        text = f"{request.method} needs a client that declares the extension {TASKS}"
        raise McpFault(MISSING_CAPABILITY, text, status=400, data=needed)
    task_id = request.params.get("taskId")
    record = await gateway.runtime.reader.record(task_id) if isinstance(task_id, str) else None
    if record is None or not who.sees(record.info):
        raise McpFault(INVALID_PARAMS, f"taskId={task_id!r:.100} is not a task that you may see")
    return record


async def _ended(gateway: Gateway, record: RunRecord) -> JSONObject:
    termination, run_id = record.row.termination, record.info.run_id
    if termination is not None and termination.kind is TerminationKind.CANCELLED:
        return await _facts(gateway, record, "cancelled")
    result = await ended_result(gateway, run_id, structured=False)
    if result is None:
        raise McpFault(INVALID_PARAMS, f"the task {run_id} was pruned")
    if termination is not None and termination.code == "internal_error":
        error = {"code": INTERNAL, "message": result["content"][0]["text"]}
        return {**await _facts(gateway, record, "failed"), "error": error}
    return {**await _facts(gateway, record, "completed"), "result": result}


async def _facts(gateway: Gateway, record: RunRecord, status: str) -> JSONObject:
    return {
        "taskId": record.info.run_id,
        "status": status,
        "createdAt": timestamp(record.info.created_at),
        "lastUpdatedAt": timestamp(await newest_at(gateway, record)),
        "ttlMs": KEPT,
        "pollIntervalMs": POLL,
    }
