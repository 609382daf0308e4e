"""Questions of MCP servers: a request becomes a form, and an answer that satisfies the form becomes a response."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.errors import ToolError
from greenroom.actors.services.sanitize import suspend_of
from greenroom.actors.toolsets import mcp_forms
from greenroom.actors.toolsets.mcp_forms import Form, form_of, responses_of

NAME = {"type": "string", "title": "Your name", "minLength": 1}


def fields(properties: dict[str, Any], *required: str, message: str = "Who?") -> dict[str, Any]:
    """A request for a form, as a server sends one."""
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def address(url: Any, message: str = "Log in.") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": url}}


def fits(form: Form, result: Any) -> bool:
    assert form.response_schema is not None
    return schema_fault(form.response_schema, result) is None


def test_one_request_is_a_form_of_its_fields():
    form = form_of("hr", {"who": fields({"name": NAME, "age": {"type": "integer"}}, "name")})
    assert form.message == "hr asks: Who?"
    assert form.parameters == {"server": "hr", "requests": {"who": {"mode": "form", "message": "Who?"}}}
    assert fits(form, {"name": "Ada"})
    assert not fits(form, {"age": 3})
    assert not fits(form, {"name": "Ada", "nmae": "x"})
    assert responses_of(form.asked, {"name": "Ada"}) == {"who": {"action": "accept", "content": {"name": "Ada"}}}


def test_defaults_fill_in_what_an_answer_leaves_out_and_nothing_else_does():
    size = {"type": "integer", "minimum": 1, "default": 7}
    form = form_of("s", {"k": fields({"name": NAME, "size": size, "note": {"type": "string"}}, "name", "size")})
    assert fits(form, {"name": "Ada"})
    content = responses_of(form.asked, {"name": "Ada"})["k"]["content"]
    assert content == {"size": 7, "name": "Ada"}
    assert responses_of(form.asked, {"name": "Ada", "size": 3})["k"]["content"]["size"] == 3


def test_a_default_that_does_not_fit_its_own_field_is_dropped():
    form = form_of("s", {"k": fields({"size": {"type": "integer", "default": "many"}}, "size")})
    assert not fits(form, {})
    assert responses_of(form.asked, {"size": 1})["k"]["content"] == {"size": 1}
    assert "default" not in str(form.response_schema)


def test_several_requests_are_one_form_with_one_property_each():
    requests = {
        "a": fields({"name": NAME}, "name"),
        "b": address("https://x.example/in"),
        "c": fields({"n": {"type": "null"}}),
    }
    form = form_of("s", requests)
    assert fits(form, {"a": {"name": "Ada"}, "b": True})
    assert not fits(form, {"a": {"name": "Ada"}})
    assert not fits(form, {"a": {}, "b": True})
    assert responses_of(form.asked, {"a": {"name": "Ada"}, "b": True}) == {
        "a": {"action": "accept", "content": {"name": "Ada"}},
        "b": {"action": "accept"},
        "c": {"action": "accept", "content": {}},
    }
    assert responses_of(form.asked, {"a": {"name": "Ada"}, "b": False})["b"] == {"action": "decline"}
    assert "https://x.example/in" in form.message


def test_one_address_is_approved_without_a_result():
    form = form_of("s", {"k": address("https://x.example/in?a=1")})
    assert form.response_schema is None
    assert form.parameters["requests"]["k"]["url"] == "https://x.example/in?a=1"
    assert responses_of(form.asked, None) == {"k": {"action": "accept"}}


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://x.example",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://",
            "https:///path",
            "x.example",
            "",
        ),
        *("https://bank.example@evil.example/", "https://bänk.example/", "https://x.example/a b", "https://[::1/"),
        *(
            "https://x.example/\x1b[2J",
            "https://x.example/" + "a" * mcp_forms.URL_LIMIT,
            None,
            7,
            ["https://x.example"],
        ),
    ],
)
def test_only_a_plain_https_address_is_shown(url: Any):
    with pytest.raises(ToolError, match="'s' asks for what cannot be answered: the address"):
        form_of("s", {"k": address(url)})


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "x" * 10_000])
def test_a_request_that_is_not_for_people_is_named(method: str):
    with pytest.raises(ToolError, match=f"{method[:20]}.* is not offered to servers") as caught:
        form_of("s", {"k": {"method": method, "params": {}}})
    assert len(str(caught.value)) < 500


NESTED: Any = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.mark.parametrize(
    "field",
    [
        NESTED,
        {},
        True,
        None,
        "string",
        {"type": "array"},
        {"type": "array", "items": NESTED},
        {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        {"anyOf": [{"type": "string"}, NESTED]},
        {"anyOf": []},
        {"anyOf": [{"type": "string"}] * 4},
        {"oneOf": "x"},
        {"type": ["string", "object"]},
        {"type": {}},
        {"enum": [{"a": 1}]},
        {"const": [1]},
        {"$ref": "#/$defs/x"},
        {"type": "string", "minLength": "x"},
        {"type": "string", "pattern": "(a+)+$" + "(b|b)*" * 30 + "\\1"},
    ],
)
def test_a_field_that_no_form_shows_is_refused(field: Any):
    with pytest.raises(ToolError, match=r"asks for what cannot be answered: (the field 'f'|its schema)"):
        form_of("s", {"k": fields({"f": field})})


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "format": "email"},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"enum": ["a", "b"]},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
    ],
)
def test_each_kind_of_field_of_the_protocol_is_kept(field: dict[str, Any]):
    form = form_of("s", {"k": fields({"f": {**field, "x-other": 1, "$comment": "no"}})})
    assert form.response_schema is not None
    assert form.response_schema["properties"] == {"f": field}


@pytest.mark.parametrize("word", ["oneOf", "anyOf"])
def test_choices_with_titles_become_an_enumeration(word: str):
    choices: Any = {"type": "string", word: [{"const": "a", "title": "A"}, {"const": "b"}]}
    form = form_of("s", {"k": fields({"f": choices, "g": {"type": "array", "items": choices}})})
    enumeration = {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "b"]}
    assert form.response_schema is not None
    assert form.response_schema["properties"] == {"f": enumeration, "g": {"type": "array", "items": enumeration}}


@pytest.mark.parametrize(
    ("requests", "limit"),
    [
        ({}, "0 requests"),
        ({f"k{n}": address("https://x.example") for n in range(mcp_forms.REQUESTS_LIMIT + 1)}, "9 requests"),
        ({"k" * 129: address("https://x.example")}, "the key of a request"),
        ({"\ud800": address("https://x.example")}, "the key of a request"),
        ({"k": fields({"n" * 129: NAME})}, "the name of a field"),
        ({"k": fields({"": NAME})}, "the name of a field"),
        ({"k": fields({f"f{n}": NAME for n in range(mcp_forms.FIELDS_LIMIT + 1)})}, "more than 24 fields"),
        ({"k": fields({"f": {"enum": ["x" * 1_000] * 40}})}, "more than 8,192 characters"),
        ({"k": fields({"f": NAME}, "g")}, "requires"),
        ({"k": {"method": "elicitation/create", "params": {"requestedSchema": {}}}}, "its schema is not an object"),
        ({"k": {"method": "elicitation/create", "params": {"mode": "other"}}}, "elicitation/create"),
        ({"k": {"method": "elicitation/create"}}, "elicitation/create"),
        ({"k": {"method": 7}}, "without a method"),
        ({"k": []}, "without a method"),
        ({"k": fields({}, message=7)}, "no message"),  # type: ignore[arg-type]
    ],
)
def test_a_request_beyond_the_limits_is_named(requests: Any, limit: str):
    with pytest.raises(ToolError, match=limit) as caught:
        form_of("s", requests)
    assert len(str(caught.value)) < 1_000


def test_a_long_message_is_cut():
    form = form_of("s", {"k": fields({}, message="m" * 100_000)})
    assert len(form.message) < mcp_forms.MESSAGE_LIMIT + 20


# --- any schema -> a form -> a decision -> a response ----------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)


@st.composite
def strings(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    least = draw(st.integers(0, 3))
    field = {"type": "string", "minLength": least, "title": draw(TEXTS)}
    return field, st.text("abc", min_size=least, max_size=6)


@st.composite
def numbers(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    least = draw(st.integers(-5, 5))
    kind = draw(st.sampled_from(["integer", "number"]))
    values: st.SearchStrategy[Any] = st.integers(least, least + 9)
    if kind == "number":
        values |= st.floats(least, least + 9)
    return {"type": kind, "minimum": least, "maximum": least + 9}, values


@st.composite
def choices(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    names = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
    one: dict[str, Any] = draw(
        st.sampled_from(
            [{"type": "string", "enum": names}, {"type": "string", "oneOf": [{"const": n, "title": n} for n in names]}]
        )
    )
    if draw(st.booleans()):
        return one, st.sampled_from(names)
    return {"type": "array", "items": one}, st.lists(st.sampled_from(names), max_size=3)


BOOLEANS = st.just(({"type": "boolean"}, st.booleans()))
FIELDS = strings() | numbers() | choices() | BOOLEANS


@st.composite
def asked_and_answered(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A request, an answer that its asker may leave gaps in, and the content that the server has to get."""
    properties, required, answer, content = {}, [], {}, {}
    for name, (field, values) in draw(st.dictionaries(KEYS, FIELDS, max_size=5)).items():
        properties[name] = field
        is_required, has_default = draw(st.booleans()), draw(st.booleans())
        if has_default:
            content[name] = draw(values)
            properties[name] = {**field, "default": content[name]}
        if is_required:
            required.append(name)
        if (is_required and not has_default) or draw(st.booleans()):
            answer[name] = content[name] = draw(values)
    return fields(properties, *required), answer, content


@given(asked_and_answered())
def test_an_answer_to_any_form_becomes_content_that_the_server_wants(drawn: Any):
    request, answer, content = drawn
    form = form_of("s", {"k": request})
    suspend_of(form.suspension())
    assert fits(form, answer)
    assert responses_of(form.asked, answer) == {"k": {"action": "accept", "content": content}}
    assert schema_fault(request["params"]["requestedSchema"], content) is None


@given(st.dictionaries(KEYS, asked_and_answered(), min_size=2, max_size=4), st.booleans())
def test_an_answer_to_several_forms_has_one_property_for_each(drawn: dict[str, Any], url: bool):
    requests = {key: request for key, (request, _, _) in drawn.items()} | {"~url": address("https://x.example")}
    answers = {key: answer for key, (_, answer, _) in drawn.items()}
    form = form_of("s", requests)
    assert fits(form, {**answers, "~url": url})
    sent = responses_of(form.asked, {**answers, "~url": url})
    assert sent.pop("~url") == {"action": "accept" if url else "decline"}
    assert {key: response["content"] for key, response in sent.items()} == {
        k: want for k, (_, _, want) in drawn.items()
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.sampled_from(["object", "string", "array"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "enum", "anyOf", "default", "a"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_a_foreign_schema_becomes_a_form_that_a_ticket_takes_or_a_sentence(field: Any, schema: Any):
    for foreign in (schema, {"type": "object", "properties": {"f": field}}):
        params = {"message": "m", "requestedSchema": foreign}
        try:
            form = form_of("s", {"k": {"method": "elicitation/create", "params": params}})
        except ToolError:
            continue
        suspend_of(form.suspension())
