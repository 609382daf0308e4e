"""The result of a start, as a frame or as an HTTP response brings it."""

from __future__ import annotations

import attrs

from greenroom.actors.contract.plain import JSONObject

from .endpoint import Endpoint
from .http_requests import unreadable


@attrs.frozen(kw_only=True)
class StartedRun:
    """The result of `Client.start` and `Client.fork`. `duplicate` is True if an identical request came before."""

    run_id: str
    thread_id: str
    duplicate: bool

    @property
    def id(self) -> str:
        """The run's id, as that of a `Run`."""
        return self.run_id


def started_of(address: Endpoint, data: JSONObject) -> StartedRun:
    """Parse the response to a start.

    Raises:
        NotAGateway: The data is not such a response.
    """
    try:
        return StartedRun(run_id=data["run"], thread_id=data["thread"] or "", duplicate=data["status"] == "duplicate")
    except KeyError as error:
        raise unreadable(address, "started run", error) from error
