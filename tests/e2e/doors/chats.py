"""The doors of chat front ends: the AI SDK, and AG-UI. A response of theirs ends where the run comes to rest."""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from ...support import ag_ui_rules
from ...support.ai_sdk_rules import Chat, check_message, check_stream, read_sse
from .door import CITY, INPUT, TOO_LATE, Door, Ending
from .house import AGAIN, PATIENCE, TOKEN, Gateway, pause, until

STOPPED = ("closing", "interrupted", "cancelled")
"""Codes of AG-UI runs that end before the run comes to rest, or with it."""


def asked(
    gateway: Gateway, method: str, path: str, body: Any = None, more: Mapping[str, str] | None = None
) -> tuple[int, bytes] | None:
    """One request: status and whole body; None if the gateway was killed meanwhile."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **(more or {})}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as response:
            return response.status, response.read()
    except AGAIN:
        pause()
        return None
    finally:
        connection.close()


class ChatDoor(Door):
    """A page with a chat: there is a connection only while a response comes."""

    def close(self) -> None:
        pass


class AiSdkDoor(ChatDoor):
    """A page with `useChat`."""

    name = "ai_sdk"
    path = "/v1/ai-sdk/v7/agents/desk/chat"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.chat = Chat("v7")

    def start(self, key: str) -> str:
        message = {"id": f"message-{key}", "role": "user", "parts": [{"type": "text", "text": INPUT}]}
        body = {"id": f"thread-{key}", "trigger": "submit-message", "messages": [message]}
        self._take(until(lambda: asked(self.gateway, "POST", self.path, body)), Chat("v7"))
        return str(self.chat.message["id"])

    def _look(self) -> None:
        """Load the chat again."""
        path = f"{self.path}/{self.thread}/stream?finished=true"
        self._take(until(lambda: asked(self.gateway, "GET", path)), Chat("v7"))

    def _take(self, answer: tuple[int, bytes], chat: Chat) -> None:
        status, body = answer
        assert status == 200, body
        parts = read_sse(body.decode())
        check_stream(parts, "v7", message_id=parts[0]["messageId"])
        self.chat = chat.stream(parts)

    @property
    def _tickets(self) -> dict[str, dict[str, Any]]:
        """The open tickets."""
        found = [part["data"] for part in self.chat.parts if part["type"] == "data-ticket"]
        return {data["ticketId"]: data for data in found if data["status"] == "open"}

    def question(self) -> str | None:
        while self.chat.error or not self._tickets.keys() - {self.asked}:
            if self._termination is not None:
                return None
            self._look()
            pause()
        (self.asked,) = self._tickets.keys() - {self.asked}
        return self.asked

    def decide(self, *, yes: bool = True) -> None:
        ticket = self._tickets[self.asked]
        if ticket["answer"] == "approval":
            self.chat.respond(self.asked, yes)
        else:
            self.chat.output(ticket["callId"], CITY, error=None if yes else "no")
        body = {"id": self.thread, "trigger": "submit-message", "messages": [self.chat.sent()]}
        status, data = until(lambda: asked(self.gateway, "POST", self.path, body))
        if status == 200:
            self._take((status, data), Chat("v7", self.chat.message))
        else:  # nothing is answered that is open
            assert json.loads(data)["error"]["code"] == "unprocessable", data
            self._look()

    def cancel(self) -> None:
        path = f"{self.path}/{self.thread}/cancel"
        status, data = until(lambda: asked(self.gateway, "POST", path, {}))
        assert status == 202, data

    @property
    def _termination(self) -> str | None:
        data = [part["data"] for part in self.chat.parts if part["type"] == "data-run"]
        return data[-1]["termination"]["kind"] if data and data[-1].get("termination") else None

    def ended(self) -> Ending:
        while self._termination is None or self.chat.error:
            self._look()
            pause()
        self._look()  # the whole message, without what this page has done to it
        check_message(self.chat.message, ended=True)
        texts = [part["text"] for part in self.chat.parts if part["type"] == "text"]
        outputs = [tool["output"] for tool in self.chat.tools() if tool["state"] == "output-available"]
        status = "cancelled" if self._termination == "cancelled" else "completed"
        return Ending(status=status, texts=texts, results=outputs)


class AgUiDoor(ChatDoor):
    """A page with AG-UI's client."""

    name = "ag_ui"
    path = "/v1/ag-ui/agents/desk/run"
    version: str | None = "1.0"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.client = ag_ui_rules.Client(state={})
        self.number = 0
        self.code = ""

    def start(self, key: str) -> str:
        self.thread = f"thread-{key}"
        self.client.messages.append({"id": f"message-{key}", "role": "user", "content": INPUT})
        run: str = self._ask()[0]["metadata"]["greenroom"]["run"]
        return run

    def _ask(self, resume: Any = None) -> list[dict[str, Any]]:
        """One AG-UI run."""
        self.number += 1
        name = f"{id(self)}-{self.number}"
        body = {"threadId": self.thread, "runId": name, "messages": self.client.input(), "state": self.client.state}
        body |= {"tools": [], "context": [], "forwardedProps": {}}
        body |= {} if self.version is None else {"protocolVersion": self.version}
        body |= {} if resume is None else {"resume": resume}
        status, data = until(lambda: asked(self.gateway, "POST", self.path, body))
        assert status == 200, data
        events = [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n")[:-1]]
        if self.version is None and [event["type"] for event in events[-2:]] == ["RUN_FINISHED", "RUN_ERROR"]:
            del events[-2]  # so that an older client forgets the interrupts that it has answered
        ag_ui_rules.check(events, thread_id=self.thread, run_id=name, known=self.client.input())
        self.client.take(events)
        self.code = events[-1].get("code", "")
        return events

    def question(self) -> str | None:
        while not (fresh := {one["id"] for one in self.client.interrupts} - {self.asked}):
            if self._over:
                return None
            self._ask()
            pause()
        (self.asked,) = fresh
        return self.asked

    def decide(self, *, yes: bool = True) -> None:
        (interrupt,) = self.client.interrupts
        payload = {"approved": True} if interrupt["responseSchema"]["type"] == "object" else CITY
        answer = {"status": "resolved", "payload": payload} if yes else {"status": "cancelled"}
        events = self._ask([{"interruptId": self.asked, **answer}])
        refused = [event["value"]["code"] for event in events if event.get("name") == "greenroom.refused"]
        assert {*refused, self.code} <= {*TOO_LATE, *STOPPED, ""}, events

    def cancel(self) -> None:
        path = f"/v1/runs/{self.run}/commands"
        until(lambda: self.gateway.ask("POST", path, {"type": "cancel"}, name=f"4-{self.run}"))

    @property
    def _over(self) -> bool:
        return self.client.outcome in ("success", "cancelled") or self.code == "cancelled"

    def ended(self) -> Ending:
        while not self._over:
            self._ask()
            pause()
        said = [message for message in self.client.messages if message["role"] == "assistant"]
        results = [message for message in self.client.messages if message["role"] == "tool"]
        return Ending(
            status="completed" if self.client.outcome == "success" else "cancelled",
            texts=[message["content"] for message in said],
            results=[message["content"] for message in results if "metadata" not in message],
        )


class OlderAgUiDoor(AgUiDoor):
    """A client before version 1.0, such as CopilotKit's."""

    name = "ag_ui_0"
    version = None
