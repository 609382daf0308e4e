"""kill -9 of the gateway under four clients of MCP: the call ends with its result, and its effect is counted once.

The gateway dies (a) while the call works, (b) while the client's user is asked, (c) between the answer and the result;
another process on the same database goes on. Over HTTP three clients cannot go on with every call by themselves. The
modern era has no resume: the clients call again, and name the run in `_meta`. Python's client sends nothing more once a
POST of its own was cut: in the handshake era its user takes the run up in the console, and reads `run_result`.
`make test` plays one scene for each client, `make chaos` each one 20 times, over HTTP and over `greenroom mcp`.
"""

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from greenroom.transport.client import Client

from .cli_kit import PATIENCE
from .mcp_clients import APPROVED, CLIENTS, MODERN, Service, client

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover, pytest.mark.timeout(2400)]

Scene = Literal["while it works", "while it asks", "after the answer"]
SCENES: tuple[Scene, ...] = ("while it works", "while it asks", "after the answer")
POINTS = list(product(SCENES, ("http", "bridge"), range(20)))
"""Scene, way to the gateway, and number of the repetition."""
LATEST = 0.08
"""Seconds after the answer until the latest kill: the result has come by then."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    service.start()
    yield service
    service.close()


@pytest.mark.rule("MB-3")
@pytest.mark.rule("MS-3")
@pytest.mark.parametrize("name", CLIENTS)
def test_a_call_ends_with_its_result_over_a_kill_of_the_gateway(
    name: str, service: Service, sampled: Callable[[Sequence[Any], int], list[Any]], rng: random.Random
) -> None:
    for scene, road, number in sampled(POINTS, 1):
        before = len(service.effects)
        with Caller(service, name, road) as caller:
            caller.plays(scene, number, rng)
        assert len(service.effects) - before == 1, (scene, road, number, service.effects[before:])


class Caller(ExitStack):
    """The user of a client, who looks at the world before answering a second time."""

    def __init__(self, service: Service, name: str, road: str) -> None:
        super().__init__()
        self.service, self.name, self.effects = service, name, len(service.effects)
        self.target = service.target if road == "http" else service.bridge
        self.meta = None
        if road == "http" and name in MODERN:
            self.meta = {"greenroom/run": f"run_{uuid.uuid4().hex[:16]}"}
            self.target["patience"] = 10_000  # milliseconds: these clients may not notice that a stream was cut
        self.driven = self.enter_context(client(name, self.target))

    def plays(self, scene: Scene, number: int, rng: random.Random) -> None:
        """Call a tool, kill the gateway, start another one, and read the result."""
        until = self.service.folder / f"until-{uuid.uuid4().hex}"
        works = scene == "while it works"
        tool, arguments = ("work", {"until": str(until)}) if works else ("pay", {"invoice": number})

        def call() -> None:
            self.driven.calls(tool, meta=self.meta, **arguments)

        call()
        if works:
            _exists(Path(f"{until}.begun"))
        else:
            self.driven.gets("asked")
        if scene == "after the answer":
            self.driven.answers(APPROVED)
            time.sleep(rng.uniform(0, LATEST))  # noqa: TID251 - another process works
        self.service.kill()
        self.service.start()
        until.touch()
        if scene == "while it asks":
            self.driven.answers(APPROVED)
        result = self._result(call, tool)
        assert not result.get("isError"), result

    def _result(self, call: Callable[[], None], tool: str) -> Any:
        calls = 0
        while True:
            kind, value = self.driven.sees()
            if kind == "result":
                return value
            if kind == "asked":
                self.driven.answers(self._answer(value))
                continue
            closed = kind == "gone" or (self.name.startswith("python") and ("losed" in value or "imed out" in value))
            assert self.meta is not None or (closed and self.name == "python legacy"), value
            if closed:
                self.driven = self.enter_context(client(self.name, self.target))
            if self.meta is None:
                self.driven.calls("run_result", run=self._taken_up(tool), wait=50)
                return self.driven.gets("result")
            calls += 1
            assert calls < 5, value
            call()

    def _taken_up(self, tool: str) -> str:
        """Answer the newest run of a tool in the console until it has ended; return its id."""

        async def answer(console: Client) -> str:
            run_id = (await console.runs(agent=tool)).runs[0].run_id
            while (view := await console.view(run_id)).status != "done":
                for ticket in view.tickets:
                    unknown = ticket.reason == "outcome_unknown" and self._had_effect()
                    await console.decide(run_id, ticket.approve(result="it is paid") if unknown else ticket.approve())
                await trio.sleep(0.02)
            return run_id

        return self.service.server.asks(answer)

    def _had_effect(self) -> bool:
        return len(self.service.effects) > self.effects

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Approve; but if the call may have had its effect, look, and give the result in place of another attempt."""
        asks_outcome = "result" in asked["requestedSchema"]["properties"]
        if asks_outcome and self._had_effect():
            return {"action": "accept", "content": {"decision": "approve", "result": json.dumps("it is paid")}}
        return APPROVED


def _exists(path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.01)  # noqa: TID251 - another process makes the file
