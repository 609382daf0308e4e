"""The protocol without I/O: what a client may send, what is said when it is wrong, frames as bytes, limits, codes."""

import re
import string

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Ping as WirePing
from wsproto.events import TextMessage

from greenroom.actors.contract.decisions import REJECTIONS
from greenroom.transport.protocol import down, framing, up
from greenroom.transport.protocol.codes import CLOSE_CODES, ERRORS, Refused
from greenroom.transport.protocol.limits import Limits

DECIDE = {"type": "decide", "id": "d1", "run": "r", "target": "t", "action": "resume"}


def refused(frame, read=up.read):
    with pytest.raises(Refused) as caught:
        read(frame)
    assert caught.value.error.code == "bad_message"
    return caught.value.message


# --- reading ---------------------------------------------------------------------------------------------------------


def test_every_frame_is_read_as_its_class():
    assert up.read({"type": "hello"}) == up.Hello()
    assert up.read({"type": "subscribe", "run": "r", "after": 7}) == up.Subscribe(run="r", after=7)
    assert up.read({"type": "unsubscribe", "run": "r"}) == up.Unsubscribe(run="r")
    assert up.read({"type": "start", "id": "s", "agent": "a", "text": "t"}) == up.Start(id="s", agent="a", text="t")
    assert up.read(DECIDE) == up.Decide(id="d1", run="r", target="t", action="resume")
    assert up.read({"type": "cancel", "id": "c", "run": "r"}) == up.Cancel(id="c", run="r")
    assert up.read({"type": "send", "id": "c", "run": "r", "text": ""}) == up.Send(id="c", run="r", text="")
    assert up.read({"type": "ping"}) == up.Ping()


def test_null_is_nothing_said_where_a_field_may_be_left_out():
    frame = up.read(DECIDE | {"reason": None, "editedArguments": None, "fingerprint": None})
    assert frame == up.read(DECIDE)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({}, "type (missing) is not known; use one of hello, subscribe"),
        ({"type": None}, "type (missing)"),
        ({"type": 5}, "type 5 is not known"),
        ({"type": ["hello"]}, "type ['hello'] is not known"),
        ({"type": "Hello"}, "type 'Hello' is not known"),
        ({"type": "gw.ack"}, "type 'gw.ack' is not known"),
        ({"type": "decide"}, "id is missing @ decide.id; run is missing @ decide.run; target is missing"),
        (DECIDE | {"run": 1}, "expected a string @ decide.run"),
        (DECIDE | {"run": None}, "expected a string @ decide.run"),
        (
            DECIDE | {"action": "go"},
            "'go' is not known; use 'approve' or 'deny' or 'resume' or 'cancel' @ decide.action",
        ),
        (DECIDE | {"action": ["resume"]}, "['resume'] is not known; did you mean 'resume'? use 'approve' or 'deny'"),
        (
            DECIDE | {"action": True},
            "True is not known; use 'approve' or 'deny' or 'resume' or 'cancel' @ decide.action",
        ),
        (DECIDE | {"action": "aprove"}, "'aprove' is not known; did you mean 'approve'? use"),
        (DECIDE | {"editedArguments": []}, "expected an object @ decide.editedArguments"),
        (DECIDE | {"editedArguments": "{}"}, "expected an object @ decide.editedArguments"),
        (DECIDE | {"fingerprint": 7}, "expected a string @ decide.fingerprint"),
        (
            DECIDE | {"edited_arguments": {}},
            "edited_arguments is not known here; did you mean editedArguments? there are id, run, target",
        ),
        (DECIDE | {"id": ""}, "id must be 1 to 128 printable characters"),
        (DECIDE | {"id": "x" * 129}, "id must be 1 to 128 printable characters"),
        (DECIDE | {"id": "a\nb"}, "id must be 1 to 128 printable characters"),
        (DECIDE | {"id": "a\u200bb"}, "id must be 1 to 128 printable characters"),
        (DECIDE | {"id": 5}, "expected a string @ decide.id"),
        ({"type": "subscribe", "run": "r", "after": -1}, "after must be 0 or the sequence"),
        ({"type": "subscribe", "run": "r", "after": 2**53}, "after must be 0 or the sequence"),
        ({"type": "subscribe", "run": "r", "after": True}, "expected a whole number @ subscribe.after"),
        ({"type": "subscribe", "run": "r", "after": 1.0}, "expected a whole number @ subscribe.after"),
        ({"type": "subscribe", "run": "r", "after": "1"}, "expected a whole number @ subscribe.after"),
        (
            {"type": "start", "id": "s", "agent": "a", "text": "t", "onBusy": "wait"},
            "'wait' is not known; use 'queue' or 'refuse'",
        ),
        (
            {"type": "cancel", "id": "c", "run": "r", "mode": "later"},
            "'later' is not known; use 'now' or 'after_step' @ cancel.mode",
        ),
        ({"type": "hello", "token": 5}, "expected a string @ hello.token"),
        ({"type": "ping", "id": 5}, "expected a string @ ping.id"),
    ],
)
def test_what_is_wrong_names_the_field_and_what_it_should_be(frame, words):
    assert words in refused(frame)


def test_all_faults_of_a_frame_are_reported_at_once_and_briefly():
    message = refused(DECIDE | {"run": 1, "target": [], "action": "x" * 5_000})
    assert message.count("@") == 3
    assert len(refused({"type": "ping"} | {f"{n:0500}": n for n in range(100)})) < 1_000
    assert len(refused({"type": "x" * 60_000})) < 200


def test_a_token_is_never_shown():
    """Neither in the repr of the frame nor in what is said about a frame that is wrong."""
    secret = "s3cret-" * 3
    assert secret not in repr(up.read({"type": "hello", "token": secret}))
    assert secret not in refused({"type": "hello", "token": [secret]})
    assert secret not in refused({"type": "hello", "token": secret, "clinet": "x"})


@given(st.sampled_from(sorted(up.UP)), st.text(min_size=1, max_size=20))
def test_no_frame_takes_an_unknown_field(kind, name):
    if name in {"type", *(field.name for field in attrs.fields(up.UP[kind]))}:
        return
    assert "not known" in refused({"type": kind, "id": "i", "run": "r", name: 1})


def test_only_commands_to_a_run_are_read_as_commands():
    assert up.read_command(DECIDE) == up.read(DECIDE)
    for kind in sorted(set(up.UP) - set(up.COMMANDS)):
        assert "use one of decide, cancel, send" in refused({"type": kind}, up.read_command)
    for kind in (None, 5, ["decide"], {"decide": 1}):
        assert "is not a command" in refused({"type": kind}, up.read_command)


# --- parsing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "[]",
        '"hello"',
        "5",
        "null",
        "true",
        "{",
        '{"type":"ping"} x',
        '{"type":"ping",}',
        "{'type':'ping'}",
        '{"after":NaN}',
        '{"after":Infinity}',
        '{"after":1e400}',
        '{"result":' + "9" * 5_000 + "}",
        '{"type":"\\ud800"}',
        '{"type":"\\udc00\\ud800"}',
        '{"type":"\ud800"}',
        '{"type":"a\nb"}',
        b'{"type":"\xff"}',
        b'\xef\xbb\xbf{"type":"ping"}',
        b'{"type":"\xed\xa0\x80"}',
        '{"result":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"result":' + '{"a":' * 100_000,
    ],
)
def test_what_is_no_json_object_is_malformed(text):
    """Also what Python's own reader lets pass: NaN, lone surrogates, and text as deep as it likes."""
    with pytest.raises(up.Malformed):
        up.parse(text)


@given(st.binary(max_size=200) | st.text(max_size=200) | st.text(alphabet='{}[]",:\\u0123etr', max_size=60))
def test_whatever_comes_is_an_object_or_malformed(text):
    try:
        assert isinstance(up.parse(text), dict)
    except up.Malformed as error:
        assert str(error)  # noqa: PT017 - either is right; it must not be anything else


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted({"type", *(name for cls in up.UP.values() for name in cls.__annotations__), "other"}))


@given(st.dictionaries(names, values | st.sampled_from(sorted(up.UP)), max_size=8))
def test_whatever_object_comes_is_read_or_refused(frame):
    for read in (up.read, up.read_command):
        try:
            assert type(read(frame)) is up.UP[frame["type"]]
        except Refused as error:
            assert error.error.code == "bad_message"  # noqa: PT017 - either is right; it must not be anything else


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_field_that_has_its_default_is_left_out():
    assert down.encode(down.Tick(heads={})) == b'{"type":"gw.tick","heads":{}}'
    assert down.encode(down.Error(code="busy", message="m")) == b'{"type":"gw.error","code":"busy","message":"m"}'
    assert b'"retry":true' in down.encode(down.Error(code="busy", message="m", retry=True))


def test_the_table_of_frames_says_the_types_that_are_written():
    assert {cls.__struct_config__.tag: cls for cls in down.DOWN.values()} == dict(down.DOWN)
    assert set(down.Frame.__subclasses__()) == set(down.DOWN.values())
    assert all(kind.startswith("gw.") for kind in down.DOWN)


def parsed(data):
    """What an independent reader of RFC 6455 makes of bytes from a server."""
    connection = Connection(ConnectionType.CLIENT)
    connection.receive_data(data)
    return list(connection.events())


def texts(data):
    events = parsed(data)
    assert all(isinstance(event, TextMessage) for event in events)
    found, whole = [], ""
    for event in events:
        whole += event.data
        if event.message_finished:
            found, whole = [*found, whole], ""
    assert not whole
    return found


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_a_text_frame_of_every_length_is_read_by_another_implementation(size):
    payload = (string.printable.encode() * (size // 100 + 1))[:size]
    assert texts(framing.text_frame(payload)) == [payload.decode()]


@pytest.mark.parametrize(("size", "header"), [(125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_a_length_is_written_in_its_shortest_form(size, header):
    """RFC 6455 section 5.2: the minimal number of bytes MUST be used."""
    assert len(framing.text_frame(b"x" * size)) == header + size


@given(st.lists(st.text(max_size=300), max_size=12))
def test_many_frames_are_read_one_by_one(messages):
    assert texts(framing.text_frames(message.encode() for message in messages)) == messages


def test_a_ping_is_one():
    assert parsed(framing.PING) == [WirePing(payload=b"")]


def test_a_server_sent_event_has_its_name_and_one_line_of_data():
    assert framing.server_sent_event(b'{"a":"b"}', "e1-7") == b'id: e1-7\ndata: {"a":"b"}\n\n'


@given(st.dictionaries(st.text(), st.text()))
def test_no_json_of_ours_breaks_the_line_of_a_server_sent_event(data):
    """The standard ends a line at CR, LF or CRLF; JSON writes both as escapes."""
    event = framing.server_sent_event(msgspec.json.encode(data), "e-1")
    assert re.fullmatch(rb"id: e-1\ndata: [^\r\n]*\n\n", event)


# --- limits and codes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, True, "5", None, float("nan")])
def test_a_limit_is_a_number_above_zero(value):
    with pytest.raises(ValueError, match=r"connections=.*: give a number above 0"):
        Limits(connections=value)


def test_the_error_codes_hold_every_rejection_of_a_command():
    assert set(REJECTIONS) <= set(ERRORS)
    assert all(name == error.code and 400 <= error.status < 600 for name, error in ERRORS.items())


def test_what_may_be_repeated_has_a_status_that_says_so():
    """RFC 9110: of the statuses in use, 429 and 503 are those whose request may be sent again unchanged."""
    assert {error.status for error in ERRORS.values() if error.retry} == {429, 503}


def test_a_close_code_is_one_that_an_endpoint_may_send():
    """RFC 6455 section 7.4: 1005, 1006 and 1015 are never on the wire, 4000 to 4999 are the application's."""
    assert all(number == one.code for number, one in CLOSE_CODES.items())
    assert set(CLOSE_CODES) & {1004, 1005, 1006, 1015} == set()
    assert all(1000 <= code <= 1014 or 4000 <= code < 5000 for code in CLOSE_CODES)
    assert len({code.name for code in CLOSE_CODES.values()}) == len(CLOSE_CODES)


def test_a_refusal_says_its_code_and_what_is_the_case():
    refusal = Refused("already_decided", "too late", current={"status": "approved"})
    assert (refusal.error.status, str(refusal), refusal.current) == (409, "too late", {"status": "approved"})
    with pytest.raises(KeyError):
        Refused("no_such_code", "x")
