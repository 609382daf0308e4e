"""Which era a message of MCP is of."""

import pytest

from greenroom.transport.frontends.mcp.messages import META, McpFault, McpRequest, check_modern, is_modern

BEGIN = McpRequest(id=1, method="initialize", params={})
LATER = {f"{META}protocolVersion": "2027-01-01", f"{META}clientCapabilities": {}}


def test_the_header_with_the_method_alone_is_not_the_modern_era() -> None:
    """Clients of the handshake era may send that header, too; the conformance suite does."""
    assert not is_modern({"mcp-method": "initialize", "mcp-protocol-version": "2025-11-25"}, BEGIN)
    assert is_modern({"mcp-protocol-version": "2026-07-28"}, BEGIN)
    assert is_modern({}, McpRequest(id=1, method="tools/list", params={"_meta": LATER}))


def test_an_unknown_modern_version_gets_those_that_server_discover_names() -> None:
    call = McpRequest(id=1, method="tools/list", params={"_meta": LATER})
    with pytest.raises(McpFault) as raised:
        check_modern({"mcp-protocol-version": "2027-01-01", "mcp-method": "tools/list"}, call)
    assert (raised.value.code, raised.value.data) == (-32022, {"supported": ["2026-07-28"], "requested": "2027-01-01"})
