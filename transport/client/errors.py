"""What can go wrong between a client and a gateway.

    GreenroomError
    ├── ConnectError           there is no connection, and there will be none; `url` is where it was tried
    │   ├── NotReachable       nobody answers there (only the first attempt of `connect` raises it)
    │   ├── NotAGateway        who answers there does not speak greenroom.v1
    │   ├── NotAuthenticated   the token is missing, or nobody's
    │   ├── Forbidden          the gateway does not let this client in
    │   └── ClientClosed       the block of `connect` has been left
    ├── RequestRefused         the gateway refused one request; `code` says why
    │   └── NotAllowed         the principal does not have the scope for it
    └── LogReset               the run's log is another one than the cursor belongs to

Beside these a refused request raises what the runtime itself raises for it: UnknownRun, UnknownAgent, RunExists,
ThreadBusy, UsageError, StoreUnavailable, RunDegraded. Commands to a run do not raise: their answer says it.
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
    UnknownRun,
    UsageError,
)


class ConnectError(GreenroomError):
    """There is no connection to a gateway, and trying again as it is would not help.

    Attributes:
        url: where it was tried.
    """

    def __init__(self, message: str, *, url: str = "") -> None:
        super().__init__(message)
        self.url = url

    def again(self) -> ConnectError:
        """The same error for one more task to raise: an exception that is shared gathers everybody's traceback."""
        return copy.copy(self)


class NotReachable(ConnectError):
    """Nobody answers at the address."""


class NotAGateway(ConnectError):
    """Who answers there does not speak greenroom.v1."""


class NotAuthenticated(ConnectError):
    """The token is missing, or it is nobody's."""


class Forbidden(ConnectError):
    """The gateway does not let this client in."""


class ClientClosed(ConnectError):
    """The block of `connect` has been left."""


class RequestRefused(GreenroomError):
    """The gateway refused one request; nothing happened.

    Attributes:
        code: one of the error codes of docs/gateway.md.
        retry: the same request may work later.
        current: what is the case instead, for a conflict.
    """

    def __init__(self, message: str, *, code: str = "", retry: bool = False, current: object = None) -> None:
        super().__init__(message)
        self.code, self.retry, self.current = code, retry, current


class NotAllowed(RequestRefused):
    """The principal does not have the scope that this needs; ask for a token that has it."""


class LogReset(GreenroomError):
    """The run's log is another one than the cursor belongs to: forget what you have of the run.

    Go on from the snapshot, with `follow(run_id, after=reset.sequence)`.

    Attributes:
        run_id: whose.
        reason: "epoch": the store was restored or made anew; "ahead": the log ends before the cursor.
        sequence: what the snapshot includes.
        snapshot: the run as of `sequence`, as GET /v1/runs/{run} has it.
    """

    def __init__(self, run_id: str, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        super().__init__(
            f"the log of run {run_id} is not the one that was followed ({reason}): drop what you have of it, take the "
            f"snapshot of this error, and follow from after={sequence}"
        )
        self.run_id, self.reason, self.sequence, self.snapshot = run_id, reason, sequence, snapshot


_PLAIN: Final[Mapping[str, type[GreenroomError]]] = {
    "unknown_agent": UnknownAgent,
    "run_exists": RunExists,
    "run_pruned": RunPruned,
    "thread_busy": ThreadBusy,
    "unprocessable": UsageError,
    "bad_message": UsageError,
    "store_unavailable": StoreUnavailable,
}
"""Error code -> what the runtime raises for it."""


def refusal(
    code: str, message: str, *, run_id: str = "", retry: bool = False, current: object = None
) -> GreenroomError:
    """The error for a refused request."""
    if code == "unknown_run":
        return UnknownRun(run_id)
    if code in _PLAIN:
        return _PLAIN[code](message)
    kind = NotAllowed if code == "not_allowed" else RequestRefused
    return kind(message, code=code, retry=retry, current=current)
