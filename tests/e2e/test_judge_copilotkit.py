"""CopilotKit's runtime (Node) and its chat (React, in Chromium) judge the AG-UI road, as docs/frontends.md has them.

The page shows what a person sees, the gateway says what has happened.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..support.frontend_pages import PATIENCE, Gateway, page_files, running, served, team_served
from ..support.judges import FOLDER, need_node_modules, need_program
from ..support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

MUTE = {"COPILOTKIT_TELEMETRY_DISABLED": "1", "DO_NOT_TRACK": "1"}
"""CopilotKit reports its use to its makers otherwise."""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the blocks, and the npm packages."""
    return page_files(root, tmp_path_factory.mktemp("copilotkit"), "copilotkit")


@pytest.fixture(scope="module")
def gateway(root: Path, folder: Path) -> Iterator[Gateway]:
    with served(root, folder) as found:
        yield found


@pytest.fixture(scope="module")
def team(folder: Path) -> Iterator[Gateway]:
    """It cancels the run of a stream that its client closes."""
    with team_served(folder) as found:
        yield found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Where the page is."""
    with running([need_program("node"), str(FOLDER / "copilotkit" / "page.mjs"), str(folder)], folder) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the page cannot be built; what is wrong is above"
        yield f"http://127.0.0.1:{port}"


class Chat:
    """A person at the chat."""

    def __init__(self, page: "Page", gateway: Gateway, thread: str) -> None:
        self.page, self.gateway, self.thread = page, gateway, thread

    @property
    def box(self) -> "Locator":
        return self.page.locator("textarea")

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def see(self, text: str, count: int = 1) -> None:
        """Wait until the chat has the text so many times."""
        shown = self.page.get_by_text(text, exact=False)
        shown.nth(count - 1).wait_for()
        assert shown.count() == count

    def click(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def stop(self) -> None:
        """Click until the page asks the runtime to stop.

        The button that sends is the button that stops while the agent works. The chat replaces its welcome screen, and
        that button with it, about when the first text comes: a click whose two halves fall on two buttons is none.
        """
        from playwright.sync_api import TimeoutError as TooLate

        while True:
            try:
                with self.page.expect_request("**/stop/**", timeout=5000):
                    self.page.get_by_test_id("copilot-send-button").click(timeout=5000)
            except TooLate:
                assert self.runs[-1]["status"] == "running", "the run has ended before the page asked to stop"
            else:
                return

    def reload(self) -> None:
        self.page.reload()
        self.box.wait_for()

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.gateway.runs(self.thread)

    def ended(self, number: int = 1) -> dict[str, Any]:
        """The run of this number, the newest first, once it is done."""
        while (run := self.runs[-number])["status"] != "done":
            pass
        return run

    def result(self) -> dict[str, Any]:
        """Of the call of the oldest run."""
        events = self.gateway.ask("GET", f"/v1/runs/{self.runs[-1]['run']}/events?limit=1000")[1]["events"]
        (found,) = [event["payload"] for event in events if event["type"] == "run.tool.result"]
        result: dict[str, Any] = found
        return result


@contextmanager
def copilot(folder: Path, gateway: Gateway) -> Iterator[str]:
    """The runtime of the page, for this gateway."""
    port = free_port()
    given = {"GATEWAY": gateway.url, "TOKEN": gateway.token, "PORT": str(port), **MUTE}
    with running([need_program("node"), "copilot.js"], folder, **given) as process:
        found = Gateway(port, "")
        while not answers(found):
            assert process.poll() is None
        yield f"{found.url}/api/copilotkit"


def answers(place: Gateway) -> bool:
    try:
        return place.ask("GET", "/api/copilotkit/info")[0] == 200
    except ConnectionRefusedError:
        return False


@pytest.fixture(scope="module")
def runtime(folder: Path, gateway: Gateway) -> Iterator[str]:
    with copilot(folder, gateway) as found:
        yield found


@contextmanager
def opened(
    chromium: "Browser", address: str, runtime: str, gateway: Gateway, agent: str, thread: str
) -> Iterator[Chat]:
    """A window with a chat. It reaches nothing but this machine."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    local = ("http://127.0.0.1", "data:", "blob:")
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(local) else route.abort())
    page.goto(f"{address}/?runtime={runtime}&agent={agent}&thread={thread}")
    chat = Chat(page, gateway, thread)
    chat.box.wait_for()
    try:
        yield chat
    finally:
        context.close()


@pytest.fixture
def chat(chromium, address, runtime, gateway, request) -> Iterator[Chat]:
    thread = f"{request.node.name.partition('[')[0]}-{free_port()}"  # another one when a test runs again
    with opened(chromium, address, runtime, gateway, getattr(request, "param", "desk"), thread) as found:
        yield found


def test_a_refund_is_approved_and_the_chat_continues(chat):
    chat.say("Refund order 7, please.")
    chat.see("refund: This call needs an approval.")
    chat.see('{"order":"7","cents":1200}')
    chat.click("Approve")
    chat.see("The refund is settled.")
    assert chat.ended()["termination"]["kind"] == "natural_end"
    assert chat.result()["result"] == "paid 1200 cents for order 7"
    chat.say("And once more.")
    chat.see("refund: This call needs an approval.")
    chat.see("I pay it back.", 2)
    assert len(chat.runs) == 2


@pytest.mark.parametrize(("button", "reason"), [("Deny", "not now"), ("Dismiss", None)])
def test_a_refund_is_refused_and_the_agent_reads_why(chat, button, reason):
    chat.thread += button
    chat.page.goto(chat.page.url + button)
    chat.say("Refund order 7, please.")
    chat.click(button)
    chat.see("The refund is settled.")
    assert chat.ended()["termination"]["kind"] == "natural_end"
    result = chat.result()
    assert (result["status"], reason is None or reason in result["result"]) == ("cancelled", True)


def test_a_question_is_there_again_after_a_reload(chat):
    chat.say("Refund order 7, please.")
    chat.see("refund: This call needs an approval.")
    chat.reload()
    chat.see("I pay it back.")
    chat.click("Approve")
    chat.see("The refund is settled.")
    chat.see("I pay it back.")
    assert chat.result()["result"] == "paid 1200 cents for order 7"
    assert len(chat.runs) == 1


def test_a_decision_of_someone_else_closes_the_question_and_the_chat_continues(chat):
    chat.say("Refund order 7, please.")
    chat.see("refund: This call needs an approval.")
    (run,) = chat.runs
    command = {"type": "decide", "target": run["asked"][0]["ticketId"], "action": "cancel", "reason": "paid already"}
    assert chat.gateway.ask("POST", f"/v1/runs/{run['run']}/commands", command)[0] == 202
    chat.ended()
    chat.click("Approve")
    chat.see("The refund is settled.")
    assert "paid already" in chat.result()["result"]
    chat.say("And once more.")
    chat.see("refund: This call needs an approval.")


@pytest.mark.parametrize("chat", ["writer"], indirect=True)
def test_the_text_of_a_run_that_is_cancelled_elsewhere_stays_and_the_chat_continues(chat):
    chat.say("A story.")
    chat.see("Once upon a time")
    (run,) = chat.runs
    assert chat.gateway.ask("POST", f"/v1/runs/{run['run']}/commands", {"type": "cancel"})[0] == 202
    chat.ended()
    chat.say("Another one.")
    chat.see("Once upon a time", 2)
    assert [one["status"] for one in chat.runs] == ["running", "done"]


def test_stop_cancels_the_run_where_the_gateway_says_so_and_the_text_stays(chromium, folder, address, team):
    thread = f"stopped-{free_port()}"  # another one when this test runs again
    with copilot(folder, team) as runtime, opened(chromium, address, runtime, team, "writer", thread) as chat:
        chat.say("A story.")
        chat.see("Once upon a time")
        chat.stop()
        assert chat.ended()["termination"]["kind"] == "cancelled"
        chat.see("Once upon a time")
        chat.reload()
        chat.see("Once upon a time")
        events = team.ask("GET", f"/v1/runs/{chat.runs[0]['run']}/events?limit=1000")[1]["events"]
        (cut,) = [event["payload"] for event in events if event["type"] == "run.message.completed"]
        assert (cut["text"], cut["cut"]) == ("Once upon a time ", True)


def test_the_runtime_reports_nothing_to_its_makers() -> None:
    script = "import('@copilotkit/shared').then(({isTelemetryDisabled: off}) => process.exit(off() ? 0 : 1))"
    command = [need_program("node"), "-e", script]
    folder = need_node_modules("copilotkit")
    done = subprocess.run(command, cwd=folder, env=os.environ | MUTE, timeout=PATIENCE, check=False)
    assert done.returncode == 0
