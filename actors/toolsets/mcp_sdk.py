"""The SDK of MCP, which is an extra: its absence is reported with the way to install it.

The SDK runs on anyio, and anyio on trio. Only modules of this folder that are named mcp* import it.
"""

from __future__ import annotations

from ..errors import UsageError

try:
    import anyio as anyio  # noqa: PLC0414 - exported to the modules beside
    import httpx2 as httpx2  # noqa: PLC0414 - as above
    from mcp import Client as Client  # noqa: PLC0414 - as above
    from mcp import MCPError as MCPError  # noqa: PLC0414 - as above
    from mcp import types as types  # noqa: PLC0414 - as above
    from mcp.client.streamable_http import streamable_http_client as streamable_http_client  # noqa: PLC0414 - as above
    from mcp.shared.message import SessionMessage as SessionMessage  # noqa: PLC0414 - as above
    from pydantic import TypeAdapter as TypeAdapter  # noqa: PLC0414 - as above
    from pydantic import ValidationError as ValidationError  # noqa: PLC0414 - as above
except ImportError as error:
    raise UsageError(
        f"gr.mcp needs the SDK of MCP, which cannot be imported ({error}); pip install 'greenroom[mcp]'"
    ) from error
