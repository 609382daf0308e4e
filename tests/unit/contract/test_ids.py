"""Ids and hashes: derived the same way each time, and different for whatever is different."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from greenroom.actors.contract import ids

from .strategies import JSON, OBJECTS, TEXT


def reordered(value):
    """The same JSON value with the keys of every object the other way round."""
    match value:
        case dict():
            return {key: reordered(value[key]) for key in reversed(value)}
        case list():
            return [reordered(item) for item in value]
        case _:
            return value


def same_json(one, other):
    """Equality of JSON values: unlike in Python, 1, 1.0 and true differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return one == other and str(one) == str(other)


@given(JSON)
def test_the_order_of_keys_makes_no_difference(value):
    assert ids.canonical_json(reordered(value)) == ids.canonical_json(value)
    assert ids.content_digest(reordered(value)) == ids.content_digest(value)


@given(JSON, JSON)
def test_equal_bytes_mean_equal_values(one, other):
    assert (ids.canonical_json(one) == ids.canonical_json(other)) == same_json(one, other)


@given(OBJECTS.filter(bool), st.data())
def test_a_fingerprint_changes_with_any_argument(arguments, data):
    key = data.draw(st.sampled_from(sorted(arguments)))
    value = data.draw(JSON)
    assume(not same_json(value, arguments[key]))
    before = ids.fingerprint("agent", "tool", arguments)
    assert ids.fingerprint("agent", "tool", arguments | {key: value}) != before
    assert ids.fingerprint("agent", "tool", {k: v for k, v in arguments.items() if k != key}) != before


@given(TEXT, TEXT, TEXT, TEXT, OBJECTS)
def test_a_fingerprint_tells_agent_and_tool_apart_however_their_names_are_cut(a, b, c, d, arguments):
    assert (ids.fingerprint(a, b, arguments) == ids.fingerprint(c, d, arguments)) == ((a, b) == (c, d))


@given(OBJECTS)
def test_a_fingerprint_is_32_hex_digits_and_the_same_each_time(arguments):
    print_ = ids.fingerprint("agent", "tool", arguments)
    assert print_ == ids.fingerprint("agent", "tool", reordered(arguments))
    assert re.fullmatch("[0-9a-f]{32}", print_)


def test_the_known_fingerprint_of_one_action_has_not_changed():
    """A stored decision of an older release must still fit its action."""
    print_ = ids.fingerprint("support", "refund", {"order": "A-17", "amount": 42.5})
    assert print_ == "32a373745238e2ce1a25e6074c36ca23"


@pytest.mark.parametrize("hidden", [float("nan"), float("inf"), [None, float("-inf")], {"a": [{"b": float("nan")}]}])
def test_canonical_json_refuses_nan_and_infinity_which_would_become_null(hidden):
    with pytest.raises(ValueError, match="NaN and infinity have no JSON form"):
        ids.canonical_json(hidden)


def test_the_text_null_and_none_are_fine():
    assert ids.canonical_json({"b": None, "a": "null"}) == b'{"a":"null","b":null}'


def test_a_value_without_a_json_form_is_refused():
    with pytest.raises(TypeError):
        ids.canonical_json({"a": object()})


@given(TEXT, st.integers(1, 10**9), st.integers(1, 10**9))
def test_derived_ids_differ_by_number_and_by_kind(run_id, one, other):
    makers = (ids.message_id, ids.ticket_id)
    assert len({make(run_id, one) for make in makers}) == 2
    for make in makers:
        assert make(run_id, one).startswith(run_id)
        assert (make(run_id, one) == make(run_id, other)) == (one == other)


def test_ids_have_the_documented_form():
    assert ids.message_id("r", 7) == "r.m7"
    assert ids.ticket_id("r", 7) == "r.t7"
    assert ids.idempotency_key("r", "call_1") == "r/call_1"
