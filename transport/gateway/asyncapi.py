"""The AsyncAPI 3.1 document of the WebSocket, generated from the protocol's tables and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ..protocol.codes import CLOSE_CODES, ERRORS, PATH, SUBPROTOCOL
from ..protocol.schemas import Schema, down_schemas, up_schemas
from ..protocol.up import COMMANDS
from .components import BEARER, apart, event_components, info, payload_components

REPLIES: Final[Mapping[str, tuple[str, ...]]] = {
    "hello": ("gw.welcome", "gw.bye"),
    "subscribe": ("gw.subscribed", "gw.reset", "gw.error"),
    "unsubscribe": ("gw.unsubscribed", "gw.error"),
    "watch": ("gw.runs", "gw.error"),
    "watchTickets": ("gw.tickets", "gw.error"),
    "unwatch": ("gw.unwatched", "gw.error"),
    "threads": ("gw.threads", "gw.error"),
    "messages": ("gw.messages", "gw.error"),
    "start": ("gw.ack", "gw.error"),
    "fork": ("gw.ack", "gw.error"),
    **dict.fromkeys(COMMANDS, ("gw.ack", "gw.error")),
    "ping": ("gw.tick", "gw.error"),
}
"""Type of a client frame -> types of its possible answers, with the same id."""

UNASKED: Final = (
    *("gw.renamed", "gw.reset", "gw.live", "gw.unsubscribed"),
    *("gw.runs", "gw.run", "gw.counts", "gw.tickets", "gw.asked", "gw.tick", "gw.error", "gw.bye"),
)
"""Frames that the gateway sends unasked, in addition to events."""


def asyncapi() -> Schema:
    """Return the document as plain data."""
    up, down, events = up_schemas(), down_schemas(), event_components()
    frames = up | down | events
    return {
        "asyncapi": "3.1.0",
        "info": info("Greenroom gateway: WebSocket"),
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:8765",
                "protocol": "ws",
                "description": "Where `greenroom serve` listens by default; behind TLS it is wss.",
                "security": [{"$ref": "#/components/securitySchemes/bearer"}],
            }
        },
        "channels": {"gateway": _channel(frames)},
        "operations": _operations(up, events),
        "components": {
            "messages": {name: _message(name, schema) for name, schema in frames.items()},
            "schemas": apart(up, down, events, payload_components()),
            "securitySchemes": {"bearer": BEARER},
        },
    }


def _channel(names: Iterable[str]) -> Schema:
    return {
        "address": PATH,
        "title": SUBPROTOCOL,
        "description": (
            "Text frames; each holds one JSON object with a `type`. A page, which cannot set headers, sends its token "
            "in `hello`, the first frame. Closing the connection never cancels a run."
        ),
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
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
        "x-close-codes": [attrs.asdict(code) for code in CLOSE_CODES.values()],
        "x-error-codes": [attrs.asdict(code) for code in ERRORS.values()],
    }


def _operations(up: Mapping[str, Schema], events: Iterable[str]) -> Schema:
    channel = {"$ref": "#/channels/gateway"}
    replies = {
        kind: {
            "action": "receive",
            "channel": channel,
            "summary": up[kind]["description"],
            "messages": _of_channel([kind]),
            "reply": {"channel": channel, "messages": _of_channel(frames)},
        }
        for kind, frames in REPLIES.items()
    }
    return {
        **replies,
        "events": {
            "action": "send",
            "channel": channel,
            "summary": "The events of the runs that are followed, each exactly once and in order.",
            "messages": _of_channel(events),
        },
        "notices": {
            "action": "send",
            "channel": channel,
            "summary": "What the gateway says of itself.",
            "messages": _of_channel(UNASKED),
        },
    }


def _of_channel(names: Iterable[str]) -> list[Schema]:
    return [{"$ref": f"#/channels/gateway/messages/{name}"} for name in names]


def _message(name: str, schema: Mapping[str, object]) -> Schema:
    message: Schema = {"name": name, "title": name, "payload": {"$ref": f"#/components/schemas/{name}"}}
    if "description" in schema:
        message["summary"] = schema["description"]
    if name in COMMANDS or name in ("start", "fork", "gw.ack", "gw.error"):
        message["correlationId"] = {"location": "$message.payload#/id", "description": "Chosen by the client."}
    return message
