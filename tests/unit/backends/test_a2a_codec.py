"""The codec of A2A: the values round-trip through the official SDK's protobuf, and both bindings say the same."""

import json
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2 as official
from a2a.utils import errors as official_errors
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends import a2a_values as values
from greenroom.actors.backends.a2a_codec import A2AFault, Binding
from greenroom.actors.backends.a2a_values import A2AInvalid, ListParams, read, read_item, written

BINDINGS: tuple[Binding, ...] = ("HTTP+JSON", "JSONRPC")

# --- values ----------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = texts.filter(bool)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, plain, max_size=3)
contents = st.one_of(
    st.builds(lambda text: {"text": text}, texts),
    st.builds(lambda url: {"url": url}, texts),
    st.builds(lambda data: {"data": data}, plain),
    st.builds(lambda data: {"raw": values.A2APart.of_bytes(data, media_type="x/y").raw}, st.binary(max_size=20)),
)
parts = st.builds(
    lambda content, filename, media_type, metadata: values.A2APart(
        **content, filename=filename, media_type=media_type, metadata=metadata
    ),
    *(contents, texts, texts, objects),
)
some_parts = st.lists(parts, max_size=3).map(tuple)
some_texts = st.lists(texts, max_size=2).map(tuple)
messages = st.builds(
    values.A2AMessage,
    message_id=ids,
    role=st.sampled_from(values.Role),
    parts=some_parts,
    task_id=texts,
    context_id=texts,
    metadata=objects,
    extensions=some_texts,
    reference_task_ids=some_texts,
)
times = st.sampled_from(["", "2026-01-31T09:30:00Z", "2026-01-31T09:30:00.123Z"])
statuses = st.builds(
    values.A2AStatus, state=st.sampled_from(values.TaskState), message=st.none() | messages, timestamp=times
)
artifacts = st.builds(
    values.A2AArtifact, artifact_id=ids, parts=some_parts, name=texts, description=texts, metadata=objects
)
tasks = st.builds(
    values.A2ATask,
    id=ids,
    status=statuses,
    context_id=texts,
    artifacts=st.lists(artifacts, max_size=2).map(tuple),
    history=st.lists(messages, max_size=2).map(tuple),
    metadata=objects,
)
items = st.one_of(
    tasks,
    messages,
    st.builds(values.StatusUpdate, task_id=ids, status=statuses, context_id=texts, metadata=objects),
    st.builds(
        values.ArtifactUpdate,
        task_id=ids,
        artifact=artifacts,
        context_id=texts,
        append=st.booleans(),
        last_chunk=st.booleans(),
    ),
)
sends = st.builds(
    values.SendParams,
    message=messages,
    configuration=st.builds(
        values.SendConfiguration,
        accepted_output_modes=some_texts,
        history_length=st.none() | st.integers(0, 100),
        return_immediately=st.booleans(),
    ),
    metadata=objects,
    tenant=texts,
)
lists = st.builds(
    ListParams,
    context_id=texts,
    status=st.none() | st.sampled_from(values.TaskState),
    page_size=st.none() | st.integers(0, 100),
    page_token=texts,
    history_length=st.none() | st.integers(0, 100),
    status_timestamp_after=times,
)
cards = st.builds(
    values.AgentCard,
    name=texts,
    description=texts,
    version=texts,
    supported_interfaces=st.lists(
        st.builds(values.AgentInterface, url=ids, protocol_binding=texts, protocol_version=texts, tenant=texts),
        max_size=2,
    ).map(tuple),
    capabilities=st.builds(values.AgentCapabilities, streaming=st.booleans()),
    default_input_modes=some_texts,
    skills=st.lists(st.builds(values.AgentSkill, id=texts, name=texts, tags=some_texts), max_size=2).map(tuple),
    security_schemes=st.just({"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}),
    security_requirements=st.just(({"schemes": {"bearer": {}}},)),
)
pages = st.builds(
    values.TaskPage,
    tasks=st.lists(tasks, max_size=2).map(tuple),
    next_page_token=texts,
    page_size=st.integers(0, 9),
    total_size=st.integers(0, 9),
)
OFFICIAL: dict[type, Any] = {
    values.A2ATask: official.Task,
    values.A2AMessage: official.Message,
    values.StatusUpdate: official.TaskStatusUpdateEvent,
    values.ArtifactUpdate: official.TaskArtifactUpdateEvent,
    values.SendParams: official.SendMessageRequest,
    values.ListParams: official.ListTasksRequest,
    values.AgentCard: official.AgentCard,
    values.TaskPage: official.ListTasksResponse,
}


@given(items | sends | lists | cards | pages)
def test_a_value_round_trips_through_the_protobuf_of_the_official_sdk(value):
    data = json.loads(json.dumps(written(value)))
    theirs = ParseDict(data, OFFICIAL[type(value)](), ignore_unknown_fields=False)
    assert read(type(value), data) == value
    assert read(type(value), MessageToDict(theirs)) == value


@given(items)
def test_an_item_of_a_stream_round_trips_through_the_protobuf_of_the_official_sdk(item):
    data = json.loads(json.dumps({values.item_field(item): values.written(item)}))
    theirs = ParseDict(data, official.StreamResponse(), ignore_unknown_fields=False)
    assert read_item(data) == read_item(MessageToDict(theirs)) == item


def test_unknown_fields_and_nulls_are_passed_over_outside_of_data():
    status = {"state": "TASK_STATE_WORKING", "message": None, "new": {"x": 1}}
    data: dict[str, Any] = {
        "artifactId": "a",
        "name": None,
        "parts": [{"data": {"x": None}, "text": None}, {"data": None}],
    }
    item = read_item({"task": {"id": "t", "status": status, "artifacts": [data], "new": 1}})
    assert item == values.A2ATask(
        id="t",
        status=values.A2AStatus(state=values.TaskState.WORKING),
        artifacts=(
            values.A2AArtifact(artifact_id="a", parts=(values.A2APart(data={"x": None}), values.A2APart(data=None))),
        ),
    )


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([], "object"),
        ({}, "exactly one of task"),
        ({"task": {"id": "t"}}, "`status`"),
        ({"task": {"id": "", "status": {"state": "TASK_STATE_WORKING"}}}, "$.task.id"),
        ({"task": {"id": "t", "status": {"state": "TASK_STATE_RUNNING"}}}, "TASK_STATE_RUNNING"),
        (
            {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a", "url": "b"}]}},
            "exactly one of text",
        ),
        ({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{}]}}, "exactly one of text"),
        ({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [None]}}, "$.message.parts[0]"),
        ({"message": {"messageId": "m", "role": "user"}}, "user"),
    ],
)
def test_an_invalid_item_is_refused_with_its_path(data, named):
    with pytest.raises(A2AInvalid) as refused:
        read_item(data)
    assert named in str(refused.value)


def test_data_that_is_nested_too_deeply_is_refused():
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(A2AInvalid, match="nested"):
        read_item({"task": deep})


@given(st.binary(max_size=40))
def test_bytes_are_read_in_both_alphabets_of_base64(content):
    part = values.A2APart.of_bytes(content, media_type="x/y")
    text = part.raw or ""
    for raw in (text, text.replace("+", "-").replace("/", "_").rstrip("=")):
        assert values.A2APart(raw=raw).content() == content


def test_bytes_that_are_not_base64_are_refused():
    with pytest.raises(A2AInvalid, match="base64"):
        values.A2APart(raw="a*b", filename="x").content()


def test_the_fields_of_a_query_are_texts():
    asked = read(ListParams, {"pageSize": "3", "includeArtifacts": "true", "contextId": "7"}, textual=True)
    assert (asked.page_size, asked.include_artifacts, asked.context_id) == (3, True, "7")


# --- bindings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_request_of_a_client_is_the_call_that_the_server_reads(binding):
    asked = codec.wire_request(binding, codec.GET_TASK, {"id": "a/b", "historyLength": 2}, request_id="7")
    assert asked.headers["A2A-Version"] == "1.0"
    if binding == "JSONRPC":
        call = codec.rpc_call(asked.body)
        assert (call.request_id, call.operation, call.params) == (
            "7",
            codec.GET_TASK,
            {"id": "a/b", "historyLength": 2},
        )
    else:
        assert (asked.method, asked.path, asked.query) == ("GET", "/tasks/a%2Fb", {"historyLength": "2"})


def test_a_tenant_of_a_card_is_in_the_path_or_the_parameters():
    assert codec.wire_request("HTTP+JSON", codec.LIST_TASKS, {}, tenant="x y").path == "/x%20y/tasks"
    body = codec.wire_request("JSONRPC", codec.LIST_TASKS, {}, tenant="x y").body
    assert body is not None
    assert body["params"] == {"tenant": "x y"}


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_result_is_read_as_it_was_written(binding):
    body = codec.written_result(binding, "1", {"task": {}})
    assert codec.read_answer(binding, 200, body) == codec.read_event(binding, body) == {"task": {}}


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("error", [*codec._BY_REASON.values()])
def test_an_error_is_read_as_it_was_written(binding, error):
    status, body = codec.written_fault(binding, "1", A2AFault(error, "why", metadata={"code": "x"}))
    for ask in (
        lambda: codec.read_answer(binding, status, body),
        lambda: codec.read_event(binding, body, kind="error"),
    ):
        with pytest.raises(A2AFault) as refused:
            ask()
        fault = refused.value
        assert (fault.error, fault.message, fault.metadata) == (error, "why", {"code": "x"})


def test_codes_reasons_and_statuses_are_those_of_the_official_sdk():
    ours = {error.reason: (error.code, error.status, error.name) for error in codec._BY_REASON.values()}
    theirs = {
        mapping.reason: (official_errors.JSON_RPC_ERROR_CODE_MAP[kind], mapping.http_code, mapping.grpc_status)
        for kind, mapping in official_errors.A2A_ERROR_MAPPING.items()
    }
    assert ours == theirs


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("data", [None, [], "x", {"error": "x"}, {"error": {}}, {"error": {"code": [], "message": 3}}])
def test_an_answer_of_another_form_is_a_fault_without_an_error_of_the_protocol(binding, data):
    with pytest.raises(A2AFault) as refused:
        codec.read_answer(binding, 502, data)
    assert (refused.value.error, refused.value.status) == (None, 502)
    assert "502" in repr(refused.value)


def test_an_answer_to_another_request_is_a_fault():
    with pytest.raises(A2AFault, match="asked was '1'"):
        codec.read_answer("JSONRPC", 200, {"jsonrpc": "2.0", "id": "2", "result": {}})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], codec.INVALID_REQUEST),
        ([{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}], codec.INVALID_REQUEST),
        ({"id": 1, "method": "GetTask"}, codec.INVALID_REQUEST),
        ({"jsonrpc": "2.0", "method": "GetTask"}, codec.INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": True, "method": "GetTask"}, codec.INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": "x" * 1_025, "method": "GetTask"}, codec.INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": 1}, codec.METHOD_NOT_FOUND),
        ({"jsonrpc": "2.0", "id": 1, "method": "message/send"}, codec.METHOD_NOT_FOUND),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}, codec.INVALID_PARAMS),
    ],
)
def test_an_invalid_call_is_refused(body, error):
    with pytest.raises(A2AFault) as refused:
        codec.rpc_call(body)
    assert refused.value.error is error


@pytest.mark.parametrize(
    ("version", "spoken"),
    [("1.0", True), ("1", True), ("1.7", True), (None, False), ("0.3", False), ("2.0", False), ("1.0.0", False)],
)
def test_any_minor_version_of_1_is_spoken(version, spoken):
    assert codec.speaks(version) is spoken


def test_every_value_is_a_struct_in_camel_case():
    kinds = [kind for kind in vars(values).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    names = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert {"messageId", "lastChunk", "nextPageToken"} <= names
    assert not any("_" in name for name in names)
