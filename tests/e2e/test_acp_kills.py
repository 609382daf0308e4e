"""kill -9 of `greenroom acp` behind each of its lines: the session loads again, and nothing is done twice unasked."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .cli_kit import Cli
from .test_cli_acp import AGENTS, HELLO, Bridge
from .test_cli_acp import cli as cli  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

PROMPT = "refund 7"
LINES = 9
"""Lines of the agent from the answer to session/new to the answer to the prompt, at least."""


class Life:
    """A process and its editor, which answers every question at once.

    Attributes:
        lines: what the agent has said, at most `most` lines, after which it is killed.
        unknown: it was asked whether a call took effect.
    """

    def __init__(self, cli: Cli, most: int) -> None:
        self._bridge, self._most = Bridge(cli, AGENTS, "--db", "runs.db"), most
        self.lines: list[dict[str, Any]] = []
        self.unknown = False

    def say(self, **message: Any) -> None:
        stdin = self._bridge.process.stdin
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        stdin.flush()

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Read to a line; None if the process is killed before."""
        while self._most > 0:
            self._most -= 1
            message = json.loads(self._bridge.process.stdout.readline())
            self.lines.append(message)
            if message.get("method") == "session/request_permission":
                unknown = message["params"]["toolCall"]["title"].startswith("Did")
                self.unknown = self.unknown or unknown
                option = "reject_once" if unknown else "allow_once"
                self.say(id=message["id"], result={"outcome": {"outcome": "selected", "optionId": option}})
            if condition(message):
                return message
        return None

    def answer(self, request_id: int, method: str, **params: Any) -> dict[str, Any] | None:
        self.say(id=request_id, method=method, params=params)
        return self.until(lambda message: message.get("id") == request_id and "method" not in message)

    def kill(self) -> None:
        with self._bridge as bridge:
            bridge.process.kill()

    def said(self, kind: str) -> str:
        updates = [line["params"]["update"] for line in self.lines if line.get("method") == "session/update"]
        return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


@pytest.mark.rule("ACP-4", "ACP-12")
def test_a_session_is_loaded_after_a_kill_behind_any_line(
    cli: Cli, sampled: Callable[[Sequence[int], int], list[int]], rng: random.Random, tmp_path: Path
) -> None:
    for most in sampled(range(LINES), 3):
        (tmp_path / "paid").unlink(missing_ok=True)
        killed_and_loaded(cli, most, tmp_path / "paid", prompted=most > 0 or rng.random() < 0.5)


def killed_and_loaded(cli: Cli, most: int, paid: Path, *, prompted: bool) -> None:
    """One life that is killed when it has said so many lines about its prompt, and the next one."""
    first = Life(cli, most + 2)
    assert first.answer(1, "initialize", **HELLO["params"])
    new = first.answer(2, "session/new", cwd="/work", mcpServers=[])
    assert new is not None
    session = new["result"]["sessionId"]
    if prompted:
        first.answer(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": PROMPT}])
    first.kill()
    second = Life(cli, 1_000)
    second.answer(1, "initialize", **HELLO["params"])
    loaded = second.answer(2, "session/load", sessionId=session, cwd="/work", mcpServers=[])
    assert loaded is not None
    if "error" in loaded:  # killed before the run was durable
        assert (loaded["error"]["code"], most) == (-32002, 0)
    else:
        if "It says" not in second.said("agent_message_chunk"):
            second.until(lambda _: "It says" in second.said("agent_message_chunk"))
        assert second.said("user_message_chunk") == PROMPT
        times = len(paid.read_text().split()) if paid.exists() else 0
        assert times <= 1
        assert times == 1 or first.unknown or second.unknown
    second.kill()
