"""Questions of an MCP server for people: requests of elicitation become a ticket's form, and an answer goes back.

Theory of operation. A server of the handshake era asks with one request, a modern one ends a round with several. Both
become one `Form`. A server's schema is foreign: the form has its fields with the keywords that the protocol allows, and
nothing else of it. Fields with a default may be left out of an answer; `responses_of` fills them in, from what the
body has kept in its memo, so that any process can answer. An address is shown to people and never opened.

Source: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs

from ..contract.codec import shortened
from ..contract.decisions import Suspend
from ..contract.json_schema.faults import schema_fault, unusable_schema
from ..contract.plain import JSONObject, JSONValue
from ..contract.sizes import measured
from ..errors import ToolError

ELICIT: Final = "elicitation/create"
ROUNDS: Final = 10
"""Most rounds of questions in one call; the official clients allow as many."""
REQUESTS_LIMIT: Final = 8
"""Most requests of one round: people read them as one question."""
FIELDS_LIMIT: Final = 24
"""Most fields of one round. The loop stands still while a form is judged, some 10 ms for the largest one."""
KEY_LIMIT: Final = 128
"""Most characters of the key of a request, and of the name of a field."""
MESSAGE_LIMIT: Final = 4_096
"""Most characters of a message that people are shown."""
URL_LIMIT: Final = 4_096
"""Most characters of an address."""
SCHEMA_LIMIT: Final = 8_192
"""Most characters of the schemas of one round."""
OPTIONS_LIMIT: Final = 3
"""Most alternatives of one field; choices with titles are not counted, for they become an enumeration."""

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean", "null"})
_TYPES: Final = _SCALARS | {"array"}
_WORDS: Final = (
    *("type", "title", "description", "default", "enum", "enumNames", "const", "format", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
)
"""The keywords of a field that a form keeps; choices and items are kept part by part."""
_DEPTH: Final = 3
"""Levels of a field: a list of a choice of values."""

Asked = Mapping[str, JSONObject | None]
"""Key of a request -> the defaults of its fields; None: it has an address and no fields."""


@attrs.frozen(kw_only=True)
class Form:
    """What people are asked, and what is kept for their answer.

    Attributes:
        message: the server's name and its text; of several requests, one paragraph each.
        response_schema: of one request with fields, the schema of its fields; of several, one property for each key,
            true or false for an address. None: one address, which is approved without a result.
        parameters: {"server", "requests": {key: {"mode", "message", and "url" of an address}}}.
        asked: for `responses_of`.
    """

    message: str
    response_schema: JSONObject | None
    parameters: JSONObject
    asked: Asked

    def suspension(self) -> Suspend:
        """Return the question for people."""
        return Suspend(
            reason="user_input",
            message=self.message,
            parameters=self.parameters,
            response_schema=self.response_schema,
        )


@attrs.frozen(kw_only=True)
class _Question:
    """One request: its part of the form. `required`: people have to answer; `defaults` as in `Asked`."""

    shown: JSONObject
    schema: JSONObject
    required: bool
    defaults: JSONObject | None

    @property
    def text(self) -> str:
        message = str(self.shown["message"])
        return message if self.defaults is not None else f"{message}\nOpen {self.shown['url']} yourself, then approve."


def form_of(server: str, requests: Mapping[str, JSONValue]) -> Form:
    """Return the form for the requests of one round, or for the only request of the handshake era.

    Args:
        server: the name of the server, for people.
        requests: key -> {"method", "params"}, as the protocol has them.

    Raises:
        ToolError: a request is not for people (sampling, roots), cannot be shown, or exceeds a limit; names the server
            and the request.
    """
    try:
        questions = _questions(requests)
    except _Unfit as error:
        raise ToolError(f"the MCP server {server!r} asks for what cannot be answered: {error}") from None
    texts = [question.text for question in questions.values()]
    first = next(iter(questions.values()))
    return Form(
        message=f"{server} asks: {texts[0]}" if len(texts) == 1 else "\n\n".join([f"{server} asks:", *texts]),
        response_schema=_several(questions) if len(texts) > 1 else first.schema if first.defaults is not None else None,
        parameters={"server": server, "requests": {key: question.shown for key, question in questions.items()}},
        asked={key: question.defaults for key, question in questions.items()},
    )


def responses_of(asked: Asked, result: JSONValue) -> dict[str, JSONObject]:
    """Return the answer to each request, {"action", "content"}, for a result that satisfies the form's schema.

    A field that the result leaves out has its default; an address of several is declined by false.
    """
    answers = result if isinstance(result, dict) else {}
    return {
        key: _response(defaults, answers if len(asked) == 1 else answers.get(key)) for key, defaults in asked.items()
    }


class _Unfit(ValueError):
    """A request that cannot be put to people; the text says why."""


def _questions(requests: Mapping[str, JSONValue]) -> dict[str, _Question]:
    if not 0 < len(requests) <= REQUESTS_LIMIT:
        raise _Unfit(f"it has {len(requests)} requests in one round; 1 to {REQUESTS_LIMIT} can be shown")
    schemas = [schema for request in requests.values() if (schema := _schema_of(request)) is not None]
    if measured(schemas, SCHEMA_LIMIT) > SCHEMA_LIMIT:
        raise _Unfit(f"its schemas have more than {SCHEMA_LIMIT:,} characters")
    if sum(len(schema["properties"]) for schema in schemas) > FIELDS_LIMIT:
        raise _Unfit(f"its forms have more than {FIELDS_LIMIT} fields")
    questions = {_name(key, "the key of a request"): _question(request) for key, request in requests.items()}
    wrong = unusable_schema(_several(questions))
    if wrong is not None:
        raise _Unfit(f"its schema cannot be used: {wrong}")
    return questions


def _schema_of(request: JSONValue) -> JSONObject | None:
    """Return the schema of a request that asks for fields; None for any other request."""
    match request:
        case {"params": {"requestedSchema": {"type": "object", "properties": dict()}}}:
            schema: JSONObject = request["params"]["requestedSchema"]
            return schema
        case _:
            return None


def _question(request: JSONValue) -> _Question:
    match request:
        case {"method": "elicitation/create", "params": {"mode": "url"} as params}:
            return _address(params)
        case {"method": "elicitation/create", "params": dict() as params} if params.get("mode", "form") == "form":
            return _fields(params)
        case {"method": str() as method}:
            raise _Unfit(
                f"{shortened(method, KEY_LIMIT)!r} of this kind is not offered to servers, only forms and addresses"
            )
        case _:
            raise _Unfit("a request without a method")


def _address(params: JSONObject) -> _Question:
    url = params.get("url")
    if not isinstance(url, str) or len(url) > URL_LIMIT or not (url.isascii() and url.isprintable()) or " " in url:
        raise _Unfit(f"the address {url!r:.200} is not a text of at most {URL_LIMIT:,} printable ASCII characters")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _Unfit(f"the address {url!r:.200} cannot be read: {error}") from None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise _Unfit(f"the address {url!r:.200} is refused: people are only shown https:// and a host, without a user")
    schema: JSONObject = {"type": "boolean", "description": url}
    return _Question(
        shown={"mode": "url", "message": _message(params), "url": url}, schema=schema, required=True, defaults=None
    )


def _fields(params: JSONObject) -> _Question:
    foreign = _schema_of({"params": params})
    if foreign is None:
        raise _Unfit("its schema is not an object with named fields")
    fields = _checked_fields(foreign["properties"])
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    required = [name for name in _required(foreign) if name not in defaults]
    schema: JSONObject = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    shown: JSONObject = {"mode": "form", "message": _message(params)}
    return _Question(shown=shown, schema=schema, required=bool(required), defaults=defaults)


def _checked_fields(properties: JSONObject) -> dict[str, dict[str, JSONValue]]:
    """Return the fields of a form, without a default that does not fit its own field."""
    fields = {_name(name, "the name of a field"): _field(name, part) for name, part in properties.items()}
    for field in fields.values():
        if "default" in field and schema_fault(field, field["default"]) is not None:
            del field["default"]
    return fields


def _required(schema: JSONObject) -> list[str]:
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name in schema["properties"] for name in names):
        raise _Unfit("its schema requires what is not one of its fields")
    return list(dict.fromkeys(names))


def _field(name: str, part: JSONValue) -> dict[str, JSONValue]:
    field = _flat(part, _DEPTH)
    if field is None:
        raise _Unfit(f"the field {name!r} is not a text, a number, a truth value, a choice or a list of choices")
    return field


def _flat(part: JSONValue, depth: int) -> dict[str, JSONValue] | None:
    """Return the part of a schema with the keywords that a form keeps; None if it allows an object, or anything."""
    if not isinstance(part, dict) or depth == 0:
        return None
    field: dict[str, JSONValue] = {word: part[word] for word in _WORDS if word in part}
    values = [part["const"]] if "const" in part else []
    if isinstance(part.get("enum"), list):
        values += part["enum"]
    if any(isinstance(value, dict | list) for value in values):
        return None
    kinds = part.get("type", [])
    allowed = _TYPES if depth == _DEPTH else _SCALARS
    if not all(isinstance(kind, str) and kind in allowed for kind in (kinds if isinstance(kinds, list) else [kinds])):
        return None
    for word in ("anyOf", "oneOf"):
        if word in part and not _take_choices(field, word, part[word], depth):
            return None
    if kinds == "array":
        items = _flat(part.get("items"), depth - 1)
        if items is None:
            return None
        field["items"] = {**items, "type": "string"}
    return field if {"type", "enum", "const", "anyOf", "oneOf"} & field.keys() else None


def _take_choices(field: dict[str, JSONValue], word: str, choices: JSONValue, depth: int) -> bool:
    """Add the alternatives of a field; return whether a form can show them. Titled values become an enumeration."""
    options = choices if isinstance(choices, list) else []
    if options and all(isinstance(option, dict) and isinstance(option.get("const"), str) for option in options):
        field["enum"] = [option["const"] for option in options]
        field["enumNames"] = [str(option.get("title", option["const"])) for option in options]
        return True
    flat_options = [_flat(option, depth - 1) for option in options[:OPTIONS_LIMIT]]
    field[word] = flat_options
    return 0 < len(options) <= OPTIONS_LIMIT and None not in flat_options


def _several(questions: Mapping[str, _Question]) -> JSONObject:
    """Return the schema of an object with one property for each request."""
    return {
        "type": "object",
        "properties": {key: question.schema for key, question in questions.items()},
        "required": [key for key, question in questions.items() if question.required],
        "additionalProperties": False,
    }


def _response(defaults: JSONObject | None, answer: JSONValue) -> JSONObject:
    if defaults is None:
        return {"action": "decline" if answer is False else "accept"}
    content = answer if isinstance(answer, dict) else {}
    return {"action": "accept", "content": {**defaults, **content}}


def _message(params: JSONObject) -> str:
    message = params.get("message")
    if not isinstance(message, str):
        raise _Unfit("a request has no message for people")
    return shortened(message, MESSAGE_LIMIT)


def _name(name: str, what: str) -> str:
    if not 0 < len(name) <= KEY_LIMIT or not name.isprintable():
        raise _Unfit(f"{what} {name!r:.200} is not 1 to {KEY_LIMIT} printable characters")
    return name
