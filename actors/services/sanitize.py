"""Validate and normalise data from tools, models and users before it is stored.

Theory of operation. The machine and the stores trust their values. A lone surrogate in a file name, NaN in a model's
arguments or an object in a ticket's parameters would crash the run's owner at its next commit, after each restart
again. Here such data is cleaned if that loses nothing, or refused with an error for its author.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Literal, get_args

import attrs
import msgspec
from msgspec.structs import astuple, replace

from ..contract.codec import MESSAGE_LIMIT, normalise
from ..contract.converters import converter
from ..contract.decisions import Command, CommandKind, Decision, SetResult, Suspend
from ..contract.excerpt import excerpt
from ..contract.ids import content_digest
from ..contract.json_schema.faults import unusable_schema
from ..contract.messages import CallRequest, FinishReason, Message, ModelResponse, Usage, not_an_object, read_arguments
from ..contract.parts import Part, fault_of_parts
from ..contract.plain import JSONObject, JSONValue, encodable, exact
from ..contract.sizes import ANSWER_LIMIT, STEP_LIMIT, VALUE_LIMIT, measured, too_large
from ..errors import UsageError
from ..options import unknown_value
from ..state.values import public_message, shown

LATEST: Final = 100 * 365 * 86_400.0
"""Longest wait of a ticket in seconds: a hundred years, because a moment after year 9999 has no date."""

FINISHES: Final[tuple[str, ...]] = get_args(FinishReason)
_KINDS: Final[tuple[str, ...]] = get_args(CommandKind)
_CANCEL_MODES: Final = ("now", "after_step")
_DECIDING: Final = ("decide", "expire")
"""Kinds of commands that need a decision."""
GREATEST: Final = 2**53 - 1
"""The greatest whole number that every JSON reader represents exactly."""
LONGEST_NAME: Final = 2_048
"""Most bytes of an id or a name that a store has an index of. PostgreSQL's index holds 2,704 bytes of a row."""
_LONGEST_CALL: Final = 256
"""Most characters of a call's id, so that the ids of commands that contain it and a run's id fit, too."""
_NUL: Final = "\0"
"""The one character that PostgreSQL takes in no text."""


class InvalidValue(Exception):
    """A value is invalid; the text names the value and the reason."""


def text_of(value: str, limit: int = VALUE_LIMIT) -> str:
    """Return a text as a plain str without lone surrogates; the same object if it is one.

    Of a text of more than `limit` characters, head, tail and size, because a report about an end must not fail.

    Raises:
        TypeError: the value is not a str, such as the text of a model's delta.
    """
    if type(value) is str and value.isascii() and len(value) <= limit:
        return value
    if not isinstance(value, str):
        raise TypeError(f"a text is {type(value).__name__}, not str")
    if str.__len__(value) > limit:
        value = excerpt(exact(value))[0]
    return str.encode(value, "utf-8", "replace").decode()


def input_of(value: object, what: str, *, may_be_blank: bool = False) -> str:
    """Return a text for a run to read; must not be blank, unless images or files come with it: then "" is returned.

    Providers reject a request with a blank message, and would do so at every later step, because the message stays in
    the thread.

    Raises:
        UsageError: the value is not a str, blank, or too large.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} is {shown(value)}; give a str")
    _check_size(value, what)
    if not value.strip():
        if may_be_blank:
            return ""
        raise UsageError(f"{what} is blank ({value[:40]!r}); give a text with something in it")
    return text_of(value)


def given_text(value: object, what: str) -> str:
    """Return a text of a caller, without lone surrogates.

    Raises:
        UsageError: the value is not a str, or is too large.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what}={shown(value)}: give a str")
    _check_size(value, what)
    return text_of(value)


def _check_size(value: str, what: str) -> None:
    """Raise UsageError for a text that is too large; its length is known without a look at it."""
    if str.__len__(value) > VALUE_LIMIT:
        raise UsageError(f"{what} is too large: {too_large(str.__len__(value))}")


def name_of(value: object, what: str) -> str:
    """Return an id or a name that every store can search for.

    Raises:
        UsageError: the value is not a str, is longer than 2,048 bytes, or has a NUL character.
    """
    if type(value) is str and value.isascii() and len(value) <= LONGEST_NAME and _NUL not in value:
        return value  # most names: read once
    name = given_text(value, what)
    if len(name) > LONGEST_NAME or len(name.encode()) > LONGEST_NAME or _NUL in name:
        raise UsageError(f"{what}={name[:200]!r}: give at most {LONGEST_NAME:,} bytes, and no NUL")
    return name


def moment_of(value: object, what: str) -> datetime:
    """Return a moment in UTC.

    Raises:
        UsageError: the value is not a datetime with a time zone, or lies outside of the years that UTC can show.
    """
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(f"{what}={value!r:.200}: give a datetime with a timezone, such as datetime.now(UTC) + ...")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise UsageError(f"{what}={value!r:.200}: it has no date in UTC; give one from the year 2 to 9998") from error


def run_id_of(value: object) -> str:
    """Return the id of a run as a caller gave it, for a look-up.

    A NUL character, with which PostgreSQL compares no text, becomes the two characters of its escape: no id has them.

    Raises:
        UsageError: the value is not a str, or has a lone surrogate: no run can have such an id.
    """
    if type(value) is str and value.isascii() and _NUL not in value:
        return value
    if not isinstance(value, str):
        raise UsageError(f"run_id={value!r:.200}: give the id of a run as a str, such as run.id")
    if not encodable(value):
        raise UsageError(f"run_id={value!r:.200}: a lone surrogate is in no id; give the id of a run")
    return exact(value).replace(_NUL, r"\0")


def check_range(call: str, after: object, until: object) -> None:
    """Check which part of a run's events a caller follows.

    Raises:
        UsageError: `after` is not a position, or `until` is neither "end" nor "rest".
    """
    if type(after) is not int or not 0 <= after <= GREATEST or until not in ("end", "rest"):
        raise UsageError(
            f"{call}(after={after!r:.100}, until={until!r:.100}): give after >= 0 and until 'end' or 'rest'"
        )


def data_of(value: object, what: str) -> Any:
    """Return a value as plain JSON data.

    Raises:
        InvalidValue: the value has no form in JSON.
    """
    data, why = normalise(value)
    if why is not None:
        raise InvalidValue(f"{what} has no form in JSON ({why})")
    return data


def object_of(value: object, what: str) -> JSONObject:
    """Return a value as a JSON object.

    Raises:
        InvalidValue: the value is not a mapping, or has no form in JSON.
    """
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{what} is {type(value).__name__}, not an object")
    data: JSONObject = data_of(value, what)
    return data


def _str(value: object, what: str, limit: int = VALUE_LIMIT) -> str:
    if type(value) is str and value.isascii() and len(value) <= limit:
        return value
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is {type(value).__name__}, not str")
    if str.__len__(value) > limit:
        raise InvalidValue(f"{what} is too large: {too_large(str.__len__(value), limit)}")
    return text_of(value, limit)


# --- tools -----------------------------------------------------------------------------------------------------------


_MORE_MESSAGES: Final = 10_000
"""Messages that a filter may return beyond those of the thread: an endless iterator is not a history."""


def messages_of(value: object, thread: Sequence[Message]) -> tuple[JSONValue, ...]:
    """Return the messages that an input filter made of a thread, as JSON; each has its own id.

    A message that the filter left as it was keeps the items of its provider.

    Raises:
        InvalidValue: the value holds anything but messages, or a message has no form in JSON.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | Mapping):
        raise InvalidValue(f"it returned {type(value).__name__}; return messages")
    by_id, used_ids = {message.id: message for message in thread}, set[str]()
    out: list[JSONValue] = []
    size = 0
    for number, item in enumerate(value, 1):
        if number > len(thread) + _MORE_MESSAGES:
            raise InvalidValue(f"it returned more than {number - 1:,} messages of {len(thread):,}")
        if not isinstance(item, Message):
            raise InvalidValue(f"it returned {type(item).__name__} among its messages; return messages only")
        if any(part.data is not None for part in item.parts):
            raise InvalidValue(f"message {number} has bytes; return the images and files of the thread, without bytes")
        original = by_id.get(item.id)
        unchanged = original is not None and item == public_message(original)
        message = original if original is not None and unchanged else replace(item, provider="", items=())
        if not message.id or message.id in used_ids or _NUL in message.id:
            message = replace(message, id=f"inherited.{number}")
        used_ids.add(message.id)
        data = data_of(converter.unstructure(message), f"message {number}")
        try:
            converter.structure(data, Message)
        except Exception as error:  # cattrs raises groups of what it met
            raise InvalidValue(f"message {number} has a field of a wrong type ({type(error).__name__})") from error
        size += len(message.content) + measured([call.arguments for call in message.calls], STEP_LIMIT)
        if size > STEP_LIMIT:
            raise InvalidValue(f"its messages up to number {number} are too large: {too_large(size, STEP_LIMIT)}")
        out.append(data)
    return tuple(out)


def suspend_of(suspend: Suspend) -> Suspend:
    """Return a `Suspend` that can become a ticket.

    Raises:
        InvalidValue: a part of it cannot be stored.
    """
    if suspend.expires_after is not None and not suspend.expires_after <= LATEST:
        raise InvalidValue(f"expires_after={suspend.expires_after!r} seconds is more than a hundred years")
    reviewers: Any = suspend.reviewers
    if not isinstance(reviewers, tuple | list) or not all(isinstance(name, str) for name in reviewers):
        raise InvalidValue(f"reviewers={reviewers!r} is not a tuple of names")
    schema, expiry = suspend.response_schema, suspend.on_expiry
    if isinstance(expiry, SetResult):
        expiry = SetResult(data_of(expiry.value, "on_expiry"), _maybe(expiry.code, "the code of on_expiry"))
    else:
        expiry = exact(expiry)
    if schema is not None:
        schema = object_of(schema, "response_schema")
        wrong = unusable_schema(schema)
        if wrong is not None:
            raise InvalidValue(f"response_schema is no JSON Schema: {wrong}")
    return attrs.evolve(
        suspend,
        action=_str(suspend.action, "action"),
        message=_str(suspend.message, "message"),
        parameters=object_of(suspend.parameters, "parameters"),
        response_schema=schema,
        resume_mode=exact(suspend.resume_mode),
        on_expiry=expiry,
        reason=exact(suspend.reason),
        reviewers=tuple(map(text_of, reviewers)),
    )


# --- models ----------------------------------------------------------------------------------------------------------


_ARGUMENTS: Final = attrgetter("arguments")


def response_of(response: object) -> ModelResponse:
    """Return a model's answer that can become messages and calls.

    Raises:
        InvalidValue: a part of it cannot be stored.
    """
    if not isinstance(response, ModelResponse):
        raise InvalidValue(f"it is {type(response).__name__}, not ModelResponse")
    texts: object = response.text
    if not isinstance(texts, tuple | list):  # a single str would be read as one text per character
        raise InvalidValue(f"text is {type(texts).__name__}; give a tuple of texts, such as text=('...',)")
    calls = tuple(response.calls)
    foreign = (texts, [*map(_ARGUMENTS, calls)], response.items) if calls or response.items != () else texts
    if (size := measured(foreign, ANSWER_LIMIT)) > ANSWER_LIMIT:
        raise InvalidValue(f"it is too large: {too_large(size, ANSWER_LIMIT)}")
    return ModelResponse(
        text=tuple(_str(text, "a text", ANSWER_LIMIT) for text in response.text),
        calls=tuple(map(_call, calls)),
        usage=usage_of(response.usage),
        model=_str(response.model, "model"),
        refusal=None if response.refusal is None else _str(response.refusal, "refusal"),
        finish=_finish(response),
        provider=_str(response.provider, "provider"),
        items=tuple(object_of(item, "an item for the provider") for item in response.items),
    )


_COUNTS: Final = Usage.__struct_fields__
_WHOLE: Final = frozenset({int})


def usage_of(usage: object) -> Usage:
    """Return a usage whose counts can be added.

    Raises:
        InvalidValue: the value is not a Usage, or a count is not a whole number from 0 to 2**53 - 1.
    """
    if not isinstance(usage, Usage):
        raise InvalidValue(f"usage is {type(usage).__name__}, not Usage")
    *counts, to_cache, incomplete = astuple(usage)
    rare = to_cache is not msgspec.UNSET or incomplete is not msgspec.UNSET
    if not rare and {*map(type, counts)} == _WHOLE and min(counts) >= 0 and max(counts) <= GREATEST:
        return usage  # as nearly all are
    for name, count in zip(_COUNTS, (*counts, to_cache, incomplete), strict=False):
        if type(count) is not int or not 0 <= count <= GREATEST:
            if name in ("stored", "incomplete") and count is msgspec.UNSET:
                continue
            raise InvalidValue(f"usage.{name} is {count!r:.80}; give a whole number, 0 or more")
    return usage


def _finish(response: ModelResponse) -> FinishReason:
    """Return why the answer ended: the model's own value, else derived from the parts of the answer."""
    finish: Any = response.finish
    if finish is None:
        alone = response.refusal is not None and not response.text
        return "tool_calls" if response.calls else "refusal" if alone else "stop"
    if finish not in FINISHES:
        raise InvalidValue(f"finish is {finish!r:.80}; use one of {', '.join(FINISHES)}")
    reason: FinishReason = exact(finish)
    return reason


def _call(call: CallRequest) -> CallRequest:
    """Return a call with plain data as arguments. Invalid arguments are the model's fault, which the model is sent."""
    name, fault = _str(call.tool, "the name of a tool"), _maybe(call.fault, "a fault")
    which = f"the id of a call of {name!r:.200}"
    id_given = _str(call.call_id, which)
    call_id = id_given
    if len(id_given) > _LONGEST_CALL or _NUL in id_given:  # some services put a whole signature into the id
        call_id = f"call.{content_digest([id_given])}"
    arguments: Any = call.arguments
    if fault is None and (arguments is None or isinstance(arguments, str | bytes)):
        arguments, fault = read_arguments(arguments)
    if fault is None and not isinstance(arguments, Mapping):
        fault = not_an_object(arguments)
    if fault is None:
        arguments, why = normalise(arguments)
        fault = None if why is None else f"the arguments cannot be used ({why})"
    return CallRequest(
        call_id=call_id,
        tool=name,
        arguments=arguments if fault is None else {},
        provider_id=_maybe(call.provider_id, which) or (id_given if id_given != call_id else None),
        fault=None if fault is None else text_of(fault)[:MESSAGE_LIMIT],
    )


# --- people ----------------------------------------------------------------------------------------------------------


class InvalidDecision(InvalidValue):
    """A value of a decision has no form in JSON and cannot be journaled.

    Attributes:
        code: the code of the rejection.
    """

    def __init__(self, code: Literal["invalid_arguments", "invalid_result"], text: str) -> None:
        super().__init__(text)
        self.code = code


def command_of(command: Command, *, local: str, now: datetime) -> Command:
    """Return a command that can be journaled: its texts checked, its decision's values as JSON data, signed and dated.

    Args:
        command: the command as the caller gave it. Reason and principal of a decision count for its command.
        local: the principal of a command without one; an expiry keeps none.
        now: the time of posting, UTC; also the time of the decision if it has none.

    Raises:
        UsageError: it is not a Command, its kind, mode or decision is invalid, a text is not a str, a sent text is
            blank, or a time has no time zone; the message names the field.
        InvalidDecision: a value of the decision has no form in JSON.
    """
    _check_form(command)
    kind, decision = command.kind, command.decision
    try:
        if decision is not None:
            decision = attrs.evolve(
                decision,
                target=target_of(decision.target),
                decision_id=_str(decision.decision_id, "decision_id"),
                reason=_maybe(decision.reason, "reason"),
                fingerprint=_maybe(decision.fingerprint, "fingerprint"),
                decided_by=_maybe(decision.decided_by, "by"),
            )
        command_id, reason, by = (
            name_of(command.command_id, f"{kind}: the id"),
            command.reason,
            _maybe(command.by, "by"),
        )
        if decision is not None and kind == "decide":
            reason = decision.reason if reason is None else reason
            by = decision.decided_by if by is None else by
        if by is None and kind != "expire":
            by = local
        alone = bool(command.parts)
        text = (
            input_of(command.text, "send: the text", may_be_blank=alone)
            if kind == "send"
            else _str(command.text, "the text")
        )
        reason = _maybe(reason, "reason")
    except InvalidValue as error:
        raise UsageError(f"{kind}: {error}; give a str") from error
    if decision is not None and kind == "decide":
        if decision.result is not None or decision.edited_arguments is not None:
            decision = _with_values(decision)
        at = now if decision.decided_at is None else moment_of(decision.decided_at, "decided_at")
        decision = attrs.evolve(decision, decision_id=command_id, decided_by=by, decided_at=at)
    return attrs.evolve(
        command,
        command_id=command_id,
        mode="now" if command.mode == "now" else "after_step",
        text=text,
        reason=reason,
        by=by,
        decision=decision,
        posted_at=now,
    )


def target_of(value: object) -> str:
    """Return the id of a ticket or a call as a caller gave it.

    Raises:
        InvalidValue: the value is not a str, or has a NUL character: no ticket and no call can have such an id.
    """
    target = _str(value, "the target")
    if _NUL in target:
        raise InvalidValue(f"the target {target!r:.200} has a NUL character, which is in no id")
    return target


def _check_form(command: Any) -> None:
    """Check the parts of a command that are not free texts.

    Raises:
        UsageError: a part is invalid.
    """
    if not isinstance(command, Command):
        raise UsageError(f"{command!r:.200} is no Command; use decide(), cancel(), pause() or send()")
    if command.kind not in _KINDS:
        raise unknown_value("kind", command.kind, _KINDS)
    if command.mode not in _CANCEL_MODES:
        raise unknown_value("mode", command.mode, _CANCEL_MODES)
    parts = command.parts
    if type(parts) is not tuple or not all(isinstance(part, Part) for part in parts):
        raise UsageError(f"{command.kind}: parts={shown(parts)}: give a tuple of parts, or use send(attachments=...)")
    if parts and (fault := fault_of_parts(parts)) is not None:
        raise UsageError(f"{command.kind}: {fault}")
    decision = command.decision
    if not isinstance(decision, Decision) and (decision is not None or command.kind in _DECIDING):
        raise UsageError(f"{command.kind}: {decision!r:.200} is no Decision; make one with ticket.approve() or .deny()")


def _with_values(decision: Decision) -> Decision:
    """Return the decision with its result and edited arguments as plain JSON data.

    Raises:
        InvalidDecision: one of them has no form in JSON.
    """
    arguments = decision.edited_arguments
    try:
        arguments = None if arguments is None else object_of(arguments, "edited_arguments")
    except InvalidValue as error:
        raise InvalidDecision("invalid_arguments", f"{error}; give an object of plain JSON data") from error
    try:
        result = data_of(decision.result, "the result")
    except InvalidValue as error:
        raise InvalidDecision("invalid_result", f"{error}; give plain JSON data") from error
    return attrs.evolve(decision, result=result, edited_arguments=arguments)


def _maybe(value: object, what: str) -> str | None:
    return None if value is None else _str(value, what)
