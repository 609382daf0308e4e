"""Random lives of a run: every kind of answer, command and accident in any order, then an orderly way to the end."""

import random
from datetime import timedelta
from hashlib import sha256
from typing import Any

import attrs
import msgspec

from greenroom.actors.contract.artifacts import Artifact
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.decisions import (
    RESUME_MODES,
    Allow,
    Block,
    Command,
    CommandResult,
    Decision,
    Deny,
    SetResult,
    Suspend,
)
from greenroom.actors.contract.excerpt import shown_value
from greenroom.actors.contract.facts import NestedAnswer
from greenroom.actors.contract.guardrails import Tripped
from greenroom.actors.contract.inference import RequestChanges
from greenroom.actors.contract.messages import CallRequest, ModelResponse, Usage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import ToolSpec
from greenroom.actors.engine import body_inputs as said
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp

from .fake_child import ENDS
from .world import Key, World, key_of
from .writers import Writers


def needs_number(arguments: Any) -> str | None:
    return None if isinstance(arguments.get("n"), int) else "$.n: give a whole number"


TOOLS = {
    tool.name: tool
    for tool in (
        ToolSpec(name="read", replay_safe=True),
        ToolSpec(name="write", effect="write"),
        ToolSpec(name="pay", effect="publish", gate="always"),
        ToolSpec(name="peek", gate="always", replay_safe=True),
        ToolSpec(name="perhaps", effect="shell", gate="ask"),
        ToolSpec(name="patch", effect="patch", concurrency="ordered"),
        ToolSpec(name="sign", gate="always", concurrency="ordered"),
        ToolSpec(name="deploy", effect="deploy", concurrency="exclusive"),
        ToolSpec(name="vote", gate="always", concurrency="exclusive"),
        ToolSpec(name="strict", check=needs_number),
        ToolSpec(name="tally", replay_safe=True, on_conflict="retry"),
        ToolSpec(name="recount", gate="always", replay_safe=True, on_conflict="retry"),
        ToolSpec(name="queue", concurrency="ordered", replay_safe=True, on_conflict="retry"),
        ToolSpec(name="fetch", replay_safe=True, background=True, output=False),
        ToolSpec(name="crawl", background=True, output=False),
        ToolSpec(name="send", gate="always", background=True, output=False),
        ToolSpec(name="expert", replay_safe=True, child_agent="inner"),
        ToolSpec(name="lawyer", gate="always", replay_safe=True, child_agent="inner"),
    )
}
PREPARED_TOOLS = {**TOOLS, "read": ToolSpec(name="read", replay_safe=True, prepares=True)}
"""The same tools; one of them is prepared before the first step."""
HANDOFFS = {
    tool.name: tool
    for tool in (
        ToolSpec(name="pass_b", effect="handoff", handoff="b", replay_safe=True, bodiless=True, output=False),
        ToolSpec(name="pass_a", effect="handoff", handoff="a", replay_safe=True, bodiless=True, output=False),
        ToolSpec(name="tell_b", effect="handoff", handoff="b", output=False),
        ToolSpec(name="brief_c", effect="handoff", handoff="c", replay_safe=True, output=False),
        ToolSpec(name="plea_c", effect="handoff", handoff="c", gate="always", output=False),
        ToolSpec(name="doubt_a", effect="handoff", handoff="a", gate="ask", output=False),
    )
}
"""Handoffs between three agents."""
HOLDING = (Phase.RUN_START, Phase.STEP_START, Phase.STEP_END)
"""Phases whose hooks may hold the run."""
LIMIT = 400
"""Inputs within which every run has to end once everything is answered."""


def key_in(key: Key, effects: tuple[fx.Effect, ...]) -> bool:
    """True if one of the effects asks for this."""
    return any(isinstance(effect, fx.RunPhase) and key_of(effect) == key for effect in effects)


class Chaos:
    """Plays one run with a seed. The same seed and spec give the same life."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.numbers = 0
        self.writers = Writers(self.rng)
        self.old: list[inp.Input] = []
        self.nested: dict[int, str] = {}
        self.spoken: dict[tuple[str, int], list[int]] = {}

    def play(self, moves: int) -> None:
        """So many random moves, then the orderly end."""
        for _ in range(moves):
            if self.world.finished:
                break
            self.move()
        self.finish()

    def move(self) -> None:
        world, rng = self.world, self.rng
        moves = [(self.answer, 12 if world.outstanding else 0), (self.decide, 3 if world.store.calls else 0)]
        moves += [(world.ack, 10 if world.unacked else 0), (world.deliver, 5), (self.early, 2), (self.tick, 1)]
        moves += [(self.stale, 1), (self.late, 3 if world.dying else 0), (self.crash, 0.5), (self.rare, 0.1)]
        moves += [(self.overrun, 0.2 if world.store.calls else 0)]
        moves += [(self.send, 0.4), (self.pause, 0.4), (self.admit, 3), (self.ask, 2)]
        moves += [(self.nest, 3), (self.end_nested, 3), (self.report, 3), (self.publish, 2)]
        act = rng.choices([m for m, _ in moves], [w for _, w in moves])[0]
        act()

    def finish(self) -> None:
        """Everything durable, everything answered, everything decided."""
        world = self.world
        start = world.inputs
        world.lazy = False
        while not world.finished and not (world.ended and not world.unacked):
            assert world.inputs - start < LIMIT, "the run does not come to an end"
            world.ack_all()
            world.deliver_all()
            if world.outstanding:
                self.calmly(self.rng.choice(list(world.outstanding)))
            elif not world.ended:
                world.feed(inp.Admit())
                self.approve_one()
        after = world.inputs
        for _ in range(3):
            self.stale()
        world.check_end()
        self.writers.check(world)
        assert world.inputs <= after + 3

    # --- answers -----------------------------------------------------------------------------------------------------

    def answer(self) -> None:
        key = self.rng.choice(list(self.world.outstanding))
        effect = self.world.outstanding[key]
        message, final = self.random_answer(effect)
        self.old.append(message)
        if not final:
            self.world.feed(message)
            return
        self.world.answer(message)
        taken = not self.world.row.position.rule.leaving  # a cancel that came first may have taken the ending back
        if taken and isinstance(message, inp.PhaseDone) and message.batch is not None:
            token = max(self.writers.left, key=lambda name: int(name.rpartition("/")[2]))
            again = key in self.world.outstanding or any(key_in(key, waits) for _, waits in self.world.unacked)
            assert self.writers.has(self.world, token) is not again, f"{message}: part of the state, or asked again"

    def late(self) -> None:
        """Something that was cancelled answers all the same, before it is said to have stopped."""
        key = self.rng.choice(list(self.world.dying))
        message, final = self.random_answer(self.world.dying[key])
        if final:
            del self.world.dying[key]
        self.world.feed(message)

    def random_answer(self, effect: fx.Effect) -> tuple[inp.Input, bool]:
        match effect:
            case fx.Prepare():
                return self.preparation(), True
            case fx.RunPhase():
                return self.hooks(effect), True
            case fx.AskGuards():
                return self.guards(effect), True
            case fx.CallModel():
                return self.model(effect)
            case fx.StartCall() if effect.child_run is not None:
                return self.child_run(effect)
            case fx.StartCall():
                return self.body(effect, effect.call_id)
            case fx.StartTask():
                return self.body(effect, effect.task_id)
            case fx.CancelTask():
                return inp.TaskStopped(task_id=effect.task_id, attempt=effect.attempt), True
            case _:
                flight = self.world.row.inference
                if flight is not None and flight.stopped and self.rng.random() < 0.75:
                    return self.cut(flight.message_id), False
                calls = [c.call_id for c in self.world.state.calls.values()] or ["c"]
                stubborn = tuple(inp.Unfinished(call_id=self.rng.choice(calls)) for _ in range(self.rng.randrange(2)))
                return inp.WorkStopped(stubborn=stubborn), True

    def preparation(self) -> inp.Prepared:
        """What the surroundings and the tools say before the first step."""
        doubts = (("untested_version", "it is newer than the tried ones"),) if self.rng.random() < 0.3 else ()
        if self.rng.random() < 0.2:
            return inp.Prepared(doubts=doubts, code="runtime_unavailable", text="missing: install it")
        return inp.Prepared(facts={"program": "1.2"}, doubts=doubts)

    def cut(self, message_id: str) -> inp.ModelCut:
        """What had arrived of an answer that the end of the run stops."""
        text = self.rng.choice((None, "", " ", "Once upon"))
        rest = ("on a", "time") if text and self.rng.random() < 0.1 else ()
        usage = self.rng.choice((Usage(), Usage(requests=1, incomplete=1), Usage(requests=1, input=3, incomplete=1)))
        return inp.ModelCut(message_id=message_id, text=text, rest=rest, usage=usage)

    def hooks(self, effect: fx.RunPhase) -> inp.PhaseDone:
        """What the hooks of a phase say: whatever they may say there, in any mixture."""
        rng, phase = self.rng, effect.phase
        more: dict[str, Any] = {"phase": phase, "step": effect.step, "call_id": effect.call_id}
        more["revision"] = effect.state.revision
        kind = rng.choices(("fine", "failure", "tripped", "end"), (600, 1, 3, 1))[0]
        if kind == "tripped" and phase is Phase.TOOL_GATE:
            more[kind] = self.tripped()
        elif kind not in ("fine", "tripped"):
            more[kind] = "because"
        if rng.random() < 0.1:
            more["ignored"] = ("a plugin failed", "another one, too")[: rng.randint(1, 2)]
        if phase is Phase.TOOL_GATE:
            if rng.random() < 0.1:
                more["overruled"] = (inp.Overruled(plugin="a", verdict="set_result", by="b"),)
            return inp.PhaseDone(**more, verdict=self.verdict())
        if rng.random() < 0.3:
            _, more["batch"], more["keys"] = self.writers.write(phase.value, effect.state)
        if phase in HOLDING and rng.random() < 0.1:
            suspend = attrs.evolve(self.suspend(), reason="external_event")
            more["ticket_requests"] = (suspend,) * rng.choice((1, 1, 2))
        if phase is Phase.BEFORE_INFERENCE and rng.random() < 0.3:
            names = tuple(rng.sample(list(self.world.spec.tools), 3))
            include = rng.choice((None, tuple(rng.sample(list(self.world.spec.tools), 8))))
            more["request"] = RequestChanges(include=include, exclude=names)
        if phase is Phase.AFTER_INFERENCE:
            more["edits"] = self.edits()
        return inp.PhaseDone(**more)

    def guards(self, effect: fx.AskGuards) -> inp.GuardsDone:
        """Guardrails of the agent: mostly they pass."""
        done = inp.GuardsDone(kind=effect.kind, step=effect.step, names=effect.names)
        match self.rng.choices(("pass", "trip", "fail"), (30, 3, 1))[0]:
            case "trip":
                tripped = Tripped(guardrail=effect.names[-1], verdict="trip", info={"n": 1})
                return msgspec.structs.replace(done, tripped=tripped)
            case "fail":
                return msgspec.structs.replace(done, failure="guardrail g: torn")
        return done

    def tripped(self) -> Tripped:
        """A guardrail does not allow; mostly it rejects."""
        verdict: Any = self.rng.choices(("trip", "reject"), (1, 5))[0]
        return Tripped(guardrail="g", verdict=verdict, info="no")

    def edits(self) -> tuple[inp.CallEdit, ...]:
        """A hook of after_inference edits or drops some of the calls."""
        rng = self.rng
        chosen = [name for name in self.world.state.calls if rng.random() < 0.15]
        arguments = (None, {}, {"n": 3})
        return tuple(inp.CallEdit(call_id=name, by="p", arguments=rng.choice(arguments), text="no") for name in chosen)

    def verdict(self) -> Any:
        kinds = ("none", "allow", "suspend", "set", "deny", "block")
        match self.rng.choices(kinds, (6, 6, 4, 2, 2, 0.5))[0]:
            case "allow":
                return Allow()
            case "suspend":
                return self.suspend()
            case "set":
                return SetResult({"set": True})
            case "deny":
                return self.rng.choice((SetResult("no", code="permission_denied"), Deny("no")))
            case "block":
                return Block("never")
        return None

    def suspend(self) -> Suspend:
        rng = self.rng
        return Suspend(
            message="sure?",
            resume_mode=rng.choice(RESUME_MODES),
            expires_after=rng.choice((None, None, 30.0, 300.0)),
            on_expiry=rng.choice(("deny", "cancel_run", SetResult("late"))),
            response_schema=rng.choice((None, None, {"type": "object", "required": ["n"]})),
            reviewers=rng.choice(((), (), ("boss",))),
        )

    def model(self, effect: fx.CallModel) -> tuple[inp.Input, bool]:
        rng, mid = self.rng, effect.message_id
        kind = rng.choices(("stream", "failed", "refused", "text", "calls"), (4, 1, 0.1, 2, 9))[0]
        usage = Usage(requests=rng.choice((0, 1, 2)), input=rng.randrange(50), output=rng.randrange(50))
        match kind:
            case "stream":
                text, reasoning = rng.choice((("a", ""), ("", "b"), ("a", "b"), ("", "")))
                return inp.ModelStreamed(message_id=mid, text=text, reasoning=reasoning), False
            case "failed":
                retryable = rng.random() < 0.9
                return inp.ModelFailed(
                    message_id=mid,
                    kind="overloaded",
                    text="later",
                    retryable=retryable,
                    retry_after=rng.choice((None, None, 7.0, 61.0)),
                    usage=usage,
                    jitter=rng.uniform(0.5, 1.5),
                ), True
            case "refused":
                return inp.ModelAnswered(message_id=mid, response=ModelResponse(refusal="no", usage=usage)), True
        text = rng.choice(((), ("hm",), ("hm", "final")))
        calls = tuple(self.request() for _ in range(rng.randint(1, 4))) if kind == "calls" else ()
        if len(calls) > 1 and rng.random() < 0.9:  # one id for two different calls ends the run
            calls = tuple(c for i, c in enumerate(calls) if c.call_id != "again" or c == calls[0] or i == 0)
        if calls and rng.random() < 0.2:
            calls += (calls[0],)
        return inp.ModelAnswered(message_id=mid, response=ModelResponse(text=text, calls=calls, usage=usage)), True

    def request(self) -> CallRequest:
        self.numbers += 1
        name = self.rng.choice((*self.world.spec.tools, *self.world.spec.tools, "nowhere"))
        fresh = f"c{self.numbers}"
        call_id = self.rng.choices((fresh, "", "again"), (8, 1, 1))[0]
        arguments = {"n": self.rng.randrange(2)} if call_id != "again" and self.rng.random() < 0.8 else {}
        if call_id == "again":
            name = "read"
        return CallRequest(call_id=call_id, tool=name, arguments=arguments)

    def child_run(self, effect: fx.StartCall) -> tuple[inp.Input, bool]:
        """What the watcher of a child run reports, after the child run may have moved."""
        if self.rng.random() < 0.05:
            who: dict[str, Any] = {"call_id": effect.call_id, "attempt": effect.attempt}
            return inp.CallRaised(**who, code="depth_exceeded", shown="too deep"), True
        child = self.world.child_run(effect.call_id)
        child.moves(self.rng, self.world.now)
        seen = child.seen(effect.call_id)
        return seen, seen.outcome is not None

    def body(self, effect: fx.StartCall | fx.StartTask, name: str) -> tuple[inp.Input, bool]:
        rng = self.rng
        who: dict[str, Any] = {"call_id": name, "attempt": effect.attempt}
        match rng.choices(("return", "raise", "suspend", "progress", "print"), (8, 2, 4, 1, 1))[0]:
            case "return" if rng.random() < 0.8:
                token, batch, keys = self.writers.write(name, effect.state)
                result = {"wrote": token}
                shown, _ = shown_value(result)
                return inp.CallReturned(**who, result=result, shown=shown, batch=batch, keys=keys), True
            case "return" if rng.random() < 0.2:
                return inp.ResultRefused(**who, tripped=self.tripped()), True
            case "return":
                large, used = rng.random() < 0.1, Usage(requests=1, input=rng.randrange(50))
                spent = (inp.Spent(by=effect.tool, usage=used, model="m"),) if rng.random() < 0.3 else ()
                return inp.CallReturned(**who, result={"r": 1}, shown='{"r":1}', large=large, usage=spent), True
            case "raise":
                fatal = rng.random() < 0.1
                code = rng.choice((None, "runtime_unavailable"))
                return inp.CallRaised(**who, code="tool_error", shown="boom", fatal=fatal, run_code=code), True
            case "suspend":
                return inp.CallSuspended(**who, suspend=self.suspend()), True
            case "progress":
                return inp.CallProgressed(**who, fraction=0.5), False
            case _:
                return inp.CallPrinted(**who, index=0, text="line"), False

    def ask(self) -> None:
        """A body spawns a task, or wants one to end, or wants to know which there are."""
        world, rng = self.world, self.rng
        bodies = [key[1] for key in world.outstanding if key[0] in ("call", "task")]
        kind = rng.choices(("spawn", "cancel", "look"), (3, 2, 1))[0]
        if kind == "spawn" and bodies:
            nth = rng.choice((1, 1, 2, 3))
            world.spawns(rng.choice(bodies), rng.choice((*world.spec.tools, "nowhere")), nth=nth, n=rng.randrange(2))
        elif kind == "cancel":
            world.asks(inp.CancelAsked, task_id=rng.choice(["c0.task1", *(t.task_id for t in world.row.tasks)]))
        elif kind == "look":
            world.asks(inp.TasksAsked)

    def nest(self) -> None:
        """The body of a call makes a nested call, or asks people; sometimes a task or the body of another time does."""
        world, rng = self.world, self.rng
        bodies = [key[1] for key, effect in world.outstanding.items() if key[0] in ("call", "task")]
        if not bodies or world.row.nested > 4:
            return
        parent, more = rng.choice(bodies), dict[str, Any]()
        if rng.random() < 0.3:
            more["suspend"] = attrs.evolve(self.suspend(), resume_mode="use_decision_as_tool_result")
        else:
            more["effect"], more["editable"] = rng.choice(("read", "write", "shell")), rng.random() < 0.5
            more["seen"] = rng.random() < 0.2
        self.nested[world.nests(parent, rng.choice(("Bash", "pay", "deploy")), arguments={"n": 1}, **more)] = parent

    def end_nested(self) -> None:
        """A body ends the work of a nested call, or does not await its answer any more."""
        world, rng = self.world, self.rng
        ask = rng.choice(list(self.nested) or [0])
        reply, parent = world.replies.get(ask), self.nested.get(ask, "")
        if ("call", parent) not in world.outstanding:
            return  # the body is not there any more
        if reply is None and rng.random() < 0.3:
            del self.nested[ask]
            world.feed(inp.NestedDropped(ask=ask, parent=parent))
        elif reply is not None and isinstance(reply.value, NestedAnswer) and reply.value.arguments is not None:
            del self.nested[ask]
            code = rng.choice((None, None, "tool_error"))
            world.feed(inp.NestedEnded(call_id=reply.value.call_id, result={"n": 1}, shown="done", code=code))

    def report(self) -> None:
        """The body of a call, or of a task, says something, notes something, or keeps a memo."""
        world, rng = self.world, self.rng
        bodies = {key[1]: effect for key, effect in world.outstanding.items() if key[0] in ("call", "task")}
        if not bodies:
            return
        name, effect = rng.choice(list(bodies.items()))
        assert isinstance(effect, fx.StartCall | fx.StartTask)
        place = self.spoken.setdefault((name, effect.attempt), [1, 0, 0])
        number, index, reasoning_index = place
        match rng.choice(("say", "say", "think", "complete", "note", "save")):
            case "say" | "think" as kind:
                text, reasoning = ("I ", "") if kind == "say" else (rng.choice(("", "look")), "hm")
                where = {"number": number, "index": index, "reasoning_index": reasoning_index}
                world.tells(said.BodySpoke, name, text=text, reasoning=reasoning, **where)
                place[1:] = index + bool(text), reasoning_index + bool(reasoning)
            case "complete":
                world.tells(said.BodySpoke, name, number=number, whole="I look")
                place[:] = number + 1, 0, 0
            case "note":
                world.tells(said.BodyNoted, name, type="run.degraded", payload={"reason": "untested_version"})
            case _:
                world.tells(said.BodySaved, name, memo={"session": number})

    def publish(self) -> None:
        """The body of a call publishes an artifact, new or again; sometimes a task or a body of another time does."""
        world, rng = self.world, self.rng
        bodies = [key[1] for key in world.outstanding if key[0] in ("call", "task")]
        if bodies:
            data = bytes([rng.randrange(4)])
            digest, kind = sha256(data).hexdigest(), rng.choice(("file", "raw", "preview"))
            facts = Artifact(kind=kind, name="a", media_type="a/b", size=len(data), sha256=digest, data=data)
            world.tells(said.PublishAsked, rng.choice([*bodies, "c0"]), artifact=facts)

    # --- commands ----------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Anybody decides anything: open and closed tickets, calls of any age, things that never were."""
        store, rng = self.world.store, self.rng
        waiting = [ticket.ticket_id for ticket in store.tickets.values() if ticket.status == "open"]
        anything = [*store.tickets, *store.calls, "nothing"]
        target = rng.choice(waiting) if waiting and rng.random() < 0.7 else rng.choice(anything)
        self.post(target)

    def early(self) -> None:
        """A decision by the id of a call that has not asked."""
        calls = [c for c in self.world.store.calls.values() if c.ticket is None and not c.settled]
        if calls:
            self.post(self.rng.choice(calls).call_id)

    def post(self, target: str) -> CommandResult:
        rng = self.rng
        self.numbers += 1
        name = f"d{self.numbers}" if rng.random() < 0.9 else f"d{rng.randint(1, self.numbers)}"
        action = rng.choice(("resume", "resume", "resume", "cancel"))
        edited = rng.choice((None, None, None, {"n": 7}, {"other": 1}))
        fingerprint = rng.choices((None, "another"), (9, 1))[0]
        by = rng.choice(("ann", "boss"))
        decision = Decision(
            target=target,
            action=action,
            decision_id=name,
            result=rng.choice((None, {"n": 1}, "text")),
            edited_arguments=edited if action == "resume" else None,
            fingerprint=fingerprint,
            reason=name,
            decided_by=by,
        )
        command = Command(command_id=name, kind="decide", decision=decision, by=by)
        answer = self.world.post(command)
        if rng.random() < 0.1:
            again = self.world.post(command)
            assert again.status == ("duplicate" if answer.ok else "rejected")
        return answer

    def rare(self) -> None:
        """A client cancels, the deadline is forced, or the owner gives up."""
        match self.rng.choices(("after_step", "now", "deadline", "abandon"), (4, 2, 1, 1))[0]:
            case "deadline":
                self.world.feed(inp.DeadlinePassed())
            case "abandon":
                self.world.lose_owner()
                self.world.feed(inp.FailUnrecoverable(detail="crashed three times"))
            case mode:
                self.numbers += 1
                self.world.post(Command(command_id=f"x{self.numbers}", kind="cancel", mode=mode))

    def send(self) -> None:
        self.numbers += 1
        self.world.post(Command(command_id=f"s{self.numbers}", kind="send", text="and this"))

    def pause(self) -> None:
        self.numbers += 1
        self.world.post(Command(command_id=f"p{self.numbers}", kind="pause", reason="wait"))

    def admit(self) -> None:
        self.world.feed(inp.Admit())

    def tick(self) -> None:
        self.world.now += timedelta(seconds=self.rng.choice((0.001, 1, 40, 400)))
        self.world.post_expiries()

    # --- accidents ---------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.world.crash(digest=self.rng.choice((None, None, "another")))

    def overrun(self) -> None:
        """A body of this run continues without its call."""
        name = self.rng.choice([*self.world.store.calls, "model:r.m1"])
        self.world.feed(inp.BodyOverran(item=inp.Unfinished(call_id=name, stack="somewhere")))

    def stale(self) -> None:
        """An answer to something that was asked before, or never."""
        stale: list[inp.Input] = [
            inp.ModelAnswered(message_id="r.m0", response=ModelResponse(text=("old",))),
            inp.ModelFailed(message_id="r.m0", kind="x", text="y"),
            inp.ModelStreamed(message_id="r.m0", text="old"),
            inp.ModelCut(message_id="r.m0", text="old", usage=Usage(requests=1)),
            inp.PhaseDone(phase=Phase.STEP_END, step=self.world.row.step - 1),
            inp.PhaseDone(phase=Phase.TOOL_GATE, step=self.world.row.step, call_id="nobody"),
        ]
        stale += [message for message in self.old[-10:] if self.is_stale(message)]
        for c in self.world.state.calls.values():
            who = {"call_id": c.call_id, "attempt": c.attempts - 1}
            stale += [inp.CallReturned(**who, result=1, shown="1"), inp.CallSuspended(**who, suspend=Suspend())]
        if ("cancel",) not in self.world.outstanding:
            stale.append(inp.WorkStopped())
        if self.world.row.position is not RunPosition.PREPARING:
            stale += [inp.Prepared(facts={"program": "1.1"}), inp.Prepared(code="tool_error", text="late")]
        before = self.world.state
        taken = self.world.feed(self.rng.choice(stale))
        assert taken.state == before
        assert (taken.commit, taken.effects) == (None, ())

    def is_stale(self, message: inp.Input) -> bool:
        """True if the message names an attempt that is over (a lost commit makes numbers come again)."""
        said = inp.CallReturned | inp.CallRaised | inp.CallSuspended | inp.CallPrinted | inp.ResultRefused
        if isinstance(message, said):
            now = self.world.state.calls.get(message.call_id)
            if any((t.task_id, t.attempts) == (message.call_id, message.attempt) for t in self.world.row.tasks):
                return False
            return now is None or now.attempts != message.attempt or now.status is not CallStatus.RUNNING
        return False

    # --- the orderly end ---------------------------------------------------------------------------------------------

    def calmly(self, key: Key) -> None:
        effect = self.world.outstanding[key]
        match effect:
            case fx.Prepare():
                self.world.answer(inp.Prepared())
            case fx.AskGuards():
                self.world.answer(inp.GuardsDone(kind=effect.kind, step=effect.step, names=effect.names))
            case fx.RunPhase():
                at = effect.state.revision
                done = inp.PhaseDone(phase=effect.phase, step=effect.step, call_id=effect.call_id, revision=at)
                self.world.answer(done)
            case fx.CallModel():
                response = ModelResponse(text=("done",), usage=Usage(input=1, output=1))
                self.world.answer(inp.ModelAnswered(message_id=effect.message_id, response=response))
            case fx.StartCall() if effect.child_run is not None:
                child = self.world.child_run(effect.call_id)
                child.ends(*ENDS[0])
                self.world.answer(child.seen(effect.call_id))
            case fx.StartCall():
                who: dict[str, Any] = {"call_id": effect.call_id, "attempt": effect.attempt}
                self.world.answer(inp.CallReturned(**who, result="ok", shown="ok"))
            case fx.StartTask():
                self.world.task_returns(effect.task_id)
            case fx.CancelTask():
                self.world.answer(inp.TaskStopped(task_id=effect.task_id, attempt=effect.attempt))
            case _:
                self.world.answer(inp.WorkStopped())

    def approve_one(self) -> None:
        """Decide one open ticket; a decider that may not resume it denies it."""
        waiting = [ticket for ticket in self.world.store.tickets.values() if ticket.status == "open"]
        if not waiting:
            return
        ticket = self.rng.choice(waiting)
        by = ticket.reviewers[0] if ticket.reviewers else "ann"
        for action in ("resume", "cancel"):
            self.numbers += 1
            if self.world.decide(
                ticket.ticket_id, action, {"n": 1}, by=by, decision_id=f"d{self.numbers}", reason=f"d{self.numbers}"
            ).ok:
                return
        self.world.now += timedelta(days=1)
        self.world.post_expiries()
        self.world.deliver_all()
