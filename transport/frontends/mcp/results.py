"""A run as the result of a tool call. Pure.

The text is the output, or the code, message and remedy of a failure. An output that is an object is structured content,
too. Images and sounds are content of their kind, other files are embedded resources, up to `EMBEDDED` bytes together; a
text names those that do not fit.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.failures import FAILURES
from greenroom.actors.contract.outcomes import Cancelled, Completed, Failed, Stopped
from greenroom.actors.contract.plain import JSONObject

from .messages import RUN
from .tools import RUN_RESULT

EMBEDDED: Final = 256 * 1024
"""Most bytes of all images and files of a result: hosts pass results to a model."""

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class ResultPart:
    """An image or a file of a run.

    Attributes:
        line: One line for people.
        media_type: Such as image/png.
        uri: Names the attachment among those of the run.
        size: Number of bytes.
        sha256: Digest of the bytes; "" if the store has none, as of an address.
        data: The bytes; None for those that the result does not hold.
    """

    line: str
    media_type: str
    uri: str
    size: int = 0
    sha256: str = ""
    data: bytes | None = attrs.field(default=None, repr=False)


def result_of(
    run_id: str,
    outcome: Completed[Any] | Failed | Cancelled,
    output: Any,
    attachments: Sequence[ResultPart] = (),
    *,
    structured: bool = False,
) -> JSONObject:
    """Return the result of an ended run.

    Args:
        run_id: The run.
        outcome: How the run has ended, redacted.
        output: The redacted output of a completed run.
        attachments: Images and files of the run.
        structured: The tool has an output schema, so a result without structured content is an error.
    """
    if isinstance(outcome, Failed | Cancelled):
        return _result(run_id, [_text(_ended(outcome)), *map(_content, attachments)], is_error=True)
    if output is None and isinstance(outcome, Stopped):
        text = f"{outcome.code}: the run was stopped before it had a result. {outcome.detail or ''}".rstrip()
        return _result(run_id, [_text(text), *map(_content, attachments)], is_error=True)
    digests = {one.sha256: one for one in attachments if one.sha256}
    items = output if isinstance(output, list) and any(_attached(item, digests) for item in output) else [output]
    content, used = list[JSONObject](), set[str]()
    for item in items:  # an output that is an image or a file, or a list with some, is shown as what it is
        attachment = _attached(item, digests)
        content.append(_text(_plain(item)) if attachment is None else _content(attachment))
        used |= set() if attachment is None else {attachment.uri}
    content += [_content(one) for one in attachments if one.uri not in used]
    is_object = isinstance(output, dict) and not used
    result = _result(run_id, content, is_error=structured and not is_object)
    return {**result, "structuredContent": output} if is_object else result


def _attached(output: Any, digests: Mapping[str, ResultPart]) -> ResultPart | None:
    """Return the image or file whose facts an output is; None for any other output."""
    return digests.get(output.get("sha256", "")) if isinstance(output, dict) else None


def _plain(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else _encode(output).decode()


def waiting(run_id: str, tickets: Sequence[Ticket], reasons: Iterable[str] = ()) -> JSONObject:
    """Return the result of a call whose run waits for decisions that cannot be asked for here.

    Args:
        run_id: The run.
        tickets: The open tickets.
        reasons: Why the client's own answers decided nothing.
    """
    reviewers = sorted({name for ticket in tickets for name in ticket.reviewers})
    deciders = ", ".join(reviewers) if reviewers else "a person at the gateway"
    lines = [f"The run {run_id} waits for a decision by {deciders}."]
    lines += [f"{ticket.ticket_id}: {ticket.tool or ticket.action or ticket.reason}" for ticket in tickets]
    lines += [*reasons, f"Call {RUN_RESULT} with this run's id once the decision is made."]
    result = _result(run_id, [_text("\n".join(lines))], is_error=True)
    return {**result, "_meta": {**result["_meta"], "greenroom/tickets": [ticket.ticket_id for ticket in tickets]}}


def unfinished(run_id: str, why: str) -> JSONObject:
    """Return the result of a call whose run goes on after the call."""
    return _result(run_id, [_text(f"The run {run_id} {why}. Call {RUN_RESULT} with this run's id.")], is_error=False)


def failed(text: str, run_id: str | None = None) -> JSONObject:
    """Return the result of a call that has failed by itself."""
    result: JSONObject = {"content": [_text(text)], "isError": True}
    return result if run_id is None else {**result, "_meta": {RUN: run_id}}


def _result(run_id: str, content: list[JSONObject], *, is_error: bool) -> JSONObject:
    return {"content": content, "isError": is_error, "_meta": {RUN: run_id}}


def _ended(outcome: Failed | Cancelled) -> str:
    if isinstance(outcome, Failed):
        kind = FAILURES.get(outcome.code)
        text = f"{outcome.code}: {outcome.message} {'' if kind is None else kind.recovery}".rstrip()
    else:
        by = "" if outcome.by is None else f" by {outcome.by}"
        text = f"{outcome.code or 'cancelled'}: the run was cancelled{by}"
        text += f": {outcome.reason}" if outcome.reason else "."
    if outcome.outcome_unknown:
        text += f" The effect of these calls is unknown: {', '.join(outcome.outcome_unknown)}."
    return text


def _text(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def _content(one: ResultPart) -> JSONObject:
    if one.data is None:
        return _text(f"{one.line} is not in this result: {one.uri}")
    data = base64.b64encode(one.data).decode()
    kind = one.media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": one.media_type}
    return {"type": "resource", "resource": {"uri": one.uri, "mimeType": one.media_type, "blob": data}}
