"""The doors of other programs: a client of MCP, one of A2A, and an editor that speaks ACP."""

import json
import queue
import subprocess
import threading
from contextlib import ExitStack
from typing import Any

from ...support import a2a_rules
from ...support.acp_rules import check_update
from .chats import asked
from .door import CITY, INPUT, TOO_LATE, Door, Ending
from .house import PATIENCE, pause, until

META = "io.modelcontextprotocol/"
CAPABILITIES = {"elicitation": {}, "extensions": {f"{META}tasks": {}}}


class McpDoor(Door):
    """A client of MCP that knows tasks: each run is one, whoever has started it."""

    name = "mcp"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.task: dict[str, Any] = {}

    def start(self, key: str) -> str:
        meta = {"greenroom/run": f"run-{key}"}
        answer = self._ask("tools/call", meta, name="desk", arguments={"input": INPUT})
        run: str = answer["result"]["_meta"]["greenroom/run"]
        return run

    def _ask(self, method: str, meta: Any = None, **params: Any) -> dict[str, Any]:
        """A request, again after each kill; the answer is the last message of a stream."""
        own = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": CAPABILITIES}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": {**own, **(meta or {})}}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        headers["Mcp-Name"] = params.get("name") or params["taskId"]
        while True:
            _, body = until(lambda: asked(self.gateway, "POST", "/v1/mcp", message, headers))
            data = [
                line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith(("data", "{"))
            ]
            answer: dict[str, Any] = json.loads(data[-1])
            assert answer["id"] == 1, answer
            if answer.get("error", {}).get("data", {}).get("code") not in ("store_unavailable", "closing"):
                return answer
            pause()

    def _look(self) -> None:
        self.task = self._ask("tasks/get", taskId=self.run)["result"]

    def question(self) -> str | None:
        self._look()
        while not (fresh := self.task.get("inputRequests", {}).keys() - {self.asked}):
            if self.task["status"] in ("completed", "cancelled", "failed"):
                return None
            pause()
            self._look()
        (self.asked,) = fresh
        return self.asked

    def decide(self, *, yes: bool = True) -> None:
        fields = self.task["inputRequests"][self.asked]["params"]["requestedSchema"]["properties"]
        content = {"decision": "approve"} if "decision" in fields else {"result": CITY}
        answer = {"action": "accept", "content": content} if yes else {"action": "decline"}
        done = self._ask("tasks/update", taskId=self.run, inputResponses={self.asked: answer})
        assert "result" in done or any(code in done["error"]["message"] for code in TOO_LATE), done

    def cancel(self) -> None:
        assert "result" in self._ask("tasks/cancel", taskId=self.run)

    def ended(self) -> Ending:
        self._look()
        while self.task["status"] not in ("completed", "cancelled", "failed"):
            pause()
            self._look()
        done = self.task["status"] == "completed"
        return Ending(status=self.task["status"], output=self.task["result"]["content"][0]["text"] if done else None)

    def close(self) -> None:
        pass


class A2ADoor(Door):
    """A client of A2A in HTTP+JSON; the official protobuf reads what comes."""

    name = "a2a"
    path = "/v1/a2a/desk"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.client = a2a_rules.Client()

    def start(self, key: str) -> str:
        message = {"messageId": f"message-{key}", "role": "ROLE_USER", "parts": [{"text": INPUT}]}
        status, body = self._ask("POST", "/message:stream", {"message": message})
        assert status == 200, body
        self._take(body)
        return str(self.client.task["id"])

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        return until(lambda: asked(self.gateway, method, self.path + path, body, {"A2A-Version": "1.0"}))

    def _take(self, body: bytes) -> None:
        lines = [line for line in body.decode().splitlines() if line.startswith("data: ")]
        items = [json.loads(line.removeprefix("data: ")) for line in lines]
        if items and "error" not in items[-1]:  # else the gateway stops, or the store is away
            self.client = a2a_rules.check(items)

    def _look(self) -> None:
        """Subscribe again, or read the task if it has ended."""
        status, body = self._ask("GET", f"/tasks/{self.run}:subscribe")
        if status == 200:
            self._take(body)
            return
        status, body = self._ask("GET", f"/tasks/{self.run}")
        assert status == 200, body
        self.client = a2a_rules.check([{"task": json.loads(body)}])

    @property
    def _over(self) -> bool:
        return bool(self.client.task) and self.client.state in a2a_rules.TERMINAL

    def question(self) -> str | None:
        while not (fresh := {ticket["ticketId"] for ticket in self._tickets} - {self.asked}):
            if self._over:
                return None
            self._look()
            pause()
        (self.asked,) = fresh
        return self.asked

    @property
    def _tickets(self) -> list[dict[str, Any]]:
        return self.client.tickets() if self.client.task else []

    def decide(self, *, yes: bool = True) -> None:
        (ticket,) = self._tickets
        data = {"ticketId": self.asked, "action": "approve" if yes else "deny", "fingerprint": ticket["fingerprint"]}
        if yes and ticket.get("responseSchema"):
            data["result"] = CITY
        part = {"data": data, "mediaType": a2a_rules.TICKET_TYPE}
        message = {"messageId": f"answer-{self.asked}-{yes}", "role": "ROLE_USER", "parts": [part], "taskId": self.run}
        status, body = self._ask("POST", "/message:send", {"message": message})
        assert status == 200 or any(code.encode() in body for code in TOO_LATE), body

    def cancel(self) -> None:
        status, body = self._ask("POST", f"/tasks/{self.run}:cancel", {})
        assert status == 200 or b"run_done" in body, body

    def ended(self) -> Ending:
        while not self._over:
            self._look()
            pause()
        self._look()  # the whole task
        status = {"TASK_STATE_COMPLETED": "completed", "TASK_STATE_CANCELED": "cancelled"}[self.client.state]
        return Ending(status=status, texts=[*self.client.texts().values()])

    def close(self) -> None:
        pass


class AcpDoor(Door):
    """An editor, with `greenroom acp` as its agent. The bridge connects again by itself."""

    name = "acp"
    _process: "subprocess.Popen[str]"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self._stack, self._lines = ExitStack(), queue.Queue[str]()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        words = ("acp", "--url", self.gateway.url, "--token-file", str(self.house.folder / "token"), "--agent", "desk")
        self._process = self._stack.enter_context(self.house.cli._process(*words, **pipes))
        self._stack.callback(self._process.kill)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._answers: dict[int, dict[str, Any]] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self.texts: dict[str, str] = {}
        self._prompt = self._number = 0
        features = {"elicitation": {"form": {}}, "session": {"notices": {}}}
        self._call("initialize", protocolVersion=1, clientCapabilities=features)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _hear(self, seconds: float) -> bool:
        """Take the next message; False if none comes in time."""
        try:
            message = json.loads(self._lines.get(timeout=seconds))
        except queue.Empty:
            return False
        params = message.get("params", {})
        if "method" not in message:
            self._answers[message["id"]] = message
        elif "id" in message:
            self._open[message["id"]] = params
        elif message["method"] == "$/cancel_request":
            self._open.pop(params["requestId"], None)
        else:
            update = params["update"]
            check_update(update)
            if update["sessionUpdate"] == "agent_message_chunk":
                said = self.texts.get(update["messageId"], "")
                self.texts[update["messageId"]] = said + update["content"]["text"]
        return True

    def _say(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _request(self, method: str, **params: Any) -> int:
        self._number += 1
        self._say(id=self._number, method=method, params=params)
        return self._number

    def _answer(self, number: int) -> dict[str, Any]:
        """The result; or, of a session that works, the error."""
        while number not in self._answers:
            assert self._hear(PATIENCE), self
        answer = self._answers[number]
        assert "result" in answer or answer["error"]["message"].endswith("is open, and works"), answer
        found: dict[str, Any] = answer.get("result", answer)
        return found

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._answer(self._request(method, **params))

    def start(self, key: str) -> str:
        self.thread = self._call("session/new", cwd="/", mcpServers=[])["sessionId"]
        prompt = [{"type": "text", "text": INPUT}]
        self._prompt = self._request("session/prompt", sessionId=self.thread, prompt=prompt)

        def begun() -> str | None:
            _, data = self.gateway.ask("GET", f"/v1/runs?thread={self.thread}")
            return data["runs"][0]["run"] if data.get("runs") else None

        return until(begun)

    def follow(self, run: str, thread: str) -> None:
        super().follow(run, thread)
        if not self._prompt:
            self._load()

    def _load(self) -> None:
        while True:
            self.texts.clear()
            if "error" not in self._call("session/load", sessionId=self.thread, cwd="/", mcpServers=[]):
                return
            pause()  # the bridge has not heard yet what the gateway says: that the run is over

    def question(self) -> str | None:
        while True:
            for ticket in self._tickets() if self._open else ():
                if ticket["ticketId"] != self.asked and self._request_about(ticket) is not None:
                    self.asked = ticket["ticketId"]
                    return self.asked
            if not self._hear(0.1) and self.house.view(self.run)["status"] == "done":
                return None

    def _tickets(self) -> list[dict[str, Any]]:
        tickets: list[dict[str, Any]] = self.house.view(self.run)["tickets"]
        return tickets

    def _request_about(self, ticket: dict[str, Any]) -> int | None:
        """The open request about the call of a ticket: an editor is not told the id of the ticket."""
        for number, params in self._open.items():
            if (params.get("toolCallId") or params["toolCall"]["toolCallId"]).endswith(ticket["callId"]):
                self._asking = number
                return number
        return None

    def decide(self, *, yes: bool = True) -> None:
        params = self._open.pop(self._asking)
        result: dict[str, Any]
        if "options" in params:
            result = {"outcome": {"outcome": "selected", "optionId": "allow_once" if yes else "reject_once"}}
        elif yes:
            (field,) = params["requestedSchema"]["properties"]
            result = {"action": "accept", "content": {field: CITY}}
        else:
            result = {"action": "decline"}
        self._say(id=self._asking, result=result)

    def cancel(self) -> None:
        self._say(method="session/cancel", params={"sessionId": self.thread})

    def ended(self) -> Ending:
        """The prompt is answered behind the last update; a session that is loaded has all of them."""
        stop = self._answer(self._prompt)["stopReason"] if self._prompt else None
        view = until(lambda: view if (view := self.house.view(self.run))["status"] == "done" else None)
        status = "cancelled" if view["termination"]["kind"] == "cancelled" else "completed"
        assert stop in (None, {"completed": "end_turn", "cancelled": "cancelled"}[status])
        self._load()
        return Ending(status=status, texts=[*self.texts.values()])

    def close(self) -> None:
        self._stack.close()
        self._reader.join()
