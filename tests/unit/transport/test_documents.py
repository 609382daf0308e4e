"""The documents of the API: valid, complete, and what they say of a frame is what the program does with it."""

import collections.abc
import copy
import json
import re
import string
import types
import typing
from datetime import UTC, datetime

import attrs
import hypothesis
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from openapi_spec_validator.validation.exceptions import UnresolvableParameterError

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.lifecycle import STATUS, Stage, TerminationKind
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.schemas import event_schemas
from greenroom.actors.contract.threads.messages import (
    MessageCall,
    PartFacts,
    ThreadMessage,
    ThreadMessages,
    ThreadRun,
)
from greenroom.transport.gateway.access import SCOPES
from greenroom.transport.gateway.asyncapi import REPLIES, UNASKED, asyncapi
from greenroom.transport.gateway.bodies import BODIES
from greenroom.transport.gateway.components import apart
from greenroom.transport.gateway.http import Route, json_response
from greenroom.transport.gateway.openapi import openapi
from greenroom.transport.protocol import down, up
from greenroom.transport.protocol.codes import CLOSE_CODES, ERRORS, PATH, SUBPROTOCOL, Refused
from greenroom.transport.protocol.lines import ListedTicketLine, RunLine, TerminationLine, ThreadLine, TicketLine
from greenroom.transport.protocol.schemas import (
    close_code_table,
    command_schemas,
    error_code_table,
    gateway_schema,
    tidied,
)
from greenroom.transport.server.routes import ROUTES

from ...support.documents import tight
from ...support.judges import need_node_modules

HTTP, WS, FRAMES = openapi(ROUTES), asyncapi(), gateway_schema()
MOMENT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
SENT = [{"mediaType": "a/b", "data": "eA==", "url": None, "name": "n"}]
EXAMPLES = {
    "hello": {"token": "t", "client": "c", "protocol": SUBPROTOCOL},
    "subscribe": {"run": "r", "after": 3, "epoch": "e", "id": "i"},
    "unsubscribe": {"run": "r", "id": "i"},
    "threads": {"id": "i", "by": "b", "limit": 7, "cursor": "c"},
    "messages": {"id": "i", "thread": "t", "before": 9, "after": 3, "limit": 7},
    "watch": {
        "id": "i",
        "status": "waiting",
        "outcome": "failed",
        "code": "model_error",
        "agent": "a",
        "tool": "t",
        "thread": "h",
        "prefix": "run_",
        "by": "b",
        "since": "2026-01-31T09:30:00Z",
        "until": "2026-02-01T09:30:00Z",
        "text": "t",
        "order": "waiting_longest",
        "limit": 7,
    },
    "watchTickets": {"id": "i", "agent": "a", "tool": "t", "order": "newest", "limit": 7},
    "unwatch": {"id": "i"},
    "start": {
        "id": "i",
        "agent": "a",
        "text": "t",
        "run": "r",
        "thread": "h",
        "session": "s",
        "onBusy": "refuse",
        "title": "t",
        "attachments": SENT,
        "deadline": "2026-01-31T09:30:00Z",
        "background": True,
        "queue": "q",
        "at": "2026-01-31T09:30:00Z",
        "priority": 3,
        "dedupe": "d",
    },
    "fork": {"id": "i", "run": "r", "step": 2, "newRun": "n"},
    "decide": {
        "id": "i",
        "run": "r",
        "target": "t",
        "action": "resume",
        "result": {"a": [1]},
        "editedArguments": {"b": None},
        "reason": "why",
        "fingerprint": "f",
        "remember": {"scope": "run", "form": "argv"},
    },
    "cancel": {"id": "i", "run": "r", "mode": "after_step", "reason": "why"},
    "send": {"id": "i", "run": "r", "text": "t", "attachments": SENT},
    "pause": {"id": "i", "run": "r", "reason": "why"},
    "ping": {"id": "i"},
}
"""Every type with all its fields."""


def checker(kind, document=FRAMES):
    schema = {"$schema": document["$schema"], "$ref": f"#/$defs/{kind}", "$defs": document["$defs"]}
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def refs(document):
    match document:
        case {"$ref": str(ref), **more}:
            yield ref
            yield from refs(more)
        case dict():
            for value in document.values():
                yield from refs(value)
        case list():
            for value in document:
                yield from refs(value)


def found(document, ref):
    place = document
    for part in ref.removeprefix("#/").split("/"):
        place = place[part.replace("~1", "/").replace("~0", "~")]
    return place


# --- the documents are documents -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_openapi_document_is_one():
    OpenAPIV31SpecValidator(json.loads(json.dumps(HTTP))).validate()


@pytest.mark.slow
def test_the_judge_of_openapi_sees_what_is_wrong():
    wrong = copy.deepcopy(HTTP)
    wrong["paths"]["/v1/runs/{run}"]["get"]["parameters"] = []
    with pytest.raises(UnresolvableParameterError, match="Path parameter 'run'"):
        OpenAPIV31SpecValidator(wrong).validate()


@pytest.fixture(scope="module")
def asyncapi_rules():
    """AsyncAPI's own JSON Schema of its documents, draft 7."""
    folder = need_node_modules("asyncapi")
    path = folder / "node_modules/@asyncapi/specs/schemas/3.1.0-without-$id.json"
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


@pytest.mark.judge
@pytest.mark.slow
def test_the_asyncapi_document_is_one(asyncapi_rules):
    asyncapi_rules.validate(json.loads(json.dumps(WS)))


@pytest.mark.judge
@pytest.mark.slow
def test_the_judge_of_asyncapi_sees_what_is_wrong(asyncapi_rules):
    wrong = copy.deepcopy(WS)
    wrong["operations"]["decide"]["action"] = "answer"
    assert not asyncapi_rules.is_valid(wrong)
    wrong = copy.deepcopy(WS)
    wrong["components"]["messages"]["gw.ack"]["payload"] = "a string"
    assert not asyncapi_rules.is_valid(wrong)


@pytest.mark.parametrize("document", [HTTP, WS, FRAMES], ids=["openapi", "asyncapi", "gateway"])
def test_every_reference_leads_somewhere_and_everything_is_plain_json(document):
    assert json.loads(json.dumps(document)) == document
    for ref in set(refs(document)):
        assert found(document, ref), ref


@pytest.mark.parametrize("document", [HTTP, WS], ids=["openapi", "asyncapi"])
def test_every_schema_is_one_and_no_two_share_a_name(document):
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(ValueError, match="the name x"):
        apart({"x": {"type": "string"}}, {"x": {"type": "integer"}})


def test_what_is_described_reads_like_text():
    """No indentation of the source; what a docstring says of a field stands at the field; nothing is undescribed."""
    for document in (HTTP, WS, FRAMES):
        assert "\\n    " not in json.dumps(document)
    lines = [
        "A.",
        "",
        "    More.",
        "",
        "    Attributes:",
        "        a, b: one",
        "            and two.",
        "        c: three.",
    ]
    schema = {
        "description": "\n".join([*lines, "    "]),
        "properties": {"a": {}, "b": {"description": "own"}, "d": {}},
        "default": (),
    }
    assert tidied(schema) == {
        "description": "A.\n\nMore.",
        "properties": {"a": {"description": "one and two."}, "b": {"description": "own"}, "d": {}},
        "default": [],
    }
    assert all(schema["description"] for kind, schema in FRAMES["$defs"].items() if kind not in ("up", "down"))


# --- documented is what there is -------------------------------------------------------------------------------------


def test_every_route_is_documented_and_nothing_else_is():
    documented = {(method.upper(), path) for path, item in HTTP["paths"].items() for method in item}
    assert documented == {(route.method, route.template) for route in ROUTES}


def test_an_operation_says_what_its_route_says():
    for route in ROUTES:
        operation = HTTP["paths"][route.template][route.method.lower()]
        places = {(parameter["in"], parameter["name"]) for parameter in operation["parameters"]}
        assert {name for place, name in places if place == "path"} == set(re.findall(r"{(\w+)}", route.template))
        assert {name for place, name in places if place == "query"} == set(route.query)
        assert {name for place, name in places if place == "header"} == set(route.headers)
        assert set(operation["responses"]) >= {str(status) for status in route.responses} | {"default"}
        assert ("requestBody" in operation) == (route.body is not None) <= (route.method == "POST")
        assert ("security" in operation) == (route.scope is not None) == ("401" in operation["responses"])
        assert {name for one in operation.get("security", ()) for name in one.get("bearer", ())} <= set(SCOPES)
        assert ({} in operation.get("security", ())) == (route.scope == "maybe")


def test_every_form_of_a_body_is_used_and_every_one_that_is_used_is_a_form():
    named = {content for route in ROUTES for _, contents in route.responses.values() for content in names(contents)}
    forms = {name for name in named if "/" not in name}
    assert forms <= set(HTTP["components"]["schemas"])
    assert set(BODIES) - {"ErrorBody"} <= forms


def names(contents):
    return () if contents is None else (contents,) if isinstance(contents, str) else contents


def test_two_routes_that_can_not_be_told_apart_are_a_mistake():
    async def handler(gateway, request):
        return json_response({})

    twice = Route(method="GET", template="/x", handler=handler, scope=None, summary="x")
    with pytest.raises(ValueError, match="one handler"):
        openapi([twice, Route(method="GET", template="/y", handler=handler, scope=None, summary="y")])
    with pytest.raises(ValueError, match="one method and path"):
        openapi([twice, twice])


def test_every_frame_and_event_is_a_message_and_nothing_else_is():
    everything = {*up.UP, *down.DOWN, *CATALOGUE}
    assert set(WS["components"]["messages"]) == everything
    assert set(WS["channels"]["gateway"]["messages"]) == everything
    assert set(FRAMES["$defs"]) == {"up", "down", *up.UP, *down.DOWN}
    assert {*WS["channels"]} == {"gateway"}
    assert WS["channels"]["gateway"]["address"] == PATH


def test_every_message_belongs_to_an_operation():
    """What a client says is received and replied to; all else is a reply, an event or said unasked."""
    last = lambda message: message["$ref"].rsplit("/", 1)[1]  # noqa: E731 - a short name for a long expression
    received = {name: one for name, one in WS["operations"].items() if one["action"] == "receive"}
    assert set(received) == set(up.UP) == set(REPLIES)
    assert all([last(message) for message in one["messages"]] == [name] for name, one in received.items())
    replies = {last(message) for one in received.values() for message in one["reply"]["messages"]}
    sent = {
        last(message)
        for operation in WS["operations"].values()
        if operation["action"] == "send"
        for message in operation["messages"]
    }
    assert sent == set(CATALOGUE) | set(UNASKED)
    assert replies | set(UNASKED) == set(down.DOWN)


def test_events_are_the_same_in_every_document():
    plain = json.loads(json.dumps(tidied(event_schemas())).replace("#/$defs/", "#/components/schemas/"))
    for document in (HTTP, WS):
        schemas = document["components"]["schemas"]
        assert [schemas[schema["title"]] for schema in plain["oneOf"]] == plain["oneOf"]
        assert {name: schemas[name] for name in plain["$defs"]} == plain["$defs"]


def test_every_code_is_in_the_documents_and_in_the_tables():
    channel = WS["channels"]["gateway"]
    assert [one["code"] for one in channel["x-close-codes"]] == list(CLOSE_CODES)
    assert [one["code"] for one in channel["x-error-codes"]] == list(ERRORS)
    assert HTTP["components"]["schemas"]["Refusal"]["properties"]["code"]["enum"] == list(ERRORS)
    assert re.findall(r"^\| (\d+) \|", close_code_table(), re.MULTILINE) == [str(code) for code in CLOSE_CODES]
    assert re.findall(r"^\| `(\w+)` \|", error_code_table(), re.MULTILINE) == list(ERRORS)


def test_the_page_has_every_frame_with_its_fields(root):
    """docs/gateway.md is written by hand; a field in brackets may be left out. (Hello without a token is read, too.)"""
    page = (root / "docs" / "gateway.md").read_text()
    reported = dict(re.findall(r"^\| `([a-zA-Z.]+)` \| ([^|]*) \|", page, re.MULTILINE))
    for kind, schema in FRAMES["$defs"].items():
        if kind in ("up", "down"):
            continue
        fields = {re.split("[=\\]]", word.lstrip("["))[0]: word.startswith("[") for word in reported[kind].split()}
        required = {*schema["required"], *(("token",) if kind == "hello" else ())}
        assert fields == {name: name not in required for name in schema["properties"] if name != "type"}, kind


# --- frames from clients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", up.UP)
def test_a_frame_with_all_its_fields_is_valid_and_read(kind):
    frame = {"type": kind, **EXAMPLES[kind]}
    names = {camel(field.name): field.name for field in attrs.fields(up.UP[kind])}
    assert set(EXAMPLES[kind]) == set(names)
    checker(kind).validate(frame)
    values = {names[key]: value for key, value in EXAMPLES[kind].items()}
    if "attachments" in values:
        (one,) = values["attachments"]
        values["attachments"] = (up.SentAttachment(media_type=one["mediaType"], data=one["data"], name=one["name"]),)
    if "remember" in values:
        values["remember"] = up.Remember(**values["remember"])
    assert up.read(frame) == up.UP[kind](**values)


IDS = st.text(string.ascii_letters + string.digits + "-_é✓ ", min_size=1, max_size=up.MAX_ID).filter(str.isprintable)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def of_schema(schema):  # noqa: C901 - one row per form
    """Values that a property's schema allows (the subset of JSON Schema that frames use)."""
    match schema:
        case {"const": value}:
            return st.just(value)
        case {"enum": values}:
            return st.sampled_from(values)
        case {"anyOf": options}:
            return st.one_of(map(of_schema, options))
        case {"type": "null"}:
            return st.none()
        case {"type": "string", "minLength": 1, "maxLength": up.MAX_ID}:
            return IDS
        case {"type": "string"}:
            return st.text(max_size=20)
        case {"type": "integer", "minimum": least, "maximum": most}:
            return st.integers(least, most)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "array", "items": item}:
            return st.lists(of_schema(item), max_size=3)
        case {"type": "object", "properties": fields}:
            return st.fixed_dictionaries({}, optional={name: of_schema(field) for name, field in fields.items()})
        case {"type": "object"}:
            return st.dictionaries(st.text(max_size=5), JSON, max_size=3)
        case {"default": None}:
            return JSON
    raise AssertionError(f"teach this test about {schema}")


@st.composite
def frames(draw):
    """A valid frame: its required fields, and some of the others."""
    schema = FRAMES["$defs"][draw(st.sampled_from(sorted(up.UP)))]
    optional = sorted(set(schema["properties"]) - set(schema["required"]))
    chosen = [*schema["required"], *draw(st.lists(st.sampled_from(optional), unique=True) if optional else st.just([]))]
    return {name: draw(of_schema(schema["properties"][name])) for name in chosen}


UP_CHECKER = checker("up")


def is_read(frame):
    """What up.read says of a frame after a trip over the wire."""
    try:
        up.read(up.parse(msgspec.json.encode(frame)))
    except Refused:
        return False
    return True


@pytest.mark.slow
@given(frames())
def test_what_the_schema_allows_is_read(frame):
    UP_CHECKER.validate(frame)
    assert is_read(frame)


@pytest.mark.slow
@given(frames(), st.data())
def test_what_is_broken_is_refused_by_the_schema_and_by_the_reader(frame, data):
    """A field is gone, one too many, of another type, or outside of its bounds."""
    schema = FRAMES["$defs"][frame["type"]]
    ways = ["more", "type"]
    ways += ["less"] if len(schema["required"]) > 1 else []
    ways += ["kind"] if len(schema["properties"]) > 1 else []
    match data.draw(st.sampled_from(ways)):
        case "less":
            del frame[data.draw(st.sampled_from(sorted(set(schema["required"]) - {"type"})))]
        case "more":
            frame["edit"] = data.draw(JSON)
        case "type":
            frame["type"] = data.draw(st.sampled_from(["gw.ack", "run.created", "", "Decide", None, 5, ["ping"], {}]))
        case "kind":
            name = data.draw(st.sampled_from(sorted(set(schema["properties"]) - {"type", "result", "background"})))
            frame[name] = data.draw(st.sampled_from([5.5, True, {} if name == "attachments" else [], [1], ["x"]]))
    assert not UP_CHECKER.is_valid(frame)
    assert not is_read(frame)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("subscribe", {"after": -1}),
        ("subscribe", {"after": 2**53}),
        ("send", {"id": ""}),
        ("send", {"id": "x" * (up.MAX_ID + 1)}),
        ("decide", {"action": "go"}),
        ("decide", {"editedArguments": "{}"}),
        ("cancel", {"mode": None}),
        ("start", {"priority": 101}),
        ("start", {"background": "yes"}),
    ],
)
def test_bounds_are_the_same_in_the_schema_and_in_the_reader(kind, change):
    frame = {"type": kind, **EXAMPLES[kind]}
    assert UP_CHECKER.is_valid(frame)
    assert is_read(frame)
    assert not UP_CHECKER.is_valid(frame | change)
    assert not is_read(frame | change)


@given(
    st.dictionaries(st.sampled_from(["type", "id", "run", "after", "text", "x"]), JSON | st.sampled_from(sorted(up.UP)))
)
def test_what_the_schema_refuses_is_refused_by_the_reader(frame):
    """The other way round there is one exception: which characters are printable cannot be said in a schema."""
    hypothesis.assume(not UP_CHECKER.is_valid(frame))
    assert not is_read(frame)


def test_a_command_in_a_post_is_the_frame_without_what_stands_elsewhere():
    for kind, schema in command_schemas().items():
        validator = jsonschema.Draft202012Validator(schema)
        body = {"type": kind, **EXAMPLES[kind]}
        assert not validator.is_valid(body)
        validator.validate({name: value for name, value in body.items() if name not in ("id", "run")})
    assert set(command_schemas()) == set(up.COMMANDS)


# --- frames of the gateway -------------------------------------------------------------------------------------------


TIGHT = tight(FRAMES)


ANYTHING = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


ASKED = TicketLine(
    ticket_id="t", call_id=None, tool="", reason="manual_pause", action="a", message="m", requested_at=MOMENT,
    expires_at=MOMENT, on_expiry="deny", reviewers=("ann",),
)  # fmt: skip
LINES = st.sampled_from([
    RunLine(
        run_id="r", thread_id="h", agent="a", by="b", title="t", stage=stage, status=STATUS[stage], created_at=MOMENT,
        ended_at=ended, step=1, last_sequence=2, usage=Usage(), pending=0, held=False, degraded=degraded,
        queue="helper", owner="p" if end is None else None, dead="why" if end is None else None,
        waiting_since=since, asked=asked, asked_count=len(asked), termination=end,
    )
    for stage, ended, degraded, since, asked, end in (
        (Stage.NEEDS_APPROVAL, None, "agent_unknown", MOMENT, (ASKED,), None),
        (Stage.CANCELLED, MOMENT, None, None, (), TerminationLine(kind=TerminationKind.CANCELLED, detail="d", by="b")),
    )
])  # fmt: skip


SHOWN = (ThreadMessages, ThreadMessage, MessageCall, PartFacts, ThreadRun)


def of_type(kind):
    """Any value of a field's type."""
    if kind is RunLine:
        return LINES
    if kind in (ListedTicketLine, ThreadLine, *SHOWN):
        return of_frame(kind)
    match typing.get_origin(kind), typing.get_args(kind):
        case (collections.abc.Mapping, (_, inner)):
            return ANYTHING if inner is typing.Any else st.dictionaries(st.text(max_size=5), of_type(inner), max_size=3)
        case (types.UnionType | typing.Union, options):
            return st.one_of(map(of_type, options))
        case (builtin, (inner, end)) if builtin is tuple and end is ...:
            return st.lists(of_type(inner), max_size=2).map(tuple)
        case _:
            return JSON if kind is typing.Any else NUMBERS if kind is float else st.from_type(kind)


def of_frame(cls):
    return st.builds(cls, **{name: of_type(kind) for name, kind in typing.get_type_hints(cls).items()})


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("kind", down.DOWN)
@given(data=st.data())
def test_every_frame_that_is_encoded_is_valid_as_its_own_type_only(kind, data):
    """Also under the schema that lets no further field pass: nothing is sent that is not documented."""
    sent = json.loads(down.encode(data.draw(of_frame(down.DOWN[kind]))))
    checker(kind, TIGHT).validate(sent)
    checker("down").validate(sent)
    assert not UP_CHECKER.is_valid(sent)


def test_the_tight_schema_sees_a_field_that_is_not_documented():
    sent = {"type": "gw.live", "run": "r", "sequence": 1}
    checker("gw.live", TIGHT).validate(sent)
    assert not checker("gw.live", TIGHT).is_valid(sent | {"more": 1})
    assert checker("gw.live").is_valid(sent | {"more": 1})
