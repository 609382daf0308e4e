"""The official A2A clients judge: npm @a2a-js/sdk 1.3.0 and PyPI a2a-sdk 1.3, in separate processes, in both bindings.

Their codecs read and write every message. Each stream is held to `tests/support/a2a_rules.py` besides.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ..support.a2a_client import decides, says, state, tickets
from ..support.a2a_rules import AT_REST, Client, check, plain
from ..support.judges import FOLDER, need_node_modules, need_program
from ..support.ports import free_port
from ..support.wait_for_port import wait_for_port

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

TOKEN = "a-token-for-the-judge"
FULL = os.environ.get("GREENROOM_CHAOS") == "full"
JUDGES = [(kind, binding) for kind in ("python", "js") for binding in ("HTTP+JSON", "JSONRPC")]


class House:
    """A gateway in a separate process, on one database and one port through all its lives."""

    def __init__(self, folder: Path, place: str = "") -> None:
        self.folder, self.port, self.place = folder, free_port(), place or str(folder / "runs.db")
        self.start()

    def start(self) -> None:
        script = Path(__file__).with_name("a2a_server.py")
        command = [sys.executable, str(script), self.place, str(self.port), TOKEN, str(self.folder)]
        self.process = subprocess.Popen(command)
        wait_for_port(self.port)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def url(self, agent: str) -> str:
        return f"http://127.0.0.1:{self.port}/v1/a2a/{agent}"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One gateway for all judges: their messages have ids of their own."""
    house = House(tmp_path_factory.mktemp("house"))
    yield house
    house.kill()


class Judge:
    """An official client of one agent: a JSON line in, JSON lines out."""

    def __init__(self, kind: str, binding: str, url: str) -> None:
        if kind == "js":
            command = [need_program("node"), "js_client.mjs"]
        else:
            command = [sys.executable, str(FOLDER / "a2a" / "python_client.py")]
        cwd = need_node_modules("a2a") if kind == "js" else None
        self.name = f"{kind}-{binding}"
        self.process = subprocess.Popen(
            [*command, url, binding, TOKEN], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self, name: str, *parts: Any, **more: Any) -> dict[str, Any]:
        """A message whose id no other judge has."""
        return says(f"{self.name}/{name}", *parts, **more)

    def say(self, name: str, **params: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": name, "params": params}) + "\n")
        self.process.stdin.flush()

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the judge has gone"
        said: dict[str, Any] = json.loads(line)
        return said

    def ask(self, name: str, **params: Any) -> dict[str, Any]:
        self.say(name, **params)
        said = self.line()
        if "item" in said:  # Python's client answers a message that is not streamed as a stream of one
            assert self.line() == {"end": None}
            return dict(said["item"])
        return dict(said["result"])

    def refused(self, name: str, **params: Any) -> dict[str, Any]:
        self.say(name, **params)
        while "error" not in (said := self.line()):
            assert "end" not in said, said
        return dict(said["error"])

    def items(self, name: str, **params: Any) -> list[dict[str, Any]]:
        self.say(name, **params)
        return self.rest()

    def rest(self) -> list[dict[str, Any]]:
        """The items up to the end of the stream, or to its cut."""
        items = []
        while "item" in (said := self.line()):
            items.append(said["item"])
        return items

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def some_judges(*pairs: tuple[str, str]) -> pytest.MarkDecorator:
    """These judges; all in a full sweep (`make chaos`)."""
    judges = JUDGES if FULL else [*pairs]
    return pytest.mark.parametrize("open_judge", judges, indirect=True, ids=["-".join(pair) for pair in judges])


@pytest.fixture(params=JUDGES, ids=["-".join(pair) for pair in JUDGES])
def open_judge(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Open an official client of an agent."""
    judges = []

    def open_one(house: House, agent: str) -> Judge:
        judges.append(Judge(*request.param, house.url(agent)))
        return judges[-1]

    yield open_one
    for judge in judges:
        judge.close()


def test_the_versions_of_the_judges(capsys):
    js = json.loads((need_node_modules("a2a") / "node_modules/@a2a-js/sdk/package.json").read_text())["version"]
    with capsys.disabled():
        sys.stdout.write(f"\na2a-sdk {version('a2a-sdk')}, @a2a-js/sdk {js}\n")
    assert (js, version("a2a-sdk").rpartition(".")[0]) == ("1.3.0", "1.3")


def test_a_client_finds_the_agent_and_talks_with_it(house, open_judge):
    judge, before = open_judge(house, "refunds"), len(house.effects)
    card = judge.ask("card")
    assert (card["name"], card["capabilities"]["streaming"]) == ("refunds", True)
    client = check(judge.items("stream", message=judge.says("m1", "refund both")))
    assert (state(client.task), len(client.tickets())) == ("INPUT_REQUIRED", 2)
    task, (first, second) = client.task["id"], client.tickets()

    asked = judge.ask("send", message=judge.says("m2", "yes", taskId=task))["task"]
    assert (state(asked), len(tickets(asked)), len(house.effects)) == (
        "INPUT_REQUIRED",
        2,
        before,
    )  # a text never approves
    wrong = decides(first, fingerprint=second["fingerprint"] + "0")
    assert "fingerprint" in judge.refused("stream", message=judge.says("m3", wrong, taskId=task))["message"]
    edited = decides(second, editedArguments={"order": "9", "cents": 1})
    answer = judge.says("m4", decides(first), edited, taskId=task)
    client = check(judge.items("stream", message=answer))
    assert (state(client.task), len(house.effects)) == ("COMPLETED", before + 2)
    assert plain(judge.ask("get", id=task))["artifacts"] == plain(client.task)["artifacts"]
    assert state(judge.ask("send", message=answer)["task"]) == "COMPLETED"
    assert len(house.effects) == before + 2

    again = judge.ask("send", message=judge.says("m1", "refund both"))["task"]
    assert again["id"] == task
    for name, params in (
        ("send", {"message": judge.says("m1", "something else")}),
        ("send", {"message": judge.says("m9", "more", taskId=task)}),
        ("cancel", {"id": task}),
        ("get", {"id": "run_nowhere"}),
        ("subscribe", {"id": task}),
    ):
        assert judge.refused(name, **params)["name"] in (
            *("InvalidParamsError", "UnsupportedOperationError", "TaskNotCancelableError", "TaskNotFoundError"),
            *("RestUnsupportedOperationError", "RestTaskNotCancelableError", "RestTaskNotFoundError"),
            *("RestRequestMalformedError", "JsonRpcRequestMalformedError", "JsonRpcUnsupportedOperationError"),
            *("JsonRpcTaskNotCancelableError", "JsonRpcTaskNotFoundError", "A2AClientError", "JsonRpcTransportError"),
        ), name


@some_judges(("python", "HTTP+JSON"), ("js", "JSONRPC"))
def test_a_client_lists_and_cancels(house, open_judge):
    judge, plain_judge = open_judge(house, "slow"), open_judge(house, "plain")
    place = f"list-{judge.process.pid}"
    sent = [plain_judge.ask("send", message=judge.says(f"l{n}", "hi", contextId=place))["task"]["id"] for n in range(5)]
    pages, token = [], ""
    while not pages or token:
        pages.append(plain_judge.ask("list", contextId=place, pageSize=2, **({"pageToken": token} if token else {})))
        token = pages[-1].get("nextPageToken", "")
    assert [task["id"] for page in pages for task in page["tasks"]] == sent[::-1]
    judge.say("stream", message=judge.says("m1", "go"))
    client = Client()
    while state(client.task) != "WORKING" if client.task else True:
        client.take(judge.line()["item"])
    other = open_judge(house, "slow")
    assert state(other.ask("cancel", id=client.task["id"])) == "CANCELED"
    for item in judge.rest():
        client.take(item)
    assert state(client.task) == "CANCELED"


@some_judges(("python", "JSONRPC"), ("js", "HTTP+JSON"))
def test_nothing_is_lost_or_comes_twice_when_the_gateway_is_killed_between_two_events(house, open_judge, sampled):
    """Killed after each item, the gateway begins again, and the client sends its message again, or subscribes."""
    judge = open_judge(house, "talker")
    whole = 14  # items to the end, and some more of the messages that a killed process leaves
    for number in sampled(range(1, whole), 1):
        before, message = len(house.effects), judge.says(f"m{number}", "go")
        asked: tuple[str, dict[str, Any]] = ("stream", {"message": message})
        left, answers = number, 0
        while True:
            judge.say(*asked[:1], **asked[1])
            items: list[dict[str, Any]] = []
            while "item" in (said := judge.line()):
                items.append(said["item"])
                left -= 1
                if not left:
                    house.kill()
            client = check(items, ended=False) if items else Client()
            if house.process.returncode is not None:
                house.start()
                if items and number % 2 and client.state not in AT_REST:
                    asked = ("subscribe", {"id": client.task["id"]})
                if not items or client.state not in AT_REST:
                    continue
            if client.state != "TASK_STATE_INPUT_REQUIRED":
                break
            answers += 1
            words = {"result": "paid"} if client.tickets()[0]["reason"] == "outcome_unknown" else {}
            answer = judge.says(f"a{number}.{answers}", decides(client.tickets()[0], **words), taskId=client.task["id"])
            asked = ("stream", {"message": answer})
        assert state(client.task) == "COMPLETED"
        assert plain(client.task)["artifacts"] == plain(judge.ask("get", id=client.task["id"]))["artifacts"]
        shown = [text for name, text in client.texts().items() if text]
        assert shown.count("piece 0. piece 1. piece 2. piece 3. ") == 2
        assert shown[-1] == "done"
        assert len(house.effects) == before + 1


@some_judges(("js", "HTTP+JSON"))
def test_another_gateway_on_postgresql_goes_on_where_one_was_killed(folder, postgres_url, open_judge, rng):
    """The client has seen some items at one gateway; the other one takes the message again, and the decision."""
    first, second = House(folder, postgres_url), House(folder, postgres_url)
    try:
        judge = open_judge(first, "talker")
        message = judge.says("m1", "go")
        judge.say("stream", message=message)
        for _ in range(rng.randint(1, 4)):
            assert "item" in judge.line()
        first.kill()
        judge.rest()
        judge = open_judge(second, "talker")
        client = check(judge.items("stream", message=message))
        (ticket,) = client.tickets()
        task = client.task["id"]
        client = check(judge.items("stream", message=judge.says("m2", decides(ticket), taskId=task)))
        assert (state(client.task), len(second.effects)) == ("COMPLETED", 1)
        first.start()
        assert plain(open_judge(first, "talker").ask("get", id=task)) == plain(judge.ask("get", id=task))
    finally:
        first.kill()
        second.kill()
