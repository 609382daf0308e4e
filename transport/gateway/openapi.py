"""The OpenAPI 3.1 document of the HTTP API, generated from the table of routes and the types of bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from greenroom.actors.contract.run_lists import LISTED, LISTED_OUTCOMES

from ..protocol.codes import ERRORS
from ..protocol.schemas import Schema, command_schemas, components
from ..protocol.up import MAX_ID, UP
from .bodies import BODIES
from .components import BEARER, TEMPLATE, any_event, apart, event_components, info, payload_components
from .http import EVENT_STREAM, JSON, Route
from .http import refusal as plain_refusal

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
PARAMS: Final[Mapping[str, Schema]] = {
    "run": {"type": "string", "description": "A run's id; a slash in it is written %2F."},
    "agent": {"type": "string", "description": "An agent's key."},
    "chat": {"type": "string", "description": "A chat's id: the thread of its runs."},
    "version": {"enum": ["v6", "v7"], "description": "Major version of the AI SDK."},
    "queue": {"type": "string", "description": "A queue's name: an agent's key, or the one that a start gave."},
    "name": {"type": "string", "description": "A file's name."},
    "rule": {"type": "string", "description": "A remembered rule's id."},
    "task": {"type": "string", "description": "An A2A task's id: a run's."},
    "config": {"type": "string", "description": "A push notification's id; there are none."},
    "thread": {"type": "string", "description": "A thread's id; a slash in it is written %2F."},
    "position": {"type": "integer", "minimum": 1, "description": "A message's position in its thread."},
    "place": {"type": "integer", "minimum": 0, "description": "The place of an image or a file in its message."},
    "sha256": {"type": "string", "description": "The digest of an image or a file, as events have it."},
    "artifact": {"type": "string", "description": "An artifact's id, as in the event that tells of it."},
}
"""Schemas of the parameters in routes' templates."""
QUERY: Final[Mapping[str, Schema]] = {
    "after": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    "before": {"type": "integer", "minimum": 1, "maximum": 2**53 - 1},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    "status": {"enum": list(LISTED)},
    "outcome": {"enum": list(LISTED_OUTCOMES)},
}
"""Schemas of query fields that are not arbitrary text."""
HEADERS: Final[Mapping[str, Schema]] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
}
"""Schemas of headers that are not arbitrary text."""
FREE: Final[Mapping[str, Schema]] = {
    "AnyEvent": any_event(),
    "Command": {
        "description": "A command to a run.",
        "oneOf": [{"$ref": TEMPLATE.format(name=kind)} for kind in command_schemas()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: TEMPLATE.format(name=kind) for kind in command_schemas()},
        },
    },
    "JsonRpc": {
        "description": "A JSON-RPC 2.0 message of the Model Context Protocol: a request, a notification or an answer.",
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer", "null"]},
            "method": {"type": "string"},
            "params": {"type": "object"},
            "result": {"type": "object"},
            "error": {"type": "object"},
        },
        "required": ["jsonrpc"],
    },
    "McpError": {
        "description": "An error of JSON-RPC, or of the gateway if no message was read.",
        "anyOf": [{"$ref": TEMPLATE.format(name="JsonRpc")}, {"$ref": TEMPLATE.format(name="ErrorBody")}],
    },
    "Document": {"description": "A JSON document.", "type": "object"},
}
"""Components composed of others."""


def openapi(routes: Sequence[Route[Any]]) -> Schema:
    """Return the document as plain data.

    Raises:
        ValueError: Two routes have one operation id, or two components one name.
    """
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    if len(set(ids)) != len(routes):
        raise ValueError(f"two routes have one method and path, or one handler: {sorted(ids)}")
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": info("Greenroom gateway: HTTP"),
        "servers": [{"url": "http://127.0.0.1:8765", "description": "Where `greenroom serve` listens by default."}],
        "tags": [{"name": name} for name in sorted({route.tag for route in routes})],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "responses": {"Refused": _refused(), "RefusedByProtocol": _refused_by_protocol()},
            "securitySchemes": {"bearer": BEARER},
        },
    }


def _operation(route: Route[object]) -> Schema:
    operation: Schema = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [
            *_params(route),
            *_named("query", route.query, QUERY),
            *_named("header", route.headers, HEADERS),
        ],
        "responses": _responses(route),
    }
    if route.body is not None:
        name = route.body if isinstance(route.body, str) else route.body.__name__
        operation["requestBody"] = {"required": True, "content": _content(name)}
    if route.scope is not None:
        scopes = [] if route.scope in ("any", "maybe") else [route.scope]
        operation["security"] = [{"bearer": scopes}, *([{}] if route.scope == "maybe" else [])]
    return operation


def _params(route: Route[object]) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": PARAMS[name]}
        for name in re.findall(r"\{(\w+)\}", route.template)
    ]


def _named(place: str, said: Mapping[str, str], names: Mapping[str, Schema]) -> list[Schema]:
    return [
        {"name": name, "in": place, "description": text, "schema": names.get(name, {"type": "string"})}
        for name, text in said.items()
    ]


def _responses(route: Route[object]) -> Schema:
    codes: Schema = {}
    for status, (text, content) in sorted(route.responses.items()):
        codes[str(status)] = {"description": text}
        if content is not None:
            names = (content,) if isinstance(content, str) else content
            codes[str(status)]["content"] = {kind: media for name in names for kind, media in _content(name).items()}
    kind = "Refused" if route.refusal is plain_refusal else "RefusedByProtocol"
    refusal = {"$ref": f"#/components/responses/{kind}"}
    if route.scope is not None:
        codes |= {"401": refusal, "403": refusal}
    return codes | {"default": refusal}


def _content(name: str) -> Schema:
    """Return the content of a body: JSON for a component's name, arbitrary text for a media type (with a slash)."""
    if name == EVENT_STREAM:
        return {name: {}}  # OpenAPI 3.1 has no schema for the items of a stream
    if "/" in name:
        return {name: {"schema": {"type": "string"}}}
    return {JSON: {"schema": {"$ref": TEMPLATE.format(name=name)}}}


def _refused() -> Schema:
    return {
        "description": "Nothing happened; `error.code` says why. The status goes with the code.",
        "content": _content("ErrorBody"),
        "x-error-codes": [attrs.asdict(code) for code in ERRORS.values()],
    }


def _refused_by_protocol() -> Schema:
    text = "Nothing happened; the body is an error of the protocol that the route belongs to."
    return {"description": text, "content": _content("Document")}


def _schemas(routes: Iterable[Route[object]]) -> dict[str, Schema]:
    bodies = components(BODIES.values(), TEMPLATE)
    classes = [route.body for route in routes if isinstance(route.body, type)]
    names = {name: schema for cls in classes for name, schema in _taken(cls).items()}
    return apart({**bodies, **FREE}, names, command_schemas(), event_components(), payload_components())


def _taken(cls: type[object]) -> dict[str, Schema]:
    """Return the schema of a request's body.

    The protocol's frames allow no unknown field, and the header may have the id. The path names the run of a fork.
    """
    schemas = components([cls], TEMPLATE)
    if cls in UP.values():
        schemas = {name: {**schema, "additionalProperties": False} for name, schema in schemas.items()}
        own = schemas[cls.__name__]
        in_path = {"run"} if "run" in own["required"] else set()
        fields = {name: schema for name, schema in own["properties"].items() if name not in in_path}
        required = [name for name in own["required"] if name not in {"id", *in_path}]
        schemas[cls.__name__] = {**own, "properties": fields, "required": required}
    return schemas
