"""JSON-RPC from both sides: ids of each side, one answer to each request, and faults that are named."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.backends.jsonrpc import (
    METHOD_NOT_FOUND,
    Answered,
    JSONRPCPeer,
    Notification,
    PeerRequest,
    ProtocolFault,
    json_line,
)
from greenroom.actors.backends.lines import LineReader


def test_two_peers_talk_with_the_same_ids():
    one, other = JSONRPCPeer(), JSONRPCPeer()
    (first, asked), (second, back) = one.request("a", {"x": 1}), other.request("b", {})
    assert first == second == 1
    request = other.receive(json.loads(asked))
    assert request == PeerRequest(request_id=1, method="a", params={"x": 1})
    assert one.receive(json.loads(back)) == PeerRequest(request_id=1, method="b", params={})
    assert one.receive(json.loads(other.respond(1, {"y": 2}))) == Answered(request_id=1, method="a", result={"y": 2})
    failed = other.receive(json.loads(one.fail(1, METHOD_NOT_FOUND, "no b")))
    assert failed == Answered(request_id=1, method="b", code=METHOD_NOT_FOUND, error="no b")
    assert other.receive(json.loads(one.notify("n"))) == Notification(method="n", params={})
    assert "0 requests of ours" in repr(one)


def test_each_request_is_answered_once():
    peer = JSONRPCPeer(tagged=False)
    assert peer.respond(1, None) == peer.fail("1", 1, "x") == b""
    peer.receive({"id": "1", "method": "a"})
    assert peer.respond(1, None) == b""
    assert json.loads(peer.respond("1", None)) == {"id": "1", "result": None}
    assert peer.respond("1", None) == b""
    peer.receive({"id": 5, "method": "a"})
    assert peer.withdraw(5)
    assert not peer.withdraw(5)
    assert not peer.withdraw({})
    assert peer.fail(5, 1, "x") == b""


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"method": 7},
        {"id": 1},
        {"id": 1, "result": {}},
        {"id": True, "result": {}},
        {"id": "1", "result": {}},
        {"id": None, "method": "a"},
        {"id": 1.5, "method": "a"},
        {"id": True, "method": "a"},
        {"id": "x" * 2_000, "method": "a"},
        {"method": "a", "params": 7},
        {"method": "a", "params": []},
    ],
)
def test_a_message_that_breaks_the_protocol_is_a_fault(message):
    assert isinstance(JSONRPCPeer().receive(message), ProtocolFault)


def test_an_id_in_use_and_too_many_requests_are_faults():
    peer = JSONRPCPeer()
    assert isinstance(peer.receive({"id": 1, "method": "a"}), PeerRequest)
    assert isinstance(peer.receive({"id": 1, "method": "b"}), ProtocolFault)
    for number in range(2, 1_001):
        assert isinstance(peer.receive({"id": number, "method": "a"}), PeerRequest)
    assert isinstance(peer.receive({"id": 1_001, "method": "a"}), ProtocolFault)


@pytest.mark.parametrize("error", [{}, [], "x", {"code": "x", "message": 7}, {"code": True}])
def test_an_error_of_any_form_is_an_error(error):
    peer = JSONRPCPeer()
    peer.request("a", {})
    answer = peer.receive({"id": 1, "error": error})
    assert answer == Answered(request_id=1, method="a", code=-32603, error="no message")


MEMBERS: Any = {
    "id": st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.floats()),
    "method": st.one_of(st.none(), st.text(max_size=3), st.integers()),
    "params": st.one_of(
        st.none(), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2), st.lists(st.none())
    ),
    "result": st.one_of(st.none(), st.integers()),
    "error": st.one_of(st.none(), st.dictionaries(st.sampled_from(["code", "message"]), st.text(max_size=2))),
}


@given(st.lists(st.fixed_dictionaries({}, optional=MEMBERS)))
def test_no_message_breaks_a_peer(messages):
    peer = JSONRPCPeer()
    peer.request("a", {})
    answers = [item for item in map(peer.receive, messages) if isinstance(item, Answered)]
    assert len(answers) <= 1


def test_half_of_a_surrogate_pair_becomes_a_question_mark():
    assert json_line({"a": "x\ud83d"}) == b'{"a": "x?"}\n'


# --- lines -----------------------------------------------------------------------------------------------------------


@given(st.binary(), st.lists(st.integers(0, 200)))
def test_lines_are_the_same_at_every_split(data, places):
    def read(*pieces: bytes) -> list[Any]:
        reader = LineReader(limit=20)
        return [line for piece in pieces for line in reader.feed(piece)] + [reader.end()]

    cuts = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    pieces = [data[begin:end] for begin, end in pairwise(cuts)]
    whole = read(data)
    assert read(*pieces) == whole
    expected = [None if len(line) > 20 else line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert whole == expected


def test_a_line_that_is_too_long_costs_one_line():
    reader = LineReader(limit=5)
    assert list(reader.feed(b"12345\n123456")) == [b"12345"]
    assert list(reader.feed(b"789\nab\n")) == [None, b"ab"]
    assert reader.end() == b""
    assert list(reader.feed(b"123456")) == []
    assert repr(reader) == "<LineReader: 0 bytes of an unfinished line>"
    assert reader.end() is None


@pytest.mark.parametrize(
    ("message", "code", "request_id"),
    [
        ({"id": "x", "method": "m", "params": []}, -32602, "x"),
        ({"id": [], "method": "m", "params": []}, -32602, None),
        ({"id": None, "method": "m"}, -32600, None),
        ({"id": True, "method": "m"}, -32600, None),
        ({"id": "y" * 1_025, "method": "m"}, -32600, None),
        ({}, -32600, None),
        ({"method": 7}, -32600, None),
    ],
)
def test_a_fault_has_the_error_that_answers_it(message, code, request_id):
    peer = JSONRPCPeer()
    fault = peer.receive(message)
    assert isinstance(fault, ProtocolFault)
    error = json.loads(peer.refuse(fault))
    assert (error["error"]["code"], error["id"]) == (code, request_id)
    assert error["error"]["message"] == fault.rule


def test_a_fault_in_an_answer_is_not_answered_and_an_error_may_have_data():
    peer = JSONRPCPeer()
    fault = peer.receive({"id": 7, "result": 1})
    assert isinstance(fault, ProtocolFault)
    assert peer.refuse(fault) == b""
    peer.receive({"id": 1, "method": "m"})
    assert json.loads(peer.fail(1, -32603, "no", {"code": "x"}))["error"]["data"] == {"code": "x"}
