"""The session of a WebSocket, without a socket: messages and facts in, actions and frames out."""

import json

import pytest
from tests.unit.transport.wire_reader import WireReader

from greenroom.transport import Limits
from greenroom.transport.protocol import codes, down
from greenroom.transport.protocol.codes import (
    FORBIDDEN,
    OVERLOADED,
    SUBPROTOCOL,
    UNAUTHENTICATED,
    CloseCode,
    Refused,
)
from greenroom.transport.protocol.framing import text_frame
from greenroom.transport.protocol.ws_actions import (
    Authenticate,
    CheckEnd,
    Close,
    CloseWatch,
    CountFrame,
    Cut,
    ExecuteCommand,
    FetchEvents,
    FindHead,
    FollowRun,
    ListSource,
    OpenWatch,
    ReadHeads,
    ReadReset,
    RetryLater,
    TakeRows,
    TakeSnapshot,
    UnfollowRun,
    WriteFrames,
    WriteTurn,
)
from greenroom.transport.protocol.ws_output import ANSWER_BYTES, MOST_ANSWERS, SessionError
from greenroom.transport.protocol.ws_session import Identity, ServerInfo, SessionPhase, WebSocketSession

ANN = Identity(name="ann", scopes=("start", "follow"))
SERVER = ServerInfo(connection="c1", server="greenroom/1", epoch="e1")


def said(kind, **fields):
    return json.dumps({"type": kind, **fields})


def begun(limits=None):
    """A session after its handshake, without a principal."""
    session = WebSocketSession(SERVER, limits or Limits(), 0.0)
    assert session.opened(SUBPROTOCOL, None) == ()
    return session


def welcomed(limits=None):
    """A session at work; gw.welcome has been written."""
    session = WebSocketSession(SERVER, limits or Limits(), 0.0)
    assert session.opened(SUBPROTOCOL, ANN) == ()
    assert [frame["type"] for frame in written(session)] == ["gw.welcome"]
    return session


def written(session):
    """What the writer gets now, read by the client; the write is done."""
    action = session.output.next()
    assert isinstance(action, WriteFrames), action
    session.frames_written(action, 0.0, 0.0, 0.0)
    return WireReader().read(action.data)


def last_words(session):
    return WireReader().read(session.last_words())


def following(session, run="r", after=0, head=0):
    """The source of a subscription whose gw.subscribed was written; its turn has not come."""
    session.received(said("subscribe", run=run, after=after), 0.0)
    *_, follow = session.head_found(head)
    assert written(session)[-1]["type"] == "gw.subscribed"
    return follow.source


# --- the beginning ----------------------------------------------------------------------------------------------------


def test_a_known_principal_is_welcomed_with_the_limits_at_once():
    session = WebSocketSession(SERVER, Limits(subscriptions=7), 0.0)
    session.opened(SUBPROTOCOL, ANN)
    (frame,) = written(session)
    names = ("type", "connection", "epoch", "principal", "scopes", "protocol")
    reported = ["gw.welcome", "c1", "e1", "ann", ["follow", "start"], SUBPROTOCOL]
    assert [frame[name] for name in names] == reported
    assert frame["limits"]["subscriptions"] == 7
    assert session.phase is SessionPhase.OPEN


def test_hello_asks_for_its_principal_and_is_welcomed():
    session = begun()
    assert session.output.next() is None, "nothing is written before the principal is known"
    assert session.received(said("hello", token="t"), 0.0) == (Authenticate("t"),)
    assert session.output.next() is None
    assert session.welcomed(ANN) == ()
    assert written(session)[0]["type"] == "gw.welcome"


def test_a_token_is_in_no_text_about_the_session():
    assert "secret" not in repr(begun().received(said("hello", token="secret"), 0.0))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (said("ping"), 4401),
        (said("hello", token="t", protocol="other"), 4406),
        (said("hello", token=7), 4400),
        (said("nothing"), 4400),
        ("[]", 4400),
        ("{", 4400),
        (b"{}", 4400),
    ],
)
def test_what_is_no_hello_ends_the_connection_with_its_code(message, code):
    session = begun()
    assert session.received(message, 0.0) == (Close(),)
    bye, close = last_words(session)
    assert (bye["type"], bye["code"], close) == ("gw.bye", code, code)


def test_a_connection_that_asks_for_another_protocol_is_closed():
    session = WebSocketSession(SERVER, Limits(), 0.0)
    assert session.opened(None, ANN) == (Close(),)
    assert last_words(session)[-1] == 4406


@pytest.mark.parametrize("code", [UNAUTHENTICATED, FORBIDDEN, OVERLOADED])
def test_a_rejected_client_is_told_the_reason(code):
    session = begun()
    session.received(said("hello", token="t"), 0.0)
    assert session.rejected(code, "the token is unknown") == (Close(),)
    bye, close = last_words(session)
    assert (bye["code"], bye["reason"], close) == (code.code, "the token is unknown", code.code)


def test_only_a_session_that_waits_for_hello_runs_out_of_time():
    assert welcomed().hello_expired() == ()
    session = begun()
    assert session.hello_expired() == (Close(),)
    assert last_words(session)[-1] == 4408


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "start", "agent": "a", "text": "x"},
        {"type": "fork", "run": "r", "step": 1},
        {"type": "decide", "run": "r", "target": "t", "action": "approve"},
        {"type": "cancel", "run": "r"},
        {"type": "send", "run": "r", "text": "x"},
        {"type": "pause", "run": "r"},
    ],
)
def test_a_command_is_executed_and_its_acknowledgement_is_the_answer(fields):
    session = welcomed()
    count, execute = session.received(json.dumps({"id": "i", **fields}), 0.0)
    assert (count, type(execute)) == (CountFrame(fields["type"]), ExecuteCommand)
    assert session.output.next() is None
    assert session.executed(down.Ack(id="i", run="r", status="accepted")) == ()
    assert written(session) == [{"type": "gw.ack", "id": "i", "run": "r", "status": "accepted"}]


def test_a_refused_command_and_a_store_that_fails_are_answered_with_the_id_and_the_run():
    session = welcomed()
    session.received(said("cancel", id="i", run="r"), 0.0)
    session.refused(Refused("run_done", "it is over", current={"x": 1}))
    session.received(said("cancel", id="j", run="r"), 0.0)
    session.store_failed("the disk is full")
    first, second = written(session)
    assert first == {
        "type": "gw.error",
        "code": "run_done",
        "message": "it is over",
        "id": "i",
        "run": "r",
        "current": {"x": 1},
    }
    assert (second["code"], second["retry"], second["id"]) == ("store_unavailable", True, "j")


@pytest.mark.parametrize("fields", [{"type": "fly"}, {"type": "cancel"}, {"type": "hello", "token": "t"}, {"type": 7}])
def test_a_frame_that_the_protocol_does_not_know_is_counted_and_refused(fields):
    session = welcomed()
    assert session.received(json.dumps({"id": "i", "run": 7, **fields}), 0.0) == (CountFrame(fields["type"]),)
    (frame,) = written(session)
    assert (frame["type"], frame["code"], frame["id"], "run" in frame) == ("gw.error", "bad_message", "i", False)


def test_a_ping_is_answered_with_the_heads_and_its_id():
    session = welcomed()
    assert session.received(said("ping", id="p"), 0.0)[1:] == (ReadHeads(requested=True),)
    session.heads_read({"r": 4}, requested=True)
    assert written(session) == [{"type": "gw.tick", "heads": {"r": 4}, "id": "p"}]


def test_more_messages_than_the_limit_allows_end_the_connection():
    session, now, taken = welcomed(Limits(messages_per_second=10)), 0.0, 0
    while session.phase is SessionPhase.OPEN:
        session.received(said("nothing"), now)
        written(session) if session.output.answering else None
        taken, now = taken + 1, now + 0.01
    assert 20 <= taken <= 24, "a burst of twice the rate, and what comes in meanwhile"
    assert last_words(session)[-1] == 4429


@pytest.mark.parametrize("size", [1, 50_000])
def test_while_many_answers_wait_no_message_is_to_be_read(size):
    session = welcomed(Limits(messages_per_second=10_000))
    while session.readable:
        session.received(said("ping", id="x" * size), 0.0)
        session.heads_read({}, requested=True)
    assert session.output.size <= max(ANSWER_BYTES + size + 100, MOST_ANSWERS * 100)
    assert len(written(session)) <= MOST_ANSWERS
    assert session.readable
    assert session.output.size == 0


# --- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "mode"), [(0, "replay"), (4, "live")])
def test_a_subscription_begins_behind_the_cursor_of_the_client(after, mode):
    session = welcomed()
    assert session.received(said("subscribe", run="r", after=after, id="i"), 0.0)[1:] == (FindHead("r"),)
    (follow,) = session.head_found(4)
    assert (type(follow), follow.source.run, follow.source.after) == (FollowRun, "r", after)
    assert written(session) == [
        {"type": "gw.subscribed", "run": "r", "after": after, "head": 4, "mode": mode, "id": "i"}
    ]
    assert session.output.next() == FetchEvents(follow.source)


@pytest.mark.parametrize(("fields", "reason"), [({"after": 9}, "ahead"), ({"after": 2, "epoch": "old"}, "epoch")])
def test_a_cursor_that_cannot_be_continued_gets_a_snapshot(fields, reason):
    session = welcomed()
    session.received(said("subscribe", run="r", id="i", **fields), 0.0)
    assert session.head_found(4) == (TakeSnapshot("r"),)
    (follow,) = session.snapshot_taken(5, {"stage": "running"})
    assert follow.source.after == 5, "the snapshot may be newer than the head"
    (frame,) = written(session)
    assert (frame["type"], frame["reason"], frame["sequence"], frame["id"]) == ("gw.reset", reason, 5, "i")


def test_more_runs_than_allowed_are_refused_and_the_present_ones_may_be_subscribed_again():
    session = welcomed(Limits(subscriptions=1))
    old = following(session)
    assert session.received(said("subscribe", run="other"), 0.0)[1:] == ()
    assert written(session)[0]["code"] == "too_many_subscriptions"
    assert session.received(said("subscribe", run="r"), 0.0)[1:] == (FindHead("r"),)
    ended, begins = session.head_found(0)
    assert (ended, type(begins)) == (UnfollowRun(old), FollowRun)
    assert (old.over, begins.source.over) == (True, False)


def test_a_refused_subscription_leaves_the_earlier_one_alone():
    session = welcomed()
    source = following(session)
    session.received(said("subscribe", run="r", after=1), 0.0)
    session.refused(Refused("unknown_run", "no"))
    assert written(session)[0]["type"] == "gw.error"
    assert session.output.next() == FetchEvents(source)


def test_unsubscribed_runs_have_no_more_turns():
    session = welcomed()
    source = following(session)
    assert session.received(said("unsubscribe", run="r", id="i"), 0.0)[1:] == (UnfollowRun(source),)
    assert written(session) == [{"type": "gw.unsubscribed", "run": "r", "reason": "asked", "id": "i"}]
    assert session.output.next() is None
    session.received(said("unsubscribe", run="r"), 0.0)
    assert written(session)[0]["code"] == "unknown_run"


def test_a_list_that_cannot_be_read_ends_with_an_error_and_its_name_is_free():
    session = welcomed()
    session.received(said("watch", id="w"), 0.0)
    session.watch_opened(source := ListSource("w"))
    assert session.list_failed("w") == ()
    (frame,) = written(session)
    assert (frame["type"], frame["code"], frame["id"], source.over) == ("gw.error", "internal", "w", True)
    assert session.list_failed("w") == ()
    assert session.output.next() is None, "the second end of a list has no answer"
    (_, opened) = session.received(said("watch", id="w"), 0.0)
    assert opened.frame.id == "w"


# --- turns ------------------------------------------------------------------------------------------------------------


def test_a_run_is_replayed_then_live_then_followed_to_its_end():
    session = welcomed()
    output, source = session.output, following(session, head=2)
    assert output.next() == FetchEvents(source)
    assert output.events_read(source, 1, 2, b"data") == WriteTurn(source, b"data")
    assert not output.free(source)
    output.turn_written(source)
    assert output.next() == FetchEvents(source)
    turn = output.nothing_read(source)
    assert WireReader().read(turn.data) == [{"type": "gw.live", "run": "r", "sequence": 2}]
    output.turn_written(source)
    assert output.next() == FetchEvents(source)
    assert output.nothing_read(source) == CheckEnd(source)
    assert output.nothing_yet(source, behind=False) is None
    assert output.next() is None
    assert output.free(source)
    output.advance(source, 3, 3)
    output.touch(source)
    assert output.next() == FetchEvents(source)
    output.nothing_read(source)
    turn = output.run_ended(source, "done")
    assert WireReader().read(turn.data) == [{"type": "gw.unsubscribed", "run": "r", "reason": "done"}]
    assert output.turn_written(source) == UnfollowRun(source)
    assert (output.next(), output.runs) == (None, {})


def test_why_a_run_ended_is_reported():
    session = welcomed()
    source = following(session)
    session.output.next()
    turn = session.output.run_ended(source, "degraded", code="deps_missing", detail="none")
    reported = {"type": "gw.unsubscribed", "run": "r", "reason": "degraded", "code": "deps_missing", "detail": "none"}
    assert WireReader().read(turn.data) == [reported]


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 2), (5, 9)])
def test_events_that_do_not_follow_are_never_written(first, last):
    session = welcomed()
    source = following(session, after=2, head=9)
    session.output.next()
    with pytest.raises(SessionError, match="do not follow 2"):
        session.output.events_read(source, first, last, b"data")


def test_what_was_read_for_an_old_subscription_is_dropped():
    """The client has subscribed again, from another position, while the store was read."""
    session = welcomed()
    old = following(session, head=5)
    assert session.output.next() == FetchEvents(old)
    new = following(session, after=3, head=5)
    found = session.output
    assert found.events_read(old, 1, 5, b"data") is found.nothing_read(old) is found.fetch_failed(old) is None
    assert found.run_ended(old, "done") is None
    assert session.output.runs == {"r": new}
    assert session.output.next() == FetchEvents(new)


def test_a_store_that_does_not_answer_is_asked_again():
    session = welcomed()
    source = following(session)
    session.output.next()
    assert session.output.fetch_failed(source) == RetryLater(source)
    session.output.turn_written(source)
    assert session.output.next() == FetchEvents(source)


def test_answers_come_before_events_and_runs_take_turns():
    session = welcomed()
    one, two = following(session, "one", head=9), None
    session.received(said("subscribe", run="two"), 0.0)
    (follow,) = session.head_found(9)
    two = follow.source
    assert written(session)[0]["run"] == "two"
    order = []
    for position in range(1, 7):
        action = session.output.next()
        order.append(action.source)
        session.output.events_read(action.source, (position + 1) // 2, (position + 1) // 2, b"data")
        session.output.turn_written(action.source)
    assert order == [one, two] * 3


def test_events_are_pushed_beside_the_line_only_to_a_run_that_has_all_before_them():
    session = welcomed()
    output, source = session.output, following(session)
    assert not output.free(source), "it is in the line, and gw.live has not been written"
    output.next()
    output.nothing_read(source)
    output.turn_written(source)
    output.next()
    output.nothing_read(source)
    output.nothing_yet(source, behind=False)
    assert output.free(source)
    session.received(said("nothing"), 0.0)
    assert not output.free(source), "an answer waits"
    written(session)
    assert output.free(source)
    output.touch(source)
    assert not output.free(source), "it is in the line"


# --- lists ------------------------------------------------------------------------------------------------------------


def watching(session, name="w"):
    source = ListSource(name)
    assert isinstance(session.received(said("watch", id=name), 0.0)[1], OpenWatch)
    session.watch_opened(source)
    return source


def test_a_watched_list_has_turns_until_it_is_left():
    session = welcomed()
    output, source = session.output, watching(session)
    output.touch(source)
    assert output.next() == TakeRows(source)
    rows = text_frame(b"{}")
    assert output.rows_taken(source, rows) == WriteTurn(source, rows)
    output.turn_written(source)
    assert output.next() == TakeRows(source)
    assert output.rows_taken(source, None) is None
    assert output.next() is None
    assert session.received(said("unwatch", id="w"), 0.0)[1:] == (CloseWatch("w"),)
    assert written(session) == [{"type": "gw.unwatched", "watch": "w"}]
    assert not output.touch(source)
    session.received(said("unwatch", id="w"), 0.0)
    assert written(session)[0]["code"] == "bad_message"


def test_more_lists_than_allowed_are_refused():
    session = welcomed(Limits(watches=1))
    watching(session)
    session.received(said("watch", id="v"), 0.0)
    assert written(session)[0]["code"] == "too_many_subscriptions"
    watching(session)


def test_a_client_that_replaces_a_list_for_ever_holds_one_place_in_the_line():
    """A slow connection keeps its writer busy; each replaced list stayed in the line behind it."""
    session = welcomed(Limits(messages_per_second=10_000))
    for _ in range(1000):
        session.output.touch(watching(session))
    assert session.output.in_line == len(session.output) == 1


# --- signs of life ----------------------------------------------------------------------------------------------------


def beat(session, now, heard=0.0, written=0.0, taken=0.0, writing=False):
    return session.heartbeat(now, last_byte=heard, last_frame=written, last_room=taken, writing=writing)


def test_a_silent_peer_is_pinged_behind_a_tick_and_cut_if_it_does_not_answer():
    session = welcomed()
    assert beat(session, 19.0) == ()
    assert beat(session, 20.0) == (ReadHeads(requested=False),)
    session.heads_read({}, requested=False)
    action = session.output.next()
    assert (action.pinging, [type(one) for one in WireReader().read(action.data)]) == (True, [dict, str])
    session.frames_written(action, 20.0, 20.0, 0.0)
    assert beat(session, 39.9, written=20.0) == ()
    assert beat(session, 40.0, written=39.0, taken=30.0) == (), "the peer still makes room"
    assert beat(session, 41.0, written=40.0) == (Cut(),)
    assert session.phase is SessionPhase.CLOSED
    assert session.last_words() == b""


def test_whatever_comes_after_a_ping_answers_it():
    session = welcomed()
    beat(session, 20.0, written=20.0)
    session.frames_written(session.output.next(), 20.0, 20.0, 0.0)
    assert beat(session, 39.0, heard=20.0, written=39.0) == ()
    assert beat(session, 60.0, heard=50.0, written=60.0) == ()
    assert session.output.next() is None, "the next ping is due 20 s after the last byte"
    assert beat(session, 70.0, heard=50.0, written=70.0) == ()
    assert session.output.next().pinging


@pytest.mark.parametrize("session", [begun(), WebSocketSession(SERVER, Limits(), 0.0)])
def test_before_the_welcome_nothing_looks_for_signs_of_life(session):
    assert beat(session, 1000.0) == ()
    assert session.output.next() is None


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_answers_that_wait_are_written_before_the_last_words_and_nothing_after_them():
    session = welcomed()
    source = following(session)
    session.received(said("nothing", id="i"), 0.0)
    assert session.leave(codes.RESTART, "come back", 250) == (Close(),)
    assert session.leave(codes.INTERNAL) == ()
    error, bye, close = last_words(session)
    assert (error["id"], bye["code"], bye["retryAfterMs"], close) == ("i", 1012, 250, 1012)
    assert session.last_words() == b""
    assert (session.output.next(), session.received(said("ping"), 0.0)) == (None, ())
    assert not session.output.free(source) or session.output.next() is None


def test_a_fact_that_comes_after_the_end_has_no_effect():
    session = welcomed()
    session.received(said("subscribe", run="r"), 0.0)
    session.leave(codes.GOING_AWAY)
    assert session.head_found(4) == session.snapshot_taken(4, {}) == session.store_failed("x") == ()
    assert session.executed(down.Ack(id="i", run="r", status="accepted")) == ()
    assert session.heads_read({}, requested=True) == session.welcomed(ANN) == session.opened(SUBPROTOCOL, ANN) == ()
    assert [type(word) for word in last_words(session)] == [dict, int]


@pytest.mark.parametrize(
    ("gone", "codes_written"),
    [
        ((None, None, None), []),
        ((1000, "bye", None), []),
        ((1002, "bad opcode", None), [1002]),
        ((1007, None, None), [1007]),
        ((None, None, codes.TOO_BIG), [dict, 1009]),
        ((None, None, codes.TOO_FAST), [dict, 4429]),
    ],
)
def test_a_peer_that_is_gone_receives_nothing_unless_the_end_is_its_fault(gone, codes_written):
    session = welcomed()
    assert session.peer_gone(*gone) == (Close(),)
    assert [dict if isinstance(word, dict) else word for word in last_words(session)] == codes_written
    assert session.peer_gone(*gone) == ()


def test_long_reasons_are_cut_to_what_a_close_frame_has_room_for():
    session = welcomed()
    session.leave(CloseCode(4400, "bad_message", "", retry=False), "ä" * 1000)
    bye, close = last_words(session)
    assert (bye["reason"], close) == ("ä" * 100, 4400)


@pytest.mark.parametrize(
    "fact",
    [
        lambda session: session.opened(SUBPROTOCOL, ANN),
        lambda session: session.welcomed(ANN),
        lambda session: session.executed(down.Ack(id="i", run="r", status="accepted")),
        lambda session: session.refused(Refused("busy", "x")),
        lambda session: session.head_found(4),
        lambda session: session.snapshot_taken(4, {}),
        lambda session: session.watch_opened(ListSource("w")),
        lambda session: session.heads_read({}, requested=True),
    ],
)
def test_a_fact_that_was_not_asked_for_is_an_error_and_writes_nothing(fact):
    session = welcomed()
    with pytest.raises(SessionError):
        fact(session)
    assert session.output.next() is None


def test_a_message_before_the_answer_to_the_one_before_is_an_error():
    session = welcomed()
    session.received(said("ping"), 0.0)
    with pytest.raises(SessionError):
        session.received(said("ping"), 0.0)


# --- other logs -------------------------------------------------------------------------------------------------------


def test_a_new_epoch_resets_every_followed_run_once():
    session = welcomed()
    old = following(session, after=4, head=4)
    assert session.renamed("e2") == (UnfollowRun(old),)
    assert old.over
    assert written(session) == [{"type": "gw.renamed", "epoch": "e2"}]
    action = session.output.next()
    assert isinstance(action, ReadReset)
    stale = action.source
    assert session.output.runs == {"r": stale}
    turn = session.output.reset_read(stale, 2, {"stage": "running"})
    reset = {"type": "gw.reset", "run": "r", "reason": "epoch", "sequence": 2, "snapshot": {"stage": "running"}}
    assert WireReader().read(turn.data) == [reset]
    assert session.output.turn_written(stale) is None
    assert session.output.next() == FetchEvents(stale)
    assert stale.after == 2


def test_a_second_new_epoch_replaces_a_reset_that_is_being_read():
    session = welcomed()
    following(session, after=4, head=4)
    session.renamed("e2")
    written(session)
    first = session.output.next().source
    session.renamed("e3")
    assert session.output.reset_read(first, 2, {}) is None
    assert written(session) == [{"type": "gw.renamed", "epoch": "e3"}]
    assert isinstance(session.output.next(), ReadReset)


def test_a_cursor_of_the_replaced_log_is_reset_also_while_it_is_looked_up():
    session = welcomed()
    session.received(said("subscribe", run="r", after=4), 0.0)
    session.renamed("e2")
    assert session.head_found(9) == (TakeSnapshot("r"),)
    session.renamed("e3")
    assert session.snapshot_taken(9, {}) == (TakeSnapshot("r"),)
    assert [type(action) for action in session.snapshot_taken(2, {})] == [FollowRun]
    frames = written(session)
    assert [frame["type"] for frame in frames] == ["gw.renamed", "gw.renamed", "gw.reset"]
    assert (frames[-1]["reason"], frames[-1]["sequence"]) == ("epoch", 2)


def test_the_head_of_a_replaced_log_is_looked_up_again():
    session = welcomed()
    session.received(said("subscribe", run="r", after=0), 0.0)
    session.renamed("e2")
    assert session.head_found(9) == (FindHead("r"),)
    session.head_found(2)
    assert written(session)[-1]["head"] == 2


def test_a_new_epoch_before_the_welcome_is_the_epoch_of_the_welcome():
    session = begun()
    assert session.renamed("e2") == ()
    session.welcomed(ANN)
    assert [frame["epoch"] for frame in written(session)] == ["e2"]
