"""The doors that have the events as they are: server-sent events, the WebSocket, the command line."""

import http.client
import json
import subprocess
import time
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from .door import CITY, INPUT, TOO_LATE, Door, Ending
from .house import AGAIN, PATIENCE, TERMINAL, TOKEN, pause, until

LOST = (OSError, ConnectionClosed, InvalidHandshake)
"""What the WebSocket's client raises when the gateway was killed."""


NOTHING_OPEN = ("waits for a decision", "is no open ticket")
"""What the command line says before it asks a gateway."""


class EventDoor(Door):
    """What these doors have in common: a list of events, and decisions by ticket."""

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.events: list[dict[str, Any]] = []
        self.stack = ExitStack()
        self._read = 0
        self.ticket: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> None:
        """One more event: none is missing, none comes twice, none follows the end."""
        assert event["sequence"] == len(self.events) + 1, (self, event)
        assert not self.events or self.events[-1]["type"] not in TERMINAL, (self, event)
        self.events.append(event)

    def more(self) -> None:
        """Read at least one more event, or find out that the connection is lost."""
        raise NotImplementedError

    def next(self) -> dict[str, Any] | None:
        """The next event; None behind the terminal one."""
        end = time.monotonic() + 2 * PATIENCE
        while self._read == len(self.events):
            assert time.monotonic() < end, self
            if self.events and self.events[-1]["type"] in TERMINAL:
                return None
            self.more()
        self._read += 1
        return self.events[self._read - 1]

    def question(self) -> str | None:
        while (event := self.next()) is not None:
            if event["type"] == "run.approval.requested":
                self.ticket = event["payload"]
                self.asked = self.ticket["ticketId"]
                return self.asked
        return None

    @property
    def value(self) -> str | None:
        """What the newest question wants beside a yes."""
        return CITY if self.ticket.get("responseSchema") else None

    def answer(self, *, yes: bool) -> dict[str, Any]:
        """The fields of the decision."""
        fields = {"target": self.asked, "fingerprint": self.ticket["fingerprint"]}
        return {**fields, "action": "approve", "result": self.value} if yes else {**fields, "action": "deny"}

    def ended(self) -> Ending:
        while self.next() is not None:
            pass
        return Ending(
            status=self.events[-1]["type"].removeprefix("run."),
            texts=[event["payload"]["text"] for event in self.events if event["type"] == "run.message.completed"],
            results=results_of(self.events),
            output=self.events[-1]["payload"].get("output"),
            events=self.events,
        )


def results_of(events: list[dict[str, Any]]) -> list[Any]:
    """What calls have come to."""
    ended = [event["payload"] for event in events if event["type"] == "run.tool.result"]
    return [payload["result"] for payload in ended if payload["status"] == "succeeded"]


class SseDoor(EventDoor):
    """Server-sent events, and commands by POST."""

    name = "sse"
    _response: http.client.HTTPResponse | None = None
    _last_id = ""

    def start(self, key: str) -> str:
        order = {"agent": "desk", "text": INPUT, "thread": f"thread-{key}", "run": f"run-{key}"}
        _, data = until(lambda: self.gateway.ask("POST", "/v1/runs", order, name=key))
        run: str = data["run"]
        return run

    def more(self) -> None:
        try:
            self._response, last_id = self._response or self._open(), ""
            while line := self._response.readline().decode():
                if line.startswith("id: "):
                    last_id = line[4:-1]
                if line.startswith("data: "):
                    self.take(json.loads(line[6:]))
                    self._last_id = last_id
                    return
        except AGAIN:
            pause()
        self.close()

    def _open(self) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=PATIENCE)
        self.stack.callback(connection.close)
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream"}
        headers |= {"Last-Event-ID": self._last_id} if self._last_id else {}
        connection.request("GET", f"/v1/runs/{self.run}/events", headers=headers)
        response = self.stack.enter_context(connection.getresponse())
        assert response.status == 200, response.read()
        return response

    def decide(self, *, yes: bool = True) -> None:
        self.command("decide", **self.answer(yes=yes))

    def cancel(self) -> None:
        self.command("cancel", reason="enough")

    def command(self, kind: str, **fields: Any) -> None:
        """Send a command until there is an answer."""
        name = f"1-{kind}-{self.run}-{self.asked}"
        path = f"/v1/runs/{self.run}/commands"
        status, data = until(lambda: self.gateway.ask("POST", path, {"type": kind, **fields}, name=name))
        assert status == 202 or data["error"]["code"] in TOO_LATE, data

    def ended(self) -> Ending:
        """The stream ends behind the terminal event; after a kill that one without another event does."""
        found = super().ended()
        assert b"data:" not in until(self._rest)
        return found

    def _rest(self) -> bytes | None:
        try:
            self._response = self._response or self._open()
            return self._response.read()
        except AGAIN:
            self.close()
            return None

    def close(self) -> None:
        self.stack.close()
        self._response = None


class WebSocketDoor(EventDoor):
    """The WebSocket, with somebody else's client."""

    name = "websocket"
    _socket: ClientConnection | None = None

    def start(self, key: str) -> str:
        order = {"agent": "desk", "text": INPUT, "thread": f"thread-{key}", "run": f"run-{key}"}
        run: str = self.command("start", key, **order)["run"]
        return run

    def follow(self, run: str, thread: str) -> None:
        super().follow(run, thread)
        self.close()

    def more(self) -> None:
        frame = self._heard()
        if frame is not None:
            self._keep(frame)

    def _heard(self, *command: str) -> dict[str, Any] | None:
        """The next frame, after a command if there is one; None if the connection is lost."""
        try:
            if self._socket is None:
                self._socket = self._open()
            for frame in command:
                self._socket.send(frame)
            heard: dict[str, Any] = json.loads(self._socket.recv(PATIENCE))
        except LOST:
            pause()
            self.close()
            return None
        return heard

    def _open(self) -> ClientConnection:
        headers, url = {"Authorization": f"Bearer {TOKEN}"}, f"ws://127.0.0.1:{self.gateway.port}/v1/ws"
        options: dict[str, Any] = {"subprotocols": ["greenroom.v1"], "additional_headers": headers, "proxy": None}
        socket: ClientConnection = self.stack.enter_context(connect(url, **options))
        assert json.loads(socket.recv(PATIENCE))["type"] == "gw.welcome"
        if self.run:
            socket.send(json.dumps({"type": "subscribe", "run": self.run, "after": len(self.events)}))
        return socket

    def _keep(self, frame: dict[str, Any]) -> None:
        if not frame["type"].startswith("gw."):
            self.take(frame)
        elif frame["type"] == "gw.unsubscribed":
            assert (frame["reason"], self.events[-1]["type"] in TERMINAL) == ("done", True), frame

    def decide(self, *, yes: bool = True) -> None:
        self.command("decide", f"2-{self.asked}", run=self.run, **self.answer(yes=yes))

    def cancel(self) -> None:
        self.command("cancel", f"2-cancel-{self.run}", run=self.run, reason="enough")

    def command(self, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        """Send a command until there is an answer."""
        order = json.dumps({"type": kind, "id": name, **fields})
        frame = self._heard(order)
        while frame is None or frame["type"] not in ("gw.ack", "gw.error"):
            if frame is None:
                frame = self._heard(order)
            else:
                self._keep(frame)
                frame = self._heard()
        assert frame["id"] == name, frame
        assert frame["type"] == "gw.ack" or frame["code"] in TOO_LATE, frame
        return frame

    def close(self) -> None:
        self.stack.close()
        self._socket = None


class CliDoor(EventDoor):
    """The command line: it starts a run in its own process, and follows and decides at a gateway."""

    name = "cli"
    _process: "subprocess.Popen[str] | None" = None

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self._at = ("--url", self.gateway.url, "--token-file", str(self.house.folder / "token"))

    def start(self, key: str) -> str:
        run = f"run-{key}"
        done = self.house.cli("run", "agents.py:desk", INPUT, "--run-id", run, "--no-approve", "--json")
        assert done.returncode == 3, done.stderr
        return run

    def more(self) -> None:
        if self._process is None:
            follow = ("follow", self.run, "--after", str(len(self.events)), "--json", *self._at)
            self._process = self.stack.enter_context(self.house.cli.started(*follow))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:  # it does not wait for a gateway that was not there when it began
            self.close()
            pause()
        elif "sequence" in (event := json.loads(line)):
            self.take(event)

    def decide(self, *, yes: bool = True) -> None:
        value = ("--result", json.dumps(self.value)) if yes and self.value else ()
        self.command("approve" if yes else "deny", self.asked, "--yes", *value)

    def cancel(self) -> None:
        self.command("cancel", "--reason", "enough")

    def command(self, kind: str, *words: str) -> None:
        """Type a command until there is an answer."""
        name = f"3-{kind}-{self.run}-{self.asked}"

        def typed() -> bool | None:
            done = self.house.cli(kind, self.run, *words, "--id", name, "--json", *self._at)
            said = done.stdout + done.stderr
            answered = done.returncode == 0 or any(text in said for text in (*TOO_LATE, *NOTHING_OPEN))
            assert answered or done.returncode != 2, said
            return True if answered else None

        until(typed)

    def ended(self) -> Ending:
        """The outcome is the last line, and the exit code says the same."""
        found = super().ended()
        if self._process is not None:
            assert self._process.stdout is not None
            (outcome,) = map(json.loads, self._process.stdout)
            code = self._process.wait(PATIENCE)
            assert (outcome["type"], outcome["status"], outcome["exit"]) == ("outcome", found.status, code)
            assert code == {"completed": 0, "cancelled": 4}[found.status]
        return found

    def close(self) -> None:
        self.stack.close()
        self._process = None
