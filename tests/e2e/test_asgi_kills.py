"""FastAPI under uvicorn with the gateway mounted: followers through kill -9 and restart, and clients that leave."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from tests.support.gateway import TOKEN
from tests.support.ports import free_port
from tests.support.wait_for_port import wait_for_port

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

FOLLOWERS = 1_000
EVENT = re.compile(rb"id: ([0-9a-f]+-(\d+))\ndata: (.*)\n\n")
PATIENCE = 120.0


@contextmanager
def serving(folder, port, *options):
    """uvicorn, until the end of the block at the latest."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "--port", str(port)]
    environment = os.environ | {"FOLDER": str(folder), "TOKEN": TOKEN}
    log = (folder / "log").open("ab")
    process = subprocess.Popen(
        [*command, "--log-level", "warning", *options, "asgi_server:app"], env=environment, stdout=log, stderr=log
    )
    try:
        wait_for_port(port)
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


class Client:
    """Requests to the mounted gateway."""

    def __init__(self, port):
        self.port = port

    def head(self, method, path, **fields):
        fields = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {TOKEN}", **fields}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        return "\r\n".join([f"{method} /greenroom{path} HTTP/1.1", *lines, "", ""]).encode()

    async def ask(self, method, path, body=None):
        """One request on a connection of its own."""
        data = b"" if body is None else json.dumps(body).encode()
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(self.head(method, path, Content_Length=len(data), Connection="close") + data)
            answer = b"".join([part async for part in stream])
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(rest or b"null")

    async def follow(self, run, found):
        """Follow a run to its end through every break, by the ids alone."""
        last = ""
        while True:
            try:
                async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                    more = {"Last_Event_ID": last} if last else {}
                    await stream.send_all(
                        self.head("GET", f"/v1/runs/{run}/events", Accept="text/event-stream", **more)
                    )
                    rest = b""
                    async for data in stream:
                        rest += data.replace(b"\r\n", b"")  # chunk headers are between events, and match nothing
                        end = 0
                        for event in EVENT.finditer(rest):
                            last, end = event[1].decode(), event.end()
                            found.append(int(event[2]))
                            if b'"type":"run.completed"' in event[3]:
                                return
                        rest = rest[end:]
            except OSError:
                pass  # the server is away: come back
            await trio.sleep(0.1)


async def test_a_thousand_followers_miss_nothing_and_get_nothing_twice_through_a_kill(tmp_path):
    port = free_port()
    client, found = Client(port), [[] for _ in range(FOLLOWERS)]
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            with serving(tmp_path, port) as process:
                body = {"agent": "counter", "text": "go", "run": "r"}
                assert (await client.ask("POST", "/v1/runs", body))[0] == 201
                for events in found:
                    nursery.start_soon(client.follow, "r", events)
                while min(map(len, found)) < 8:  # noqa: ASYNC110 - no event tells
                    await trio.sleep(0.02)
                process.send_signal(signal.SIGKILL)
                process.wait()
            before = max(events[-1] for events in found)
            (tmp_path / "go").touch()
            with serving(tmp_path, port):
                run = {"status": "running"}
                while run["status"] != "done" or min(events[-1] for events in found) < run["sequence"]:
                    await trio.sleep(0.05)
                    _, run = await client.ask("GET", "/v1/runs/r")
    assert before < run["sequence"]
    assert {tuple(events) for events in found} == {tuple(range(1, run["sequence"] + 1))}


async def test_a_chat_whose_client_leaves_is_cancelled_and_a_follower_leaves_nothing(tmp_path):
    port = free_port()
    client = Client(port)
    with trio.fail_after(PATIENCE), serving(tmp_path, port):
        message = {"role": "user", "id": "m", "parts": [{"type": "text", "text": "go"}]}
        chat = json.dumps({"id": "chat", "trigger": "submit-message", "messages": [message]}).encode()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            head = client.head("POST", "/v1/ai-sdk/v6/agents/counter/chat", Content_Length=len(chat))
            await stream.send_all(head + chat)
            while b"line 3" not in await stream.receive_some():
                pass
        _, page = await client.ask("GET", "/v1/runs")
        (line,) = page["runs"]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            target = f"/v1/runs/{line['run']}/events"
            await stream.send_all(client.head("GET", target, Accept="text/event-stream"))
            assert await stream.receive_some()
        while line["status"] != "done":
            await trio.sleep(0.05)
            _, line = await client.ask("GET", f"/v1/runs/{line['run']}")
        assert line["termination"]["kind"] == "cancelled"
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            while True:
                await stream.send_all(client.head("GET", "/metrics"))
                metrics = await stream.receive_some()
                if b"greenroom_runs_followed 0.0" in metrics and b'greenroom_connections{kind="any"} 1.0' in metrics:
                    break
                await trio.sleep(0.05)


async def test_stopped_by_a_signal_streams_end_whole(tmp_path):
    port = free_port()
    client = Client(port)
    with trio.fail_after(PATIENCE), serving(tmp_path, port, "--timeout-graceful-shutdown", "1") as process:
        assert (await client.ask("POST", "/v1/runs", {"agent": "counter", "text": "go", "run": "r"}))[0] == 201
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(client.head("GET", "/v1/runs/r/events", Accept="text/event-stream"))
            data = await stream.receive_some()
            process.send_signal(signal.SIGTERM)
            data += b"".join([part async for part in stream])
        assert data.endswith(b"0\r\n\r\n"), "the end of the chunked body"
        assert await trio.to_thread.run_sync(process.wait) == -signal.SIGTERM
