"""The SDK of MCP, which is an extra: its absence is reported with the way to install it.

The SDK runs on anyio, and anyio on trio. Only modules of this folder that are named mcp* import it. What it logs for a
server of ours goes to the logger "greenroom.mcp": texts of servers must not reach a log that nothing redacts.
"""

from __future__ import annotations

import logging
from typing import Final

from ..contract.secrets.current import REDACTOR
from ..errors import UsageError

try:
    import anyio as anyio  # noqa: ASYNC106, PLC0414 - exported to the modules beside
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


LINE_SHOWN: Final = 4_096
"""Characters of a line of the log."""


# --- its loggers -----------------------------------------------------------------------------------------------------

LOG: Final = logging.getLogger("greenroom.mcp")
_NAMES: Final = ("mcp", "client", "httpx2", "httpcore2")
"""First names of the loggers of the SDK and of its HTTP client; "client" is one of the SDK's, in spite of its name."""
_LATER: Final = ("httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
"""Loggers of modules that are imported with the first connection."""


class _OfSDK(logging.Filter):
    """Hands a record of the SDK to our log, redacted and without traceback, and keeps it from all others."""

    def filter(self, record: logging.LogRecord) -> bool:
        if REDACTOR.get(None) is None:
            return True  # the program uses the SDK itself
        level = logging.DEBUG if record.levelno < logging.WARNING else logging.WARNING
        if LOG.isEnabledFor(level):
            log_line(level, f"{record.name}: {record.getMessage()}")
        return False


def log_line(level: int, text: str) -> None:
    """Write one line to the log, redacted as the runtime does in whose task this is."""
    redactor = REDACTOR.get(None)
    line = text if redactor is None else redactor.text(text)
    LOG.log(level, "%s", line[:LINE_SHOWN].replace("\r", "\\r").replace("\n", "\\n"))


def _route() -> None:
    """Route the SDK's loggers, those of its modules included, which exist since it was imported."""
    names = {name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _NAMES}
    for name in sorted(names.union(_NAMES, _LATER)):
        logging.getLogger(name).addFilter(_OfSDK())


_route()
