"""No secret leaves: not by its value, not by its shape, not under a telling name, in whatever field it is."""

import json
import types
from datetime import UTC, datetime
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.catalogue import CATALOGUE, FOREIGN
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.events import MessageDelta, RunMoved, ToolCalled, ToolResult
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.secrets.named_secrets import LONGEST
from greenroom.actors.contract.secrets.redaction import WORKSPACE, Redactor
from greenroom.actors.contract.secrets.secret_readers import HOME, MASK, SHORTEST
from greenroom.actors.contract.secrets.shapes import TOKENS as SHAPES
from greenroom.actors.contract.stepwise import drained
from greenroom.actors.errors import UsageError

from .strategies import JSON, TEXT, examples, instances

CANARY = "kanarienvogel-4711"
AT = datetime(2025, 1, 2, tzinfo=UTC)
INFO = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=AT, execution="sequential")
TOKENS = [
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop",
    "ghp_abcdefghijklmnopqrst1234",
    "gho_abcdefghijklmnopqrst1234",
    "github_pat_11ABCDEFG0abcdefghij_klm",
    "glpat-abcdefghijklmnop1234",
    "xoxb-1234567890-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "Bearer abcdefghijklmnop1234==",
    "bearer abcdefghijklmnop1234",
    "BEARER abcdefghijklmnop1234",
    "://user:hunter2@",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA cut off",
    "Basic dXNlcjpodW50ZXIy",
    *(token.example for token in SHAPES.values()),
]
TELLING = """
    password PASSWORD db_password dbPassword passwd pwd passphrase secret clientSecret client_secret AWS_SECRET_KEY
    api_key apiKey api-key apikey x-api-key OPENAI_API_KEY access_key AWS_SECRET_ACCESS_KEY private_key token Token
    auth_token accessToken access_token refresh_token id_token session_token GITHUB_TOKEN bearer Authorization
    proxy-authorization Cookie set-cookie credential credentials aws.credentials
"""
HARMLESS = """
    passwords_changed secretary tokens max_tokens next_page_token pageToken tokenizer key keyboard author authorized
    cookies_accepted compass monkey access keys public_key
"""


def hiding(inside):
    """Where a secret may stand in JSON data."""
    return st.recursive(
        st.tuples(TEXT, TEXT).map(inside.join),
        lambda inner: (
            st.tuples(JSON, inner, JSON).map(list)
            | st.builds(
                lambda key, item, rest: {**rest, key: item}, TEXT, inner, st.dictionaries(TEXT, JSON, max_size=2)
            )
            | st.builds(lambda key, item: {inside.join(key): item}, st.tuples(TEXT, TEXT), JSON)
        ),
        max_leaves=3,
    )


def in_field(cls, name, data):
    """A payload of the class with the canary somewhere in its field."""
    for value in (data.draw(hiding(CANARY)), f"see {CANARY}!", {"deep": [{"er": f"{CANARY}{CANARY}"}]}):
        payload = data.draw(instances(cls, **{name: st.just(value)}))
        yield payload


@pytest.mark.parametrize(
    ("event", "field"), [(event, field) for event, cls in sorted(CATALOGUE.items()) for field in FOREIGN[cls]]
)
@examples(8)
@given(data=st.data())
def test_a_secret_in_any_foreign_field_of_any_event_never_appears(event, field, data):
    encoder = EventEncoder(INFO, Redactor([CANARY]))
    for payload in in_field(CATALOGUE[event], field, data):
        (frame,) = encoder.frames(0, AT, [EventDraft(event, payload)])
        json.loads(frame)
        assert CANARY.encode() not in frame
        assert MASK.encode() in frame


def test_free_text_of_every_event_is_read_by_the_redactor():
    """A new field of a free kind must be marked, or be put on this list with a reason."""
    ours = {"by", "code", "reason", "role", "to", "source", "agent", "fingerprint", "effect", "workspace", "deadline"}
    ours |= {"reviewers", "plugin", "guardrail", "key", "keys", "writer", "other", "from_agent", "to_agent"}
    ids = {
        "artifact_id",
        "artifact",
        "proposal",
        "base",
        "approval_id",
        "call_id",
        "task_id",
        "message_id",
        "ticket_id",
        "command_id",
        "error_id",
        "thread_id",
        "parent",
        "parent_call_id",
        "forked_from",
        "target",
        "joins",
        "replaces",
        "child_run_id",
        "child_ticket_id",
        "sha256",
    }
    static = {"response_schema", "expires_at", "read_at"}  # marked as a schema; a moment
    for cls, foreign in FOREIGN.items():
        for field in msgspec.structs.fields(cls):
            text = {"str", "Any", "Mapping"} & {kind for kind in ("str", "Any", "Mapping") if kind in str(field.type)}
            if text and field.name not in foreign:
                unmarked = field.name in ours | ids | static | {"tickets", "stubborn", "outcome_unknown", "tool"}
                assert unmarked or "Literal" in str(field.type), f"{cls.__name__}.{field.name}"


@given(JSON)
def test_a_value_without_a_secret_stays_the_same_object(value):
    redactor = Redactor([CANARY])
    if redactor.value(value) is not value:
        assert MASK in json.dumps(redactor.value(value))
    delta = MessageDelta(message_id="m", index=0, text="hello")
    assert redactor.payload(delta) is delta


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@examples(8)
@given(data=st.data())
def test_a_payload_without_secrets_is_the_same_object(name, data):
    payload = data.draw(instances(CATALOGUE[name]))
    clean = Redactor([CANARY]).payload(payload)
    assert clean is payload or MASK.encode() in msgspec.json.encode(clean)


@given(hiding(CANARY))
def test_redacting_twice_is_redacting_once(value):
    redactor = Redactor([CANARY])
    once = redactor.value(value)
    assert CANARY not in json.dumps(once)
    assert redactor.value(once) == once


def test_only_the_secret_goes_and_the_rest_stays():
    redactor = Redactor([CANARY])
    called = ToolCalled(
        call_id="c",
        tool="lookup",
        status=CallStatus.NEW,
        arguments={"url": f"https://x/?k={CANARY}", "n": [1, {"ok": True}], f"k{CANARY}": 1},
        effect="read",
        step=1,
    )
    clean = redactor.payload(called)
    assert clean.arguments == {"url": f"https://x/?k={MASK}", "n": [1, {"ok": True}], f"k{MASK}": 1}
    assert (clean.call_id, clean.tool, clean.step) == ("c", "lookup", 1)
    assert CANARY in called.arguments["url"], "the private value is not touched"


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_known_by_its_shape(token):
    redactor = Redactor()
    assert redactor.text(f"before {token} after").startswith(f"before {MASK}")
    assert token not in redactor.text(f"before {token} after")
    assert token not in json.dumps(redactor.value({"a": [f"x={token}"]}))


@pytest.mark.parametrize(
    "text",
    [
        "sk-short",
        "ask-a-friend-of-mine",
        "task-550e8400-e29b-41d4-a716-446655440000",
        "the bearer of this letter",
        "eyJust.a.word",
        "https://example.org:8080/a@b",
        "a://b",
        "AKIA",
        "xoxo",
        "----- BEGIN -----",
        "",
        "a basic understanding of internationalisation",
        "sk-learn is a package",
        "def login(password: str, token=None): return login(password=user.password)",
        "http://localhost:8080",
        '{"max_tokens": 5, "password": null}',
        "GET /homepage and x/home/alice",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert Redactor().text(text) is text
    assert Redactor().value(text) is text


@pytest.mark.parametrize("key", TELLING.split())
def test_a_value_under_a_telling_name_is_never_shown(key):
    for value in ("x", 1, True, "", {"a": 1}, ["x"]):
        assert Redactor().value({key: value, "n": 1}) == {key: MASK, "n": 1}
    assert Redactor().value([{"deep": ({key: "x"},)}]) == [{"deep": [{key: MASK}]}]
    missing = {key: None}
    assert Redactor().value(missing) is missing


@pytest.mark.parametrize("key", HARMLESS.split())
def test_a_value_under_a_name_that_only_resembles_a_secrets_is_shown(key):
    value = {key: "x"}
    assert Redactor().value(value) is value


@pytest.mark.parametrize("secret", ["", "a", "12345", "ab\u00e9cd"])
def test_a_secret_that_is_too_short_is_refused(secret):
    with pytest.raises(ValueError, match=f"a secret of {len(secret)} characters would garble text; use 6 or more"):
        Redactor([CANARY, secret])


def test_the_complaint_about_a_short_secret_does_not_contain_the_secret():
    with pytest.raises(ValueError, match="characters") as caught:
        Redactor(["pin77"])
    assert "pin77" not in str(caught.value)


def test_a_secret_of_the_shortest_length_is_masked():
    secret = "q" * SHORTEST
    assert Redactor([secret]).value([secret]) == [MASK]


def test_the_longer_of_two_secrets_that_begin_alike_is_masked_whole():
    assert Redactor(["abcdef", "abcdefgh"]).text("abcdefgh abcdef") == f"{MASK} {MASK}"


def test_a_secret_is_text_and_not_a_pattern():
    assert Redactor(["a.c(d*e"]).text("a.c(d*e abcdde") == f"{MASK} abcdde"


SPELLED = 'p"a\\s\n ✓é/&'


@pytest.mark.parametrize(
    "text",
    [SPELLED, json.dumps(SPELLED), json.dumps(SPELLED, ensure_ascii=False), repr(SPELLED), quote(SPELLED, safe="")],
    ids=["plain", "JSON", "JSON with letters", "Python", "URL"],
)
def test_a_secret_is_masked_in_each_spelling(text):
    assert MASK in Redactor([SPELLED]).text(f"<{text}>")
    assert Redactor([SPELLED]).text(f"<{text}>").strip("<>\"'") == MASK


def test_a_secret_that_is_a_number_is_found_in_numbers():
    redactor = Redactor(["12345678"])
    assert redactor.value({"pin": 12345678, "n": 5, "f": 1.5, "t": True}) == {"pin": MASK, "n": 5, "f": 1.5, "t": True}


def test_an_environment_value_that_is_no_unicode_is_accepted_and_masked_as_it_will_be_shown():
    redactor = Redactor(["key\udc80value"])
    assert redactor.text("a key\udc80value") == f"a {MASK}"
    assert redactor.text("a key?value") == f"a {MASK}"


def test_mappings_and_texts_of_other_types_are_read_too():
    class Text(str):
        __slots__ = ()

    redactor = Redactor([CANARY])
    assert redactor.value(types.MappingProxyType({"a": CANARY})) == {"a": MASK}
    assert redactor.value([Text(CANARY)]) == [MASK]
    assert redactor.value({1: CANARY}) == {1: MASK}
    odd = {1: object()}
    assert redactor.value(odd) is odd


def test_data_that_is_nested_too_deeply_is_hidden_and_keeps_its_type():
    deep = inner = {}
    for _ in range(5_000):
        inner["a"] = inner = {}
    redactor = Redactor([CANARY])
    moved = redactor.payload(RunMoved(source=Stage.CREATED, to=Stage.PLANNED, by="x", detail=deep))
    assert moved.detail == {"[nested too deeply to be shown]": None}
    result = ToolResult(call_id="c", tool="t", status=CallStatus.SUCCEEDED, result=[deep], attempts=1, duration_ms=1)
    assert redactor.payload(result).result == "[nested too deeply to be shown]"


def test_a_response_schema_hides_secrets_and_keeps_its_property_names():
    schema = {"properties": {"password": {"enum": ["canary-7f3a9", "other"]}}, "type": "object"}
    redactor = Redactor(["canary-7f3a9"])
    assert redactor.schema(schema) == {"properties": {"password": {"enum": [MASK, "other"]}}, "type": "object"}
    clean = {"properties": {"password": {"type": "string"}}}
    assert redactor.schema(clean) is clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": "hun\\"ter2", "n": 1}', '{"password": "[redacted]", "n": 1}'),
        ('{"a": {"dbPassword" : 12345}}', '{"a": {"dbPassword" : "[redacted]"}}'),
        (r'{"body": "{\"api_key\": \"hunter2\", \"n\": 1}"}', r'{"body": "{\"api_key\": \"[redacted]\", \"n\": 1}"}'),
        ("KeyError: {'token': 'abc', 'n': 1}", "KeyError: {'token': '[redacted]', 'n': 1}"),
        ('{"credentials": {"user": "}", "x": [1]}, "n": 1}', '{"credentials": "[redacted]", "n": 1}'),
        ("Config(password='hunter2', n=1)", "Config(password='[redacted]', n=1)"),
        ("Authorization: Digest abc\nHost: x", "Authorization: [redacted]\nHost: x"),
        ("psql: PGPASSWORD=hunter22 failed", "psql: PGPASSWORD=[redacted] failed"),
        ("/?access_token=a1b2c3d4&n=1", "/?access_token=[redacted]&n=1"),
        ('{"password": "hunter2', '{"password": "[redacted]'),
        (r"line\nsk-abcdefghijklmnop1234", r"line\n[redacted]"),
    ],
)
def test_a_value_under_a_telling_name_is_not_shown_in_text_either(text, shown):
    assert Redactor().text(text) == shown
    assert Redactor().text(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[Errno 2] No such file: '/home/alice/x/y.csv'", f"[Errno 2] No such file: '{HOME}/x/y.csv'"),
        ("/Users/alice", HOME),
        ("in /root/.ssh", f"in {HOME}/.ssh"),
        (r"C:\Users\alice\x", rf"{HOME}\x"),
        ("file:///home/alice/x", f"file://{HOME}/x"),
    ],
)
def test_a_home_on_the_host_takes_a_short_name(text, shown):
    assert Redactor().text(text) == shown


def test_the_directory_of_a_run_takes_a_short_name_in_its_own_texts():
    redactor = Redactor().within("/srv/acme/project")
    reported = {"path": "/srv/acme/project/src/a.py", "other": "/srv/acme/project-2/b", "all": "/srv/acme/project"}
    assert redactor.value(reported) == {
        "path": f"{WORKSPACE}/src/a.py",
        "other": "/srv/acme/project-2/b",
        "all": WORKSPACE,
    }
    assert Redactor().within("/home/alice/project").text("/home/alice/project/a") == f"{WORKSPACE}/a"
    assert Redactor().within("tenant-7").text("tenant-7") == "tenant-7", (
        "a workspace that is no directory hides nothing"
    )


KEY = "kanarienvogel-0123456789-abcdefghijklmnopqrstuvwx"


@pytest.mark.parametrize("mark", ["", "…", "\n[... 12 of 99 characters left out ...]\n tail"])
@pytest.mark.parametrize("length", range(SHORTEST, len(KEY)))
def test_the_beginning_of_a_secret_is_hidden_where_a_text_was_cut(length, mark):
    assert Redactor([KEY]).text(f"the key {KEY[:length]}{mark}") == f"the key {MASK}{mark}"


def test_a_secret_that_no_stream_could_hold_back_is_refused():
    with pytest.raises(ValueError, match=f"longer than {LONGEST}"):
        Redactor(["x" * (LONGEST + 1)])


WRITTEN = {
    "json": json.dumps,
    "json without escapes": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "repr beside a quote": lambda text: repr('"' + text),
    "a URL": lambda text: f"https://example.org/?q={quote(text, safe='')}",
    "a form": lambda text: f"q={quote_plus(text)}",
    "an exception": lambda text: str(ValueError(text, {"x": text})),
}


@pytest.mark.parametrize("odd", ["'", '"', "\\", "\n", "é", "\x07", "'\"", "€\\'"])
@pytest.mark.parametrize("outer", WRITTEN)
@pytest.mark.parametrize("inner", [one for one in WRITTEN if one not in ("a URL", "a form")])
def test_a_named_secret_is_found_in_a_text_inside_a_text(odd, inner, outer):
    secret = f"canary-7f3a{odd}9b2e-kanarienvogel"
    for text in (WRITTEN[inner](secret), WRITTEN[outer](WRITTEN[inner](secret))):
        shown = Redactor([secret]).text(text)
        assert MASK in shown
        assert "7f3a" not in shown, shown
        assert "9b2e" not in shown, shown


@pytest.mark.parametrize("write", [quote, quote_plus, lambda text: quote(text, safe="")])
def test_a_named_secret_is_found_in_urls_and_forms(write):
    assert Redactor(["my/secret +value= é"]).text(f"q={write('my/secret +value= é')}&x=1") == f"q={MASK}&x=1"


# --- secrets that are learned later ----------------------------------------------------------------------------------


def test_a_redactor_learns_secrets_and_so_do_those_of_runs():
    redactor = Redactor(["first-canary"])
    run = redactor.within("/srv/work")
    data = {"plumtree-quartz": ["plumtree-quartz", 8642097531], "path": "/srv/work/first-canary"}
    assert redactor.value(data)["plumtree-quartz"] == run.value(data)["plumtree-quartz"] == data["plumtree-quartz"]
    drained(run.learn_steps(["plumtree-quartz"]))
    drained(redactor.learn_steps(["8642097531", "first-canary"]))
    for one, path in ((redactor, "/srv/work/[redacted]"), (run, "[workspace]/[redacted]")):
        assert one.value(data) == {"[redacted]": ["[redacted]", "[redacted]"], "path": path}
    assert redactor.within("/srv/else").text("plumtree-quartz") == "[redacted]"


def test_two_tasks_may_teach_a_redactor_concurrently():
    redactor = Redactor()
    first, second = redactor.learn_steps(["plumtree-1", "plumtree-2"]), redactor.learn_steps(["plumtree-2", "quartz-3"])
    for _ in zip(first, second, strict=True):
        pass
    assert redactor.text("plumtree-1 plumtree-2 quartz-3") == "[redacted] [redacted] [redacted]"


def test_what_is_learned_has_limits_and_is_learned_as_a_whole_or_not():
    redactor = Redactor(f"at-the-opening-{number}" for number in range(300))
    drained(redactor.learn_steps(f"learned-{number:03}" for number in range(128)))
    drained(redactor.learn_steps(["learned-000", "at-the-opening-7"]))
    with pytest.raises(UsageError, match="129 secrets"):
        drained(redactor.learn_steps(["plumtree-quartz"]))
    with pytest.raises(UsageError, match="would garble"):
        drained(redactor.learn_steps(["short"]))
    with pytest.raises(UsageError, match="70,000 characters"):
        drained(Redactor().learn_steps(f"{number}".zfill(14_000) for number in range(5)))
    assert redactor.text("plumtree-quartz") == "plumtree-quartz"
