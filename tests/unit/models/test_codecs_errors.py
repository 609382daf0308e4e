"""What a provider reports, as the kind of a `ModelError`: by codes, then by words, then by the status."""

import pickle

import pytest
from tests.support.providers import CODECS, KEY

import greenroom as gr
from greenroom.actors.models.codecs.faults import kind_of, provider_error, retry_after
from greenroom.actors.models.codecs.masking import KeyMask, StreamMask
from greenroom.actors.models.codecs.port import Reported

OPENAI = [
    (401, {"code": "invalid_api_key", "type": "invalid_request_error"}, "unauthorized"),
    (401, {}, "unauthorized"),
    (403, {}, "unauthorized"),
    (404, {"code": "model_not_found"}, "model_not_found"),
    (404, {}, "model_not_found"),
    (404, {"type": "api_error"}, "model_not_found"),
    (401, {"type": "api_error"}, "unauthorized"),
    (500, {"type": "api_error"}, "provider"),
    (429, {"code": "rate_limit_exceeded", "type": "requests"}, "rate_limited"),
    (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, "quota_exceeded"),
    (429, {"code": "project_spend_limit_exceeded"}, "quota_exceeded"),
    (402, {}, "quota_exceeded"),
    (400, {"code": "context_length_exceeded"}, "context_overflow"),
    (400, {"message": "This model's Maximum context length is 8192 tokens"}, "context_overflow"),
    (413, {}, "context_overflow"),
    (400, {"code": "content_policy_violation"}, "content_filtered"),
    (400, {"type": "invalid_request_error"}, "invalid_request"),
    (422, {}, "invalid_request"),
    (405, {}, "invalid_request"),
    (408, {}, "timeout"),
    (504, {}, "timeout"),
    (409, {}, "provider"),
    (500, {"type": "server_error"}, "provider"),
    (502, {}, "provider"),
    (503, {}, "overloaded"),
    (529, {}, "overloaded"),
    (None, {"type": "server_error"}, "provider"),
    (None, {"code": "server_is_overloaded"}, "overloaded"),
    (None, {"code": 429}, "rate_limited"),
    (400, {"code": "tool_use_failed", "type": "invalid_request_error"}, "provider"),
    (400, {"message": "This model's maximum prompt length is 131072"}, "context_overflow"),
    (400, {"message": "Requested tokens (9) exceed context window of 8"}, "context_overflow"),
    (None, {"type": "invalid_request_error"}, "invalid_request"),
    (None, {}, "provider"),
]


def report(name, status, error):
    return CODECS[name]().error(status, {"error": error})


@pytest.mark.parametrize(("status", "error", "kind"), OPENAI)
def test_openai_s_errors_have_their_kinds(status, error, kind):
    assert kind_of(report("chat", status, error)) == kind


SENTENCES = {
    "a list of faults (Mistral)": (
        {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "n"]}]}},
        '{"detail":[{"type":"extra_forbidden","loc":["body","n"]}]}',
    ),
    "a detail (FastAPI)": ({"detail": [{"msg": "Field required"}]}, '[{"msg":"Field required"}]'),
    "a text as the detail": ({"detail": "Not Found"}, "Not Found"),
    "a service behind the service (OpenRouter)": (
        {"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "slow down"}}},
        "Provider returned error: slow down",
    ),
    "an error that is a text (xAI)": ({"code": "x", "error": "No such model"}, "No such model"),
    "null": ({"error": {"message": None}}, ""),
}


@pytest.mark.rule("M-23")
@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence_of_a_refusal_is_found_where_servers_put_it(name):
    body, sentence = SENTENCES[name]
    assert CODECS["chat"]().error(422, body).message == sentence


ANTHROPIC = [
    (400, "invalid_request_error", "no", "invalid_request"),
    (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000", "context_overflow"),
    (400, "invalid_request_error", "Your credit balance is too low", "quota_exceeded"),
    (401, "authentication_error", "no", "unauthorized"),
    (402, "billing_error", "no", "quota_exceeded"),
    (403, "permission_error", "no", "unauthorized"),
    (404, "not_found_error", "no", "model_not_found"),
    (413, "request_too_large", "no", "context_overflow"),
    (429, "rate_limit_error", "no", "rate_limited"),
    (500, "api_error", "no", "provider"),
    (504, "timeout_error", "no", "timeout"),
    (529, "overloaded_error", "no", "overloaded"),
    (None, "overloaded_error", "no", "overloaded"),
    (None, "api_error", "no", "provider"),
    (None, "a_new_one", "no", "provider"),
]


@pytest.mark.parametrize(("status", "kind", "message", "expected"), ANTHROPIC)
def test_anthropic_s_errors_have_their_kinds(status, kind, message, expected):
    assert kind_of(report("anthropic", status, {"type": kind, "message": message})) == expected


DAILY = [{"@type": "x/QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}]
GEMINI = [
    (400, {"status": "INVALID_ARGUMENT"}, "invalid_request"),
    (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, "unauthorized"),
    (
        400,
        {"status": "INVALID_ARGUMENT", "message": "The input token count (9) exceeds the maximum"},
        "context_overflow",
    ),
    (401, {"status": "UNAUTHENTICATED"}, "unauthorized"),
    (403, {"status": "PERMISSION_DENIED"}, "unauthorized"),
    (404, {"status": "NOT_FOUND"}, "model_not_found"),
    (429, {"status": "RESOURCE_EXHAUSTED"}, "rate_limited"),
    (429, {"status": "RESOURCE_EXHAUSTED", "details": DAILY}, "quota_exceeded"),
    (500, {"status": "INTERNAL"}, "provider"),
    (503, {"status": "UNAVAILABLE"}, "overloaded"),
    (504, {"status": "DEADLINE_EXCEEDED"}, "timeout"),
    (None, {"code": 503, "status": "UNAVAILABLE"}, "overloaded"),
    (None, {"code": 500}, "provider"),
]


@pytest.mark.parametrize(("status", "error", "kind"), GEMINI)
def test_gemini_s_errors_have_their_kinds(status, error, kind):
    assert kind_of(report("gemini", status, error)) == kind
    assert kind_of(CODECS["gemini"]().error(status, [{"error": error}])) == kind


@pytest.mark.rule("M-14")
@pytest.mark.parametrize(
    ("delay", "seconds"), [("12s", 12.0), ("0.5s", 0.5), ("soon", None), (7, None), ("infs", None)]
)
def test_gemini_s_wait_is_in_its_details(delay, seconds):
    details = [{"reason": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    assert report("gemini", 429, {"details": details}).retry_after == seconds


RESPONSES = [
    ({"type": "error", "code": "rate_limit_exceeded", "message": "no"}, "rate_limited"),
    ({"type": "error", "code": None, "message": "no"}, "provider"),
    ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}, "provider"),
    (
        {"type": "response.failed", "response": {"error": {"code": "x_policy_violation", "message": "no"}}},
        "content_filtered",
    ),
]


@pytest.mark.parametrize(("data", "kind"), RESPONSES)
def test_the_events_by_which_a_response_fails_have_their_kinds(data, kind):
    found = CODECS["responses"]().error(None, data)
    assert (kind_of(found), found.message) == (kind, "no")


@pytest.mark.parametrize("data", [{"error": "no"}, {"error": {"message": "no"}}, {"message": "no"}])
def test_errors_of_other_forms_are_read_too(data):
    assert CODECS["chat"]().error(500, data).message == "no"


@pytest.mark.parametrize(
    "data", [None, [], 7, "x", {"error": None}, {"error": [1]}, {"error": {"message": 7, "code": []}}]
)
@pytest.mark.parametrize("name", CODECS)
def test_an_error_without_a_readable_report_is_classified_by_its_status(name, data):
    assert kind_of(CODECS[name]().error(503, data)) == "overloaded"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "today"}, None),
    ],
)
@pytest.mark.rule("M-14")
def test_the_wait_is_read_from_headers_and_a_date_counts_from_the_response_s_own(headers, seconds):
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("says", "status", "retryable"),
    [("true", 400, True), ("false", 429, False), ("", 429, True), ("", 400, False), ("maybe", 400, False)],
)
@pytest.mark.rule("M-14")
def test_the_provider_may_overrule_whether_a_retry_helps(says, status, retryable):
    error = provider_error("m", Reported(status=status), KeyMask(), headers={"x-should-retry": says})
    assert error.retryable is retryable
    assert pickle.loads(pickle.dumps(error)).retryable is retryable  # noqa: S301


def test_an_error_names_model_status_code_sentence_and_request():
    given = Reported(status=429, codes=("rate_limit_exceeded", "requests"), message="slow\n down")
    error = provider_error("openai:x", given, KeyMask(), headers={"x-request-id": "req_7"}, usage=gr.Usage(input=3))
    assert str(error) == "openai:x answered 429 rate_limit_exceeded: slow down (request req_7)"
    assert error.request_id == "req_7"
    assert error.usage == gr.Usage(input=3)


def test_a_key_at_the_place_where_a_long_sentence_is_cut_is_masked_first():
    for at in range(960, 1010):
        error = provider_error("m", Reported(status=400, message="x" * at + KEY + "y" * 50), KeyMask([KEY]))
        assert "canary" not in str(error)
        assert KEY[:8] not in str(error)
        assert len(str(error)) < 1100


@pytest.mark.parametrize("writing", [lambda key: key, lambda key: f'{{"k": "{key}"}}', lambda key: f"?k={key}&x"])
def test_a_key_is_masked_in_texts_and_data_at_any_split(writing):
    key = 'k"ey/with ä+signs'
    mask, text = KeyMask([key]), writing(key)
    assert key not in mask.text(text)
    for at in range(len(text) + 1):
        stream = StreamMask(mask)
        assert stream.feed(text[:at]) + stream.feed(text[at:]) + stream.end() == mask.text(text)
    assert mask.value({key: [key, 7, None, {"x": (key,)}]}) == {
        "[redacted]": ["[redacted]", 7, None, {"x": ["[redacted]"]}]
    }


def test_the_beginning_of_a_key_alone_is_shown_in_the_end():
    stream = StreamMask(KeyMask(["abcdabcdX9"]))
    assert [stream.feed("see abcdab"), stream.feed("cd"), stream.end()] == ["see ", "", "abcdabcd"]


def test_placeholders_are_too_short_to_be_masked():
    assert KeyMask(["ollama", ""]).text("ollama runs") == "ollama runs"
