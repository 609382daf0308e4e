"""The client of a gateway: follow, decide, cancel, send and start, across any number of connections.

    async with connect("ws://127.0.0.1:8765", token=token) as client:
        async with client.follow(run_id) as events:
            async for event in events:
                ...

docs/client.md is the guide.
"""

from greenroom.actors.processes import QueueInfo

from ..protocol.lines import RunLine as ListedRun
from ..protocol.lines import ThreadLine as ListedThread
from .client import Client, connect
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
from .event_iterator import EventIterator
from .link import ConnectionState
from .list_buffer import ListChange, ListedRunChanged, ListedRuns
from .run_lists import RunListIterator
from .started_run import StartedRun
from .thread_requests import ListedThreads
from .timing import ConnectionTiming

__all__ = [
    "Client",
    "ClientClosed",
    "ConnectError",
    "ConnectionState",
    "ConnectionTiming",
    "EventIterator",
    "Forbidden",
    "ListChange",
    "ListedRun",
    "ListedRunChanged",
    "ListedRuns",
    "ListedThread",
    "ListedThreads",
    "LogReset",
    "NotAGateway",
    "NotAllowed",
    "NotAuthenticated",
    "NotReachable",
    "QueueInfo",
    "RequestRefused",
    "RunListIterator",
    "StartedRun",
    "connect",
]
