"""Random lives of a WebSocket session: whatever is sent, found out and closed in whatever order, it keeps its promises.

The machine plays the connection: it performs the actions of the reader and of the writer, each at a time of its own,
writes what it is given to a client that checks every frame, and pushes events beside the line as a pump does. Each
planted fault at the end is found, so that no check is idle.
"""

import itertools
import json
from collections import Counter

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.transport.wire_reader import WireReader

from greenroom.transport import Limits
from greenroom.transport.protocol import codes, down
from greenroom.transport.protocol import ws_actions as act
from greenroom.transport.protocol.codes import OVERLOADED, SUBPROTOCOL, UNAUTHENTICATED, Refused
from greenroom.transport.protocol.framing import text_frame, text_frames
from greenroom.transport.protocol.ws_output import ANSWER_BYTES, MOST_ANSWERS, SessionError, SessionOutput
from greenroom.transport.protocol.ws_session import Identity, ServerInfo, SessionPhase, WebSocketSession

ANN = Identity(name="ann", scopes=("admin",))
pytestmark = pytest.mark.slow
RUNS, LISTS = ("r1", "r2", "r3"), ("a", "b")
LIMITS = Limits(subscriptions=2, watches=1, messages_per_second=20, heartbeat_seconds=4, pong_seconds=4)
LARGEST = 70_000
"""Bytes of an answer here, at most."""
ANSWERS = frozenset({"gw.ack", "gw.error", "gw.subscribed", "gw.reset", "gw.unsubscribed", "gw.tick"})
"""Frames that carry the id of what they answer."""


class Client:
    """Checks what is written: welcome first, each event once and in order, one answer per id, nothing at the end."""

    def __init__(self):
        self.wire = WireReader()
        self.answers = Counter()
        self.order = []
        self.positions = {}
        self.stale = set()
        self.welcomed = False
        self.ended = False

    def read(self, data):
        for frame in self.wire.read(data):
            assert not self.ended, f"{frame} after the close frame"
            if isinstance(frame, int):
                self.ended = True
            elif frame != "ping":
                self.apply(frame)

    def apply(self, frame):
        kind = frame["type"]
        assert self.welcomed or kind in ("gw.welcome", "gw.bye"), f"{kind} before gw.welcome"
        if kind in ANSWERS and frame.get("id", "").startswith("i"):  # else it is the name of a list
            self.answers[frame["id"]] += 1
            self.order.append(frame["id"])
        match kind:
            case "gw.welcome":
                assert not self.welcomed
                self.welcomed = True
            case "gw.subscribed":
                self.positions[frame["run"]] = frame["after"]
                self.stale.discard(frame["run"])
            case "gw.reset":
                self.positions[frame["run"]] = frame["sequence"]
                self.stale.discard(frame["run"])
            case "gw.unsubscribed":
                del self.positions[frame["run"]]
                self.stale.discard(frame["run"])
            case "gw.renamed":
                self.stale = set(self.positions)
            case "gw.live":
                assert self.positions[frame["run"]] == frame["sequence"]
            case "event":
                assert frame["run"] not in self.stale, "an event of the replaced log"
                assert frame["sequence"] == self.positions[frame["run"]] + 1, "a hole or a repeat"
                self.positions[frame["run"]] += 1


def events(run, first, last):
    """Events of a run as frames."""
    made = (json.dumps({"type": "event", "run": run, "sequence": number}).encode() for number in range(first, last + 1))
    return text_frames(made)


class Lives(RuleBasedStateMachine):
    """The connection of one session; `asked` and `writing` are what the reader and the writer have to perform next."""

    session_class = WebSocketSession
    output_class = SessionOutput

    def __init__(self):
        super().__init__()
        self.session = self.session_class(ServerInfo(connection="c", server="s", epoch="e"), LIMITS, 0.0)
        self.session.output = self.output_class()
        self.client, self.now, self.numbers = Client(), 0.0, itertools.count()
        self.asked, self.writing = (), ()
        self.open_sources, self.done = {}, set()
        self.logs = dict.fromkeys(RUNS, 3)
        self.sent, self.torn = [], False
        self.received_at = 0.0

    @property
    def output(self):
        return self.session.output

    @property
    def closed(self):
        return self.session.phase is SessionPhase.CLOSED

    # --- the beginning and the end ------------------------------------------------------------------------------------

    @initialize(known=st.sampled_from([True, True, True, False]), spoken=st.sampled_from([SUBPROTOCOL] * 9 + [None]))
    def open(self, known, spoken):
        self.reader(self.session.opened(spoken, ANN if known else None))

    @rule(code=st.sampled_from([codes.RESTART, codes.INTERNAL]), often=st.integers(0, 15))
    def dismissed(self, code, often):
        if not often:
            self.reader(self.session.leave(code, "x" * 200, 250))

    @rule(
        code=st.sampled_from([None, 1000, 1002]),
        verdict=st.sampled_from([None, codes.TOO_BIG]),
        often=st.integers(0, 15),
    )
    def vanished(self, code, verdict, often):
        if not often:
            self.reader(self.session.peer_gone(code, "why", verdict))

    # --- the reader ---------------------------------------------------------------------------------------------------

    def reader(self, actions):
        """Perform what needs no waiting; the rest waits in `asked`."""
        todo = list(actions)
        while todo:
            action = todo.pop(0)
            match action:
                case act.CountFrame() | act.CloseWatch():
                    pass
                case act.FollowRun(source):
                    earlier = self.open_sources.get(source.run)
                    assert earlier is None or earlier.over, "followed twice"
                    self.open_sources[source.run] = source
                case act.UnfollowRun(source):
                    if self.open_sources.get(source.run) is source:
                        del self.open_sources[source.run]
                case act.ReadHeads(asked):
                    todo += self.session.heads_read(dict.fromkeys(self.output.runs, 1), requested=asked)
                case act.Close():
                    assert self.closed
                case act.Cut():
                    self.torn = True
                case _:
                    assert not todo
                    assert not self.asked
                    self.asked = (action,)

    def may_send(self):
        return not self.asked and self.session.readable and not self.closed

    @precondition(may_send)
    @rule(run=st.sampled_from(RUNS), after=st.integers(0, 5), epoch=st.sampled_from([None, None, "e", "old"]))
    def subscribe(self, run, after, epoch):
        self.send("subscribe", run=run, after=after, epoch=epoch)

    @precondition(lambda self: self.may_send() and self.output.runs)
    @rule(which=st.integers(0, 1), again=st.booleans())
    def change(self, which, again):
        """Leave a run that is followed, or follow it from another position."""
        run = list(self.output.runs)[which % len(self.output.runs)]
        self.send("subscribe" if again else "unsubscribe", run=run)

    @precondition(may_send)
    @rule(
        kind=st.sampled_from(["unsubscribe", "watch", "unwatch", "ping", "cancel", "start", "start", "start", "x"]),
        run=st.sampled_from(RUNS),
        size=st.integers(0, 5),
    )
    def request(self, kind, run, size):
        name = LISTS[size % 2]
        fields = {
            "unsubscribe": {"run": run},
            "watch": {"id": name},
            "unwatch": {"id": name},
            "start": {"agent": "a", "text": "t" * 100 * size},
            "cancel": {"run": run, **({"mode": "never"} if size == 5 else {})},
        }
        self.send(kind, **fields.get(kind, {}))

    def send(self, kind, **fields):
        name = f"i{next(self.numbers)}"
        fields = {"id": name, **fields}
        self.message(json.dumps({"type": kind, **fields}), name if fields["id"] == name else None)

    @precondition(may_send)
    @rule(text=st.sampled_from(['{"type": "hello", "token": "t"}'] * 12 + ["{", "[]", b"{}"]))
    def rare(self, text):
        self.message(text, None)

    def message(self, text, name):
        self.received_at = self.now
        greeting = self.session.phase is SessionPhase.GREETING
        actions = self.session.received(text, self.now)
        if name is not None and not greeting and not self.closed:
            self.sent.append(name)
        self.reader(actions)

    @precondition(lambda self: self.asked)
    @rule(
        how=st.sampled_from(["well", "well", "well", "refused", "store"]),
        head=st.integers(0, 5),
        size=st.integers(0, 7),
    )
    def answer(self, how, head, size):
        (action,), self.asked = self.asked, ()
        session = self.session
        if isinstance(action, act.Authenticate):
            code = OVERLOADED if how == "store" else UNAUTHENTICATED
            self.reader(session.welcomed(ANN) if how == "well" else session.rejected(code, "who is it"))
        elif how == "refused":
            self.reader(session.refused(Refused("busy", "m" * size * 10_000)))
        elif how == "store" and not isinstance(action, act.OpenWatch):
            self.reader(session.store_failed("s"))
        else:
            self.reader(self.answered(action, head, size))

    def answered(self, action, head, size):
        session = self.session
        match action:
            case act.FindHead(run):
                return session.head_found(self.logs[run])
            case act.TakeSnapshot(run):
                self.logs[run] += head % 2
                return session.snapshot_taken(self.logs[run], {"x": "y" * size * 10_000})
            case act.ExecuteCommand(command):
                return session.executed(down.Ack(id=command.id, run="r", status="accepted"))
            case act.OpenWatch(frame):
                source = act.ListSource(frame.id)
                actions = session.watch_opened(source)
                self.output.touch(source)
                return actions
        raise AssertionError(action)

    @rule(known=st.booleans())
    def unasked(self, known):
        """A fact that the session has not asked for is an error, or without effect at the end."""
        if self.asked or self.closed:
            return
        before = (self.output.size, self.session.phase)
        with pytest.raises(SessionError):
            self.session.head_found(1) if known else self.session.refused(Refused("busy", "m"))
        assert before == (self.output.size, self.session.phase)

    # --- the writer ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.writing and not self.torn)
    @rule()
    def next(self):
        action = self.output.next()
        if action is not None:
            self.begin_write(action)

    def begin_write(self, action):
        """The writer performs an action; bytes are on their way from here on."""
        if isinstance(action, act.WriteFrames | act.WriteTurn):
            self.client.read(action.data)
        self.writing = (action, getattr(getattr(action, "source", None), "after", None))

    def writer(self, action):
        self.writing = ()
        if isinstance(action, act.UnfollowRun):
            self.reader((action,))
        elif action is not None:
            self.begin_write(action)

    @precondition(lambda self: self.writing)
    @rule(how=st.sampled_from(["well", "well", "well", "well", "empty", "store", "gone"]), most=st.integers(1, 3))
    def perform(self, how, most):
        (action, after), output = self.writing, self.output
        match action:
            case act.WriteFrames():
                self.writer(self.session.frames_written(action, self.now, self.now, self.received_at))
            case act.WriteTurn(source) | act.RetryLater(source):
                self.writer(output.turn_written(source))
            case act.TakeRows(source):
                self.writer(output.rows_taken(source, text_frame(b'{"type": "rows"}') if how == "well" else None))
            case act.FetchEvents(source) | act.CheckEnd(source) | act.ReadReset(source) if how == "store":
                self.writer(output.fetch_failed(source))
            case act.FetchEvents(source) | act.CheckEnd(source) | act.ReadReset(source) if how == "gone":
                self.writer(output.run_ended(source, "gone", detail="d"))
            case act.ReadReset(source):
                reset = output.reset_read(source, self.logs[source.run], {})
                if reset is not None:
                    self.reader((act.FollowRun(source),))
                self.writer(reset)
            case act.FetchEvents(source):
                last = min(after + most, self.logs[source.run])
                found = last > after
                data = events(source.run, after + 1, last)
                self.writer(output.events_read(source, after + 1, last, data) if found else output.nothing_read(source))
            case act.CheckEnd(source):
                ended = source.run in self.done and self.logs[source.run] == after
                behind = self.logs[source.run] > after
                self.writer(output.run_ended(source, "done") if ended else output.nothing_yet(source, behind=behind))

    @rule(steps=st.integers(1, 8))
    def work(self, steps):
        """The writer gets on."""
        for _ in range(steps):
            if self.writing:
                self.perform("well", 2)
            elif not self.torn:
                self.next()

    @precondition(lambda self: not self.writing and not self.torn and self.output.runs)
    @rule(which=st.integers(0, 1), most=st.integers(1, 3))
    def push(self, which, most):
        """What a pump does between the writes: events to a source that has all before them."""
        run, source = list(self.output.runs.items())[which % len(self.output.runs)]
        if self.closed or not self.output.free(source) or source.after >= self.logs[run]:
            return
        first, last = source.after + 1, min(source.after + most, self.logs[run])
        self.client.read(events(run, first, last))
        self.output.advance(source, first, last)

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(run=st.sampled_from(RUNS), more=st.integers(0, 3), done=st.integers(0, 9))
    def news(self, run, more, done):
        if run not in self.done:
            self.logs[run] += more
            if not done:
                self.done.add(run)
        for source in (*self.output.runs.values(), *self.output.lists.values(), *self.open_sources.values()):
            self.output.touch(source)

    @rule(seconds=st.floats(0.01, 3), written=st.booleans(), heads=st.sampled_from([None, None, None, 1, 4]))
    def beat(self, seconds, written, heads):
        self.now += seconds
        if heads is not None:  # other logs replace these, as after a failover
            self.logs, self.done = dict.fromkeys(RUNS, heads), set()
            self.reader(self.session.renamed(f"e{next(self.numbers)}"))
        at = self.now if written else 0.0
        self.reader(
            self.session.heartbeat(self.now, last_byte=self.received_at, last_frame=at, last_room=0.0, writing=False)
        )

    # --- what is true at any time -------------------------------------------------------------------------------------

    @invariant()
    def memory_is_bounded(self):
        output = self.output
        assert output.size < ANSWER_BYTES + LARGEST + 1000
        assert len(output._frames) <= MOST_ANSWERS + 1, "the answers, and one tick"
        assert output.in_line <= len(output) <= LIMITS.subscriptions + LIMITS.watches

    @invariant()
    def no_request_is_answered_twice(self):
        assert all(count == 1 for count in self.client.answers.values())

    @invariant()
    def answers_come_in_the_order_of_the_requests(self):
        assert self.client.order == self.sent[: len(self.client.order)]

    @invariant()
    def followers_are_those_of_the_sources(self):
        """One that has ended by itself is closed when that was written."""
        alive = {run: source for run, source in self.open_sources.items() if not source.over}
        followed = {run: source for run, source in self.output.runs.items() if not source.stale}
        assert alive == followed or self.closed
        assert len(self.open_sources) <= len(alive) + 1

    @invariant()
    def nothing_is_to_be_written_at_the_end(self):
        if self.closed:
            assert self.output.next() is None

    def teardown(self):
        """Every request is answered in the end, and every event comes; the last words are the last."""
        for _ in range(300):
            if self.asked:
                self.answer("well", 0, 0)
            if self.writing:
                self.perform("at the end", 3)
            elif not self.torn:
                self.next()
        if not self.closed and self.client.welcomed:
            assert self.client.answers.keys() == set(self.sent)
            for run, position in self.client.positions.items():
                assert position >= self.logs[run], "an event that is there was not written"
        if not self.torn:
            words = self.session.last_words()
            self.client.read(words)
            assert self.client.ended == bool(words)
        assert self.session.last_words() == b""


class TestLives(Lives.TestCase):
    """Many lives, none of which breaks a promise."""

    settings = settings(stateful_step_count=40)


PLANTED = settings(max_examples=1_000, stateful_step_count=40, phases=[Phase.generate], database=None)


# --- planted faults ---------------------------------------------------------------------------------------------------


class AnswersTwice(WebSocketSession):
    def executed(self, ack):
        self.output.put(ack)
        return super().executed(ack)


class AnswersNever(WebSocketSession):
    def store_failed(self, text):
        self._answer(None)
        return ()


class SpeaksFirst(WebSocketSession):
    def opened(self, subprotocol, identity):
        self.output.put(down.Tick(heads={}))
        return super().opened(subprotocol, identity)


class Overtakes(SessionOutput):
    def put(self, frame):
        super().put(frame)
        if isinstance(frame, down.Ack):
            self._frames.insert(0, self._frames.pop())


class TalksOn(SessionOutput):
    def close(self):
        """Go on."""


class Repeats(SessionOutput):
    def advance(self, source, first, last):
        source.after = first - 1


class ForgetsTheLine(SessionOutput):
    def _end(self, source):
        source.over = True


class KeepsStaleSources(SessionOutput):
    def replace_runs(self):
        return []


class LosesTurns(SessionOutput):
    def turn_written(self, source):
        source.writing = False


def found_in(planted):
    """Some life of the planted machine breaks a promise; which one is the shortest does not matter."""
    with pytest.raises((AssertionError, SessionError, KeyError)):
        run_state_machine_as_test(planted, settings=PLANTED)


@pytest.mark.no_cover
@pytest.mark.parametrize("fault", [AnswersTwice, AnswersNever, SpeaksFirst])
def test_a_planted_fault_of_the_session_is_found(fault):
    found_in(type("Planted", (Lives,), {"session_class": fault}))


@pytest.mark.no_cover
@pytest.mark.parametrize("fault", [Overtakes, TalksOn, Repeats, ForgetsTheLine, KeepsStaleSources, LosesTurns])
def test_a_planted_fault_of_the_output_is_found(fault):
    found_in(type("Planted", (Lives,), {"output_class": fault}))
