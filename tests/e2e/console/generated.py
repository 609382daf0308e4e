"""Events made from the schemas: every type, every field of its payload, every value that its schema allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

SCHEMAS: Final = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "events.json").read_text("utf-8"))
RLO: Final = "\u202e"
TEXTS: Final = (
    "",
    " \n\t",
    "plain",
    "null",
    "12345678901234567890",
    "2026-11-22T10:00:00Z",
    "line\n" * 60,
    "W" * 6_000,
    f"<b>x</b>{RLO}gnp.exe \u200b\x00\x1b[31m",
    "# A *title* [link](javascript:alert(1)) ![picture](http://x.invalid/y.png)",
    "中文 🧪 \ud83d",
)
WHOLE: Final = (0, 1, 2, 7, 999, 10_000, 2**53 + 1, 12_345_678_901_234_567_890, 10**40)
NUMBERS: Final = (0, 1, 3, 0.0, 2.0, 0.25, 1e-9, 0.1 + 0.2, 59.97, 86_400, 1e21, 1e300, 10**40)
ANY: Final = (None, True, 0, 1.0, 10**30, "text", [], {}, [1, [2.0, None]], {"a": {"b": [10**20, "c"]}, "": None})
OBJECTS: Final = ({}, {"order": "7", "cents": 4200.0}, {"n": 10**30, "deep": [[{"x": None}]], RLO: TEXTS[7]})
PLAIN: Final = {"null": (None,), "boolean": (False, True), "integer": WHOLE, "number": NUMBERS, "string": TEXTS}
IDS: Final = ("c1", "c2", "t1", "m1")
"""For the fields that end in _id: few, so that events speak of each other's calls and messages."""


WHOLE_END: Final = {"usage": {}, "steps": 1, "lastSequence": 9, "from": "running", "by": "a", "activeSeconds": 2.0}
"""Of a terminal event; its time is a whole number."""


def types() -> list[str]:
    """Every type of event that there is."""
    return [schema["properties"]["type"]["const"] for schema in SCHEMAS["oneOf"]]


def fields(kind: str) -> dict[str, Any]:
    """The schema of a type's payload."""
    found = next(schema for schema in SCHEMAS["oneOf"] if schema["properties"]["type"]["const"] == kind)
    return resolved(found["properties"]["payload"])


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema refers to."""
    return SCHEMAS["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def values(schema: dict[str, Any]) -> tuple[Any, ...]:
    """What may stand where a schema is asked for: the ordinary, the extreme and the odd."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return tuple(value for one in schema["anyOf"] for value in values(one))
    if "enum" in schema:
        return tuple(schema["enum"])
    kind = schema.get("type")
    if kind in PLAIN:
        return PLAIN[kind]
    match kind:
        case "array":
            items = values(schema.get("items", {}))
            return ([], [items[0]], list(items))
        case "object" if "properties" in schema:
            names = schema["properties"]
            whole = {name: values(one)[-1] for name, one in names.items()}
            return ({}, whole, {name: values(one)[1] for name, one in names.items()}) if names else ({},)
        case "object":
            return OBJECTS
        case _:
            return ANY


def payload(kind: str, chosen: Random) -> dict[str, Any]:
    """One payload of a type, whatever its schema allows."""
    schema = fields(kind)
    made: dict[str, Any] = {}
    for name, one in schema["properties"].items():
        if name not in schema["required"] and chosen.random() < 0.5:
            continue
        ids = name.endswith("Id") and name != "ticketId"
        made[name] = chosen.choice(IDS) if ids else chosen.choice(values(one))
    if chosen.random() < 0.3:
        made["of_a_later_version"] = chosen.choice(ANY)
    return made


def variants(kind: str) -> Iterator[dict[str, Any]]:
    """Payloads of a type in which every field once has every value, and every optional one is once left away."""
    schema, chosen = fields(kind), Random(kind)
    for name, one in schema["properties"].items():
        for value in values(one):
            yield payload(kind, chosen) | {name: value}
        if name not in schema["required"]:
            yield {key: value for key, value in payload(kind, chosen).items() if key != name}


def event(run: str, sequence: int, kind: str, content: dict[str, Any]) -> str:
    """The stored bytes of an event, as the gateway sends them."""
    return json.dumps(
        {
            "id": f"{run}-{sequence}",
            "sequence": sequence,
            "type": kind,
            "version": 2,
            "runId": run,
            "sessionId": None,
            "agentId": "agent",
            "timestamp": f"2026-11-22T10:00:{sequence % 60:02d}.{sequence % 1000:03d}Z",
            "payload": content,
        },
        separators=(",", ":"),
    )


def beginning(run: str) -> str:
    """The first event of a run."""
    return event(
        run, 1, "run.created", {"to": "created", "agent": "agent", "threadId": "t", "input": "go", "by": "ada"}
    )
