"""The rows again, from the events alone: what a client that only reads the log comes to.

Every rule about a single event is checked here as it is folded: legal moves only, nothing after the terminal event,
deltas in order, one consequence per decision.
"""

from collections import Counter

from msgspec.structs import astuple

from greenroom.actors.contract import events as ev
from greenroom.actors.contract import work_events as work
from greenroom.actors.contract.calls import CALLS, CallStatus
from greenroom.actors.contract.catalogue import CATALOGUE, TERMINAL_EVENTS
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.lifecycle import STAGES, Stage
from greenroom.actors.contract.messages import Usage


class Fold:
    """Folds events, one after the other."""

    def __init__(self) -> None:
        self.stage = Stage.CREATED
        self.step = self.steps = self.sequence = self.revision = 0
        self.usage = Usage()
        self.refused: set[str] = set()
        self.child_calls: set[str] = set()
        self.status: dict[str, CallStatus] = {}
        self.attempts: Counter[str] = Counter()
        self.results: dict[str, tuple[object, str | None]] = {}
        self.tickets: dict[str, str] = {}
        self.tasks: dict[str, int] = {}  # those that live, with their attempts
        self.finished: dict[str, tuple[str, str | None]] = {}
        self.approvals: Counter[str] = Counter()
        self.consequences: Counter[str | None] = Counter()
        self.artifacts: list[tuple[str, str, int]] = []
        self.deltas: Counter[tuple[str, str]] = Counter()
        self.closed_messages: set[str] = set()
        self.speaking: dict[str, str] = {}  # call -> the message of its body that is not complete
        self.moves: list[tuple[Stage, Stage]] = []
        self.call_moves: list[tuple[str, CallStatus, CallStatus]] = []
        self.pauses: Counter[str] = Counter()
        self.pausing: str | None = None
        self.terminal: EventDraft | None = None

    def take(self, event: EventDraft) -> None:
        assert self.terminal is None, f"{event.type} after {self.terminal}"
        assert type(event.payload) is CATALOGUE[event.type]
        self.sequence += 1
        match event.payload:
            case ev.RunMoved() | ev.RunWaiting() | ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                self._take_lifecycle(event)
            case ev.ApprovalRequested() | ev.ApprovalResolved() | ev.DecisionRefused() | ev.PauseRequested():
                self._take_decision(event.payload)
            case ev.TaskStarted() | ev.TaskProgress() | ev.TaskOutputDelta() | ev.TaskFinished():
                self._take_task(event.payload)
            case _:
                self._take_step(event)
                self._take_call(event)

    def _take_lifecycle(self, event: EventDraft) -> None:
        payload = event.payload
        match payload:
            case ev.RunMoved() | ev.RunWaiting():
                self._move(payload.source, payload.to)
                if isinstance(payload, ev.RunWaiting):
                    waiting = {ticket for ticket, status in self.tickets.items() if status == "open"}
                    assert set(payload.tickets) == waiting, "run.waiting names the open tickets"
                    assert waiting, "a run waits for somebody"
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                assert event.type in TERMINAL_EVENTS
                self._move(payload.source, payload.to)
                assert payload.last_sequence == self.sequence
                assert payload.steps == self.steps
                self._spend_last(payload)
                assert not self.tasks, "a task outlives its run"
                assert self.pausing is None, f"nothing became of the pause {self.pausing}"
                self.terminal = event

    def _spend_last(self, payload: object) -> None:
        """The terminal event tells what the last request has cost if the run ends because that one failed."""
        assert isinstance(payload, ev.RunCompleted | ev.RunFailed | ev.RunCancelled)
        if payload.code in ("model_error", "consecutive_errors"):
            pairs = zip(astuple(payload.usage), astuple(self.usage), strict=True)
            assert all((now or 0) >= (before or 0) for now, before in pairs)  # the count of incomplete may be unset
            self.usage = payload.usage
        assert payload.usage == self.usage

    def _take_step(self, event: EventDraft) -> None:
        payload = event.payload
        match payload:
            case ev.StepStarted():
                assert payload.step == self.step + 1
                self.step = payload.step
            case ev.StepFinished():
                assert (payload.step, payload.usage) == (self.step, self.usage)
                self.steps += 1
            case ev.StateChanged():
                assert payload.revision == self.revision + 1
                self.revision = payload.revision
            case ev.InferenceCompleted():
                self.usage = self.usage + payload.usage
            case ev.ChildFinished() | ev.UsageSpent() | ev.InferenceCut():
                self.usage = self.usage + payload.usage
            case ev.InferenceRetried():
                self.usage = self.usage + (payload.usage or Usage())
            case ev.MessageDelta() | ev.ReasoningStreamed():
                key = (payload.message_id, event.type)
                assert payload.index == self.deltas[key]
                assert payload.message_id not in self.closed_messages
                self.deltas[key] += 1
            case ev.MessageCompleted() | ev.MessageDiscarded():
                assert payload.message_id not in self.closed_messages
                self.closed_messages.add(payload.message_id)
        self._take_spoken(payload)

    def _take_spoken(self, payload: object) -> None:
        """A body says one message after the other, and each of which text was shown has an end."""
        match payload:
            case ev.MessageDelta(call_id=str() as call_id, message_id=name):
                assert self.status[call_id] is CallStatus.RUNNING
                assert self.speaking.setdefault(call_id, name) == name
            case ev.MessageCompleted(call_id=str() as call_id, message_id=name):
                assert self.status[call_id] is CallStatus.RUNNING
                assert self.speaking.pop(call_id, name) == name
            case ev.MessageDiscarded(call_id=str() as call_id, message_id=name):
                assert self.speaking.pop(call_id) == name

    def _take_decision(self, payload: object) -> None:
        match payload:
            case ev.ApprovalRequested():
                assert payload.ticket_id not in self.tickets
                self.tickets[payload.ticket_id] = "open"
                assert payload.call_id is not None or payload.reason in ("manual_pause", "external_event")
                if payload.call_id is None and payload.reason == "manual_pause":
                    assert self.pausing is not None, "nobody asked for a pause"
                    self.pausing = None
            case ev.PauseRequested():
                self.pauses[payload.command_id] += 1
                if payload.joins is None:
                    assert self.pausing is None
                    self.pausing = payload.command_id
            case ev.ApprovalResolved():
                assert self.tickets[payload.ticket_id] == "open"
                self.tickets[payload.ticket_id] = payload.resolution
                self.consequences[payload.reason] += 1
                self.approvals[payload.call_id or ""] += payload.resolution == "approved"
            case ev.DecisionRefused():
                self.refused.add(payload.command_id)
                self.consequences[payload.command_id] += 1
                if payload.command_id == self.pausing:
                    self.pausing = None

    def _take_call(self, event: EventDraft) -> None:
        payload = event.payload
        match payload:
            case ev.ToolCalled():
                assert payload.call_id not in self.status
                assert payload.status is CallStatus.NEW
                self.status[payload.call_id] = payload.status
            case ev.ToolStarted():
                again = self.status[payload.call_id] is CallStatus.RUNNING  # a crash: the body runs again
                self._call_move(payload.call_id, payload.status, again=again)
                assert payload.call_id not in self.speaking, "a message of the attempt before has no end"
                self.attempts[payload.call_id] += 1
                assert payload.attempt == self.attempts[payload.call_id]
            case work.ArtifactReady():
                assert payload.artifact_id.endswith(f".a{self.sequence}")
                assert self.status[payload.call_id] is CallStatus.RUNNING
                self.artifacts.append((payload.call_id, payload.artifact_id, payload.size))
            case ev.ToolSuspended():
                self._call_move(payload.call_id, payload.status)
                assert payload.call_id in self.child_calls or payload.ticket_id not in self.tickets
            case ev.ChildStarted():
                assert payload.call_id not in self.child_calls
                self.child_calls.add(payload.call_id)
            case ev.ToolResumed():
                self._call_move(payload.call_id, payload.status)
                assert payload.call_id in self.child_calls or self.tickets[payload.ticket_id] in ("approved", "expired")
            case ev.ToolResult():
                self._call_move(payload.call_id, payload.status)
                assert payload.call_id not in self.speaking, "a message of the body has no end"
                assert payload.attempts == self.attempts[payload.call_id]
                self.results[payload.call_id] = (payload.result, payload.code)
            case ev.ToolProgress() | ev.ToolOutputDelta():
                assert self.status[payload.call_id] is CallStatus.RUNNING

    def _take_task(self, payload: ev.TaskStarted | ev.TaskProgress | ev.TaskOutputDelta | ev.TaskFinished) -> None:
        name = payload.task_id
        match payload:
            case ev.TaskStarted():
                assert name not in self.finished, "a task that has ended starts again"
                assert payload.attempt == self.tasks.get(name, 0) + 1
                self.tasks[name] = payload.attempt
            case ev.TaskProgress() | ev.TaskOutputDelta():
                assert payload.attempt == self.tasks[name]
            case ev.TaskFinished():
                assert payload.attempts == self.tasks.pop(name)
                self.finished[name] = (payload.status, payload.code)

    def _move(self, source: Stage, target: Stage) -> None:
        assert source is self.stage, f"{source} -> {target}, but the run is {self.stage}"
        assert target in STAGES[source], f"{source} -> {target}"
        self.moves.append((source, target))
        self.stage = target

    def _call_move(self, call_id: str, target: CallStatus, *, again: bool = False) -> None:
        source = self.status[call_id]
        assert again or target in CALLS[source], f"{call_id}: {source} -> {target}"
        self.call_moves.append((call_id, source, target))
        self.status[call_id] = target
