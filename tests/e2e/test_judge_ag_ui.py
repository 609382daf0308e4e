"""AG-UI's own client (npm, 1.0.0, 0.0.59) judges: against a gateway in a process of its own, and on recorded streams.

`HttpAgent` talks to the gateway: what it has at the end of a conversation is what a page shows. The pipeline that it is
made of (enforceEvents, transformChunks, verifyEvents and the reducer) also reads streams of random lives, and finds the
same faults as our own checker.
"""

import http.client
import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.ag_ui_faults import FOUND_BY_ALL, PLANTED, sound
from ..support.ag_ui_lives import QUESTION, Life, converse
from ..support.ag_ui_rules import Client, check
from ..support.judges import need_node_modules, need_program
from ..support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

TOKEN = "a-token-for-the-judge"
YES = {"status": "resolved", "payload": {"approved": True}}
NO = {"status": "cancelled"}


class Script:
    """A program of the judge: a JSON line in, a JSON line out."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        node, folder = need_program("node"), folder or need_node_modules("ag-ui")
        self.process = subprocess.Popen(
            [node, name], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the judge has gone"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self.process.stdout.close()


class Server:
    """A gateway in a process of its own, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        program = Path(__file__).with_name("ag_ui_server.py")
        command = [sys.executable, str(program), str(self.folder / "runs.db"), str(self.port), TOKEN]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != str(self.port):
            self.stop()
            pytest.fail("the server does not start; what it said is above")

    def stop(self, how: int = signal.SIGKILL) -> None:
        if self.process is None:
            return
        with self.process as process:
            process.send_signal(how)
            process.wait(timeout=120)
        self.process = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the gateway's own API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"authorization": f"Bearer {TOKEN}"}
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        reply = connection.getresponse()
        data = json.loads(reply.read())
        connection.close()
        assert reply.status < 300, data
        return data


class Page:
    """A page with the judge's client in it. What it has after each run is held to our own rules, too."""

    def __init__(self, script: Script, server: Server, agent: str, thread: str | None = None) -> None:
        self.script, self.thread = script, thread or f"thread-{agent}"
        url = f"http://127.0.0.1:{server.port}/v1/ag-ui/agents/{agent}/run"
        self.now = script.ask({"do": "open", "url": url, "token": TOKEN, "thread": self.thread})

    def say(self, name: str, text: str) -> None:
        self.now = self.script.ask({"do": "say", "id": name, "text": text})

    def run(self, name: str, answers: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        before = self.now
        asked = {"do": "run", "run": name, **more} | ({} if answers is None else {"answers": answers})
        self.now = self.script.ask(asked)
        if self.now.get("body"):
            report = [json.loads(line.removeprefix("data: ")) for line in self.now["body"].split("\n\n")[:-1]]
            known = [message for message in before["messages"] if message["role"] != "activity"]
            check(report, thread_id=self.thread, run_id=name, known=known)
            ours = Client(before["messages"], before["state"]).take(report)
            assert (ours.messages, ours.state) == (self.now["messages"], self.now["state"])
        return self.now

    def ask(self, name: str, text: str, **more: Any) -> dict[str, Any]:
        self.say(f"u-{name}", text)
        return self.run(name, **more)

    def of(self, role: str) -> list[str]:
        return [message.get("content", "") for message in self.now["messages"] if message["role"] == role]

    @property
    def results(self) -> dict[str, str]:
        tools = [message for message in self.now["messages"] if message["role"] == "tool"]
        return {tool["toolCallId"].partition(":")[2]: tool["content"] for tool in tools}

    @property
    def pending(self) -> list[str]:
        return [one["id"] for one in self.now["pending"]]


@pytest.fixture(scope="module", params=["1.0.0", "0.0.59"])
def version(request: pytest.FixtureRequest) -> str:
    """Of the client. CopilotKit brings the older one."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def server(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_program("node")
    found = Server(tmp_path_factory.mktemp("ag-ui"))
    found.start()
    yield found
    found.stop(signal.SIGTERM)


@pytest.fixture
def script(version, tmp_path) -> Iterator[Script]:
    folder = need_node_modules("ag-ui")
    if version != "1.0.0":
        shutil.copy(folder / "client.mjs", tmp_path)
        folder = tmp_path
        (folder / "node_modules").symlink_to(need_node_modules("copilotkit") / "node_modules")
    package = folder / "node_modules" / "@ag-ui" / "client" / "package.json"
    assert json.loads(package.read_text(encoding="utf-8"))["version"] == version
    found = Script("client.mjs", folder)
    yield found
    found.close()


@pytest.fixture
def page(script, server, request):
    return Page(script, server, request.param)


def on(agent: str) -> Any:
    """The page talks to this agent."""
    return pytest.mark.parametrize("page", [agent], indirect=True)


# --- against the gateway ---------------------------------------------------------------------------------------------


@on("plain")
def test_a_conversation_of_two_runs(page):
    page.ask("r1", "hi")
    now = page.ask("r2", "and?")
    assert (now["outcome"], now["result"], now.get("error")) == ("success", "hello", None)
    assert [message["role"] for message in now["messages"]] == ["user", "reasoning", "assistant"] * 2
    assert len({message["id"] for message in now["messages"]}) == 6
    assert now["warnings"] == []


@on("refunds")
def test_two_interrupts_must_both_be_answered_and_one_may_be_declined(page):
    now = page.ask("r1", "refund both")
    assert (now["outcome"], len(now["pending"])) == ("interrupt", 2)
    first, second = page.pending
    assert now["events"][-3:] == ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]

    now = page.run("r2", resume=[{"interruptId": first, **YES}])
    assert "1 pending interrupt(s) not addressed" in now["error"]
    assert now["posts"] == 1
    assert page.pending == [first, second]

    now = page.run("r3", {first: YES, second: {"status": "resolved", "payload": {"approved": False, "reason": "no"}}})
    assert (now["outcome"], now["pending"], now.get("error")) == ("success", [], None)
    assert page.results == {"c1": "paid 5 for 1", "c2": "The reviewer denied this call: no"}
    assert page.of("assistant") == ["Two refunds. ", "done"]
    assert not {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"} & set(now["events"])
    assert now["state"]["greenroom"]["stage"] == "completed"
    assert now["warnings"] == []


@on("mixed")
def test_edited_arguments_and_a_value_in_place_of_a_result(page):
    now = page.ask("r1", "go")
    paying, asking = sorted(now["pending"], key=lambda one: one["toolCallId"])
    assert "editedArgs" in paying["responseSchema"]["properties"]
    edited = {"approved": True, "editedArgs": {"order": "9", "cents": 1}}
    answers = {paying["id"]: {"status": "resolved", "payload": edited}}
    now = page.run("r2", {**answers, asking["id"]: {"status": "resolved", "payload": "Oslo"}})
    assert (now["outcome"], now.get("error")) == ("success", None)
    assert page.results == {"c1": "paid 1 for 9", "c2": "Oslo"}


def test_a_page_that_has_forgotten_its_interrupts_is_reported_and_nothing_happens(script, server):
    page = Page(script, server, "refunds", thread="forgetful")
    page.ask("r1", "refund both")
    asked = page.pending
    page.now = script.ask({"do": "forget"})
    now = page.ask("r2", "something else")
    assert (now["outcome"], now["code"]) == ("error", "interrupts_open")
    for name in asked:
        assert name in now["body"]
    now = page.run("r3", resume=[{"interruptId": name, **NO} for name in asked])
    assert now["outcome"] == "success"
    assert page.of("user") == ["refund both", "something else"]


@on("late")
def test_an_expired_interrupt_can_only_be_cancelled(page, server, version):
    page.ask("r1", "go")
    (name,) = page.pending
    while server.ask("GET", "/v1/runs?thread=thread-late")["runs"][0]["status"] != "done":
        pass
    now = page.run("r2", {name: YES})
    if version == "1.0.0":
        assert "can no longer be answered" in now["error"]
        assert now["posts"] == 1
        now = page.run("r3", {name: NO})
    else:  # an error would leave it with the interrupt for ever
        assert "CUSTOM" in now["events"]
    assert (now["outcome"], now["pending"], now.get("error")) == ("success", [], None)
    assert page.results == {"c1": "The approval expired: no decision came in time."}


def test_a_user_who_lets_an_interrupt_expire_can_continue_with_something_else(script, server):
    page = Page(script, server, "late", thread="gone-on")
    page.ask("r1", "go")
    (name,) = page.pending
    while server.ask("GET", "/v1/runs?thread=gone-on")["runs"][0]["status"] != "done":
        pass
    page.say("u2", "something else")
    now = page.run("r2", {name: NO})
    assert (now["outcome"], now.get("error")) == ("interrupt", None)
    assert page.pending != [name]
    assert [message["role"] for message in now["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert now["warnings"] == []


@on("stumbling")
def test_text_that_was_taken_back_is_gone(page):
    now = page.ask("r1", "hi")
    assert (now["outcome"], now.get("error")) == ("success", None)
    assert page.of("assistant") == ["Hello"]
    assert now["events"].count("MESSAGES_SNAPSHOT") == 1
    assert now["warnings"] == []


@on("broken")
def test_a_failure_is_an_error_with_a_code(page):
    now = page.ask("r1", "hi")
    assert (now["outcome"], now["code"]) == ("error", "model_error")
    assert page.of("assistant") == []


@on("slow")
def test_a_stream_that_was_given_up_gets_an_error_again_and_a_run_that_is_cancelled_says_so(page, server, version):
    page.ask("r1", "wait", words="Wait. ")
    assert page.of("assistant") == ["Wait. "]
    (run,) = server.ask("GET", "/v1/runs?thread=thread-slow")["runs"]
    assert run["status"] == "running"
    server.ask("POST", f"/v1/runs/{run['run']}/commands", {"type": "cancel", "reason": "enough"})
    now = page.run("r1")
    if version == "1.0.0":
        assert (now["outcome"], now["said"], now.get("error")) == ("cancelled", "cancelled", None)
    else:  # it knows no such outcome
        assert (now["outcome"], now["code"], now.get("said")) == ("error", "cancelled", None)
        assert now["state"]["greenroom"]["stage"] == "cancelled"
    assert page.of("assistant") == ["Wait. "]
    assert page.results == {"w1": "This call was cancelled before it finished."}
    (activity,) = [message for message in now["messages"] if message["role"] == "activity"]
    assert (activity["content"]["fraction"], activity["content"]["output"]) == (0.5, ["waiting ..."])


def test_a_server_that_is_killed_and_comes_back_continues_where_it_was(script, tmp_path):
    own = Server(tmp_path)
    own.start()
    try:
        page = Page(script, own, "refunds")
        page.ask("r1", "refund both")
        first, second = page.pending
        own.stop()
        now = page.run("r2", {first: YES, second: NO})
        assert "error" in now
        own.start()
        now = page.run("r3", {first: YES, second: NO})
        assert (now["outcome"], now["pending"], now.get("error")) == ("success", [], None)
        assert page.results == {"c1": "paid 5 for 1", "c2": "The reviewer denied this call."}
        assert page.of("assistant") == ["Two refunds. ", "done"]
        own.stop()
        own.start()
        body = now["body"]
        page = Page(script, own, "refunds")  # the page was reloaded, and remembers nothing
        page.say("u-r1", "refund both")
        first_again = page.run("r1")
        assert (first_again["outcome"], page.pending) == ("interrupt", [first, second])
        again = page.run("r3", {first: YES, second: NO})
        assert again["body"] == body
    finally:
        own.stop(signal.SIGTERM)


@on("plain")
def test_what_is_wrong_with_a_request_is_a_status(page, server):
    page.ask("w1", "hi")
    page.say("w2", "something else")
    now = page.run("w1")
    assert now["status"] == 409
    assert "run_exists" in now["error"]


# --- recorded streams ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Script]:
    found = Script("streams.mjs")
    yield found
    found.close()


def test_every_stream_of_random_lives_passes_and_comes_to_the_same_messages_as_our_own_client(pipeline, seed):
    draw = random.Random(seed)
    for _ in range(40):
        life = Life(
            seed=draw.getrandbits(32),
            moves=draw.randrange(120),
            mode=draw.choice(("sequential", "parallel_batch_approval", "parallel_streaming")),
            hooked=draw.random() < 0.5,
            on_deny=draw.choice(("continue", "cancel_run")),
            on_new_input=draw.choice(("queue", "supersede")),
        )
        ours = Client([QUESTION], {})
        for number, events in enumerate(converse(life.events())[1]):
            asked = {"messages": ours.messages, "state": ours.state, "thread": "th", "run": "x", "events": events}
            answer = pipeline.ask(asked)
            ours.take(events)
            assert answer.get("error") is None, (life, number)
            assert answer["warnings"] == [], (life, number)
            assert answer["messages"] == ours.messages, (life, number)
            assert answer["state"] == (ours.state or {}), (life, number)
            asked_for = ours.interrupts if ours.outcome == "interrupt" else []
            assert answer["pending"] == asked_for, (life, number)


@pytest.mark.parametrize("index", range(len(PLANTED)))
def test_the_pipeline_refuses_the_faults_that_our_checker_takes_for_its_rules(pipeline, index):
    rule, plant = PLANTED[index]
    out = sound()
    plant(out)
    answer = pipeline.ask({"messages": [QUESTION], "state": {}, "thread": "th", "run": "x", "events": out})
    assert ("error" in answer) is (rule in FOUND_BY_ALL), answer.get("error")
