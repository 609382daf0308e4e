"""Failures of providers as kinds of `ModelError`: by their codes first, then by words, then by the HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import attrs

from ...contract.messages import Usage
from ...contract.plain import JSONObject
from ...errors import MAY_PASS, ModelError, ModelErrorKind
from .masking import KeyMask
from .port import Reported, json_text, mapping

LONGEST: Final = 1_000
"""Most characters of a provider's sentence in an error."""
READ: Final = 16_384
"""Most characters of a provider's report that are looked at, spaces among them."""

CODES: Final[Mapping[str, ModelErrorKind]] = {
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "too_many_requests": "rate_limited",
    "RESOURCE_EXHAUSTED": "rate_limited",
    "insufficient_quota": "quota_exceeded",
    "billing_hard_limit_reached": "quota_exceeded",
    "credit_balance_exhausted": "quota_exceeded",
    "billing_error": "quota_exceeded",
    "daily_quota": "quota_exceeded",
    "server_is_overloaded": "overloaded",
    "overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "UNAVAILABLE": "overloaded",
    "timeout_error": "timeout",
    "DEADLINE_EXCEEDED": "timeout",
    "server_error": "provider",
    "tool_use_failed": "provider",  # Groq: the model wrote a call that is none; another try may do better
    "json_validate_failed": "provider",
    "api_error": "provider",
    "INTERNAL": "provider",
    "context_length_exceeded": "context_overflow",
    "request_too_large": "context_overflow",
    "invalid_api_key": "unauthorized",
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "UNAUTHENTICATED": "unauthorized",
    "PERMISSION_DENIED": "unauthorized",
    "API_KEY_INVALID": "unauthorized",
    "model_not_found": "model_not_found",
    "not_found_error": "model_not_found",
    "NOT_FOUND": "model_not_found",
    "content_filter": "content_filtered",
}
"""Codes and types that mean one thing."""
GENERAL: Final = frozenset({"api_error", "server_error"})
"""Codes that say no more than that something failed; compatible servers give them beside any status."""

ENDINGS: Final[Mapping[str, ModelErrorKind]] = {
    "_spend_limit_exceeded": "quota_exceeded",
    "_policy_violation": "content_filtered",
}

WORDS: Final[Mapping[str, ModelErrorKind]] = {
    "maximum context length": "context_overflow",
    "maximum prompt length": "context_overflow",  # xAI
    "exceed context window": "context_overflow",  # llama-cpp-python
    "prompt is too long": "context_overflow",
    "input token count": "context_overflow",
    "number of tokens allowed": "context_overflow",
    "credit balance is too low": "quota_exceeded",
}
"""Parts of sentences of refused requests, whose code says no more than that the request is invalid."""

STATUSES: Final[Mapping[int, ModelErrorKind]] = {
    401: "unauthorized",
    402: "quota_exceeded",
    403: "unauthorized",
    404: "model_not_found",
    408: "timeout",
    409: "provider",
    413: "context_overflow",
    429: "rate_limited",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


class ProviderError(ModelError):
    """A failure that a provider has reported.

    Attributes:
        retryable: as the provider says (`x-should-retry`); else by the kind.
        request_id: the provider's id of the request; "" if unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        retry_after: float | None = None,
        usage: Usage | None = None,
        should_retry: bool | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message, kind=kind, retry_after=retry_after, usage=usage)
        self.should_retry = should_retry
        self.request_id = request_id

    @property
    def retryable(self) -> bool:
        """True if a retry may work."""
        return self.kind in MAY_PASS if self.should_retry is None else self.should_retry


def kind_of(report: Reported) -> ModelErrorKind:
    """Classify a report."""
    for code in report.codes:
        if code in CODES and not (code in GENERAL and report.status in STATUSES):
            return CODES[code]
        for ending, kind in ENDINGS.items():
            if code.endswith(ending):
                return kind
    if report.status in (None, 400, 413, 422):
        lower = report.message.lower()
        for words, kind in WORDS.items():
            if words in lower:
                return kind
    if report.status is None:
        return "invalid_request" if {"invalid_request_error", "INVALID_ARGUMENT"} & {*report.codes} else "provider"
    return STATUSES.get(report.status) or ("provider" if report.status >= 500 else "invalid_request")


def provider_error(
    name: str,
    report: Reported,
    mask: KeyMask,
    *,
    headers: Mapping[str, str] | None = None,
    usage: Usage | None = None,
) -> ProviderError:
    """Return the error for a report.

    Args:
        name: the model's name.
        report: its status is None for a report inside a stream.
        mask: hides the key in the provider's words.
        headers: The headers of the response; names are asked for in lower case.
        usage: tokens of the failed request.
    """
    headers = headers or {}
    request_id = mask.beginning(headers.get("x-request-id") or headers.get("request-id") or "", 100)
    status = "" if report.status is None else f" {report.status}"
    report = attrs.evolve(report, message=mask.beginning(report.message, READ))
    code = mask.beginning(report.codes[0], LONGEST) if report.codes else ""
    reason = mask.text(": ".join(filter(None, (code, " ".join(report.message.split())))) or "no reason given")
    reason = reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 1]}…"
    behind = f" (request {request_id})" if request_id else ""
    waits = retry_after(headers)
    return ProviderError(
        f"{name} answered{status} {reason}{behind}",
        kind=kind_of(report),
        retry_after=report.retry_after if waits is None else waits,
        usage=usage,
        should_retry={"true": True, "false": False}.get(headers.get("x-should-retry", "").lower()),
        request_id=request_id,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.

    A date counts from the response's own `date`, so that it does not depend on the clock of this machine.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    until, since = _date(text), _date(headers.get("date"))
    return None if until is None or since is None else max(0.0, (until - since).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # a year or a zone of twenty digits
        return None
    return date if date.tzinfo is not None else None


def plain_report(status: int, text: str) -> Reported:
    """Return the report of a body that is not JSON of the provider's, such as a page of a proxy."""
    return Reported(status=status, message=text)


def from_object(status: int | None, error: JSONObject, codes: tuple[object, ...]) -> Reported:
    """Return the report of an error object with a `message` or `detail`. A code that is a number is a status."""
    number = next((code for code in codes if type(code) is int and 400 <= code < 600), None)
    message = error.get("message", error.get("detail"))
    if message is not None and not isinstance(message, str):
        message = json_text(message)  # what a validator found, as from Mistral and servers with FastAPI
    raw = mapping(error.get("metadata")).get("raw")  # OpenRouter: what the service behind it said
    return Reported(
        codes=tuple(code for code in codes if isinstance(code, str) and code),
        message=": ".join(text for text in (message, raw) if isinstance(text, str) and text),
        status=number if status is None else status,
    )
