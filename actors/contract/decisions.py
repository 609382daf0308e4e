"""Tickets, decisions, commands and their results: how people and programs influence a run.

Theory of operation. A suspended call holds a ticket. A decision is about one ticket, and through the fingerprint about
exactly one action: if the action changes, the decision no longer fits. Commands are idempotent by their id: the same id
with the same content yields the first result again (at most once), and a sender repeats a command until it has a result
(at least once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import attrs
import msgspec

from greenroom.supervision.border import Raised, capture
from greenroom.supervision.fields import did_you_mean

from ..errors import ToolError, UsageError
from ..options import checks_fields, unknown_option, unknown_value
from .codec import message_of, normalise
from .ids import canonical_json
from .parts import Part, facts_of
from .plain import JSONObject, JSONValue
from .row_forms import Value
from .user_types.choice import read_as, schema_of
from .user_types.constraints import TypeFault

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")
ResumeMode = Literal["replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool"]
Action = Literal["resume", "cancel"]
ActionWord = Literal["approve", "deny", "resume", "cancel"]
"""The words for an action: each key of `ACTION_WORDS`."""
TicketReason = Literal[
    "tool_permission", "user_input", "outcome_unknown", "manual_pause", "external_event", "child_approval"
]
TICKET_REASONS: Final[tuple[str, ...]] = get_args(TicketReason)
_OF_CODE: Final = tuple(reason for reason in TICKET_REASONS if reason != "child_approval")
"""The reasons that code may give; a mirror is opened by the engine only."""
TicketStatus = Literal["open", "approved", "denied", "expired", "withdrawn"]
AnswerStatus = Literal["accepted", "duplicate", "rejected"]

RESUME_MODES: Final = ("replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool")
ACTION_WORDS: Final[Mapping[str, Action]] = {
    "approve": "resume",
    "deny": "cancel",
    "resume": "resume",
    "cancel": "cancel",
}
"""Accepted word -> action: the one table for every entry (Python, frames, HTTP, AG-UI, the terminal)."""


def action_of(word: ActionWord) -> Action:
    """Return the action for a word of `ACTION_WORDS`.

    Raises:
        UsageError: the word is not in the table; the message names the nearest one.
    """
    action = ACTION_WORDS.get(word) if isinstance(word, str) else None
    if action is None:
        near = did_you_mean(word, ACTION_WORDS)
        raise UsageError(
            f"action={word!r:.100} is not known; {near}use 'approve' (or 'resume'), or 'deny' (or 'cancel')"
        )
    return action


REJECTIONS: Final = (
    "not_allowed",
    "decision_id_conflict",
    "unknown_target",
    "already_decided",
    "run_done",
    "expired",
    "fingerprint_mismatch",
    "unknown_agent",
    "invalid_arguments",
    "invalid_result",
    "busy",
    "store_unavailable",
)
"""Every code of a rejection, in the order of the checks; store_unavailable means that the store did not answer."""


@attrs.frozen
class SetResult:
    """A result instead of the tool's own, set by a gate or by an expired ticket.

    Attributes:
        value: the result (JSON).
        code: None if the call counts as succeeded; else the code of its failure, such as permission_denied.
    """

    value: JSONValue = None
    code: str | None = None


@attrs.frozen(kw_only=True)
class Allow:
    """A gate's verdict: the call may run.

    Attributes:
        note: The reason, for the log: such as the rule that lets the call pass. At most 1,000 characters are kept.
    """

    note: str = ""


@attrs.frozen
class Block:
    """A gate's verdict: the call fails, its siblings are cancelled, and the run ends as blocked for this reason."""

    reason: str


@attrs.frozen
class Deny:
    """A gate's verdict: the call fails with permission_denied, the model reads the text, and the run continues.

    Stronger than any approval: no person is asked, and an existing approval has no effect. Weaker than `Block`, which
    ends the run.
    """

    text: str


@attrs.frozen
class Trip:
    """A guardrail's verdict: the run ends as failed with guardrail_tripped.

    Attributes:
        info: the finding, plain JSON data; in the event, and in the run's failure.
    """

    info: JSONValue = None


@attrs.frozen
class Reject:
    """A verdict of a tool's guardrail: the model reads the text instead of a result, and the run continues."""

    text: str


def _schema(value: JSONObject | TypeForm[object] | None) -> JSONObject | None:
    """Return the JSON Schema of a type; the runtime judges any other value when the ticket is made.

    Raises:
        UsageError: the type has no form in JSON.
    """
    if value is None or isinstance(value, Mapping):
        return value
    try:
        return schema_of(value)
    except TypeFault as error:
        raise UsageError(f"response_schema={value!r:.200}: {error}") from error


def _known_reason(_: object, __: object, value: str) -> None:
    if value not in _OF_CODE:
        raise unknown_value("reason", value, _OF_CODE)


def _known_mode(_: object, __: object, value: str) -> None:
    if value not in RESUME_MODES:
        raise unknown_value("resume_mode", value, RESUME_MODES)


@checks_fields(UsageError)
@attrs.frozen
class Suspend(Exception):
    """A tool's (or gate's) request to wait for a decision. Return it or raise it.

    Attributes:
        action: a short verb phrase that names the action ("tool:refund" if empty).
        message: text for the deciding person.
        parameters: structured details for the deciding person.
        response_schema: JSON Schema that a decision's result must satisfy, or a type (of msgspec, attrs, pydantic, ...)
            that has one; `Decision.read` makes an object of the type. An invalid schema fails the call (or the hook),
            because no decision could satisfy it.
        resume_mode: replay_tool_call (run the body again), use_decision_as_tool_result (the body does not run; the
            decision's result is the call's result) or pass_decision_to_tool (the body runs with the decision's result
            as its arguments).
        expires_after: seconds until `on_expiry` applies; None waits without limit.
        on_expiry: "deny" (the call is cancelled, which the model reads), "cancel_run", or `SetResult(value)`.
        reviewers: principals that may decide; empty: any principal.
        reason: the kind of question, for sorting tickets: "user_input", "tool_permission" (the default of a gate),
            "external_event", "outcome_unknown" or "manual_pause". People read `message`.

    Raises:
        UsageError: resume_mode, on_expiry or reason is unknown, or expires_after is not positive, or a type has no form
            in JSON.
    """

    action: str = attrs.field(default="", kw_only=True)
    message: str = attrs.field(default="", kw_only=True)
    parameters: JSONObject = attrs.field(factory=dict, kw_only=True)
    response_schema: JSONObject | None = attrs.field(default=None, converter=_schema, kw_only=True)
    resume_mode: ResumeMode = attrs.field(default="replay_tool_call", validator=_known_mode, kw_only=True)
    expires_after: float | None = attrs.field(default=None, kw_only=True)
    on_expiry: Literal["deny", "cancel_run"] | SetResult = attrs.field(default="deny", kw_only=True)
    reviewers: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    reason: TicketReason = attrs.field(default="user_input", validator=_known_reason, kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Suspend, **attrs.asdict(self, recurse=False)), ()

    @expires_after.validator
    def _positive(self, _: object, value: float | None) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and value > 0):
            raise UsageError(f"expires_after={value!r} seconds: give a positive number, or None to wait for ever")

    @on_expiry.validator
    def _known_expiry(self, _: object, value: object) -> None:
        if value not in ("deny", "cancel_run") and not isinstance(value, SetResult):
            near = did_you_mean(value, ("deny", "cancel_run"))
            raise UsageError(f"on_expiry={value!r} is not known; {near}use 'deny', 'cancel_run' or gr.SetResult(value)")


Verdict = Allow | Suspend | SetResult | Deny | Block
"""A gate's verdict about a call; strongest first: Block, Deny, Suspend, SetResult, Allow."""


@attrs.frozen(kw_only=True)
class Decision:
    """A decision about a ticket or a call.

    Attributes:
        target: a ticket id, or a call id (the call's newest ticket, or its first one if it has none yet).
        action: "resume" or "cancel"; the constructor also accepts "approve" (resume) and "deny" (cancel).
        decision_id: the sender's id of this decision; the same id and content again yields the first result.
        result: for resume the call's result, or its arguments, as the ticket's resume_mode says; for cancel a str is
            the text for the model, word for word.
        edited_arguments: replace the model's arguments; the gates are asked again.
        reason: for the model and the audit.
        fingerprint: the action that the decider saw; None: the ticket's own.
        decided_by: a principal.
        decided_at: UTC; None: the time of posting.

    Raises:
        UsageError: the action is none of the four words.
    """

    target: str
    action: Action = attrs.field(converter=action_of)
    decision_id: str = ""
    result: JSONValue = None
    edited_arguments: JSONObject | None = None
    reason: str | None = None
    fingerprint: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None

    def read(self, kind: TypeForm[T]) -> T:
        """Return the result as an object of a type: that of the question's `response_schema`.

        Raises:
            ToolError: the decision is a denial, or the result does not fit the type, such as a validator that no JSON
                Schema expresses; the message has the path.
            UsageError: the type has no form in JSON.
        """
        if self.action != "resume":
            raise ToolError("the question was not answered: it was denied, or has expired")
        result = capture(read_as, kind, self.result)
        if isinstance(result, Raised):  # validators of the program may raise anything
            if isinstance(result.error, TypeFault):
                raise UsageError(f"read({kind!r:.200}): {result.error}") from result.error
            raise ToolError(f"the answer does not fit: {message_of(result.error)}") from result.error
        value: T = result.value
        return value


class Ticket(Value, frozen=True, kw_only=True):
    """A suspension that waits for a decision.

    Attributes:
        ticket_id: unique; a call that suspends twice gets two tickets.
        run_id: the run.
        call_id: the suspended call; None for a ticket of the run itself (manual_pause, external_event).
        tool, arguments: exactly the action to be decided; empty for a ticket of the run.
        fingerprint: hash of (agent, tool, arguments, definition of the tool): a decision is about exactly this action.
            A ticket of the run has a fingerprint of its own.
        reason: tool_permission, user_input, outcome_unknown, manual_pause, external_event or child_approval.
        action, message, parameters: for the deciding person.
        response_schema: JSON Schema for the decision's result.
        resume_mode: the effect of resume.
        expires_at: when `on_expiry` applies, UTC; None: never.
        on_expiry: "deny", "cancel_run" or "set_result".
        expiry_result: the result for "set_result".
        expiry_code: the failure code of that result; None if it counts as a success.
        reviewers: principals that may decide; empty: any principal.
        requested_at: UTC.
        replaces: the ticket with the same question before the tool was changed.
        status: open until decided, expired or withdrawn.
        decided_by, decided_at, decision_reason: set with the status.
        child_run_id, child_ticket_id: of a mirror (child_approval): the ticket of a child run that a decision about
            this ticket is forwarded to. `tool`, `arguments` and `fingerprint` are that ticket's, `call_id` is the
            call of this run that works as the child run. None for every other ticket.
        live: a process waits for the decision: the ticket is of a nested call, and is withdrawn if that process ends.
    """

    ticket_id: str
    run_id: str
    call_id: str | None
    tool: str
    arguments: JSONObject
    fingerprint: str
    reason: TicketReason
    requested_at: datetime
    action: str = ""
    message: str = ""
    parameters: JSONObject = msgspec.field(default_factory=dict)
    response_schema: JSONObject | None = None
    resume_mode: ResumeMode = "replay_tool_call"
    expires_at: datetime | None = None
    on_expiry: Literal["deny", "cancel_run", "set_result"] = "deny"
    expiry_result: JSONValue = None
    expiry_code: str | None = None
    reviewers: tuple[str, ...] = ()
    replaces: str | None = None
    status: TicketStatus = "open"
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    child_run_id: str | None = None
    child_ticket_id: str | None = None
    live: bool = False

    def approve(
        self,
        result: object = None,
        *,
        edited_arguments: JSONObject | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Decision:
        """Return a decision that resumes exactly this ticket's action, with edited arguments if given."""
        return Decision(
            target=self.ticket_id,
            action="resume",
            result=result,
            edited_arguments=edited_arguments,
            reason=reason,
            fingerprint=self.fingerprint,
            decided_by=by,
        )

    def deny(self, reason: str | None = None, *, text: str | None = None, by: str | None = None) -> Decision:
        """Return a decision that cancels exactly this ticket's action.

        `text` is what the model reads, word for word; without it the agent's `denial` provides the text, or a default
        sentence with the reason.

        Raises:
            UsageError: the text is not a str.
        """
        if text is not None and not isinstance(text, str):
            raise UsageError(f"deny(text={text!r}): give a str for the model to read, or None")
        return Decision(
            target=self.ticket_id,
            action="cancel",
            result=text,
            reason=reason,
            fingerprint=self.fingerprint,
            decided_by=by,
        )


def asks_outcome(reason: str, action: str) -> bool:
    """Return True if a ticket asks whether an interrupted call took effect: also the mirror of such a ticket."""
    return reason == "outcome_unknown" or (reason == "child_approval" and action == "outcome_unknown")


def supplies_result(ticket: Ticket | None, decision: Decision | None) -> bool:
    """Return True if a decision that resumes a call carries the call's result, so that no body runs."""
    if ticket is None or decision is None:
        return False
    outcome_given = asks_outcome(ticket.reason, ticket.action) and decision.result is not None
    return outcome_given or ticket.resume_mode == "use_decision_as_tool_result"


def decision_of(target: Any, action: Any, options: Mapping[str, Any], names: Sequence[str]) -> Decision:
    """Return the decision for a caller's `decide(target, action, **options)`.

    Raises:
        UsageError: the arguments are no decision; names the value and says what to give.
    """
    if isinstance(target, Decision):
        other_options = [name for name, value in (("an action", action), *options.items()) if value is not None]
        if other_options:
            way = "say it in ticket.approve(...) or ticket.deny(...)"
            raise UsageError(f"decide: a whole Decision was given, and {', '.join(other_options)} beside it; {way}")
        return target
    if isinstance(target, Ticket):
        way = f"approve it with .approve(...), deny it with .deny(...), or name it: decide({target.ticket_id!r}, ...)"
        text = f"decide: the ticket {target.ticket_id} is not a decision yet; {way}"
        raise UsageError(text)
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise unknown_option("decide", unknown[0], names)
    more = dict(options)
    name, by = more.pop("decision_id", None), more.pop("by", None)
    return Decision(target=target, action=action, decision_id=name or "", decided_by=by, **more)


CommandKind = Literal["decide", "cancel", "send", "pause", "expire", "wake"]


@attrs.frozen(kw_only=True)
class Command:
    """A command to a run: journaled with its result, consumed by the run's owner in order.

    Attributes:
        command_id: unique within the run; for a decision its decision_id.
        kind: decide, cancel, send, pause, expire (the clock decides a ticket, by the same rules as people), or wake (it
            only gives the run an owner, which looks at the tools of open calls).
        decision: for decide and expire.
        mode: for cancel: "now" or "after_step".
        text: for send.
        parts: for send: images and files, with their bytes until the command is journaled.
        reason, by: why, and the principal.
        posted_at: UTC.
        early: a decision for a call that has not suspended yet.
    """

    command_id: str
    kind: CommandKind
    decision: Decision | None = None
    mode: Literal["now", "after_step"] = "now"
    text: str = ""
    reason: str | None = None
    by: str | None = None
    posted_at: datetime | None = None
    early: bool = False
    parts: tuple[Part, ...] = ()

    def content(self) -> bytes:
        """Return the bytes that are equal if two commands with one id are the same; sender and time do not count.

        In JSON form, because a journaled command comes back with lists where its sender had tuples.
        """
        decision = self.decision
        parts: list[object]
        if decision is None:
            parts = [self.kind, self.mode if self.kind == "cancel" else "", self.text, self.reason]
            parts += facts_of(self.parts)
        else:
            values = (decision.result, decision.edited_arguments)
            parts = [self.kind, decision.target, decision.action, *values, decision.reason]
        return canonical_json(normalise(parts)[0])


@attrs.frozen(kw_only=True)
class InboxItem:
    """An accepted command in its run's inbox. `position` counts from 1 per run; items are consumed in that order."""

    position: int
    command: Command


@attrs.frozen(kw_only=True)
class CommandResult:
    """The result of a command. A rejection is a value, not an exception.

    Attributes:
        status: accepted (journaled), duplicate (the first result again) or rejected.
        code: None, "early", "not_remembered" (accepted, but the rule of the answer could not be kept: repeat the
            command), or the reason of a rejection (one of `REJECTIONS`).
        detail: a sentence for people: the invalid value and what to give.
        command_id: for repeating the command.
    """

    status: AnswerStatus
    code: str | None = None
    detail: str | None = None
    command_id: str = ""

    @property
    def ok(self) -> bool:
        """True if the command is journaled, by this or an earlier attempt."""
        return self.status != "rejected"
