"""The result of a tool of an MCP server as the result of a call here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..agents.attachments import File, Image, attachment_of, decoded
from ..contract.json_schema.faults import schema_fault
from ..contract.plain import JSONObject, JSONValue
from ..errors import InvalidAttachment, ToolError

_NOT_IN_NAMES: Final = re.compile(r"[^\w.\- ]+")
_LONGEST_NAME: Final = 100


def result_of(
    server: str, result: JSONObject, output_schema: JSONObject | None
) -> JSONValue | list[Any] | Image | File:
    """Return the value of a call: the structured content, else the texts; images and files as attachments.

    Args:
        server: The name of the server, for errors.
        result: A `CallToolResult` as it stands in JSON.
        output_schema: The schema of the structured content, as the server lists it; None: it gives none.

    Raises:
        ToolError: The tool has failed, or the structured content does not fit the schema.
    """
    content: Sequence[Any] = result.get("content") or ()
    if result.get("isError"):
        texts = [item for item in map(_part, content) if isinstance(item, str)]
        raise ToolError("\n".join(texts) or f"The tool has failed, and MCP server {server!r} does not say why.")
    data = result.get("structuredContent")
    if output_schema is not None:
        _check(server, data, output_schema)
    parts = [_part(item) for item in content]
    attachments = [part for part in parts if not isinstance(part, str)]
    if data is None:
        return _joined(parts) if attachments else "\n".join(_texts(parts))
    return [data, *attachments] if attachments else data


def _check(server: str, data: JSONValue, schema: JSONObject) -> None:
    """Check structured content against the schema of its tool."""
    what = f"MCP server {server!r} has sent a result that does not fit the tool's outputSchema"
    if data is None:
        raise ToolError(f"{what}: it has no structuredContent", run_code="schema_validation_failed")
    fault = schema_fault(schema, data)
    if fault is not None:
        raise ToolError(f"{what}: {fault}", run_code="schema_validation_failed")


def _texts(parts: Iterable[str | Image | File]) -> Iterable[str]:
    return (part for part in parts if isinstance(part, str))


def _joined(parts: Sequence[str | Image | File]) -> list[Any] | Image | File:
    """Return the parts in their order; a single attachment by itself."""
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], str) else [*parts]


def _part(item: Any) -> str | Image | File:
    """Return an item of the content as a text or an attachment; what cannot be kept becomes a text that says so."""
    match item:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "image" | "audio" as kind, "data": str() as data, "mimeType": str() as media_type}:
            return _attachment(data, media_type, None, f"{kind} of type {media_type:.100}")
        case {"type": "resource", "resource": {"text": str() as text}}:
            return text
        case {"type": "resource", "resource": {"blob": str() as data, "uri": str() as uri, **rest}}:
            media_type = str(rest.get("mimeType") or "application/octet-stream")
            return _attachment(data, media_type, _name_of(uri), f"resource {uri:.500}")
        case {"type": "resource_link", "uri": str() as uri, **rest}:
            words = (rest.get("title") or rest.get("name"), uri, rest.get("description"))
            return " ".join(str(word) for word in words if word)
        case _:
            return "[a part of the result that this client does not know]"


def _attachment(data: str, media_type: str, name: str | None, what: str) -> str | Image | File:
    try:
        return attachment_of(decoded(data, what), media_type.partition(";")[0].strip(), name)
    except InvalidAttachment as error:
        return f"[{what} cannot be kept: {error}]"


def _name_of(uri: str) -> str | None:
    """Return a name of a file for an address; None if it names none."""
    last = uri.rstrip("/").rpartition("/")[2].partition("?")[0]
    name = _NOT_IN_NAMES.sub("_", last)[-_LONGEST_NAME:].strip(". ")
    return name or None
