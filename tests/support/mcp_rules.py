"""What the answer to an MCP call must keep, in both eras. Written from the protocol, without its packages.

`check` holds the messages of one stream to three kinds of rules, and raises `Broken` with the name of the first one
that it breaks:

- form: each message is JSON-RPC, and has the fields of its kind, without nulls;
- order: one answer with the client's id, last; progress only rises; only questions that are open are withdrawn, and
  none is open behind the answer;
- era: a modern server asks by `input_required` alone, and a client that shows no forms is asked nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Sent = Mapping[str, Any]

_CONTENT: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
}
_FIELD = {"type", "title", "description", "default"}
_FIELDS: dict[str, set[str]] = {
    "string": _FIELD | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": _FIELD | {"minimum", "maximum"},
    "integer": _FIELD | {"minimum", "maximum"},
    "boolean": _FIELD,
    "array": _FIELD | {"minItems", "maxItems", "items"},
}
_STATUS = {"working", "input_required", "completed", "failed", "cancelled"}


class Broken(AssertionError):
    """A rule is broken; `rule` names it."""

    def __init__(self, rule: str, text: object) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def need(holds: Any, rule: str, text: object = "") -> None:
    if not holds:
        raise Broken(rule, text)


def check(
    messages: Sequence[Sent], *, request_id: Any, modern: bool, forms: bool = True, token: Any = None, cut: bool = False
) -> None:
    """Hold the messages of one stream to all rules. `cut`: the stream ends before the answer."""
    watch = _Watch(token)
    for message in messages:
        need(message.get("jsonrpc") == "2.0", "jsonrpc", message)
        need(None not in message.values(), "no nulls", message)
        need(not watch.answered, "after the answer", message)
        if "method" not in message:
            watch.answer(message, request_id)
            _answer(message, modern=modern, forms=forms)
        elif "id" in message:
            need(not modern, "a modern server asks nothing", message)
            need(forms, "the client shows no forms", message)
            watch.question(message)
        else:
            watch.notification(message)
    need(watch.answered or cut, "one answer", messages[-1:])


class _Watch:
    """What is open in one stream."""

    def __init__(self, token: Any) -> None:
        self.token, self.progress = token, float("-inf")
        self.asked: set[str] = set()
        self.open: set[str] = set()
        self.answered = False

    def answer(self, message: Sent, request_id: Any) -> None:
        need(message.get("id") == request_id and type(message["id"]) is type(request_id), "the client's id", message)
        need(("result" in message) != ("error" in message), "a result or an error", message)
        self.answered = True

    def question(self, message: Sent) -> None:
        need(message["method"] == "elicitation/create", "known request", message)
        name = message["id"]
        need(isinstance(name, str) and name not in self.asked, "an id is used once", message)
        self.asked.add(name)
        self.open.add(name)
        check_form(message["params"])

    def notification(self, message: Sent) -> None:
        params = message["params"]
        need(None not in params.values(), "no nulls", message)
        match message["method"]:
            case "notifications/progress":
                need(self.token is not None and params["progressToken"] == self.token, "the client's token", message)
                need(params["progress"] > self.progress, "progress rises", message)
                need(isinstance(params.get("message", ""), str), "progress text", message)
                self.progress = params["progress"]
            case "notifications/cancelled":
                need(params["requestId"] in self.open, "withdrawn is open", message)
                self.open.discard(params["requestId"])
            case _:
                raise Broken("known notification", message)


def check_form(params: Sent) -> None:
    """A form is an object of plain fields, and says what it is about."""
    need(params.get("mode") == "form" and params.get("message"), "form", params)
    schema = params["requestedSchema"]
    need(schema.keys() <= {"type", "properties", "required"} and schema["type"] == "object", "flat form", schema)
    need(schema["properties"] and set(schema.get("required", ())) <= schema["properties"].keys(), "flat form", schema)
    for field in schema["properties"].values():
        need(field.keys() <= _FIELDS.get(field.get("type"), set()), "flat form", field)


def _answer(message: Sent, *, modern: bool, forms: bool) -> None:
    if "error" in message:
        error = message["error"]
        need(type(error["code"]) is int and isinstance(error["message"], str) and error["message"], "error", error)
        return
    result = message["result"]
    need(("resultType" in result) == modern, "result type", result)
    match result.get("resultType", "complete"):
        case "complete":
            check_result(result)
        case "input_required":
            need(forms, "the client shows no forms", result)
            need(result["inputRequests"] and isinstance(result["requestState"], str), "input required", result)
            for request in result["inputRequests"].values():
                need(request["method"] == "elicitation/create", "known request", request)
                check_form(request["params"])
        case "task":
            need(result["status"] in _STATUS and result["taskId"], "task", result)
            need(not result.keys() & {"requestState", "inputRequests", "result", "error"}, "task", result)
        case other:
            raise Broken("result type", other)


def check_result(result: Sent) -> None:
    """The result of a tool: content of known kinds, and whether it is an error."""
    need(isinstance(result["isError"], bool) and isinstance(result["content"], list), "result", result)
    need(isinstance(result.get("structuredContent", {}), dict), "structured content", result)
    for item in result["content"]:
        fields = _CONTENT.get(item.get("type"))
        need(fields is not None, "content", item)
        need(all(isinstance(item.get(name), kind) for name, kind in (fields or {}).items()), "content", item)
    need(isinstance(result["_meta"]["greenroom/run"], str), "the run is named", result)
