"""Requests, responses and the router: no bytes, no sockets."""

from urllib.parse import quote

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.transport.gateway.access import Principal
from greenroom.transport.gateway.http import Request, Route, failure, find, json_response, refusal
from greenroom.transport.protocol.codes import ERRORS, Refused


async def handler(gateway, request):
    return json_response({})


def route(method, template):
    return Route(method=method, template=template, handler=handler, scope=None, summary="x")


RUNS = route("GET", "/v1/runs")
START = route("POST", "/v1/runs")
RUN = route("GET", "/v1/runs/{run}")
COMMANDS = route("POST", "/v1/runs/{run}/commands")
CHAT = route("GET", "/v1/ai-sdk/{version}/agents/{agent}/chat/{chat}/stream")
DOTTED = route("GET", "/v1/openapi.json")
ROUTES = (RUNS, START, RUN, COMMANDS, CHAT, DOTTED)


def request(body=b"", **query):
    return Request(method="GET", path="/", query=query, headers={}, body=body)


def lost(method, path):
    with pytest.raises(Refused) as caught:
        find(ROUTES, method, path)
    return caught.value.error.code, caught.value.message


# --- the router ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "found", "params"),
    [
        ("GET", "/v1/runs", RUNS, {}),
        ("POST", "/v1/runs", START, {}),
        ("HEAD", "/v1/runs", RUNS, {}),
        ("HEAD", "/v1/runs/r", RUN, {"run": "r"}),
        ("GET", "/v1/runs/run_1", RUN, {"run": "run_1"}),
        ("GET", "/v1/runs/a%2Fb", RUN, {"run": "a/b"}),
        ("GET", "/v1/runs/a%2fcommands", RUN, {"run": "a/commands"}),
        ("GET", "/v1/runs/%2e%2e", RUN, {"run": ".."}),
        ("GET", "/v1/runs/%E2%9C%93%20x", RUN, {"run": "✓ x"}),
        ("GET", "/v1/runs/a%252Fb", RUN, {"run": "a%2Fb"}),
        ("GET", "/v1/runs/a+b", RUN, {"run": "a+b"}),
        ("GET", "/v1/runs/%ff", RUN, {"run": "\ufffd"}),
        ("POST", "/v1/runs/r/commands", COMMANDS, {"run": "r"}),
        ("GET", "/v1/ai-sdk/v6/agents/a/chat/c/stream", CHAT, {"version": "v6", "agent": "a", "chat": "c"}),
        ("GET", "/v1/openapi.json", DOTTED, {}),
    ],
)
def test_a_path_finds_its_route_and_what_is_in_the_braces(method, path, found, params):
    """A slash that is written %2F belongs to the name; decoding happens once and after the path has been split."""
    assert find(ROUTES, method, path) == (found, params)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/runs/",
        "/v1//runs",
        "//v1/runs",
        "/V1/runs",
        "/v1/runs/r/",
        "/v1/runs/r/s",
        "/v1/runs\n",
        "/v1/runs/r\ncommands/x",
        "/v1/openapi_json",
        "/v1/runs%2Fr",
        "*",
        "http://localhost/v1/runs",
    ],
)
def test_what_is_no_path_of_ours_is_not_found(path):
    code, message = lost("GET", path)
    assert code == "not_found"
    assert "/v1/openapi.json" in message


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", ""])
def test_another_method_is_shown_which_ones_there_are(method):
    code, message = lost(method, "/v1/runs")
    assert code == "method_not_allowed"
    assert message.startswith("/v1/runs takes GET, HEAD, POST, not ")
    with pytest.raises(Refused) as caught:
        find(ROUTES, method, "/v1/runs/r/commands")
    assert dict(refusal(caught.value).headers)["allow"] == "POST"


def test_head_is_only_for_what_can_be_got():
    assert lost("HEAD", "/v1/runs/r/commands")[0] == "method_not_allowed"


def test_a_long_path_is_not_said_whole():
    assert len(lost("GET", "/" + "x" * 60_000)[1]) < 400
    assert len(lost("X" * 60_000, "/v1/runs/" + "r" * 60_000)[1]) < 400


@given(st.text(max_size=40))
def test_whatever_is_in_a_path_is_given_back_as_it_was(name):
    if not name:
        return
    assert find(ROUTES, "GET", f"/v1/runs/{quote(name, safe='')}") == (RUN, {"run": name})


# --- requests --------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Wish:
    name: str
    count: int = 0


def test_a_body_is_read_as_its_class():
    assert request(b'{"name":"x","count":2}').read(Wish, "wish") == Wish(name="x", count=2)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b'{"name":"\\ud800"}', "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body must be a JSON object"),
        (b"null", "the body must be a JSON object"),
        (b'{"name":1}', "expected a string @ wish.name"),
        (b"{}", "name is missing @ wish.name"),
        (b'{"name":"x","cuont":1}', "cuont is not known here; did you mean count? there are name, count @ wish"),
    ],
)
def test_a_body_that_is_wrong_is_refused_in_words(body, words):
    with pytest.raises(Refused) as caught:
        request(body).read(Wish, "wish")
    assert caught.value.error.code == "bad_message"
    assert words in caught.value.message


def test_a_number_of_the_query_is_whole_and_within_its_bounds():
    asked = request(after="7", limit="0")
    assert asked.number("after", 0, most=100) == 7
    assert asked.number("limit", 50, most=100) == 0
    assert asked.number("other", 50, most=100) == 50


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1e3", " 1", "1\n", "0x1", "\u0661", "\u00b2", "101", "9" * 400, "9" * 60_000]
)
def test_a_number_of_the_query_that_is_none_is_named(text):
    with pytest.raises(Refused, match="give a whole number from 0 to 100") as caught:
        request(after=text).number("after", 0, most=100)
    assert caught.value.error.code == "bad_message"
    assert len(caught.value.message) < 200


def test_who_asks_is_known_or_refused():
    ann = Principal(name="ann", token="a" * 16)
    assert attrs.evolve(request(), principal=ann).who is ann
    with pytest.raises(Refused, match="Authorization: Bearer") as caught:
        _ = request().who
    assert caught.value.error.code == "unauthenticated"


# --- responses -------------------------------------------------------------------------------------------------------


def test_an_answer_is_json():
    response = json_response({"a": (1, None)}, status=201)
    assert (response.status, response.body, response.content_type) == (201, b'{"a":[1,null]}', "application/json")


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_refusal_has_its_status_and_one_form(code):
    refused = Refused(code, "why", current=["GET"] if code == "method_not_allowed" else None)
    response = refusal(refused)
    assert response.status == ERRORS[code].status
    assert msgspec.json.decode(response.body) == {
        "error": {
            "code": code,
            "message": "why",
            "retry": ERRORS[code].retry,
            **({} if refused.current is None else {"current": refused.current}),
        }
    }
    headers = dict(response.headers)
    assert ("www-authenticate" in headers) == (response.status == 401)
    assert ("retry-after" in headers) == ERRORS[code].retry


def test_a_conflict_says_what_is_the_case():
    body = msgspec.json.decode(refusal(Refused("already_decided", "late", current={"status": "denied"})).body)
    assert body["error"]["current"] == {"status": "denied"}


def test_a_failure_of_our_own_tells_nothing_of_the_inside():
    response = refusal(failure())
    assert response.status == 500
    assert msgspec.json.decode(response.body)["error"]["message"] == ERRORS["internal"].meaning
