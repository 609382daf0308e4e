"""Close codes and error codes of the gateway: documented and stable.

Close codes below 4000 are those of RFC 6455. Codes from 4400 on correspond to the HTTP status of the same outcome, and
agree with graphql-transport-ws where the two overlap. A browser reports a refused handshake only as 1006, therefore
credentials are checked after the upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

SUBPROTOCOL: Final = "greenroom.v1"
PATH: Final = "/v1/ws"


@attrs.frozen
class CloseCode:
    """A close code.

    Attributes:
        code: The number on the wire.
        name: Name in `gw.bye` and in the documentation.
        meaning: One sentence.
        retry: True if another connection may succeed.
    """

    code: int
    name: str
    meaning: str
    retry: bool


DONE: Final = CloseCode(1000, "done", "The client has closed the connection.", retry=False)
GOING_AWAY: Final = CloseCode(1001, "going_away", "The server stops.", retry=True)
TOO_BIG: Final = CloseCode(1009, "too_big", "A message was longer than the limit in gw.welcome.", retry=False)
INTERNAL: Final = CloseCode(1011, "internal", "The gateway failed at this connection; a bug.", retry=True)
RESTART: Final = CloseCode(1012, "restart", "The server restarts; reconnect after retryAfterMs.", retry=True)
OVERLOADED: Final = CloseCode(1013, "overloaded", "Too many connections; try again later.", retry=True)
BAD_MESSAGE: Final = CloseCode(4400, "bad_message", "The message is not a JSON object in a text frame.", retry=False)
UNAUTHENTICATED: Final = CloseCode(4401, "unauthenticated", "No token, or an unknown token.", retry=False)
FORBIDDEN: Final = CloseCode(
    4403,
    "forbidden",
    "The principal may not use this gateway.",
    retry=False,
)
WRONG_PROTOCOL: Final = CloseCode(4406, "wrong_protocol", "The client does not speak greenroom.v1.", retry=False)
HELLO_TIMEOUT: Final = CloseCode(4408, "hello_timeout", "No hello within the time limit.", retry=True)
TOO_FAST: Final = CloseCode(4429, "too_fast", "The client sends faster than the limit in gw.welcome.", retry=True)
STALLED: Final = CloseCode(
    4510,
    "stalled",
    "The client read nothing for the time limit; the connection is cut without a close frame.",
    retry=True,
)

CLOSE_CODES: Final[Mapping[int, CloseCode]] = {
    code.code: code
    for code in (
        DONE,
        GOING_AWAY,
        TOO_BIG,
        INTERNAL,
        RESTART,
        OVERLOADED,
        BAD_MESSAGE,
        UNAUTHENTICATED,
        FORBIDDEN,
        WRONG_PROTOCOL,
        HELLO_TIMEOUT,
        TOO_FAST,
        STALLED,
    )
}


@attrs.frozen
class ErrorCode:
    """An error code of a refused request or command.

    Attributes:
        code: The code in `gw.error` and in HTTP bodies.
        status: The HTTP status.
        meaning: One sentence.
        retry: True if the same request may succeed later.
    """

    code: str
    status: int
    meaning: str
    retry: bool = False


_ERRORS = (
    ErrorCode("bad_message", 400, "The message has an invalid form; the text names the field."),
    ErrorCode("unauthenticated", 401, "No token, or an unknown token."),
    ErrorCode(
        "not_allowed",
        403,
        "The principal lacks the scope or is no reviewer, or the id is in use by others.",
    ),
    ErrorCode("forbidden_origin", 403, "The Origin or Host header is not on the list."),
    ErrorCode("unknown_run", 404, "No run has this id, or the principal may not see it."),
    ErrorCode("unknown_agent", 404, "No agent has this key."),
    ErrorCode("unknown_target", 404, "The run has no ticket and no call of this id."),
    ErrorCode("unknown_thread", 404, "No thread has this id, or the principal may not see each of its runs."),
    ErrorCode("unknown_part", 404, "No image or file is at this place of the message or the run, or no bytes of it."),
    ErrorCode("unknown_artifact", 404, "The run has no artifact of this id, or no bytes of it."),
    ErrorCode("unknown_rule", 404, "No remembered rule has this id, or the principal may not see it."),
    ErrorCode("not_found", 404, "Nothing is at this path."),
    ErrorCode("method_not_allowed", 405, "The path does not accept this method; `current` has the accepted ones."),
    ErrorCode("request_timeout", 408, "The request was incomplete after the time limit."),
    ErrorCode("run_exists", 409, "The run id is taken by a run with another content."),
    ErrorCode("thread_busy", 409, "The thread has an active run and onBusy is refuse."),
    ErrorCode("decision_id_conflict", 409, "The id was used for another command."),
    ErrorCode("already_decided", 409, "The ticket has another decision; `current` has the decision."),
    ErrorCode("run_done", 409, "The run has ended."),
    ErrorCode(
        "fingerprint_mismatch",
        409,
        "The ticket shows another action than the one that was decided, or one whose tool has changed or is gone.",
    ),
    ErrorCode(
        "reset", 410, "The cursor is of another log, or beyond its head: read the run, continue after its sequence."
    ),
    ErrorCode("run_pruned", 410, "A run had this id, is done, and was pruned; ids are used once."),
    ErrorCode("expired", 410, "The ticket has expired."),
    ErrorCode("too_big", 413, "The body is longer than the limit."),
    ErrorCode("invalid_arguments", 422, "The edited arguments do not fit the tool."),
    ErrorCode("invalid_result", 422, "The result does not fit the ticket's schema."),
    ErrorCode("unprocessable", 422, "A value is invalid; the text names the value."),
    ErrorCode("too_many_subscriptions", 429, "More runs or lists than one connection may follow."),
    ErrorCode(
        "too_many_connections", 429, "More connections than one principal, or the gateway itself, may hold.", retry=True
    ),
    ErrorCode("busy", 429, "The run has too many commands that are not consumed yet.", retry=True),
    ErrorCode("headers_too_large", 431, "The request line and headers are longer than the limit."),
    ErrorCode("internal", 500, "The gateway failed at this request; a bug."),
    ErrorCode(
        "store_unavailable", 503, "The store does not answer; send the command again with the same id.", retry=True
    ),
    ErrorCode("sign_in_unavailable", 503, "Nobody could say in time who sent the request; send it again.", retry=True),
    ErrorCode("closing", 503, "The server stops; try again after its restart.", retry=True),
)

ERRORS: Final[Mapping[str, ErrorCode]] = {code.code: code for code in _ERRORS}
"""Code -> `ErrorCode`."""


class Refused(Exception):
    """A request or command is answered with an error.

    Attributes:
        error: The error code.
        message: Names the value and a remedy.
        current: The conflicting state, for a conflict.
    """

    def __init__(self, code: str, message: str, *, current: object = None) -> None:
        super().__init__(message)
        self.error = ERRORS[code]
        self.message = message
        self.current = current
