"""The console in a real Chromium, before a real gateway in a process of its own."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "operator-token-of-the-tests"
LOOKER = "looker-token-of-the-tests"
PATIENCE = 60_000  # ms that a busy machine may take for what takes none


def expect(target: Any) -> Any:
    """Playwright's assertions: each waits until it is true, however slow the machine is.

    What a page shows comes a frame, a round trip or a task later than what causes it, so a plain `assert` about a page
    is a race. Of what must not happen, wait first for something that comes after it (`Console.press`).
    """
    from playwright.sync_api import expect as waiting  # absent where these tests are skipped

    waiting.set_options(timeout=PATIENCE)
    return waiting(target)


class Server:
    """A gateway that can be killed and started again on its port and database."""

    def __init__(self, folder: Path) -> None:
        self.database, self.log = folder / "runs.db", folder / "server.log"
        self.url, self._process = "", None

    def start(self) -> "Server":
        port = self.url.rpartition(":")[2] or str(free_port())
        command = [sys.executable, str(Path(__file__).with_name("server.py")), str(self.database), port, TOKEN, LOOKER]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = self._process.stdout.readline().strip()
        assert self.url, self.log.read_text()
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def get(self, path: str) -> Any:
        return self._ask(path, None)

    def post(self, path: str, **body: Any) -> Any:
        return self._ask(path, json.dumps(body).encode())

    def start_run(self, agent: str, text: str = "go") -> str:
        return self.post("/v1/runs", agent=agent, text=text)["run"]

    def let_go(self, run: str) -> None:
        """What counts in this run may end."""
        self.database.with_name(f"{self.database.name}.{run}").touch()

    def events(self, run: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.get(f"/v1/runs/{run}/events?limit=1000&after={len(found)}")
            found += page["events"]
            if len(found) >= page["head"]:
                return found

    def payloads(self, run: str, *types: str) -> list[dict[str, Any]]:
        return [event["payload"] for event in self.events(run) if event["type"].removeprefix("run.") in types]

    def _ask(self, path: str, body: bytes | None) -> Any:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - our own server
            return json.load(response)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave it running."""
    one = Server(tmp_path_factory.mktemp("console"))
    try:
        yield one.start()
    finally:
        one.kill()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    """For tests that kill it."""
    one = Server(tmp_path)
    try:
        yield one.start()
    finally:
        one.kill()


class Console:
    """A page with the console.

    Attributes:
        page: Playwright's page.
        said: what the browser's console says; a test fails if anything is left in it at its end.
        urls: every address that the page asked for.
    """

    def __init__(self, page: "Page", server: Server) -> None:
        self.page, self.server = page, server
        self.said: list[str] = []
        self.urls: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"page error: {error}"))
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("websocket", lambda socket: self.urls.append(socket.url))

    def open(self, run: str | None = None, *, token: str = TOKEN) -> "Console":
        self.page.goto(f"{self.server.url}/#token={token}" + (f"&run={run}" if run else ""))
        self.page.locator("#link[data-state=live]").wait_for()
        if run is not None:
            self.page.locator("#page:not([hidden]) .timeline .row").first.wait_for()
        return self

    def start(self, agent: str, text: str = "go") -> str:
        """Start a run by the API, and show it."""
        run = self.server.start_run(agent, text)
        self.open(run)
        return run

    def press(self, *keys: str) -> None:
        """Press keys, and wait until the page has received them and drawn: for keys that must do nothing."""
        page = self.page
        page.evaluate(
            """() => { window.keysHeard = 0; window.hearing ??= addEventListener("keydown", () => {
                requestAnimationFrame(() => setTimeout(() => { keysHeard += 1; })); }, true) ?? true; }"""
        )
        for key in keys:
            page.keyboard.press(key)
        self.until(f"keysHeard === {len(keys)}")

    def stage(self, name: str) -> None:
        """Wait for a stage."""
        self.page.locator(f"#run-stage.chip-{name}").wait_for()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def until(self, expression: str) -> None:
        """Wait for a JavaScript expression; Playwright's own way is forbidden by the page's policy."""
        for _ in range(PATIENCE // 50):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never came true: {expression}")

    def no_sideways_scroll(self) -> None:
        """Nothing is wider than the page, whatever is in it."""
        wide = self.page.evaluate(
            """() => [...document.querySelectorAll(":root, .scroller, .side-scroll, .page-side, dialog")]
                .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
                .map((one) => `${one.tagName}.${one.className}: ${one.scrollWidth} > ${one.clientWidth}`)"""
        )
        assert wide == []


NETWORK = ("WebSocket connection to", "Failed to load resource: net::")
"""What Chromium itself writes when no answer comes; no page can prevent it."""
LEFT = "WebSocket is closed before the connection is established."
"""What Chromium itself writes of a page that is left while it connects; the page is not there any more."""


@pytest.fixture
def consoles(chromium: "Browser", server: Server) -> Iterator[Callable[..., Console]]:
    """Makes pages, each in a browser of its own; at the end none may have said anything on the browser's console."""
    made: list[tuple[Console, bool]] = []

    def make(of: Server = server, *, outages: bool = False, **options: Any) -> Console:
        # what moves is drawn sixty times a second, by the processor
        usual = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", "reduced_motion": "reduce"}
        context = chromium.new_context(**{**usual, **options})
        made.append((Console(context.new_page(), of), outages))
        return made[-1][0]

    yield make
    for console, _ in made:
        console.page.context.close()
    said = [line for console, outages in made for line in console.said if not is_network(line, outages=outages)]
    assert said == []


def is_network(line: str, *, outages: bool) -> bool:
    """True of what the browser says by itself."""
    kind, _, text = line.partition(": ")
    return kind in ("error", "warning") and text.startswith(NETWORK) and (outages or text.endswith(LEFT))


@pytest.fixture
def console(consoles: Callable[..., Console]) -> Console:
    """One page on a wide screen."""
    return consoles()
