"""Sessions without a table: what a request of either era says about its client. Pure, but for a random number."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from ...gateway.access import Principal
from ...gateway.http import Request
from ...protocol.sealed import Unsealed, opened, seal
from .messages import (
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MODERN,
    McpCapabilities,
    McpFault,
    McpRequest,
    check_modern,
    read_capabilities,
)

SESSION: Final = "mcp session"
"""Purpose of session ids: (version, forms, a random part)."""
_Session = tuple[Literal["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"], bool, str]


@attrs.frozen(kw_only=True)
class McpCaller:
    """The client of a request.

    Attributes:
        version: The revision of the protocol.
        capabilities: What the client can do.
        name: The random part of the session's id; "" in the modern era.
        headers: The headers of the request, in lower case.
    """

    version: str
    capabilities: McpCapabilities
    name: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def modern(self) -> bool:
        """True for the era without a handshake."""
        return self.version == MODERN


def modern_session(request: Request, call: McpRequest) -> McpCaller:
    """Return the client of a modern request.

    Raises:
        McpFault: Version, capabilities and headers are not as the protocol demands.
    """
    return McpCaller(version=MODERN, capabilities=check_modern(request.headers, call), headers=request.headers)


def new_session(who: Principal, call: McpRequest) -> tuple[str, str]:
    """Return the version and the session id that answer an `initialize`.

    The id is the only trace of a session. It has no end: a changed token makes it void.

    Raises:
        McpFault: A parameter is missing.
    """
    version, capabilities = call.params.get("protocolVersion"), call.params.get("capabilities")
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise McpFault(INVALID_PARAMS, "initialize needs protocolVersion, a string, and capabilities, an object")
    version = version if version in HANDSHAKE else HANDSHAKE[0]
    forms = read_capabilities(capabilities, version).forms
    return version, seal(SESSION, [version, forms, secrets.token_hex(8)], who.token)


def read_session(request: Request) -> McpCaller:
    """Return the client of a request of the handshake era.

    Raises:
        McpFault: The request has no session id (400), one that is void (404), or another version (400).
    """
    sealed = request.headers.get("mcp-session-id")
    if sealed is None:
        text = f"the request has no Mcp-Session-Id; begin with initialize, or send the headers of {MODERN}"
        raise McpFault(INVALID_REQUEST, text, status=400)
    try:
        version, forms, name = opened(SESSION, sealed, request.who.token, _Session)
    except Unsealed as unsealed:
        text = f"Mcp-Session-Id {sealed!r:.60} is not a session of this token; begin again with initialize"
        raise McpFault(INVALID_REQUEST, text, status=404) from unsealed
    sent = request.headers.get("mcp-protocol-version", version)
    if sent not in HANDSHAKE:
        text = f"MCP-Protocol-Version {sent!r:.60} is not known here; use one of {', '.join(HANDSHAKE)}"
        raise McpFault(INVALID_REQUEST, text, status=400)
    return McpCaller(
        version=version, capabilities=McpCapabilities(forms=forms, lists=version == HANDSHAKE[0]), name=name
    )


def opened_by(who: Principal, purpose: str, text: object, name: str, form: Any) -> Any:
    """Return the data, of this form, of a sealed text that a client has sent back as `name`.

    Raises:
        McpFault: The text was not sealed for this client.
    """
    try:
        return opened(purpose, text, who.token, form)
    except Unsealed as unsealed:
        fault = f"{name} {text!r:.60} is not one that was made for this client"
        raise McpFault(INVALID_PARAMS, fault, status=400) from unsealed
