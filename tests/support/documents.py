"""Judges by the documents of the API: what a gateway sends is what they say, and has nothing that they do not say."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema

from greenroom.transport.gateway.asyncapi import asyncapi
from greenroom.transport.gateway.openapi import openapi
from greenroom.transport.server.routes import ROUTES

Json = Mapping[str, Any]


def tight(schema: Any) -> Any:
    """The schema with every object closed: what it does not tell is not there."""
    match schema:
        case dict():
            closed = {"additionalProperties": False} if "properties" in schema else {}
            return closed | {name: tight(value) for name, value in schema.items()}
        case list():
            return [tight(one) for one in schema]
        case _:
            return schema


def validator(document: Json, ref: str) -> jsonschema.Draft202012Validator:
    """Holds values against a schema of the document; formats such as date-time are checked, too."""
    schema = {**document, "$ref": ref}
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


class Frames:
    """Holds text frames against the AsyncAPI document."""

    def __init__(self) -> None:
        self.document = tight(asyncapi())
        self.seen: set[str] = set()

    def check(self, frame: Json) -> None:
        """A frame of the gateway, or an event."""
        name = frame["type"]
        validator(self.document, f"#/components/schemas/{name}").validate(frame)
        self.seen.add(name)


class Operations:
    """Holds requests and responses against the OpenAPI document, and remembers what was played."""

    def __init__(self) -> None:
        self.document, self.open = tight(openapi(ROUTES)), openapi(ROUTES)
        self.played: set[tuple[str, str, str]] = set()
        """Method, template, status (or `default`)."""

    def find(self, method: str, target: str) -> tuple[str, Json]:
        """The template that a target belongs to, and its operation."""
        path = target.partition("?")[0]
        for template, item in self.document["paths"].items():
            if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path) and method.lower() in item:
                return template, item[method.lower()]
        raise AssertionError(f"{method} {target} is not documented")

    def check_request(self, method: str, target: str, body: Any) -> None:
        """Its body is what the operation takes. Further fields may be let pass, so this one is not tight."""
        template, _ = self.find(method, target)
        asked = self.open["paths"][template][method.lower()].get("requestBody")
        assert asked is not None, f"{method} {template} takes no body"
        ref = asked["content"]["application/json"]["schema"]["$ref"]
        validator(self.open, ref).validate(body)

    def check(self, method: str, target: str, reply: Any) -> None:
        """Status, media type and body are among those of the operation."""
        template, operation = self.find(method, target)
        key = str(reply.status) if str(reply.status) in operation["responses"] else "default"
        response = operation["responses"][key]
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
        self.played.add((method, template, key))
        kind = reply.headers.get("content-type", "").partition(";")[0]
        if "content" not in response:
            assert (reply.body, kind) == (b"", "")
            return
        assert {kind, "*/*"} & set(response["content"]), f"{method} {template} answered {kind}"
        if kind == "application/json":
            ref = response["content"][kind]["schema"]["$ref"]
            validator(self.document, ref).validate(reply.json())

    def check_events(self, body: bytes) -> int:
        """A stream of server-sent events, each of which is one of ours; how many they are."""
        found = list(server_sent(body.decode()))
        for name, data in found:
            validator(self.document, "#/components/schemas/AnyEvent").validate(data)
            assert name.rpartition("-")[2] == str(data["sequence"])
        return len(found)


def server_sent(text: str) -> Iterable[tuple[str, Any]]:
    """Id and data of every event in a stream."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            yield fields["id"], json.loads(fields["data"])
