"""Refusals of the gateway as errors of A2A: the protocol's own where it has one, in the form of the binding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import A2AError, A2AFault, Binding
from greenroom.actors.backends.a2a_values import A2AInvalid

from ...gateway.http import Response, refusal
from ...protocol.codes import Refused

_ERRORS: Final[Mapping[str, A2AError]] = {
    "unknown_run": codec.TASK_NOT_FOUND,
    "run_done": codec.UNSUPPORTED_OPERATION,
    **dict.fromkeys(
        (
            *("bad_message", "unprocessable", "run_exists", "decision_id_conflict", "unknown_target"),
            *("already_decided", "expired", "fingerprint_mismatch", "invalid_arguments", "invalid_result"),
        ),
        codec.INVALID_PARAMS,
    ),
    "internal": codec.INTERNAL_ERROR,
}
"""Code of a refusal -> error of the protocol. The code itself is in the metadata of the error."""
_NAMES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    410: "OUT_OF_RANGE",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
"""HTTP status -> the name of the status in gRPC."""

_encode = msgspec.json.Encoder().encode


def fault_of(error: Exception) -> A2AFault:
    """Return the fault for what a handler has raised: A2AFault, A2AInvalid or Refused.

    A task that the principal may not see is not found, in the same words as one that does not exist.
    """
    if isinstance(error, A2AFault):
        return error
    if isinstance(error, A2AInvalid):
        return A2AFault(codec.INVALID_PARAMS, str(error), metadata={"code": "bad_message"})
    if not isinstance(error, Refused):
        raise TypeError(f"{error!r} is not a refusal")
    code = error.error
    known = _ERRORS.get(code.code) or A2AError(
        code.code.upper(),
        (codec.INVALID_REQUEST if code.status < 500 else codec.INTERNAL_ERROR).code,
        code.status,
        _NAMES.get(code.status, "FAILED_PRECONDITION"),
    )
    return A2AFault(known, error.message, metadata={"code": code.code})


def not_found(task_id: str) -> A2AFault:
    """Return the fault of an A2A task that does not exist, or that the principal may not see."""
    text = f"no task has the id {task_id!r:.200}; ListTasks has those that you may see"
    return A2AFault(codec.TASK_NOT_FOUND, text, metadata={"code": "unknown_run"})


def fault_response(binding: Binding, request_id: str | float | None, fault: A2AFault) -> Response:
    """Return the response of an error."""
    status, body = codec.written_fault(binding, request_id, fault)
    return Response(status=status, body=_encode(body))


def rest_refusal(refused: Refused) -> Response:
    """Return the response of a request that no handler of HTTP+JSON has seen, such as one without a token."""
    return _outside("HTTP+JSON", refused)


def rpc_refusal(refused: Refused) -> Response:
    """Return the response of a request that no handler of JSON-RPC has seen; it keeps its HTTP status."""
    return _outside("JSONRPC", refused)


def _outside(binding: Binding, refused: Refused) -> Response:
    plain = refusal(refused)
    _, body = codec.written_fault(binding, None, fault_of(refused))
    return Response(status=plain.status, body=_encode(body), headers=plain.headers)
