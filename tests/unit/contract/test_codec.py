"""Rows to bytes and back: what is written comes back, and what does not fit is refused with the place of each fault."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from greenroom.actors.contract import codec
from greenroom.actors.contract.calls import POSITIONS, SETTLED, CallPosition, CallStatus
from greenroom.actors.contract.codec import NewerSchema, SchemaError
from greenroom.actors.contract.decisions import Command, CommandResult, Decision, InboxItem, Ticket
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.messages import CallRequest, Message, Usage
from greenroom.actors.contract.rows import CallRow, Counters, RunInfo, RunRow
from greenroom.actors.contract.state import StateWrite

from .strategies import JSON, examples, field_names, instances

ROWS = (RunRow, CallRow, Ticket, Command, Message, RunInfo, CommandResult, InboxItem, StateWrite, Decision, Counters)
AT = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MESSAGE = Message(id="m1", role="user", content="hello")


def blob(data, version=codec.SCHEMA_VERSION):
    return json.dumps({"v": version, "d": data}).encode()


@pytest.mark.parametrize("cls", ROWS)
@examples(30)
@given(data=st.data())
def test_a_row_comes_back_from_its_bytes_as_it_was(cls, data):
    row = data.draw(instances(cls))
    stored = codec.dump(row)
    again = codec.load(cls, stored)
    assert again == row
    assert codec.dump(again) == stored


@pytest.mark.parametrize("cls", ROWS)
@examples(12)
@given(data=st.data())
def test_stored_bytes_are_json_of_the_current_version_and_may_be_laid_out_anyhow(cls, data):
    row = data.draw(instances(cls))
    outer = json.loads(codec.dump(row))
    assert outer == {"v": codec.SCHEMA_VERSION, "d": outer["d"]}
    assert codec.load(cls, json.dumps(outer, indent=1).encode()) == row


@pytest.mark.parametrize("cls", ROWS)
@examples(12)
@given(data=st.data())
def test_the_plain_form_of_a_row_is_json_data_and_complete(cls, data):
    row = data.draw(instances(cls))
    plain = codec.plain(row)
    assert json.loads(json.dumps(plain)) == plain
    assert plain.keys() == {*getattr(cls, "__struct_encode_fields__", field_names(cls))}
    assert codec.parse(cls, plain) == row


@given(JSON)
def test_any_json_value_can_be_a_row(value):
    assert codec.load(Any, codec.dump(value)) == value


def test_a_field_that_has_its_default_costs_nothing():
    assert json.loads(codec.dump(MESSAGE))["d"] == {"id": "m1", "role": "user", "content": "hello"}
    assert len(codec.dump(RunRow())) < 60


def test_enums_and_nested_rows_come_back_as_their_own_types():
    request = CallRequest(call_id="c", tool="t", arguments={})
    call = CallRow(call_id="c", index=0, step=1, tool="t", arguments={}, fingerprint="f", requested=request)
    again = codec.load(CallRow, codec.dump(replace(call, at=CallPosition.BODY)))
    assert again.status is CallStatus.RUNNING
    assert isinstance(again.requested, CallRequest)
    assert codec.load(RunRow, codec.dump(RunRow(stage=Stage.APPLYING))).stage is Stage.APPLYING


def test_a_moment_in_another_zone_comes_back_in_utc():
    late = datetime(2025, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    again = codec.load(Counters, codec.dump(Counters(active_since=late)))
    assert again.active_since == late
    assert again.active_since.tzinfo is UTC


def test_a_value_without_a_json_form_is_not_written():
    with pytest.raises(TypeError):
        codec.dump(StateWrite(key="k", scope="run", value=object()))


# --- versions --------------------------------------------------------------------------------------------------------


@given(st.integers(codec.SCHEMA_VERSION + 1, 10**6), JSON)
def test_a_row_of_a_newer_release_is_refused_with_any_content(version, data):
    with pytest.raises(NewerSchema, match=f"Message: schema version {version} is newer .* upgrade Greenroom"):
        codec.load(Message, blob(data, version))


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None, [1]])
def test_a_row_with_an_invalid_version_is_refused(version):
    with pytest.raises(SchemaError, match="is not a version"):
        codec.load(Message, blob({}, version))


def test_an_older_row_goes_through_each_upgrade_in_turn(monkeypatch):
    seen = []

    def second(name, data):
        seen.append((name, dict(data)))
        return {"id": data["number"], "role": "user", "content": data["content"]}

    def third(name, data):
        seen.append((name, dict(data)))
        return data | {"content": data["content"].upper()}

    monkeypatch.setattr(codec, "SCHEMA_VERSION", 3)
    monkeypatch.setitem(codec.UPGRADES, 1, second)
    monkeypatch.setitem(codec.UPGRADES, 2, third)
    old = {"number": "m1", "content": "hello"}
    assert codec.load(Message, blob(old, 1)) == replace(MESSAGE, content="HELLO")
    assert [name for name, _ in seen] == ["Message", "Message"]
    assert seen[0][1] == old
    newer = {"id": "m1", "role": "user", "content": "hello"}
    assert codec.load(Message, blob(newer, 2)).content == "HELLO"
    assert codec.load(Message, blob(newer, 3)).content == "hello"
    with pytest.raises(NewerSchema):
        codec.load(Message, blob(newer, 4))


FIRST = {"call_id": "c", "index": 0, "step": 1, "tool": "t", "arguments": {}, "fingerprint": "f"}
FIRST |= {"requested": {"call_id": "c", "tool": "t", "arguments": {}}}


@pytest.mark.parametrize("at", CallPosition)
def test_a_call_of_version_one_keeps_its_status(at):
    """It stored the status beside the position, and left out what was new."""
    own = POSITIONS[at].status
    for status in CallStatus if own is None else (own,):
        if (status in SETTLED) != POSITIONS[at].ended or (own is None and status is CallStatus.SUSPENDED):
            continue
        more = {"at": at.value, "status": status.value, "attempts": 0 if status is CallStatus.NEW else 2}
        old = FIRST | {key: value for key, value in more.items() if value not in ("new", 0)}
        call = codec.load(CallRow, blob(old, 1))
        assert (call.at, call.status, call.settled) == (at, status, status in SETTLED)
        assert codec.load(CallRow, codec.dump(call)) == call
    assert codec.load(CallRow, blob(FIRST, 1)).status is CallStatus.NEW


def test_a_call_of_version_one_that_no_body_has_begun_is_resuming():
    old = FIRST | {"at": "allowed", "status": "resuming"}
    assert codec.load(CallRow, blob(old, 1)).status is CallStatus.RESUMING


def test_a_call_row_that_is_not_an_object_is_refused_at_each_version():
    for version in (1, 2):
        with pytest.raises(SchemaError, match=r"CallRow: .*expected an object"):
            codec.load(CallRow, blob([], version))


def test_an_upgrade_that_leaves_a_fault_is_found(monkeypatch):
    monkeypatch.setattr(codec, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(codec.UPGRADES, 1, lambda _name, data: data | {"old": 1})
    with pytest.raises(SchemaError, match=r"extra fields found \(old\)"):
        codec.load(Message, blob({"id": "m1", "role": "user", "content": "hello"}, 1))


def test_there_is_an_upgrade_from_each_version_that_was_ever_released():
    assert set(codec.UPGRADES) == set(range(1, codec.SCHEMA_VERSION))


# --- what does not fit -----------------------------------------------------------------------------------------------

COMMAND = {"command_id": "c1", "kind": "decide", "decision": {"target": "t1", "action": "resume"}}
WRONG = [
    (Message, {"id": "m", "role": "user", "content": "x", "note": 1}, r"Message: extra fields found \(note\) @ \$"),
    (Command, COMMAND | {"extra": 1}, r"extra fields found \(extra\) @ \$$"),
    (
        Command,
        COMMAND | {"decision": {"target": "t", "action": "resume", "sudo": 1}},
        r"extra fields found \(sudo\) @ \$\.decision$",
    ),
    (Command, COMMAND | {"decision": {"target": "t", "action": "no"}}, r"no not in literal .* @ \$\.decision\.action"),
    (Command, COMMAND | {"decision": {"action": "resume"}}, r"required field missing @ \$\.decision\.target"),
    (Command, COMMAND | {"early": "no"}, r"expected bool, not str 'no' @ \$\.early"),
    (Command, COMMAND | {"posted_at": "yesterday"}, r"Invalid RFC3339 .* @ \$\.posted_at"),
    (Command, COMMAND | {"posted_at": "2025-01-01T00:00:00"}, r"has no time zone; add Z for UTC @ \$\.posted_at"),
    (Command, COMMAND | {"decision": "yes"}, r"expected an object, not str 'yes' @ \$\.decision"),
    (Message, {"id": 5, "role": "user", "content": None}, r"not int 5 @ \$\.id; expected str, not NoneType .*content"),
    (Usage, {"input": True, "output": "7", "cached": 1.5}, r"bool True @ \$\.input; .*'7' @ .*; .*1\.5 @ \$\.cached"),
    (RunRow, {"stage": "lost"}, r"'lost' is not a valid Stage @ \$\.stage"),
    (RunRow, {"stubborn": "abc"}, r"expected an array, not str 'abc' @ \$\.stubborn"),
    (RunRow, {"stubborn": ["a", 1]}, r"expected str, not int 1 @ \$\.stubborn\[1\]"),
    (RunRow, {"pending_input": [{"id": "m"}]}, r"required field missing @ \$\.pending_input\[0\]\.role"),
    (RunRow, {"early": {"c": {"target": "t"}}}, r"required field missing @ \$\.early\['c'\]\.action"),
    (StateWrite, [], r"expected an object, not list \[\]"),
    (StateWrite, None, r"expected an object, not NoneType None"),
]


@pytest.mark.parametrize(("cls", "data", "complaint"), WRONG, ids=[c for _, _, c in WRONG])
def test_a_fault_is_refused_with_its_path(cls, data, complaint):
    with pytest.raises(SchemaError, match=complaint):
        codec.parse(cls, data)
    with pytest.raises(SchemaError, match=complaint):
        codec.load(cls, blob(data))


def test_all_faults_are_named_at_once():
    with pytest.raises(SchemaError) as caught:
        codec.parse(Ticket, {"status": "lost", "reviewers": [1], "surprise": 1})
    complaint = str(caught.value)
    for place in ("$.ticket_id", "$.status", "$.reviewers[0]", "surprise"):
        assert place in complaint


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"null",
        b"1",
        b'"v"',
        b"[]",
        b"{}",
        b'{"v":1}',
        b'{"d":{}}',
        b"\xff\xfe",
        b'"\xff"',
        b"[" * 9000,
        b"\0",
    ],
)
def test_bytes_that_are_no_row_are_refused(garbage):
    with pytest.raises(SchemaError, match="this is not a row of Greenroom"):
        codec.load(Message, garbage)


@given(st.binary(max_size=60))
def test_no_bytes_whatever_raise_anything_but_schema_error(garbage):
    for cls in ROWS:
        with pytest.raises(SchemaError):
            codec.load(cls, garbage)


def read(cls, data):
    """The row that the data makes, or the complaint."""
    try:
        return codec.parse(cls, data)
    except SchemaError as error:
        return str(error)


@examples(100)
@given(JSON, st.sampled_from(ROWS))
def test_any_json_is_read_as_a_row_or_refused_by_the_name_of_the_class(data, cls):
    outcome = read(cls, data)
    assert isinstance(outcome, cls) or outcome.startswith(f"{cls.__name__}: ")


@pytest.mark.parametrize("cls", ROWS)
@examples(15)
@given(data=st.data(), junk=JSON)
def test_a_row_with_one_field_replaced_by_anything_is_read_or_refused_at_its_path(cls, data, junk):
    plain = codec.plain(data.draw(instances(cls)))
    field = data.draw(st.sampled_from(sorted(plain)))
    outcome = read(cls, plain | {field: junk})
    assert isinstance(outcome, cls) or f"@ $.{field}" in outcome


def test_keys_beside_version_and_data_are_refused():
    with pytest.raises(SchemaError, match="keys beside v and d: x"):
        codec.load(Message, b'{"v":1,"d":{"id":"m1","role":"user","content":""},"x":1}')
