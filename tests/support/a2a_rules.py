"""The rules of A2A streams, and a client that puts an A2A task together from one.

`check` holds a stream to the protocol and to what the module `encoder` promises: the official protobuf takes every
item, the first is the A2A task, the others are about it and change something that is there, and nothing follows a
state of rest.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from a2a.types import a2a_pb2 as official
from google.protobuf.json_format import ParseDict, ParseError

TERMINAL = {f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
AT_REST = TERMINAL | {"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"}
TICKET_TYPE = "application/vnd.greenroom.ticket+json"

Item = Mapping[str, Any]


class Broken(AssertionError):
    """A rule is broken; the text names the rule."""


class Client:
    """What a client has put together: the A2A task as the items of its streams have made it."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = {}
        self.complete: set[str] = set()

    def take(self, item: Item) -> None:
        ((kind, body),) = item.items()
        match kind:
            case "task":
                self._begin(body)
            case "statusUpdate":
                self._about(body)
                self._moved(body["status"])
                self.task["status"], self.task["metadata"] = body["status"], body.get("metadata", {})
            case "artifactUpdate":
                self._about(body)
                self._grown(body)
            case _:
                raise Broken(f"known item: {kind}")

    @property
    def state(self) -> str:
        return str(self.task["status"]["state"])

    def texts(self) -> dict[str, str]:
        """Artifact id -> its text."""
        return {name: text_of(shown) for name, shown in self.artifacts().items()}

    def artifacts(self) -> dict[str, Any]:
        return {one["artifactId"]: one for one in self.task.get("artifacts", ())}

    def tickets(self) -> list[dict[str, Any]]:
        """The data parts of the question."""
        parts = self.task["status"].get("message", {}).get("parts", ())
        return [part["data"] for part in parts if part.get("mediaType") == TICKET_TYPE]

    def _begin(self, task: Mapping[str, Any]) -> None:
        if self.task:
            raise Broken("one task: the first item, and no other")
        self.task = copy.deepcopy(dict(task))
        names = [one["artifactId"] for one in task.get("artifacts", ())]
        if len(names) != len(set(names)):
            raise Broken("unique artifacts: two have one id")
        _question(task["status"])

    def _about(self, body: Mapping[str, Any]) -> None:
        if not self.task:
            raise Broken("first item: the task comes first")
        if (body["taskId"], body["contextId"]) != (self.task["id"], self.task["contextId"]):
            raise Broken("one task: an item is about another one")

    def _moved(self, status: Mapping[str, Any]) -> None:
        if self.state in TERMINAL:
            raise Broken("terminal state: nothing follows it")
        if status["state"] == "TASK_STATE_SUBMITTED" and self.state != status["state"]:
            raise Broken("submitted first: a task that works is not submitted again")
        _question(status)

    def _grown(self, body: Mapping[str, Any]) -> None:
        artifact, artifacts = copy.deepcopy(dict(body["artifact"])), self.artifacts()
        name = artifact["artifactId"]
        if body.get("append"):
            if name not in artifacts:
                raise Broken("append to what is there: the artifact is unknown")
            if name in self.complete:
                raise Broken("last chunk: an artifact that is complete grows")
            artifacts[name]["parts"] = [*artifacts[name].get("parts", ()), *artifact.get("parts", ())]
        else:
            artifacts[name] = artifact
        self.complete = self.complete | {name} if body.get("lastChunk") else self.complete - {name}
        self.task["artifacts"] = [*artifacts.values()]


def _question(status: Mapping[str, Any]) -> None:
    message = status.get("message")
    if status["state"] == "TASK_STATE_INPUT_REQUIRED":
        if message is None or message["role"] != "ROLE_AGENT" or not message["parts"][0].get("text"):
            raise Broken("question: a task that waits says what for, in words")
        for part in message["parts"][1:]:
            if part.get("mediaType") != TICKET_TYPE or not {"ticketId", "reason", "fingerprint"} <= {*part["data"]}:
                raise Broken("question: each other part is a ticket")


def text_of(artifact: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in artifact.get("parts", ()))


def plain(task: Mapping[str, Any]) -> dict[str, Any]:
    """An A2A task with the texts of each artifact in one piece, for comparisons."""
    shown = copy.deepcopy(dict(task))
    for artifact in shown.get("artifacts", ()):
        if all("text" in part for part in artifact.get("parts", ())):
            artifact["parts"] = [{"text": text_of(artifact)}]
    return shown


def check(items: Sequence[Item], *, resumed: Client | None = None, ended: bool = True) -> Client:
    """Hold a stream to all rules; return the client that has read it.

    `resumed`: the client that goes on with this stream, which then has no first item. `ended`: it is at its end.
    """
    client = resumed or Client()
    for index, item in enumerate(items):
        try:
            ParseDict(item, official.StreamResponse(), ignore_unknown_fields=False)
        except ParseError as error:
            raise Broken(f"protobuf: {error}") from error
        if index and client.state in AT_REST:
            raise Broken("state of rest: nothing follows it")
        client.take(item)
    if ended and resumed is None and (not items or client.state not in AT_REST):
        raise Broken("end: a stream ends with a state of rest")
    return client
