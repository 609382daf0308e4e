"""curl against a gateway: what docs/gateway.md says of HTTP, as another program sees it."""

import json
import os
import re

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, text
from greenroom.transport import Limits

from ..support.documents import server_sent
from ..support.gateway import TOKEN, gateway
from ..support.judges import need_program
from ..support.runs import agent

pytestmark = [pytest.mark.judge, pytest.mark.slow]

DIRECT = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents}"


@attrs.frozen
class Seen:
    """What curl has seen: the last response's status and headers, all bodies, and what it said about connections."""

    status: int
    headers: dict[str, str]
    body: bytes
    log: str

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json()["error"]["code"]


class Curl:
    """curl with the token and the address of a gateway."""

    def __init__(self, address, folder):
        self.base, self.folder, self.program = address.url, folder, need_program("curl")

    async def __call__(self, *words, token=TOKEN):
        """`words` are curl's; one that begins with a slash is a path of the gateway."""
        heads, body = self.folder / "heads", self.folder / "body"
        body.write_bytes(b"")
        command = [self.program, "--silent", "--show-error", "--max-time", "120", "--verbose"]
        command += ["--dump-header", str(heads), "--output", str(body)]
        command += ["--header", f"Authorization: Bearer {token}"] if token else []
        command += [self.base + word if word.startswith("/") else word for word in words]
        options = {"env": DIRECT, "capture_stdout": True, "capture_stderr": True, "check": False}
        done = await trio.run_process(command, **options)
        log = done.stderr.decode()
        assert done.returncode == 0, log
        *_, head = re.split(r"(?=^HTTP/1\.1 )", heads.read_text().replace("\r", ""), flags=re.MULTILINE)
        first, *lines = head.strip().splitlines()
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Seen(int(first.split()[1]), headers, body.read_bytes(), log)


@pytest.fixture
async def world(tmp_path):
    """A runtime with two agents, its gateway, and curl."""
    clerk = agent(call("refund", order="7", cents=5, id="c1"), "done", key="clerk", tools=[refund])
    slow = agent([text("one "), delay(1), text("two "), delay(1), text("three")], key="slow")
    async with gr.open_runtime(tmp_path / "runs.db", agents=[clerk, slow]) as runtime:
        async with gateway(runtime, limits=Limits(header_bytes=8_192, body_bytes=65_536)) as address:
            yield runtime, Curl(address, tmp_path)


def posting(body, *more):
    return "--header", "Content-Type: application/json", "--data-binary", json.dumps(body), *more


async def test_health_is_asked_without_a_token(world):
    _, curl = world
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        seen = await curl(path, token=None)
        assert (seen.status, seen.json(), seen.headers["content-type"]) == (200, {"status": status}, "application/json")


async def test_a_run_is_started_decided_and_read_and_each_command_acts_once(world):
    """Sent again with its Idempotency-Key, as `curl --retry` does, a command acts once and says so."""
    runtime, curl = world
    order = posting({"agent": "clerk", "text": "hi"}, "--header", "Idempotency-Key: start-1")
    first, again = await curl("/v1/runs", *order), await curl("/v1/runs", *order)
    assert (first.status, first.json()["status"]) == (201, "accepted")
    assert (again.status, again.json()["status"], again.json()["run"]) == (200, "duplicate", first.json()["run"])
    run = await runtime.get(first.json()["run"])
    await run.wait()
    ticket = (await curl(f"/v1/runs/{run.id}")).json()["tickets"][0]
    decide = {"type": "decide", "target": ticket["ticketId"], "action": "resume", "fingerprint": ticket["fingerprint"]}
    words = posting(decide, "--header", "Idempotency-Key: d-1", f"/v1/runs/{run.id}/commands")
    assert [(seen.status, seen.json()["status"]) for seen in (await curl(*words), await curl(*words))] == [
        (202, "accepted"),
        (202, "duplicate"),
    ]
    other = posting(decide | {"action": "cancel"}, "--header", "Idempotency-Key: d-1", f"/v1/runs/{run.id}/commands")
    seen = await curl(*other)
    assert (seen.status, seen.code) == (409, "decision_id_conflict")
    await run.result()
    late = await curl(*posting(decide | {"action": "cancel"}), f"/v1/runs/{run.id}/commands")
    assert (late.status, late.code) == (409, "already_decided")
    assert late.json()["error"]["current"]["status"] == "approved"


async def test_pages_of_events_are_the_stored_ones_without_hole_or_repeat(world):
    runtime, curl = world
    run = await runtime.start("slow", "hi")
    await run.result()
    stored = [json.loads(frame) for frame in await runtime.store.events(run.id)]
    seen, after, done = [], 0, False
    while not done:
        page = (await curl(f"/v1/runs/{run.id}/events?after={after}&limit=4")).json()
        assert page["head"] == len(stored)
        assert len(page["events"]) <= 4
        seen, after, done = seen + page["events"], page["next"], page["done"]
    assert seen == stored


async def test_server_sent_events_come_live_and_continue_where_they_were_left(world):
    """`curl -N` begins before the run has ended, and ends with it; Last-Event-ID gets the rest and nothing twice."""
    runtime, curl = world
    run = await runtime.start("slow", "hi")
    stream = ("-N", "--header", "Accept: text/event-stream", f"/v1/runs/{run.id}/events")
    assert (await run.view()).termination is None, "it has not ended when it is followed"
    whole = await curl(*stream)
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert whole.headers["cache-control"] == "no-cache"
    assert whole.body.startswith(b"retry: ")
    events = list(server_sent(whole.body.decode()))
    stored = [json.loads(frame) for frame in await runtime.store.events(run.id)]
    assert [data for _, data in events] == stored
    middle = events[len(events) // 2][0]
    rest = await curl(*stream, "--header", f"Last-Event-ID: {middle}")
    assert list(server_sent(rest.body.decode())) == events[len(events) // 2 + 1 :]
    beyond = await curl(*stream, "--header", f"Last-Event-ID: {middle.rpartition('-')[0]}-999")
    assert (beyond.status, beyond.code) == (410, "reset")
    other = await curl(*stream, "--header", "Last-Event-ID: another-1")
    assert (other.status, other.code) == (410, "reset")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("/v1/runs/nothing",), 404, "unknown_run"),
        (("/v1/nothing",), 404, "not_found"),
        (("/v1/runs", "--request", "DELETE"), 405, "method_not_allowed"),
        (("/v1/runs", "--data-binary", "x" * 70_000), 413, "too_big"),
        (("/v1/runs", "--data-binary", "x" * 70_000, "--header", "Transfer-Encoding: chunked"), 413, "too_big"),
        (("/v1/runs", "--header", f"X-Long: {'x' * 9_000}"), 431, "headers_too_large"),
        (("/v1/runs", "--header", "Host: evil.example"), 403, "forbidden_origin"),
        (("/v1/runs", "--header", "Origin: https://evil.example"), 403, "forbidden_origin"),
        (("/v1/runs", "--data-binary", "{"), 400, "bad_message"),
        (("/v1/runs?limit=-1",), 400, "bad_message"),
    ],
)
async def test_what_is_refused_has_its_status_and_says_why(world, words, status, code):
    _, curl = world
    seen = await curl(*words)
    assert (seen.status, seen.code) == (status, code)
    assert seen.json()["error"]["message"]


async def test_a_large_body_is_refused_before_it_is_sent(world, tmp_path):
    """curl asks first (Expect: 100-continue) above a mebibyte: it is refused at once, and the answer is not lost."""
    _, curl = world
    large = tmp_path / "large"
    large.write_bytes(b"x" * 3_000_000)
    seen = await curl("/v1/runs", "--data-binary", f"@{large}", "--header", "Expect: 100-continue")
    assert (seen.status, seen.code) == (413, "too_big")
    assert "100 Continue" not in seen.log
    pushed = await curl("/v1/runs", "--data-binary", f"@{large}", "--header", "Expect:")
    assert (pushed.status, pushed.code) == (413, "too_big")


@pytest.mark.parametrize("token", [None, "wrong-wrong-wrong-wrong", ""])
async def test_who_has_no_token_is_shown_how_to_say_it(world, token):
    _, curl = world
    seen = await curl("/v1/runs", token=token)
    assert (seen.status, seen.code) == (401, "unauthenticated")
    assert seen.headers["www-authenticate"].startswith("Bearer")


async def test_head_is_get_without_the_body(world):
    _, curl = world
    seen, head = await curl("/v1/runs"), await curl("--head", "/v1/runs")
    assert head.status == 200
    assert head.body.endswith(b"\r\n\r\n"), "curl writes the head in place of the body"
    same = ("content-type", "content-length", "x-content-type-options")
    assert [head.headers[name] for name in same] == [seen.headers[name] for name in same]
    stream = await curl("--head", "--header", "Accept: text/event-stream", "/v1/runs/nothing/events")
    assert stream.status == 404


async def test_a_connection_is_kept_for_the_next_request(world):
    """Also after a refusal that left nothing unread."""
    _, curl = world
    two = await curl("/healthz", "--next", "-sv", "-o/dev/null", "/v1/nothing", "--next", "-sv", "/healthz")
    assert two.log.count("< HTTP/1.1 ") == 3
    assert two.log.count("Connected to") == 1
    assert two.log.count("Re-using existing connection") == 2
