"""A ticket as a form, and the answer of a person as a decision. Pure.

| the ticket | fields of the form | accepted |
|---|---|---|
| asks for permission, or is of the run itself | decision (approve or deny), reason | as `decision` says |
| asks what a cut call has come to, or anything | decision, result (JSON text), reason | the same, with the result |
| wants a value of a flat object | the properties of that object | approved, with the content as result |
| wants one text, number or choice | result | approved, with that value |
| wants another value | result (JSON text) | approved, with that value |

A declined form denies. A dismissed one (`cancel`) decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs
import msgspec

from greenroom.actors.contract.codec import shortened
from greenroom.actors.contract.decisions import Action, Ticket, asks_outcome
from greenroom.actors.contract.plain import JSONObject

LONGEST_MESSAGE: Final = 4_000
"""Most characters of a form's message: hosts show it in a dialog."""
LONGEST_ARGUMENTS: Final = 2_000
"""Most characters of the arguments in it."""

_encode = msgspec.json.Encoder().encode

_PRIMITIVE: Final = frozenset({"string", "number", "integer", "boolean"})
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_ABOUT: Final = ("title", "description", "default")
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"type", *_ABOUT, "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"}),
    "number": frozenset({"type", *_ABOUT, "minimum", "maximum"}),
    "integer": frozenset({"type", *_ABOUT, "minimum", "maximum"}),
    "boolean": frozenset({"type", *_ABOUT}),
    "array": frozenset({"type", *_ABOUT, "minItems", "maxItems", "items"}),
}
"""Type of a field -> the keywords that the protocol has for it."""
_DECISION: Final[JSONObject] = {
    "type": "string",
    "enum": ["approve", "deny"],
    "title": "Decision",
    "description": "approve or deny",
}
_REASON: Final[JSONObject] = {
    "type": "string",
    "title": "Reason",
    "description": "Why; the agent reads the reason of a denial.",
}
_JSON: Final[JSONObject] = {"type": "string", "title": "Result", "description": "The result, as JSON."}


@attrs.frozen(kw_only=True)
class FormDecision:
    """The decision that an answer asks for; see `Decision`."""

    action: Action
    result: Any = None
    reason: str | None = None


Shape = Literal["decision", "outcome", "object", "value", "json"]


def shape_of(ticket: Ticket, *, lists: bool) -> Shape:
    """Return the kind of a ticket's form: a row of the table above."""
    schema = ticket.response_schema
    if schema is None:
        if ticket.resume_mode == "pass_decision_to_tool":
            return "json"  # the arguments of the tool
        takes_result = ticket.resume_mode == "use_decision_as_tool_result"
        return "outcome" if takes_result or asks_outcome(ticket.reason, ticket.action) else "decision"
    if is_flat(schema, lists=lists):
        return "object"
    return "value" if _is_field(schema, lists=False) else "json"


def form(ticket: Ticket, *, lists: bool) -> JSONObject:
    """Return the parameters of an elicitation about an open, redacted ticket.

    Args:
        ticket: The ticket.
        lists: The client's revision knows lists of choices.
    """
    schema: JSONObject = {}
    match shape_of(ticket, lists=lists):
        case "decision":
            schema = _object({"decision": _DECISION, "reason": _REASON}, "decision")
        case "outcome":
            schema = _object({"decision": _DECISION, "result": _JSON, "reason": _REASON}, "decision")
        case "object":
            own = ticket.response_schema or {}
            schema = {name: own[name] for name in ("type", "properties", "required") if name in own}
        case "value":
            schema = _object({"result": dict(ticket.response_schema or {})}, "result")
        case "json":
            about = {} if ticket.response_schema is None else {"description": _about(ticket.response_schema)}
            schema = _object({"result": {**_JSON, **about}}, "result")
    return {"mode": "form", "message": message_of(ticket), "requestedSchema": schema}


def message_of(ticket: Ticket) -> str:
    """Return what a person reads about a ticket: the action with its arguments, and the ticket's own words."""
    lines = [ticket.message] if ticket.message else []
    if ticket.tool:
        arguments = shortened(_encode(ticket.arguments).decode(), LONGEST_ARGUMENTS)
        lines.append(f"{ticket.tool} {arguments}")
    elif ticket.action:
        lines.append(ticket.action)
    if ticket.parameters:
        lines.append(shortened(_encode(ticket.parameters).decode(), LONGEST_ARGUMENTS))
    return shortened("\n".join(lines) or f"The run asks: {ticket.reason}", LONGEST_MESSAGE)


def decision_of(ticket: Ticket, answer: object, *, lists: bool) -> FormDecision | None:
    """Return the decision that an answer asks for; None for a dismissed form.

    Args:
        ticket: The ticket, as stored.
        answer: The result of the elicitation.
        lists: As for the form.

    Raises:
        ValueError: The answer does not fit the form; the text names the field.
    """
    if not isinstance(answer, Mapping):
        raise ValueError("the answer is not an object")  # noqa: TRY004 - a client's mistake
    match answer.get("action"):
        case "cancel":
            return None
        case "decline":
            return FormDecision(action="cancel")
        case "accept":
            return _accepted(ticket, answer.get("content"), lists=lists)
        case action:
            raise ValueError(f"action={action!r:.100} is not known; use accept, decline or cancel")


def _accepted(ticket: Ticket, content: object, *, lists: bool) -> FormDecision:
    if not isinstance(content, dict):
        raise ValueError("content is not an object")  # noqa: TRY004 - a client's mistake
    match shape_of(ticket, lists=lists):
        case "decision" | "outcome" as shape:
            return _decided(content, with_result=shape == "outcome")
        case "object":
            return FormDecision(action="resume", result=content)
        case "value":
            if "result" not in content:
                raise ValueError("content.result is missing")
            return FormDecision(action="resume", result=content["result"])
        case "json":
            return FormDecision(action="resume", result=_parsed(content.get("result")))


def is_flat(schema: JSONObject, *, lists: bool) -> bool:
    """Return True if a schema is an object of fields that the protocol has, so that it can be a form itself."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, Mapping) or not properties:
        return False
    known = schema.keys() <= {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "title",
        "description",
        "$schema",
    }
    fields = all(isinstance(one, Mapping) and _is_field(one, lists=lists) for one in properties.values())
    return known and fields and all(name in properties for name in required)


def _is_field(schema: Mapping[str, Any], *, lists: bool) -> bool:
    kind = schema.get("type")
    if not isinstance(kind, str) or not schema.keys() <= _KEYS.get(kind, frozenset()):
        return False
    if kind == "array":
        return lists and isinstance(schema.get("items"), Mapping) and _is_choice(schema["items"])
    if kind == "string" and schema.get("format", "email") not in _FORMATS:
        return False
    return kind in _PRIMITIVE and not (schema.keys() & {"enum", "oneOf"} and not _is_choice(schema))


def _is_choice(schema: Mapping[str, Any]) -> bool:
    """Return True for a list of texts to choose from, plain or with titles."""
    options = schema.get("enum")
    if options is not None:
        return isinstance(options, list | tuple) and all(isinstance(one, str) for one in options)
    titled = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(titled, list | tuple) or not titled:
        return False
    return all(isinstance(one, Mapping) and isinstance(one.get("const"), str) and "title" in one for one in titled)


def _object(properties: JSONObject, required: str) -> JSONObject:
    return {"type": "object", "properties": properties, "required": [required]}


def _about(schema: JSONObject) -> str:
    return shortened(f"The result, as JSON of this form: {_encode(schema).decode()}", LONGEST_ARGUMENTS)


def _decided(content: JSONObject, *, with_result: bool) -> FormDecision:
    word, reason = content.get("decision"), content.get("reason")
    if word not in ("approve", "deny"):
        raise ValueError(f"content.decision={word!r:.100} is neither approve nor deny")
    if reason is not None and not isinstance(reason, str):
        raise ValueError(f"content.reason={reason!r:.100} is not a string")
    if word == "deny":
        return FormDecision(action="cancel", reason=reason or None)
    text = content.get("result") if with_result else None
    return FormDecision(action="resume", result=_parsed(text) if text else None, reason=reason or None)


def _parsed(text: object) -> Any:
    if not isinstance(text, str):
        raise ValueError("content.result is not a string with JSON in it")  # noqa: TRY004 - a client's mistake
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"content.result is not JSON: {error}") from error
