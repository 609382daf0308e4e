"""A gateway as programs use it: follow runs, decide, cancel, send and start, through any number of connections.

    async with connect("ws://127.0.0.1:8765", token=token) as client:
        async with client.follow(run_id) as events:
            async for event in events:
                ...

docs/client.md tells how.
"""

from .client import Client, Started, connect
from .errors import (
    ClientClosed,
    ConnectError,
    Forbidden,
    LogReset,
    NotAGateway,
    NotAllowed,
    NotAuthenticated,
    NotReachable,
    RequestRefused,
)
from .following import Following
from .link import LinkState
from .pace import Pace
from .watching import LineChanged, ListChange, RunLine, RunLines, Watching

__all__ = [
    "Client",
    "ClientClosed",
    "ConnectError",
    "Following",
    "Forbidden",
    "LineChanged",
    "LinkState",
    "ListChange",
    "LogReset",
    "NotAGateway",
    "NotAllowed",
    "NotAuthenticated",
    "NotReachable",
    "Pace",
    "RequestRefused",
    "RunLine",
    "RunLines",
    "Started",
    "Watching",
    "connect",
]
