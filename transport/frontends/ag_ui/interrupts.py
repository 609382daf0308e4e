"""A ticket as an AG-UI interrupt: the question, and the meaning of an answer.

| resume_mode of the ticket | payload of the answer | responseSchema |
|---|---|---|
| replay_tool_call | `approved` or `action`; `editedArgs`, `reason`, `result`, `approvedActionFingerprint` | of that |
| use_decision_as_tool_result, pass_decision_to_tool | the result, or the arguments, unchanged | the ticket's own |

A ticket of the run itself has no call, so it has no `toolCallId` and nothing to edit: `approved` lets the run continue,
a `result` joins the conversation, and declining ends the run.

`status: cancelled` declines, and so does `approved: false`. `action` is one of the words of a decision in place of
`approved`: approve or resume, deny or cancel. The responseSchema has only `approved`, so that a form generated from the
schema has one field. `editedArgs` replaces the arguments; it is not merged. An unknown key of an approval is refused: a
misspelt `editedArgs` must not approve the original arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from greenroom.actors.contract.decisions import Action, ActionWord, action_of, asks_outcome
from greenroom.actors.contract.plain import JSONObject
from greenroom.supervision.fields import did_you_mean

Payload = JSONObject

_REASONS: Final[Mapping[str, str]] = {"tool_permission": "tool_call", "user_input": "input_required"}
"""Reason of a ticket -> the protocol's term; other reasons become `greenroom:<reason>`."""
_SHOWN: Final = (
    "callId",
    "tool",
    "arguments",
    "fingerprint",
    "action",
    "parameters",
    "resumeMode",
    "childRunId",
    "childTicketId",
    "live",
)
"""Fields of run.approval.requested that an interrupt's metadata holds."""
_SHARED: Final = ("$defs", "definitions")
"""Keys of the shared definitions in a JSON Schema: references start at the root, so the definitions move there."""

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "approved": (bool, "true or false"),
    "action": (str, "a string"),
    "editedArgs": (dict, "an object"),
    "reason": (str, "a string"),
    "approvedActionFingerprint": (str, "a string"),
}
"""Keys of an approval -> their types. `result` may have any type."""


@attrs.frozen(kw_only=True)
class DecisionDraft:
    """The fields of a decision that an answer asks for; see `Decision`."""

    action: Action
    result: Any = None
    edited_arguments: JSONObject | None = None
    reason: str | None = None
    fingerprint: str | None = None


def interrupt(ticket: Payload, call: str | None) -> dict[str, Any]:
    """Convert an open ticket (payload of run.approval.requested) to an interrupt.

    `call` is the toolCallId of its call.
    """
    reason = ticket["reason"]
    name = _REASONS.get(reason, f"greenroom:{reason}")
    details: dict[str, Any] = {
        "id": ticket["ticketId"],
        "reason": "confirmation" if name == "tool_call" and call is None else name,
        "message": ticket.get("message") or ticket.get("action") or None,
        "toolCallId": call,
        "responseSchema": response_schema(ticket),
        "expiresAt": ticket.get("expiresAt"),
        "metadata": {"greenroom": {name: ticket[name] for name in _SHOWN if ticket.get(name) not in (None, "")}},
    }
    return {name: value for name, value in details.items() if value is not None}


def response_schema(ticket: Payload) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer's payload; None allows any payload."""
    own = ticket.get("responseSchema")
    mode = ticket["resumeMode"]
    if mode == "use_decision_as_tool_result":
        return None if own is None else dict(own)
    if mode == "pass_decision_to_tool":
        return {"type": "object"} if own is None else dict(own)
    properties: dict[str, Any] = {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Full replacement of the tool's arguments. Not merged."},
        "reason": {
            "type": "string",
            "description": "The reason of the decision; the agent reads the reason of a denial.",
        },
        "approvedActionFingerprint": {"type": "string", "description": "The fingerprint of metadata.greenroom."},
    }
    if ticket.get("callId") is None:
        del properties["editedArgs"]
        properties["result"] = {"description": "A message for the agent, which reads it when the run continues."}
    shared: dict[str, Any] = {}
    if own is not None:
        properties["result"] = {name: value for name, value in own.items() if name not in _SHARED}
        shared = {name: own[name] for name in _SHARED if name in own}
    elif asks_outcome(ticket["reason"], ticket.get("action", "")):
        properties["result"] = {"description": "The effect of the call; without it, an approved call runs again."}
    return {
        "type": "object",
        "properties": properties,
        "required": ["approved"],
        "additionalProperties": False,
        **shared,
    }


def decision_draft(resume_mode: str, status: str, payload: object) -> DecisionDraft:
    """Return the decision that an answer to an interrupt asks for.

    Args:
        resume_mode: The resume mode of the ticket.
        status: resolved or cancelled.
        payload: The payload of the answer, or None.

    Raises:
        ValueError: The payload is invalid; the text names the key.
    """
    if status == "cancelled":
        return DecisionDraft(action="cancel", reason=_reason_of(payload))
    if resume_mode != "replay_tool_call":
        return DecisionDraft(action="resume", result=payload)
    return _approval(payload)


def _approval(payload: object) -> DecisionDraft:
    if not isinstance(payload, Mapping):
        raise ValueError('payload must be an object such as {"approved": true}')  # noqa: TRY004 - a client's mistake
    unknown = sorted(payload.keys() - _KINDS.keys() - {"result"})
    if unknown:
        names = [*_KINDS, "result"]
        near = did_you_mean(unknown[0], names, quoted=False)
        raise ValueError(f"payload.{unknown[0]:.60} is not known here; {near}there are {', '.join(names)}")
    for name, (kind, answer) in _KINDS.items():
        if name in payload and not isinstance(payload[name], kind):
            raise ValueError(f"payload.{name} must be {answer}")
    action = _action(payload)
    reason, mark = payload.get("reason"), payload.get("approvedActionFingerprint")
    if action == "cancel":
        return DecisionDraft(action="cancel", reason=reason, fingerprint=mark)
    return DecisionDraft(
        action=action,
        result=payload.get("result"),
        edited_arguments=payload.get("editedArgs"),
        reason=reason,
        fingerprint=mark,
    )


def _action(payload: JSONObject) -> Action:
    """Return the action of an approval's `approved` or `action`."""
    fields = [name for name in ("approved", "action") if name in payload]
    if not fields:
        raise ValueError("payload.approved is missing; it is true or false")
    if len(fields) == 2:
        raise ValueError("payload.approved and payload.action are both there; give one of the two")
    if fields == ["approved"]:
        return "resume" if payload["approved"] else "cancel"
    word: ActionWord = payload["action"]
    try:
        return action_of(word)
    except ValueError as error:
        raise ValueError(f"payload.{error}") from error


def _reason_of(payload: object) -> str | None:
    reason = payload.get("reason") if isinstance(payload, Mapping) else None
    return reason if isinstance(reason, str) else None
