"""The state of one AG-UI run between two events, and the builder of the next events: opening, closing, ending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject

from .history import RunHistory, call_name, made_by, messages
from .interrupts import interrupt

PROTOCOL_VERSION: Final = "1.0"

Sent = dict[str, Any]
Payload = JSONObject


@attrs.frozen(kw_only=True)
class AgUiState:
    """The state of one AG-UI run between two events. Created by `begin`; opaque to callers.

    Attributes:
        thread_id, run_id, parent_run_id, versioned, known, agreed, shared, answered, after: As passed to `begin`.
        history: The fold of the events so far.
        started, ended: True after RUN_STARTED, and after RUN_FINISHED or RUN_ERROR.
        step, text, reasoning: Open elements at the client: a step's name, and ids of messages.
        activities: (call id, attempt) whose activity the client has.
        usage: Model -> tokens of the inferences that were reported.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None
    versioned: bool
    known: tuple[Payload, ...]
    agreed: int | None
    shared: Any
    answered: frozenset[str]
    after: int | None
    history: RunHistory
    started: bool = False
    ended: bool = False
    step: str | None = None
    text: str | None = None
    reasoning: str | None = None
    activities: frozenset[tuple[str, int]] = frozenset()
    usage: Mapping[str, Usage] = attrs.field(factory=dict)


class AgUiBuilder:
    """A mutable copy of a state, and the events for the client."""

    def __init__(self, state: AgUiState) -> None:
        self.state, self.history = state, state.history
        self.events: list[Sent] = []
        self.started, self.ended = state.started, state.ended
        self.step, self.text, self.reasoning = state.step, state.text, state.reasoning
        self.activities, self.usage = state.activities, state.usage

    def build(self) -> AgUiState:
        """Return the resulting state."""
        return attrs.evolve(
            self.state,
            started=self.started,
            ended=self.ended,
            step=self.step,
            text=self.text,
            reasoning=self.reasoning,
            activities=self.activities,
            usage=self.usage,
        )

    def spend(self, model: str, usage: Usage) -> None:
        """Count the tokens of a request; model "" if the log does not name the model."""
        if usage.total:
            self.usage = {**self.usage, model: self.usage.get(model, Usage()) + usage}

    def put(self, kind: str, **fields: object) -> None:
        """Append an event; fields that are None are left out."""
        event: Sent = {"type": kind, "timestamp": self.history.at, **fields}
        self.events.append({name: value for name, value in event.items() if value is not None})

    def open(self, before: RunHistory) -> None:
        """Append RUN_STARTED, and the present conversation, if the client's differs."""
        self.started = True
        run = self.history.run
        self.put(
            "RUN_STARTED",
            threadId=self.state.thread_id,
            runId=self.state.run_id,
            parentRunId=self.state.parent_run_id,
            protocolVersion=PROTOCOL_VERSION,
            metadata={"greenroom": {"run": run, "agent": self.history.agent}} if run else None,
        )
        page_messages, agreed = self.state.known, self.state.agreed
        # clients keep the positions of known messages: remove the tail first, so that it returns in order
        if agreed is not None:
            self.put("MESSAGES_SNAPSHOT", messages=list(page_messages[:agreed]))
        if before.sequence or agreed is not None or any(made_by(run, message) for message in page_messages):
            self.snapshot(attrs.evolve(before, run=run))
        if before.step is not None:
            self.open_step(before.step)

    def snapshot(self, history: RunHistory | None = None) -> None:
        """Append a snapshot of all messages of the conversation."""
        self.put("MESSAGES_SNAPSHOT", messages=messages(history or self.history, self.state.known))

    def open_step(self, number: int) -> None:
        """Open a step and close the previous one."""
        self.close_step()
        self.step = f"step {number}"
        self.put("STEP_STARTED", stepName=self.step)

    def close_step(self) -> None:
        """Close the open step, if any."""
        if self.step is not None:
            self.put("STEP_FINISHED", stepName=self.step)
        self.step = None

    def open_text(self, name: str) -> None:
        """Open the text of this message."""
        if self.text == name:
            return
        self.close_text()
        self.text = name
        self.put("TEXT_MESSAGE_START", messageId=name, role="assistant")

    def close_text(self, *, is_cut: bool = False) -> None:
        """Close the open message, if any. `cut`: the run ended while the model wrote it."""
        if self.text is not None:
            self.put("TEXT_MESSAGE_END", messageId=self.text, metadata={"greenroom": {"cut": True}} if is_cut else None)
        self.text = None

    def put_user_message(self, name: str, text: str) -> None:
        """Append a message of the user that the client has not sent itself."""
        self.put("TEXT_MESSAGE_START", messageId=name, role="user")
        if text:  # clients refuse an empty delta
            self.put("TEXT_MESSAGE_CONTENT", messageId=name, delta=text)
        self.put("TEXT_MESSAGE_END", messageId=name)

    def open_reasoning(self, name: str) -> None:
        """Open the reasoning with this id. Span and message share one id, as the protocol allows."""
        if self.reasoning == name:
            return
        self.close_reasoning()
        self.reasoning = name
        self.put("REASONING_START", messageId=name)
        self.put("REASONING_MESSAGE_START", messageId=name, role="reasoning")

    def close_reasoning(self) -> None:
        """Close the open reasoning, if any."""
        if self.reasoning is not None:
            self.put("REASONING_MESSAGE_END", messageId=self.reasoning)
            self.put("REASONING_END", messageId=self.reasoning)
        self.reasoning = None

    def close(self) -> None:
        """Close all open elements."""
        self.close_reasoning()
        self.close_text()
        self.close_step()

    def interrupt(self, tickets: Sequence[str]) -> None:
        """End the AG-UI run with interrupts."""
        self.close()
        self._share()
        self.snapshot()
        interrupts = [self._interrupt(self.history.tickets[name]) for name in tickets]
        self._finished(outcome={"type": "interrupt", "interrupts": interrupts})

    def _interrupt(self, ticket: Payload) -> dict[str, Any]:
        call_id = ticket.get("callId")
        shown = interrupt(ticket, None if call_id is None else call_name(self.history, call_id))
        if not self.state.versioned and "expiresAt" in shown:
            shown["metadata"]["greenroom"]["expiresAt"] = shown.pop("expiresAt")
        return shown

    def end(self) -> None:
        """End the AG-UI run with the end of the run."""
        kind, payload = self.history.end or ("", {})
        usage, total = self.history.counted, Usage(**payload.get("usage") or {})
        # the cost of a failed last request: no event before the terminal one has it
        self.spend("", Usage(input=total.input - usage.input, output=total.output - usage.output))
        if kind == "run.failed":
            self.fail(payload["code"], payload["message"])
            return
        self.close()
        self._share()
        if kind == "run.cancelled" and not self.state.versioned:  # older clients refuse the outcome cancelled
            reason = payload.get("reason")
            self.fail("cancelled", f"The run was cancelled: {reason}" if reason else "The run was cancelled.")
            return
        facts = {name: payload[name] for name in ("termination", "code", "detail", "reason") if payload.get(name)}
        self._finished(
            outcome={"type": "cancelled" if kind == "run.cancelled" else "success"},
            result=payload.get("output"),
            metadata={"greenroom": facts},
        )

    def _share(self) -> None:
        """Append the client's state with the state of the run."""
        shared, history = self.state.shared, self.history
        facts: dict[str, Any] = {} if history.step is None else {"step": history.step}
        facts |= {"run": history.run, "agent": history.agent, "stage": history.stage, "tickets": [*history.tickets]}
        if shared is None or isinstance(shared, Mapping):
            shared = {**(shared or {}), "greenroom": facts}
        self.put("STATE_SNAPSHOT", snapshot=shared)

    def _finished(self, **fields: object) -> None:
        self.put(
            "RUN_FINISHED", threadId=self.state.thread_id, runId=self.state.run_id, **fields, usage=_usage(self.usage)
        )
        self.ended = True

    def fail(self, code: str, message: str) -> None:
        """End the AG-UI run with an error.

        A client before version 1.0 keeps the interrupts that it has answered until an AG-UI run finishes, and sends no
        further message before; so its run finishes first.
        """
        self.close()
        if self.state.answered and not self.state.versioned:
            self._finished()
        self.put("RUN_ERROR", message=message, code=code, usage=_usage(self.usage))
        self.ended = True


def _usage(spent: Mapping[str, Usage]) -> list[dict[str, Any]] | None:
    """Return one entry per model, for this AG-UI run only."""
    entries = []
    for model, usage in spent.items():
        entry: dict[str, Any] = {"model": model} if model else {}
        entry |= {"inputTokens": usage.input, "outputTokens": usage.output, "totalTokens": usage.total}
        parts = {
            "cachedInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.stored,
            "reasoningTokens": usage.reasoning,
        }
        entries.append(entry | {name: count for name, count in parts.items() if count})
    return entries or None
