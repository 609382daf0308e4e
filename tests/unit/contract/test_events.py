"""Events: their frames, their schemas, and the files that are generated from them."""

import json
import runpy
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract import events, work_events
from greenroom.actors.contract.catalogue import CATALOGUE, FOREIGN
from greenroom.actors.contract.codec import SchemaError
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import EVENT_VERSION, EventEncoder, decode_event, event_type, timestamp
from greenroom.actors.contract.events import MessageDelta, RunMoved
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.payloads import Payload
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.schemas import event_schemas
from greenroom.actors.contract.secrets.redaction import Redactor

from .strategies import MOMENTS, TEXT, examples, instances

AT = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
INFO = RunInfo(run_id="run_1", thread_id="t", agent="support", agent_digest="d", created_at=AT, execution="sequential")
DELTA = EventDraft("run.message.delta", MessageDelta(message_id="run_1.m1", index=0, text="hello"))
KEYS = ["id", "sequence", "type", "version", "runId", "sessionId", "agentId", "timestamp", "payload"]
DRAFTS = st.sampled_from(sorted(CATALOGUE)).flatmap(
    lambda name: st.builds(EventDraft, st.just(name), instances(CATALOGUE[name]))
)


def encoder(info=INFO, secrets=()):
    return EventEncoder(info, Redactor(secrets))


schemas = cache(event_schemas)


@cache
def validator():
    form = jsonschema.Draft202012Validator
    form.check_schema(schemas())
    return form(schemas(), format_checker=form.FORMAT_CHECKER)


@cache
def branch(name):
    """The one of the `oneOf` that says it is for this type."""
    (found,) = (schema for schema in schemas()["oneOf"] if schema["properties"]["type"]["const"] == name)
    return validator().evolve(schema=found | {"$defs": schemas()["$defs"]})


def test_a_frame_has_exactly_these_bytes():
    (frame,) = encoder().frames(6, AT, [DELTA])
    assert frame == (
        b'{"id":"run_1-7","sequence":7,"type":"run.message.delta","version":2,"runId":"run_1","sessionId":null,'
        b'"agentId":"support","timestamp":"2025-01-02T03:04:05.678Z",'
        b'"payload":{"messageId":"run_1.m1","index":0,"text":"hello"}}'
    )


def test_a_move_says_from_and_to_on_the_wire():
    moved = EventDraft("run.started", RunMoved(source=Stage.PREPARING, to=Stage.RUNNING, by="runtime"))
    assert decode_event(encoder().frames(0, AT, [moved])[0]).payload == {
        "from": "preparing",
        "to": "running",
        "by": "runtime",
    }


@examples(50)
@given(instances(RunInfo), st.integers(0, 2**40), MOMENTS, st.lists(DRAFTS, max_size=4))
def test_frames_are_json_with_contiguous_sequences_and_decode_to_what_was_drafted(info, after, at, drafts):
    frames = encoder(info).frames(after, at, drafts)
    assert len(frames) == len(drafts)
    for sequence, (frame, draft) in enumerate(zip(frames, drafts, strict=True), after + 1):
        assert list(json.loads(frame)) == KEYS
        event = decode_event(frame)
        assert (event.id, event.sequence) == (f"{info.run_id}-{sequence}", sequence)
        assert (event.type, event.version) == (draft.type, EVENT_VERSION)
        assert (event.run_id, event.session_id, event.agent_id) == (info.run_id, info.session_id, info.agent)
        assert event.timestamp == at.replace(microsecond=at.microsecond // 1000 * 1000)
        assert event.payload == json.loads(msgspec.json.encode(draft.payload))


def test_every_class_of_a_payload_has_an_event_type():
    """The encoder refuses a payload without one, but not before a run emits it."""
    assert {cls.__name__ for cls in CATALOGUE.values()} == {
        name
        for module in (events, work_events)
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, Payload)
    } - {"Payload"}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@examples(8)
@given(data=st.data())
def test_each_event_of_the_catalogue_satisfies_its_schema(name, data):
    payload = data.draw(instances(CATALOGUE[name]))
    (frame,) = encoder().frames(0, AT, [EventDraft(name, payload)])
    event = json.loads(frame)
    branch(name).validate(event)
    assert msgspec.json.decode(msgspec.json.encode(payload), type=CATALOGUE[name]) == payload
    assert event["payload"].keys() <= schemas()["$defs"][CATALOGUE[name].__name__]["properties"].keys()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("sequence", 0),
        ("sequence", "1"),
        ("type", "run.unknown"),
        ("version", EVENT_VERSION + 1),
        ("runId", None),
        ("timestamp", 5),
        ("payload", {}),
        ("extra", 1),
    ],
)
def test_the_schema_refuses_an_envelope_that_is_wrong(key, wrong):
    event = json.loads(encoder().frames(0, AT, [DELTA])[0]) | {key: wrong}
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(event)


def test_no_event_fits_the_schema_of_two_types_so_that_one_of_is_never_ambiguous():
    names = [schema["properties"]["type"]["const"] for schema in schemas()["oneOf"]]
    assert names == sorted(CATALOGUE)


@pytest.mark.parametrize("cls", sorted(FOREIGN, key=lambda cls: cls.__name__))
def test_each_payload_class_is_frozen_and_described(cls):
    assert issubclass(cls, Payload)
    assert cls.__struct_config__.frozen
    with pytest.raises(TypeError, match="positional"):
        cls("a")
    described = schemas()["$defs"][cls.__name__]["description"]
    assert described.endswith((".", ")"))
    assert described != Payload.__doc__


def test_the_same_events_make_the_same_bytes_one_by_one_or_together():
    together = encoder().frames(3, AT, [DELTA] * 3)
    assert together == tuple(encoder().frames(3 + n, AT, [DELTA])[0] for n in range(3))
    assert encoder().frames(3, AT, []) == ()


@given(TEXT, TEXT, TEXT)
def test_ids_with_any_characters_in_them_make_valid_frames(run_id, session_id, agent):
    info = RunInfo(
        run_id=run_id,
        thread_id="t",
        agent=agent,
        agent_digest="d",
        created_at=AT,
        execution="sequential",
        session_id=session_id,
    )
    event = decode_event(encoder(info).frames(0, AT, [DELTA])[0])
    assert (event.run_id, event.session_id, event.agent_id) == (run_id, session_id, agent)


@given(
    st.datetimes(
        datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from([UTC, timezone(timedelta(hours=5.5))])
    )
)
def test_a_timestamp_is_utc_with_milliseconds_and_z(moment):
    text = timestamp(moment)
    assert len(text) == len("2025-01-02T03:04:05.678Z")
    assert text.endswith("Z")
    lost = moment - datetime.fromisoformat(text)
    assert timedelta(0) <= lost < timedelta(milliseconds=1)


def test_a_moment_without_a_time_zone_has_no_timestamp():
    with pytest.raises(ValueError, match="2025-01-02T00:00:00 has no time zone"):
        timestamp(datetime(2025, 1, 2))


def test_a_payload_that_nobody_documented_is_a_bug():
    with pytest.raises(KeyError):
        encoder().frames(0, AT, [EventDraft("run.started", {"a": 1})])


def test_bytes_that_are_no_envelope_are_refused():
    for content in (b"{", b"{}", b"[]", b"\xff", b"[" * 5_000, b'{"id":1}'):
        with pytest.raises(SchemaError, match=rf"^this is not an event of Greenroom \({len(content)} bytes\)$"):
            decode_event(content)
    for content in (b"", b"{}", b'{"type":"run', b"\xff"):
        with pytest.raises(SchemaError, match="this is not an event of Greenroom"):
            event_type(content)


def test_the_generated_documents_are_up_to_date(root):
    generator = runpy.run_path(str(root / "scripts" / "generate.py"))
    assert "docs/schemas/events.json" in generator["documents"]()
    drawn = {f"docs/diagrams/{name}.md" for name in ("run", "call", "positions", "phases")}
    assert drawn < set(generator["documents"]())
    assert list(generator["stale"]()) == [], "run: python scripts/generate.py"


def test_the_generated_diagrams_hold_each_move_of_the_tables_once(root):
    from greenroom.actors.contract.calls import CALLS, POSITIONS
    from greenroom.actors.contract.lifecycle import STAGES

    positions = {at: row.to for at, row in POSITIONS.items()}
    for name, table in (("run", STAGES), ("call", CALLS), ("positions", positions)):
        lines = [line.strip() for line in (root / "docs" / "diagrams" / f"{name}.md").read_text().splitlines()]
        moves = {f"{source} --> {target}" for source in table for target in table[source]}
        drawn = [line for line in lines if " --> " in line and "[*]" not in line]
        assert sorted(drawn) == sorted(moves)


def test_the_generator_writes_stale_documents_and_only_names_them_with_check(root, tmp_path, capsys):
    generator = runpy.run_path(str(root / "scripts" / "generate.py"))
    main = generator["main"]
    main.__globals__["ROOT"] = tmp_path
    assert main(["--check"]) == 1
    assert "docs/schemas/events.json" in capsys.readouterr().out.split()
    assert list(tmp_path.iterdir()) == []
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert (tmp_path / "docs/schemas/events.json").read_text() == generator["documents"]()["docs/schemas/events.json"]
