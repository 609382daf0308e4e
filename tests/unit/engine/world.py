"""A simulated owner of one run, with a store: everything around the machine, without tasks and without time.

The owner does what a run actor does: it feeds one input at a time, submits the commit, performs what need not wait and
keeps the rest until the commit is durable. A test answers the effects that are outstanding, acknowledges commits, posts
commands through the real judge, lets time pass, and crashes the owner. After every input the promises of the machine
that can be seen from outside are checked (`_check_*`).
"""

import copy
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.calls import CallPosition, CallStatus
from greenroom.actors.contract.commits import Commit
from greenroom.actors.contract.decisions import Command, CommandResult, Decision, InboxItem, Suspend, Ticket
from greenroom.actors.contract.excerpt import Large
from greenroom.actors.contract.facts import NestedAnswer
from greenroom.actors.contract.lifecycle import TERMINAL, RunStatus, Stage
from greenroom.actors.contract.messages import CallRequest, Message, ModelResponse, Usage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.rows import CallRow, CommandContext, RunInfo, RunRecord, RunRow
from greenroom.actors.contract.spec import AgentSpec, Execution, ExecutionMode
from greenroom.actors.contract.state import Batch, KeyId, Keys, StateWrite
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.calls import derive_stage
from greenroom.actors.engine.command_rules import CommandRules
from greenroom.actors.engine.machine import due, step
from greenroom.actors.engine.state import RunState, Transition, stored

from ...support.promises import derive_run_status
from .fake_child import CUT, FakeChild
from .fold import Fold

START = datetime(2026, 1, 1, tzinfo=UTC)
HELD_OPEN = (RunPosition.TOOLS, RunPosition.GUARDS_OUTPUT, RunPosition.STEP_END, RunPosition.STOPPING)
"""Where a run may work, or clean up, while a ticket of its own is open: the rest of its step."""
OWN = ExecutionMode(bodies=2, suspended_blocks=True, batch=True, merges="at_once")
"""A mode of the program's own, with columns that no named mode has together."""
Key = tuple[str, ...]
NO_KEYS: Keys = {}


class Store:
    """Rows folded from commits, events folded beside them, and the inbox."""

    def __init__(self, info: RunInfo) -> None:
        self.info, self.row = info, RunRow()
        self.calls: dict[str, CallRow] = {}
        self.tickets: dict[str, Ticket] = {}
        self.messages: list[Message] = []
        self.state: dict[KeyId, StateWrite] = {}
        self.events: list[Any] = []
        self.fold = Fold()
        self.inbox: list[tuple[Command, CommandResult]] = []
        self._targets: dict[str, Command] = {}

    def apply(self, commit: Commit) -> None:
        """A commit becomes durable; the events must tell the same as the rows."""
        assert commit.expected_last == len(self.events)
        assert commit.row.last_sequence == commit.last
        assert commit.consumed in (0, commit.row.inbox)
        self.row = commit.row
        self.calls |= {call.call_id: call for call in commit.calls}
        self.tickets |= {ticket.ticket_id: ticket for ticket in commit.tickets}
        self.messages += commit.messages
        self.state |= {KeyId(write.scope, write.key): write for write in commit.state}
        for event in commit.events:
            self.events.append(event)
            self.fold.take(event)
        self._compare()

    def _compare(self) -> None:
        row, fold = self.row, self.fold
        assert (fold.stage, fold.steps) == (row.stage, row.counters.rounds)
        ended = None if row.termination is None else row.termination.code
        if fold.terminal is not None or ended not in ("model_error", "consecutive_errors"):
            assert fold.usage == row.usage  # what a failed last request has cost, the terminal event tells
        assert fold.step == row.step
        assert fold.revision == row.revision
        assert fold.status == {call.call_id: call.status for call in self.calls.values()}
        assert fold.tickets == {ticket.ticket_id: ticket.status for ticket in self.tickets.values()}
        assert {key: n for key, n in fold.attempts.items() if n} == {
            call.call_id: call.attempts for call in self.calls.values() if call.attempts
        }
        published = [(c.call_id, a.artifact_id, a.size) for c in self.calls.values() for a in c.artifacts]
        assert sorted(fold.artifacts) == sorted(published)
        sizes = [size for _, _, size in published]
        assert (row.counters.artifacts, row.counters.artifact_bytes) == (len(sizes), sum(sizes))
        assert fold.tasks == {task.task_id: task.attempts for task in row.tasks}
        for call in self.calls.values():
            if call.status is CallStatus.SUCCEEDED:
                reported = fold.results[call.call_id][0]
                assert (reported.value if isinstance(reported, Large) else reported) in (call.result, call.shown)

    def post(self, command: Command, judge: CommandRules) -> CommandResult:
        """Judge a command by the durable rows, and journal it if it is accepted."""
        facts = self._facts(command)
        answer = judge(facts, command)
        if answer.status == "accepted":
            self.inbox.append((attrs.evolve(command, early=answer.code == "early"), answer))
            if facts.target_key is not None and command.decision is not None:
                self._targets[facts.target_key] = command
        return answer

    def _facts(self, command: Command) -> CommandContext:
        known = next((item for item in self.inbox if item[0].command_id == command.command_id), None)
        ticket, call = None, None
        if command.decision is not None:
            target = command.decision.target
            call = self.calls.get(target)
            of_call = [ticket for ticket in self.tickets.values() if ticket.call_id == target]
            ticket = self.tickets.get(target) or (of_call[-1] if of_call else None)
            call = call if ticket is None else self.calls.get(ticket.call_id or "")
        facts = CommandContext(
            stage=self.row.stage,
            pending=len(self.inbox) - self.row.inbox,
            known=known,
            ticket=ticket,
            call=call,
            leaving=self.row.position.rule.leaving,
        )
        prior = self._targets.get(facts.target_key or "")
        if prior is None and call is not None:
            early = self._targets.get(f"call:{call.call_id}")
            waits = early is not None and any(
                item[0].command_id == early.command_id for item in self.inbox[self.row.inbox :]
            )
            prior = early if waits or (early is not None and call.call_id in self.row.early) else None
        return attrs.evolve(facts, prior=prior)

    def record(self) -> RunRecord:
        """What a new owner loads."""
        calls = sorted(self.calls.values(), key=lambda call: (call.step, call.index))
        current = tuple(call for call in calls if call.step == self.row.step)
        return RunRecord(
            info=self.info,
            row=self.row,
            calls=current,
            call_ids=frozenset(self.calls),
            state=tuple(write for _, write in sorted(self.state.items())),
        )


Answered = fx.Prepare | fx.RunPhase | fx.AskGuards | fx.CallModel | fx.StartCall | fx.StartTask | fx.CancelTask
"""The effects that have a final answer."""


class World:
    """One run, its owner and its store.

    Args:
        spec: of the agent.
        lazy: commits become durable when the test says so (`ack`), not at once.
        deadline: seconds from the start.
        place: where the workspace of the run is.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        execution: Execution | None = None,
        deadline: float | None = None,
        lazy: bool = False,
        admitted: bool = True,
        place: str | None = None,
    ) -> None:
        self.spec, self.now, self.lazy = spec, START, lazy
        info = RunInfo(
            run_id="r",
            thread_id="t",
            agent=spec.key,
            agent_digest=spec.digest,
            created_at=START,
            execution=execution or spec.execution,
            deadline=None if deadline is None else START + timedelta(seconds=deadline),
            place=place,
        )
        self.store = Store(info)
        created = ev.RunCreated(to=Stage.CREATED, agent=spec.key, thread_id="t", input="hello", by="tester")
        self.store.row = RunRow(last_sequence=1)
        self.store.events.append(created)
        self.store.fold.sequence = 1
        self.outstanding: dict[Key, fx.Effect] = {}
        self.dying: dict[Key, fx.Effect] = {}
        self.parked: set[str] = set()
        self.unacked: deque[tuple[Commit, tuple[fx.Effect, ...]]] = deque()
        self.starts: dict[str, int] = {}
        self.task_starts: set[str] = set()
        self.replies: dict[int, fx.AnswerBody] = {}
        self.allowed: set[str] = set()
        self.reports: list[fx.ReportFailure] = []
        self.child_runs: dict[str, FakeChild] = {}
        self.finished = False
        self.inputs = 0
        self.trace: list[str] = []
        self._closing: tuple[RunState, inp.Input] | None = None
        self._again = False
        self._posted = 0
        self.state = RunState.from_record(self.store.record())
        self.feed(inp.Activate(admitted=admitted, agent_digest=spec.digest))

    # --- the owner ---------------------------------------------------------------------------------------------------

    @property
    def row(self) -> RunRow:
        return self.state.row

    @property
    def ended(self) -> bool:
        return self.row.position is RunPosition.ENDED

    def feed(self, message: inp.Input) -> Transition:
        """Step the machine with one input and do what it says."""
        before, kept = self.state, copy.deepcopy(self.state)
        self.trace.append(f"{self.row.position.value:16} {message}")
        taken = step(self.spec, before, message, self.now)
        assert before == kept, "the state was changed in place"
        assert step(self.spec, before, message, self.now) == taken, "the same input came to something else"
        if before.row.position is RunPosition.ENDED:
            assert taken == Transition(before, None, ()), "an ended run did something"
        return self._take(before, message, taken)

    def asks_to_hold(self, phase: Phase, wish: Suspend) -> Transition:
        """The hooks of a phase answer, and one of them holds the run."""
        message = inp.PhaseDone(phase=phase, step=self.row.step, ticket_requests=(wish,))
        del self.outstanding[answered_by(message)]
        return self.feed(message)

    def _take(self, before: RunState, message: inp.Input, taken: Transition) -> Transition:
        self.inputs += 1
        self.state = taken.state
        self._check_commit(before, taken)
        if taken.commit is not None and taken.state.row.stage in TERMINAL:
            self._closing = (before, message)
        self._carry_out(taken)
        if not self.lazy:
            self.ack_all()
        self._forget_hooks()
        self._check_rest()
        return taken

    def _forget_hooks(self) -> None:
        """Nobody waits for the hooks of a nested call that its parent's end has cut off."""
        cut = {call.call_id for call in self.state.calls.values() if call.parent and call.at is CallPosition.SETTLED}
        written = [*self.store.calls.values(), *(call for commit, _ in self.unacked for call in commit.calls)]
        cut |= {call.call_id for call in written if call.parent and call.step < self.row.step}
        self.outstanding = {
            key: effect for key, effect in self.outstanding.items() if key[0] != "phase" or key[3] not in cut
        }

    def _carry_out(self, taken: Transition) -> None:
        waits = tuple(effect for effect in taken.effects if effect.durable)
        if taken.commit is not None:
            self.unacked.append((taken.commit, waits))
        elif waits and self.unacked:
            commit, earlier = self.unacked.pop()
            self.unacked.append((commit, (*earlier, *waits)))
        elif waits:
            self._perform(*waits)
        self._perform(*(effect for effect in taken.effects if not effect.durable))

    def ack(self) -> None:
        """The oldest commit becomes durable, or meets commands that came before it and is taken back."""
        commit, waits = self.unacked.popleft()
        if commit.row.stage in TERMINAL and len(self.store.inbox) > commit.row.inbox:
            assert self._closing is not None
            assert not self.unacked
            self.state, again = self._closing
            self._closing, self._again = None, True
            self.deliver_all()
            self._again = False
            self.feed(again)
            return
        self.store.apply(commit)
        self._perform(*waits)

    def ack_all(self) -> None:
        while self.unacked:
            self.ack()

    def _perform(self, *effects: fx.Effect) -> None:
        for effect in effects:
            self.trace.append(f"{'':16}   => {effect}")
            match effect:
                case fx.ParkCall():
                    assert ("call", effect.call_id) not in self.outstanding
                    self.parked.add(effect.call_id)
                case fx.ReleaseCall():
                    self.parked.discard(effect.call_id)
                case fx.AnswerBody():
                    assert effect.ask not in self.replies, "a question was answered twice"
                    self.replies[effect.ask] = effect
                    self._check_nested(effect.value)
                case fx.StartTask() if not self._wanted(effect):
                    pass
                case fx.ReportFailure():
                    self.reports.append(effect)
                case fx.ForwardDecision() | fx.CancelChild():
                    self._perform_on_child(effect)
                case fx.CancelWork():
                    assert ("cancel",) not in self.outstanding
                    self.dying, self.outstanding = self.outstanding, {("cancel",): effect}
                    self.parked.clear()
                    self.unacked = deque(
                        (commit, tuple(e for e in waits if isinstance(e, fx.FinishRun)))
                        for commit, waits in self.unacked
                    )
                case fx.FinishRun():
                    assert not self.finished
                    self._forget_hooks()
                    assert not self.outstanding, "the run ended while something was in flight"
                    assert not self.parked, "an actor of a parked call was forgotten"
                    self.finished = True
                case _:
                    self._begin(effect)

    def _perform_on_child(self, effect: fx.ForwardDecision | fx.CancelChild) -> None:
        child = self.child_run(effect.call_id)
        if isinstance(effect, fx.ForwardDecision):
            child.takes(effect.decision)
            return
        child.ends(*CUT)
        if self.row.position is RunPosition.STOPPING:  # the owner reports the end of the child run, or gives up
            watch = fx.StartCall(
                call_id=effect.call_id, attempt=0, tool=effect.tool, arguments={}, child_run=effect.child_run
            )
            self.dying["call", effect.call_id] = watch

    def child_run(self, call_id: str) -> FakeChild:
        """The child run of a call, which outlives every owner of this run."""
        return self.child_runs.setdefault(call_id, FakeChild(f"child_of_{call_id}"))

    def _wanted(self, effect: fx.StartTask) -> bool:
        """False if the machine has continued while the start of a task waited for its receipt."""
        task = next((task for task in self.row.tasks if task.task_id == effect.task_id), None)
        return task is not None and (task.attempts, task.status) == (effect.attempt, "running")

    def _begin(self, effect: Answered) -> None:
        key = key_of(effect)
        assert key not in self.outstanding, f"{key} was asked for twice"
        if isinstance(effect, fx.StartTask) and not self._safe(effect.tool):
            assert effect.task_id not in self.task_starts, f"{effect} was started again"
            self.task_starts.add(effect.task_id)
        if isinstance(effect, fx.StartCall):
            self._check_start(effect)
            self.parked.discard(effect.call_id)
        if isinstance(effect, fx.RunPhase):
            hooked = self.spec.acting(self.row.agent).hooked
            assert effect.phase in hooked or effect.phase is Phase.TOOL_GATE
        self.outstanding[key] = effect

    def answer(self, message: inp.Input) -> Transition:
        """The final answer to an outstanding effect: it must matter."""
        key = answered_by(message)
        if key[0] == "call" and ("task", key[1]) in self.outstanding:
            key = ("task", key[1])
            self.outstanding.pop(("stop", key[1]), None)  # what has happened before the cancel has happened
        elif key[0] == "stop":
            self.outstanding.pop(("task", key[1]), None)
        assert key in self.outstanding, f"nobody asked for {message}; outstanding: {list(self.outstanding)}"
        del self.outstanding[key]
        self.dying = {} if key == ("cancel",) else self.dying
        before = self.state
        taken = self.feed(message)
        assert taken.commit is not None or taken.effects or taken.state != before, f"nobody waited for {message}"
        return taken

    def crash(self, *, digest: str | None = None) -> None:
        """The owner is gone with everything that it had started; a new one continues from the durable rows."""
        self.lose_owner()
        if not self.ended:
            self.feed(inp.Activate(agent_digest=self.spec.digest if digest is None else digest))

    def lose_owner(self) -> None:
        """Only what is durable is left."""
        self.trace.append("--- crash")
        self.outstanding, self.dying, self.parked, self._closing = {}, {}, set(), None
        self.unacked.clear()
        self.state = RunState.from_record(self.store.record())

    # --- commands ----------------------------------------------------------------------------------------------------

    def post(self, command: Command) -> CommandResult:
        """Post a command; it is consumed by `deliver`."""
        answer = self.store.post(
            attrs.evolve(command, posted_at=self.now), CommandRules(self.now, self._check_arguments)
        )
        self.trace.append(f"{'':16} post {command} -> {answer.status} {answer.code}")
        return answer

    def deliver(self) -> None:
        """The owner consumes the next inbox item, if there is one."""
        position = self.row.inbox + 1
        if position <= len(self.store.inbox) and not self.ended:
            self.feed(inp.CommandArrived(item=InboxItem(position=position, command=self.store.inbox[position - 1][0])))

    def deliver_all(self) -> None:
        while self.row.inbox < len(self.store.inbox) and not self.ended:
            self.deliver()

    def decide(self, target: str, action: str = "resume", result: Any = None, **more: Any) -> CommandResult:
        """Post a decision and let the owner consume it."""
        self._posted += 1
        name = more.pop("decision_id", f"d{self._posted}")
        by = more.pop("by", "ann")
        more.setdefault("reason", name)
        decision = Decision(
            target=target,
            action=action,  # type: ignore[arg-type]
            decision_id=name,
            result=result,
            decided_by=by,
            **more,
        )
        answer = self.post(Command(command_id=name, kind="decide", decision=decision, by=by))
        self.deliver_all()
        return answer

    def cancel(self, mode: str = "now", reason: str = "enough") -> CommandResult:
        self._posted += 1
        command = Command(command_id=f"x{self._posted}", kind="cancel", mode=mode, reason=reason, by="ann")  # type: ignore[arg-type]
        answer = self.post(command)
        self.deliver_all()
        return answer

    def pause(self, reason: str | None = "wait") -> CommandResult:
        self._posted += 1
        answer = self.post(Command(command_id=f"p{self._posted}", kind="pause", reason=reason, by="ann"))
        self.deliver_all()
        return answer

    def send(self, text: str) -> CommandResult:
        self._posted += 1
        answer = self.post(Command(command_id=f"s{self._posted}", kind="send", text=text, by="ann"))
        self.deliver_all()
        return answer

    def post_expiries(self) -> None:
        """What the clock has brought: the deadline at once, expiries through the same door as decisions."""
        late, expired = due(self.state, self.now)
        for ticket_id in expired:
            name = f"expire:{ticket_id}"
            decision = Decision(target=ticket_id, action="cancel", decision_id=name, decided_by="clock")
            self.post(Command(command_id=name, kind="expire", decision=decision))
        if late:
            self.feed(inp.DeadlinePassed())

    def tick(self, seconds: float) -> None:
        """Time passes, and what it brings happens."""
        self.now += timedelta(seconds=seconds)
        self.post_expiries()
        self.deliver_all()

    def _check_arguments(self, tool: str, arguments: Any) -> str | None:
        known = self.spec.tools.get(tool)
        return None if known is None else known.check(arguments)

    # --- short hands for scenarios -----------------------------------------------------------------------------------

    def says(self, *text: str, calls: Sequence[CallRequest] = (), usage: Usage | None = None) -> Transition:
        """The model answers."""
        response = ModelResponse(text=text, calls=tuple(calls), usage=usage or Usage(input=10, output=5), model="m")
        return self.answer(inp.ModelAnswered(message_id=self.in_flight(), response=response))

    def cuts(self, text: str | None, *, input: int = 0) -> Transition:  # noqa: A002 - as in Usage
        """The end of the run stops the request in flight, of whose answer this text had arrived."""
        usage = Usage(requests=1, input=input, incomplete=1)
        flight = self.row.inference
        assert flight is not None
        assert flight.stopped
        self.feed(inp.ModelCut(message_id=flight.message_id, text=text, usage=usage))
        return self.stopped()

    def in_flight(self) -> str:
        """The message id of the inference in flight."""
        return next(key[1] for key in self.outstanding if key[0] == "model")

    def running(self, call_id: str) -> fx.StartCall:
        """The body that runs for a call."""
        effect = self.outstanding["call", call_id]
        assert isinstance(effect, fx.StartCall)
        return effect

    def returns(
        self, call_id: str, result: Any = "ok", batch: Batch | None = None, keys: Keys = NO_KEYS, **more: Any
    ) -> Transition:
        attempt = self.running(call_id).attempt
        reported = inp.CallReturned(
            call_id=call_id, attempt=attempt, result=result, shown=str(result), batch=batch, keys=keys, **more
        )
        return self.answer(reported)

    def task(self, task_id: str) -> fx.StartTask:
        """The body that runs for a task."""
        effect = self.outstanding["task", task_id]
        assert isinstance(effect, fx.StartTask)
        return effect

    def task_returns(self, task_id: str, result: Any = "ok") -> Transition:
        attempt = self.task(task_id).attempt
        return self.answer(inp.CallReturned(call_id=task_id, attempt=attempt, result=result, shown=str(result)))

    def asks(self, make: Any, **more: Any) -> fx.AnswerBody | None:
        """A body asks the machine something. The answer, if that is durable."""
        self._posted += 1
        self.feed(make(ask=self._posted, **more))
        return self.replies.get(self._posted)

    def spawns(self, spawner: str, tool: str, *, nth: int = 1, **arguments: Any) -> fx.AnswerBody | None:
        """The body of a call or of a task spawns a task."""
        effect = self.outstanding.get(("call", spawner)) or self.outstanding["task", spawner]
        assert isinstance(effect, fx.StartCall | fx.StartTask)
        who: dict[str, Any] = {"spawner": spawner, "attempt": effect.attempt, "mark": f"{tool} {arguments}", "nth": nth}
        return self.asks(inp.SpawnAsked, tool=tool, arguments=arguments, **who)

    def nests(self, parent: str, tool: str = "Bash", **more: Any) -> int:
        """The body of a call makes a nested call; the number of its question."""
        self._posted += 1
        effect = self.outstanding.get(("call", parent))
        attempt = effect.attempt if isinstance(effect, fx.StartCall) else 1
        self.feed(inp.NestedCalled(ask=self._posted, parent=parent, attempt=attempt, tool=tool, **more))
        return self._posted

    def nested(self, ask: int) -> NestedAnswer:
        """The answer to a nested call."""
        reply = self.replies[ask]
        assert isinstance(reply.value, NestedAnswer), reply
        return reply.value

    def raises(self, call_id: str, shown: str = "boom", *, fatal: bool = False, **more: Any) -> Transition:
        attempt = self.running(call_id).attempt
        return self.answer(
            inp.CallRaised(call_id=call_id, attempt=attempt, code="tool_error", shown=shown, fatal=fatal, **more)
        )

    def tells(self, make: Any, call_id: str, **more: Any) -> fx.AnswerBody | None:
        """The body of a call reports something. The answer, if there is one yet."""
        effect = self.outstanding.get(("call", call_id)) or self.outstanding.get(("task", call_id))
        attempt = effect.attempt if isinstance(effect, fx.StartCall | fx.StartTask) else 1
        return self.asks(make, call_id=call_id, attempt=attempt, **more)

    def suspends(self, call_id: str, suspend: Suspend | None = None) -> Transition:
        attempt = self.running(call_id).attempt
        return self.answer(
            inp.CallSuspended(call_id=call_id, attempt=attempt, suspend=suspend or Suspend(message="sure?"))
        )

    def phase(self, phase: Phase, call_id: str | None = None, **more: Any) -> Transition:
        """The hooks of a phase answer."""
        return self.answer(inp.PhaseDone(phase=phase, step=self.row.step, call_id=call_id, **more))

    def stopped(self, *stubborn: str) -> Transition:
        """All work has ended, but for the stubborn calls."""
        return self.answer(inp.WorkStopped(stubborn=tuple(inp.Unfinished(call_id=name) for name in stubborn)))

    def ticket(self, call_id: str) -> Ticket:
        """The newest ticket of a call."""
        return [ticket for ticket in self.store.tickets.values() if ticket.call_id == call_id][-1]

    def statuses(self) -> dict[str, str]:
        return {call.call_id: call.status.value for call in self.store.calls.values()}

    def types(self) -> list[str]:
        """The types of all events but the first (run.created)."""
        return [event.type for event in self.store.events[1:]]

    def last(self) -> Any:
        """The payload of the newest event."""
        return self.store.events[-1].payload

    def tool_texts(self) -> dict[str, str]:
        return {m.call_id: m.content for m in self.store.messages if m.role == "tool" and m.call_id}

    # --- what must hold after every input ----------------------------------------------------------------------------

    def _check_commit(self, before: RunState, taken: Transition) -> None:
        commit = taken.commit
        if commit is None:
            assert taken.state.row is before.row
            return
        assert commit.expected_last == before.row.last_sequence
        assert commit.row is taken.state.row
        assert commit.row.revision == taken.state.snapshot.revision >= before.snapshot.revision
        assert commit.row.last_sequence == commit.last
        for effect in taken.effects:
            if isinstance(effect, fx.StartCall | fx.StartTask) and not self._safe(effect.tool):
                assert effect.durable

    def _safe(self, tool: str) -> bool:
        return tool in self.spec.tools and self.spec.tools[tool].replay_safe

    def _check_start(self, effect: fx.StartCall) -> None:
        """A body that may have had an effect is not started again unless a person said so after it was."""
        approvals = self.store.fold.approvals[effect.call_id]
        if not self._safe(effect.tool):
            assert approvals > self.starts.get(effect.call_id, -1), f"{effect} was started again"
            self.starts[effect.call_id] = approvals

    def _check_nested(self, answer: Any) -> None:
        """A body hears that it may do the work once, after the start is durable."""
        if not isinstance(answer, NestedAnswer) or answer.arguments is None:
            return
        assert self.store.fold.attempts[answer.call_id] == 1
        assert answer.call_id not in self.allowed, "a body was told twice to do one work"
        self.allowed.add(answer.call_id)

    def _check_rest(self) -> None:
        """Something is always awaited, and the stage says whether it is a person; what is durable is all there is."""
        if not self.unacked:
            self._check_store()
        row, calls = self.row, tuple(self.state.calls.values())
        in_flight = bool(self.outstanding) or self._again or any(waits for _, waits in self.unacked)
        open_tickets = [*(c.ticket for c in calls if c.at is CallPosition.PARKED), *row.run_tickets]
        open_tickets += self.state.calls.open_mirrors()
        if not in_flight and not self.ended and row.position is not RunPosition.ADMISSION:
            assert row.stage is Stage.NEEDS_APPROVAL, "nothing moves, nobody is asked"
            assert open_tickets
        if row.run_tickets and row.stage is not Stage.NEEDS_APPROVAL:
            assert row.position in HELD_OPEN, f"a held run is at {row.position}"
        if self.spec.on_new_input == "supersede" and row.unread_input_by is not None:
            assert row.position is not RunPosition.TOOLS or all(
                call.at is not CallPosition.PARKED or call.parent is not None for call in calls
            )
        if row.position is RunPosition.TOOLS:
            assert row.stage is derive_stage(self.state.calls)
            self._check_projection(calls)
            hanging = [key for key in self.outstanding if key[0] not in ("cancel", "task", "stop")]
            waits = self.waiting_parents()
            hanging = [
                key
                for key in hanging
                if key[0] != "call" or not (self.state.calls[key[1]].at is CallPosition.CHILD or key[1] in waits)
            ]
            assert row.stage is not Stage.NEEDS_APPROVAL or not hanging, f"waiting, but {hanging} is in flight"

    def waiting_parents(self) -> set[str | None]:
        """The calls whose bodies wait for a decision about a nested call."""
        calls = self.state.calls.values()
        return {call.parent for call in calls if call.parent is not None and call.status is CallStatus.SUSPENDED}

    def _check_store(self) -> None:
        """A new owner would find the run as it is."""
        now, then = self.state, RunState.from_record(self.store.record())
        calls = {call_id: stored(call) for call_id, call in now.calls.items()}
        assert (then.row, then.calls, then.call_ids) == (now.row, calls, now.call_ids)
        kept = {key: cell[:3] for key, cell in now.snapshot.cells.items() if cell.persistent}
        assert {key: cell[:3] for key, cell in then.snapshot.cells.items()} == kept

    def _check_projection(self, calls: Sequence[CallRow]) -> None:
        waits = self.waiting_parents()
        moving = [c for c in calls if c.call_id not in waits and not (waits and c.at is CallPosition.ALLOWED)]
        projected = derive_run_status(call.status for call in moving)
        assert self.row.nested == sum(call.parent is not None and call.at is not CallPosition.SETTLED for call in calls)
        hooks = any(call.position.phase is not None for call in calls)
        if projected is RunStatus.DONE:
            assert self.row.status is not RunStatus.WAITING
        elif not hooks:
            assert self.row.status is projected

    def check_end(self) -> None:
        """What must hold of a run that is over, and durable."""
        store, fold = self.store, self.store.fold
        assert self.finished or store.row.position is RunPosition.ENDED
        assert fold.terminal is not None
        assert fold.terminal is store.events[-1]
        assert store.row.next_due is None
        assert store.row.inbox == len(store.inbox)
        admitted = any(event.to is Stage.ACCEPTED for event in store.events if hasattr(event, "to"))
        assert not (admitted and store.row.pending_input)  # else the question waits for its turn in the thread
        assert (store.row.tasks, store.row.run_tickets, store.row.pause, dict(store.row.early)) == ((), (), None, {})
        assert all(c.settled and c.at is CallPosition.SETTLED and c.batch is None for c in store.calls.values())
        assert not store.row.mirrored
        assert all(ticket.status != "open" for ticket in store.tickets.values())
        assert not store.row.nested
        check_history(store.messages, {name: call for name, call in store.calls.items() if call.parent is None})
        reported = [m.task_id for m in store.messages if m.kind == "task_finished"]
        assert sorted(reported) == sorted(fold.finished), "each task has one message"
        for command, _ in store.inbox:
            if command.kind == "pause":
                assert fold.pauses[command.command_id] + fold.consequences[command.command_id] >= 1, command
            if command.kind == "decide" and command.decision is not None:
                names = {command.command_id, command.decision.reason}  # resolved tickets carry the reason
                found = sum(fold.consequences[name] for name in names)
                # a mirror's decision acts here, and may be refused by the child run afterwards
                assert found == 1 or (found == 2 and command.command_id in fold.refused), command


def check_history(messages: Sequence[Message], calls: dict[str, CallRow]) -> None:
    """Each call has exactly one tool message, right after its assistant message, in the model's order."""
    ids = [message.id for message in messages]
    assert len(ids) == len(set(ids)), "a message id was used twice"
    answered: list[str] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        assert message.role in ("user", "assistant"), f"{message} answers nothing"
        following = messages[position + 1 : position + 1 + len(message.calls)]
        assert [m.call_id for m in following] == [call.call_id for call in message.calls]
        assert all(m.role == "tool" for m in following)
        answered += [call.call_id for call in message.calls]
        position += 1 + len(message.calls)
    left = set(calls) - set(answered)
    assert len(answered) == len(set(answered)) == len(calls) - len(left)
    if left:  # guardrails have not let the answer of the last step pass: nothing of it is in the thread
        steps = {calls[name].step for name in left}
        assert steps == {max(call.step for call in calls.values())}
        assert left == {call.call_id for call in calls.values() if call.step in steps}
        assert all(calls[name].attempts == 0 for name in left)


def key_of(effect: Answered) -> Key:
    """What an effect is asked for as."""
    match effect:
        case fx.Prepare():
            return ("prepare",)
        case fx.AskGuards():
            return ("guards", effect.kind, str(effect.step), *effect.names)
        case fx.RunPhase():
            return ("phase", effect.phase.value, str(effect.step), effect.call_id or "")
        case fx.CallModel():
            return ("model", effect.message_id)
        case fx.StartCall():
            return ("call", effect.call_id)
        case fx.StartTask():
            return ("task", effect.task_id)
        case fx.CancelTask():
            return ("stop", effect.task_id)


def answered_by(message: inp.Input) -> Key:
    """Which effect a final answer belongs to."""
    match message:
        case inp.Prepared():
            return ("prepare",)
        case inp.PhaseDone():
            return ("phase", message.phase.value, str(message.step), message.call_id or "")
        case inp.GuardsDone():
            return ("guards", message.kind, str(message.step), *message.names)
        case inp.ModelAnswered() | inp.ModelFailed():
            return ("model", message.message_id)
        case inp.CallReturned() | inp.CallRaised() | inp.CallSuspended() | inp.ResultRefused() | inp.ChildSeen():
            return ("call", message.call_id)
        case inp.TaskStopped():
            return ("stop", message.task_id)
        case inp.WorkStopped():
            return ("cancel",)
        case _:
            raise TypeError(f"{message} is no final answer")


def call(call_id: str, tool: str, **arguments: Any) -> CallRequest:
    """A call as a model asks for it."""
    return CallRequest(call_id=call_id, tool=tool, arguments=arguments)
