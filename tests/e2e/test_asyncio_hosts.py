"""A runtime in a FastAPI service under uvicorn: started, followed, decided, killed, stopped, and left by clients."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.wait_for_port import wait_for_port

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]
SERVICE = Path(__file__).parent / "asyncio_service.py"


class Service:
    """The service of one test; `start` starts it again on the same database."""

    def __init__(self, folder: Path, loop: str) -> None:
        self.folder, self.loop, self.port = folder, loop, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [self.folder / "runs.db", self.folder / "effects", self.port, self.loop]
        self.process = subprocess.Popen([sys.executable, SERVICE, *map(str, arguments)])
        wait_for_port(self.port)

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().split() if path.exists() else []

    def ask(self, method: str, path: str) -> Any:
        """The JSON of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def follow(self, seen: list[tuple[int, str]], until: str | None) -> None:
        """Add the events of the run after those, up to one of a type, or to the end of the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", f"/runs/r1/events?after={seen[-1][0] if seen else 0}")
            for line in connection.getresponse():
                sequence, type_ = line.decode().split()
                seen.append((int(sequence), type_))
                if type_ == until:
                    break
        except (http.client.IncompleteRead, ConnectionError):
            pass  # the service was stopped
        finally:
            connection.close()

    def until(self, followed: int) -> None:
        """Wait until so many runs are followed."""
        end = time.monotonic() + 20
        while self.ask("GET", "/followed") != followed:
            assert time.monotonic() < end
            time.sleep(0.01)  # noqa: TID251 - another program works


@pytest.fixture
def loop() -> str:
    """The event loop of the service; tests name another one as their parameter."""
    return "asyncio"


@pytest.fixture
def service(tmp_path: Path, loop: str) -> Iterator[Service]:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    service = Service(tmp_path, loop)
    yield service
    if service.process is not None:
        service.process.kill()
        service.process.wait()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_killed_service_continues_its_runs_and_a_follower_misses_nothing(service: Service) -> None:
    """kill -9 in the middle of the tool of asyncio, and again while a person is asked."""
    seen: list[tuple[int, str]] = []
    service.start()
    service.ask("POST", "/runs/r1")
    service.follow(seen, "run.tool.output.delta")
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    service.start()
    service.follow(seen, "run.waiting")
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    service.start()
    (ticket,) = service.ask("GET", "/runs/r1")["tickets"]
    answers = [service.ask("POST", f"/runs/r1/{ticket}")["status"] for _ in range(2)]
    assert answers == ["accepted", "duplicate"]
    service.follow(seen, None)
    assert [sequence for sequence, _ in seen] == list(range(1, len(seen) + 1))
    assert [type_ for _, type_ in seen if type_ in ("run.completed", "run.failed")] == ["run.completed"]
    assert len(service.effects) == 1


@pytest.mark.parametrize(("loop", "number"), [("asyncio", signal.SIGINT), ("uvloop", signal.SIGTERM)])
def test_a_stopped_service_closes_its_runtime_before_it_ends(service: Service, number: int) -> None:
    """Also with a follower whose stream is open, and a task of the host at work."""
    seen: list[tuple[int, str]] = []
    service.start()
    service.ask("POST", "/runs/r1")
    following = threading.Thread(target=service.follow, args=(seen, None))
    following.start()
    service.until(followed=1)
    code = service.end(number)
    following.join()
    assert code in (0, -number)
    assert service.effects == ["closed"]
    service.start()
    if "run.waiting" not in dict(map(reversed, seen)):
        service.follow(seen, "run.waiting")
    assert [sequence for sequence, _ in seen] == list(range(1, len(seen) + 1))
    assert service.ask("GET", "/runs/r1")["status"] == "waiting"


def test_a_client_that_leaves_ends_its_follower_and_not_the_run(service: Service) -> None:
    seen: list[tuple[int, str]] = []
    service.start()
    service.ask("POST", "/runs/r1")
    service.follow(seen, "run.started")
    service.until(followed=0)
    assert service.ask("GET", "/runs/r1")["status"] in ("running", "waiting")


PLAIN = """
import asyncio, sys
import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call

@gr.tool(loop="asyncio")
async def sleep() -> None:
    "Sleep."
    print("asleep", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("woken", flush=True)

async def main():
    agent = gr.Agent("a", model=ScriptedModel([call("sleep"), "Done."]), tools=[sleep])
    async with aio.open_runtime(sys.argv[1], agents=[agent], drain=120.0) as runtime:
        await (await runtime.start("a", "go", run_id="r1")).result()

asyncio.run(main())
"""


def test_ctrl_c_ends_a_program_without_a_drain_and_its_tasks_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "runs.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asleep\n"
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=40)
    assert printed == b"woken\n"
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
