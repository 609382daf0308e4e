"""The documents of this API, made from its tables and types: `openapi(routes)` and `asyncapi()`.

Nothing is written down twice. Routes, frames, events, error and close codes come from where the program itself has
them; what stands here is how they belong together. `python scripts/generate.py` writes the documents to docs/schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from greenroom.actors.contract.schemas import event_schemas

from ..protocol.codes import CLOSE_CODES, ERRORS, PATH, SUBPROTOCOL
from ..protocol.schemas import Schema, down_schemas, moved, tidied, up_schemas
from ..protocol.up import COMMANDS

API_VERSION: Final = "1.0.0"
"""Of paths below /v1 and of the subprotocol; the first number is theirs."""

REPLIES: Final[Mapping[str, tuple[str, ...]]] = {
    "hello": ("gw.welcome", "gw.bye"),
    "subscribe": ("gw.subscribed", "gw.reset", "gw.error"),
    "unsubscribe": ("gw.unsubscribed", "gw.error"),
    "start": ("gw.ack", "gw.error"),
    "decide": ("gw.ack", "gw.error"),
    "cancel": ("gw.ack", "gw.error"),
    "send": ("gw.ack", "gw.error"),
    "ping": ("gw.tick", "gw.error"),
}
"""What a client sends -> what may answer it, with the same id."""

UNASKED: Final = ("gw.live", "gw.unsubscribed", "gw.tick", "gw.error", "gw.bye")
"""What the gateway sends of itself, beside events."""

_ABOUT: Final = (
    "Follow the runs of AI agents, decide about their tickets, start, steer and cancel them. Events are the stored "
    "bytes; a cursor is the sequence of the last event that was applied, and never gets too old."
)
_BEARER: Final[Schema] = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of a principal. It never stands in a path or query.",
}


# --- AsyncAPI --------------------------------------------------------------------------------------------------------


def asyncapi() -> Schema:
    """The AsyncAPI 3.1 document of the WebSocket."""
    return {
        "asyncapi": "3.1.0",
        "info": _info("Greenroom gateway: WebSocket"),
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:8765",
                "protocol": "ws",
                "description": "Where `greenroom serve` listens unless told otherwise; behind TLS it is wss.",
                "security": [{"$ref": "#/components/securitySchemes/bearer"}],
            }
        },
        "channels": {"gateway": _channel()},
        "operations": _operations(),
        "components": {
            "messages": _messages(),
            "schemas": _frames_and_payloads(),
            "securitySchemes": {"bearer": _BEARER},
        },
    }


def _channel() -> Schema:
    return {
        "address": PATH,
        "title": SUBPROTOCOL,
        "description": (
            "Text frames; each holds one JSON object with a `type`. A page, which can not set headers, sends its token "
            "in `hello`, the first frame. Closing the connection never cancels a run."
        ),
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _frames_and_events()},
        "bindings": {
            "ws": {
                "method": "GET",
                "headers": {
                    "type": "object",
                    "properties": {
                        "Sec-WebSocket-Protocol": {"type": "string", "const": SUBPROTOCOL},
                        "Authorization": {"type": "string", "description": "Bearer and the token, from programs."},
                    },
                },
                "bindingVersion": "0.1.0",
            }
        },
        "x-close-codes": [attrs.asdict(one) for one in CLOSE_CODES.values()],
        "x-error-codes": [attrs.asdict(one) for one in ERRORS.values()],
    }


def _operations() -> Schema:
    channel = {"$ref": "#/channels/gateway"}
    asked = {
        kind: {
            "action": "receive",
            "channel": channel,
            "summary": up_schemas()[kind]["description"],
            "messages": _of_channel([kind]),
            "reply": {"channel": channel, "messages": _of_channel(answers)},
        }
        for kind, answers in REPLIES.items()
    }
    return {
        **asked,
        "events": {
            "action": "send",
            "channel": channel,
            "summary": "The events of the runs that are followed, each exactly once and in order.",
            "messages": _of_channel(_events()),
        },
        "notices": {
            "action": "send",
            "channel": channel,
            "summary": "What the gateway says of itself.",
            "messages": _of_channel(UNASKED),
        },
    }


def _messages() -> Schema:
    found = {}
    for name, schema in (up_schemas() | down_schemas() | _events()).items():
        message = {"name": name, "title": name, "payload": {"$ref": f"#/components/schemas/{name}"}}
        if "description" in schema:
            message["summary"] = schema["description"]
        if name in COMMANDS or name in ("start", "gw.ack", "gw.error"):
            message["correlationId"] = {"location": "$message.payload#/id", "description": "Chosen by the client."}
        found[name] = message
    return found


def _frames_and_payloads() -> Schema:
    return _apart(up_schemas(), down_schemas(), _events(), _payloads())


def _frames_and_events() -> list[str]:
    return [*up_schemas(), *down_schemas(), *_events()]


def _of_channel(names: Iterable[str]) -> list[Schema]:
    return [{"$ref": f"#/channels/gateway/messages/{name}"} for name in names]


# --- both ------------------------------------------------------------------------------------------------------------


def _info(title: str) -> Schema:
    return {
        "title": title,
        "version": API_VERSION,
        "description": _ABOUT,
        "license": {"name": "MIT"},
    }


def _events() -> dict[str, Schema]:
    """Event type -> schema of the whole event."""
    return {one["title"]: _as_component(one) for one in event_schemas()["oneOf"]}


def _payloads() -> dict[str, Schema]:
    return {name: _as_component(schema) for name, schema in event_schemas()["$defs"].items()}


def _as_component(schema: Schema) -> Schema:
    found: Schema = moved(tidied(schema), "#/$defs/", "#/components/schemas/")
    return found


def _apart(*groups: Mapping[str, Schema]) -> dict[str, Schema]:
    """All of the groups in one; two things of one name would hide each other."""
    found: dict[str, Schema] = {}
    for group in groups:
        for name, schema in group.items():
            if found.setdefault(name, schema) != schema:
                raise ValueError(f"two schemas have the name {name}; rename one of the classes")
    return found
