"""In place of a gateway: it has the runs that a test gives it, and says what a test tells it to say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .conftest import TOKEN, Console
from .generated import beginning, event

ADDRESS = re.compile("/v1/ws$")


class FakeGateway:
    """Stands between a page and the real gateway, and answers for it.

    Attributes:
        runs: run id -> the texts of its events.
        sent: the frames that came from the page.
        principal, scopes: who the page is signed in as.
        more: asked for the answers to a frame that this one does not know.
    """

    def __init__(self, console: Console, *, principal: str = "ada", scopes: Sequence[str] = ("admin",)) -> None:
        self.console = console
        self.principal, self.scopes = principal, list(scopes)
        self.runs: dict[str, list[str]] = {}
        self.sent: list[dict[str, Any]] = []
        self.more: Callable[[dict[str, Any]], Sequence[Any]] = lambda _: []
        self._sockets: list[Any] = []
        console.page.route_web_socket(ADDRESS, self._connect)

    def open(self) -> FakeGateway:
        """Sign the page in."""
        self.console.page.goto(f"{self.console.server.url}/#token={TOKEN}")
        self.console.page.locator("#link[data-state=live]").wait_for()
        return self

    def show(self, run: str, kinds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Let the page show a run with these events, and wait until it does."""
        self.runs[run] = [
            beginning(run),
            *(event(run, n, kind, content) for n, (kind, content) in enumerate(kinds, start=2)),
        ]
        page = self.console.page
        page.evaluate("(run) => { location.hash = `#run=${run}`; }", run)
        self._drawn(run)

    def tell(self, run: str, kind: str, content: dict[str, Any]) -> None:
        """One more event of a run that is shown."""
        self.runs[run].append(event(run, len(self.runs[run]) + 1, kind, content))
        self.send(self.runs[run][-1])
        self._drawn(run)

    def send(self, frame: Any) -> None:
        """Send a frame on the newest connection."""
        self._sockets[-1].send(frame if isinstance(frame, str) else json.dumps(frame))

    def cut(self) -> None:
        """End the newest connection."""
        self._sockets[-1].close(code=1011, reason="cut by the test")

    def _drawn(self, run: str) -> None:
        page = self.console.page
        page.locator("#run-sub code", has_text=re.compile(f"^{re.escape(run)}$")).wait_for()
        count = f"{len(self.runs[run]):,}"
        page.locator("#details .detail-events dd", has_text=re.compile(f"^{count}$")).wait_for()
        self.console.until("document.querySelector('#timeline > .row') !== null")

    def _connect(self, socket: Any) -> None:
        self._sockets.append(socket)

        def heard(text: str) -> None:
            frame = json.loads(text)
            self.sent.append(frame)
            for answer in self._answers(frame):
                socket.send(answer if isinstance(answer, str) else json.dumps(answer))

        socket.on_message(heard)

    def _answers(self, frame: dict[str, Any]) -> Sequence[Any]:
        match frame["type"]:
            case "hello":
                who = {"principal": self.principal, "scopes": self.scopes}
                welcome = {"connection": "c", "server": "s", "protocol": "greenroom.v1", "epoch": "e", **who}
                # This gateway sends no ticks: with 20 s the page would reconnect in a test of more than 45 s.
                return [{"type": "gw.welcome", **welcome, "heartbeatSeconds": 3_600, "limits": {}}]
            case "subscribe" if frame["run"] in self.runs:
                run, after = frame["run"], frame["after"]
                known = self.runs[run]
                first = {"run": run, "after": after, "head": len(known), "mode": "replay", "id": frame["id"]}
                live = {"type": "gw.live", "run": run, "sequence": len(known)}
                return [{"type": "gw.subscribed", **first}, *known[after:], live]
            case _:
                return self.more(frame)
