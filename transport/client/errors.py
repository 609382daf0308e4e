"""The errors of a client.

    GreenroomError
    ├── ConnectError           there is no connection, and retrying does not help; `url` is the address
    │   ├── NotReachable       the address does not answer (raised only by the first attempt of `connect`)
    │   ├── NotAGateway        the peer at the address does not speak greenroom.v1
    │   ├── NotAuthenticated   the token is missing or unknown
    │   ├── Forbidden          the gateway does not admit this client
    │   └── ClientClosed       the block of `connect` has ended
    ├── RequestRefused         the gateway refused one request; `code` says why
    │   └── NotAllowed         the principal lacks the scope
    └── LogReset               the cursor does not belong to the run's present log

In addition a refused request raises the runtime's own error: UnknownRun, UnknownAgent, RunExists, ThreadBusy,
UsageError, StoreUnavailable, RunDegraded. Commands to a run do not raise; their result has the refusal.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final, Literal

from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import (
    GreenroomError,
    RunExists,
    RunPruned,
    StoreUnavailable,
    ThreadBusy,
    UnknownAgent,
    UnknownArtifact,
    UnknownPart,
    UnknownRun,
    UnknownThread,
    UsageError,
)


class ConnectError(GreenroomError):
    """There is no connection to a gateway, and an identical attempt would fail again.

    Attributes:
        url: Address of the gateway.
    """

    def __init__(self, message: str, *, url: str = "") -> None:
        super().__init__(message)
        self.url = url

    def again(self) -> ConnectError:
        """Return a copy for one more task to raise; a shared exception would accumulate the tracebacks of all tasks."""
        return copy.copy(self)


class NotReachable(ConnectError):
    """The address does not answer."""


class NotAGateway(ConnectError):
    """The peer at the address does not speak greenroom.v1."""


class NotAuthenticated(ConnectError):
    """The token is missing or unknown."""


class Forbidden(ConnectError):
    """The gateway does not admit this client."""


class ClientClosed(ConnectError):
    """The block of `connect` has ended."""


class RequestRefused(GreenroomError):
    """The gateway refused one request; the request had no effect.

    Attributes:
        code: An error code of docs/gateway.md.
        retry: True if the same request may succeed later.
        current: The conflicting state, for a conflict.
    """

    def __init__(self, message: str, *, code: str = "", retry: bool = False, current: object = None) -> None:
        super().__init__(message)
        self.code, self.retry, self.current = code, retry, current


class NotAllowed(RequestRefused):
    """The principal lacks the scope that the request needs; use a token with that scope."""


class LogReset(GreenroomError):
    """The cursor does not belong to the run's present log: discard the run's events.

    Continue from the snapshot, with `follow(run_id, after=reset.sequence)`.

    Attributes:
        run_id: The run.
        reason: "epoch": the store was restored or recreated; "ahead": the log ends before the cursor.
        sequence: Sequence of the newest event included in the snapshot.
        snapshot: The run as of `sequence`, in the form of GET /v1/runs/{run}.
    """

    def __init__(self, run_id: str, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        super().__init__(
            f"the log of run {run_id} is not the one that was followed ({reason}): drop what you have of it, take the "
            f"snapshot of this error, and follow from after={sequence}"
        )
        self.run_id, self.reason, self.sequence, self.snapshot = run_id, reason, sequence, snapshot


_PLAIN: Final[Mapping[str, type[GreenroomError]]] = {
    "unknown_agent": UnknownAgent,
    "unknown_artifact": UnknownArtifact,
    "unknown_part": UnknownPart,
    "run_exists": RunExists,
    "run_pruned": RunPruned,
    "thread_busy": ThreadBusy,
    "unprocessable": UsageError,
    "bad_message": UsageError,
    "store_unavailable": StoreUnavailable,
}
"""Error code -> the error that the runtime raises for it."""


def refusal(
    code: str, message: str, *, run_id: str = "", thread_id: str = "", retry: bool = False, current: object = None
) -> GreenroomError:
    """Return the error for a refused request."""
    if code == "unknown_run":
        return UnknownRun(run_id)
    if code == "unknown_thread":
        return UnknownThread(thread_id)
    if code in _PLAIN:
        return _PLAIN[code](message)
    kind = NotAllowed if code == "not_allowed" else RequestRefused
    return kind(message, code=code, retry=retry, current=current)
