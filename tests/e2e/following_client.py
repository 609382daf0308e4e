"""Clients that follow runs of a gateway and can be killed at any moment: what they have is on the disk.

    python following_client.py KIND FOLDER PORT TOKEN

KIND says how: `frames` speaks docs/gateway.md over a plain WebSocket, `library` uses greenroom.transport.connect,
`stream` reads server-sent events with the HTTP client of Python's library. The file `runs` beside FOLDER has the ids of
the runs, one a line; after a line `END` no more come. For each run there is one file in FOLDER with one event per line,
synced before anything else is done; the number of its whole lines is the cursor. The client ends when it has the last
event of every run. Whatever a gateway must not do (a hole, a repeat, another log) ends it with an error.
"""

import contextlib
import http.client
import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
import trio_websocket

TERMINAL = ("run.completed", "run.failed", "run.cancelled")
POLL = 0.05
"""Seconds between two looks at the list of runs."""


class Broken(Exception):
    """The gateway has done what it promises not to do."""


class Notes:
    """What a client has of all runs.

    Attributes:
        cursors: run -> sequence of the last event that is on the disk.
        finished: runs whose terminal event is.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._files: dict[str, int] = {}
        self.cursors: dict[str, int] = {}
        self.finished: set[str] = set()

    def listed(self) -> tuple[list[str], bool]:
        """The runs that are known now, and whether these are all."""
        path = self._folder.parent / "runs"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        runs = [line for line in lines if line != "END"]
        for run in runs:
            if run not in self.cursors:
                self._open(run)
        return runs, "END" in lines

    def _open(self, run: str) -> None:
        """Take up what an earlier life has written; half a line at the end is none."""
        file = os.open(self._folder / f"{run}.log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        data = b""
        while part := os.read(file, 1 << 20):
            data += part
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(file, len(whole))
        lines = whole.splitlines()
        self._files[run], self.cursors[run] = file, len(lines)
        if lines and json.loads(lines[-1])["type"] in TERMINAL:
            self.finished.add(run)

    def add(self, run: str, sequence: int, kind: str, line: bytes) -> None:
        """An event: written and synced when this returns."""
        if run in self.finished:
            raise Broken(f"{run}: event {sequence} after the last one")
        if sequence != self.cursors[run] + 1:
            raise Broken(f"{run}: event {sequence} after {self.cursors[run]}")
        os.write(self._files[run], line + b"\n")
        os.fsync(self._files[run])
        self.cursors[run] = sequence
        if kind in TERMINAL:
            self.finished.add(run)

    def all_done(self) -> bool:
        """Whether nothing is to come any more."""
        runs, ended = self.listed()
        return ended and self.finished >= set(runs)

    def same_log(self, epoch: str) -> None:
        """Sequences belong to a log; it is the same one in all lives of the gateway and of this client."""
        path = self._folder / "epoch"
        known = path.read_text() if path.exists() else ""
        if known and known != epoch:
            raise Broken(f"the log was {known} and is {epoch}")
        if not known:
            path.write_text(epoch)

    @property
    def epoch(self) -> str | None:
        """Of the log that all cursors belong to."""
        path = self._folder / "epoch"
        return (path.read_text() or None) if path.exists() else None


# --- a plain WebSocket -----------------------------------------------------------------------------------------------


GONE = (
    OSError,
    trio.BrokenResourceError,
    trio.TooSlowError,
    trio_websocket.HandshakeError,
    trio_websocket.ConnectionClosed,
)
"""What a client receives when its gateway is killed."""


async def frames(notes: Notes, port: int, token: str) -> None:
    """One connection after the other until all is there."""
    while not notes.all_done():
        try:
            async with trio.open_nursery() as nursery:
                with trio.fail_after(5):  # trio-websocket waits for ever if the peer dies while they shake hands
                    ws = await trio_websocket.connect_websocket_url(
                        nursery,
                        f"ws://127.0.0.1:{port}/v1/ws",
                        subprotocols=["greenroom.v1"],
                        extra_headers=[("authorization", f"Bearer {token}")],
                    )
                await Conversation(notes, ws).talk(nursery)
                nursery.cancel_scope.cancel()
        except* GONE:
            pass
        await trio.sleep(random.uniform(0.01, 0.1))


class Conversation:
    """One connection, as docs/gateway.md has it."""

    def __init__(self, notes: Notes, ws: trio_websocket.WebSocketConnection) -> None:
        self._notes, self._ws = notes, ws
        self._asked: dict[str, int] = {}
        self._open: set[str] = set()
        self._again: dict[str, float] = {}

    async def talk(self, nursery: trio.Nursery) -> None:
        """Until all is there."""
        welcome = json.loads(await self._ws.get_message())
        if welcome["type"] != "gw.welcome" or welcome["protocol"] != "greenroom.v1":
            raise Broken(f"welcomed with {welcome}")
        self._notes.same_log(welcome["epoch"])
        nursery.start_soon(self._subscribe)
        while not self._notes.all_done():
            with trio.move_on_after(POLL):
                message = await self._ws.get_message()
                if message is not None:
                    self._take(message)
        await self._ws.aclose()

    async def _subscribe(self) -> None:
        """To each run that is not finished, once per connection; again where the gateway said: not now."""
        while True:
            for run in self._notes.listed()[0]:
                after, now = self._notes.cursors[run], trio.current_time()
                if run in self._notes.finished or run in self._asked or self._again.get(run, 0) > now:
                    continue
                self._asked[run] = after
                order = {"type": "subscribe", "run": run, "after": after, "epoch": self._notes.epoch, "id": f"s:{run}"}
                await self._ws.send_message(json.dumps(order))
            await trio.sleep(POLL)

    def _take(self, message: str) -> None:
        frame = json.loads(message)
        if not frame["type"].startswith("gw."):
            run, sequence = frame["runId"], frame["sequence"]
            if run not in self._open:
                raise Broken(f"{run} is not followed, and {sequence} came")
            self._notes.add(run, sequence, frame["type"], message.encode())
            return
        match frame:
            case {"type": "gw.subscribed", "run": run, "after": after, "id": name}:
                if self._asked[run] != after or name != f"s:{run}":
                    raise Broken(f"asked for {run} after {self._asked[run]}, answered {frame}")
                self._open.add(run)
            case {"type": "gw.live", "run": run, "sequence": sequence} if sequence == self._notes.cursors[run]:
                pass
            case {"type": "gw.unsubscribed", "run": run, "reason": "done"} if run in self._notes.finished:
                self._open.discard(run)
            case {"type": "gw.error", "id": name, "code": code} if code == "unknown_run" or frame.get("retry"):
                run = name.removeprefix("s:")
                del self._asked[run]
                self._again[run] = trio.current_time() + 0.1
            case {"type": "gw.tick"} | {"type": "gw.bye", "code": 1001 | 1012}:
                pass
            case _:
                raise Broken(f"with {self._notes.cursors} the gateway said {message}")


# --- the library's client --------------------------------------------------------------------------------------------


async def library(notes: Notes, port: int, token: str) -> None:
    """Tasks that follow one run each; connections are the library's business. The other kinds need nothing of ours."""
    from greenroom import UnknownRun
    from greenroom.transport import connect
    from greenroom.transport.client import ConnectionTiming

    pace = ConnectionTiming(first=0.05, slowest=0.3, patience=0.1)
    started: set[str] = set()
    async with (
        connect(f"ws://127.0.0.1:{port}", token=token, patient=True, pace=pace) as client,
        trio.open_nursery() as nursery,
    ):

        async def follow(run: str) -> None:
            while run not in notes.finished:
                try:
                    async with client.follow(run, after=notes.cursors[run], epoch=notes.epoch) as events:
                        async for event in events:
                            notes.same_log(client.epoch)
                            notes.add(run, event.sequence, event.type, plain(event))
                except UnknownRun:
                    await trio.sleep(0.1)

        while not notes.all_done():
            for run in notes.listed()[0]:
                if run not in started:
                    started.add(run)
                    nursery.start_soon(follow, run)
            await trio.sleep(POLL)


def plain(event: Any) -> bytes:
    """A decoded event as a line; the test makes the same line of the stored bytes."""
    names = ("id", "sequence", "type", "version", "run_id", "session_id", "agent_id", "payload")
    data = {name: getattr(event, name) for name in names} | {"timestamp": event.timestamp.isoformat()}
    return json.dumps(data, sort_keys=True).encode()


# --- server-sent events ----------------------------------------------------------------------------------------------


def stream(notes: Notes, port: int, token: str) -> None:
    """A thread and a connection per run."""
    started: set[str] = set()
    while not notes.all_done():
        for run in notes.listed()[0]:
            if run not in started:
                started.add(run)
                threading.Thread(target=read_run, args=(notes, run, port, token), daemon=True).start()
        threading.Event().wait(POLL)


def read_run(notes: Notes, run: str, port: int, token: str) -> None:
    """One connection after the other until the run has ended."""
    try:
        while run not in notes.finished:
            with contextlib.suppress(OSError, http.client.HTTPException):
                read_once(notes, run, port, token)
            threading.Event().wait(random.uniform(0.01, 0.1))
    except Exception:  # noqa: BLE001 - the whole client is to end, not this thread
        traceback.print_exc()
        os._exit(1)


def read_once(notes: Notes, run: str, port: int, token: str) -> None:
    """Read the events of one response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        if notes.cursors[run]:
            headers["Last-Event-ID"] = f"{notes.epoch}-{notes.cursors[run]}"
        connection.request("GET", f"/v1/runs/{run}/events", headers=headers)
        response = connection.getresponse()
        if response.status in (404, 503):
            return
        if response.status != 200 or response.headers["content-type"] != "text/event-stream":
            raise Broken(f"{response.status}: {response.read()!r}")
        for fields in server_sent_events(response):
            if b"data" not in fields:
                continue
            epoch, _, number = fields[b"id"].decode().rpartition("-")
            notes.same_log(epoch)
            event = json.loads(fields[b"data"])
            if (event["runId"], event["sequence"]) != (run, int(number)):
                raise Broken(f"the id is {fields[b'id']!r} and the event {event['id']}")
            notes.add(run, event["sequence"], event["type"], fields[b"data"])
    finally:
        connection.close()


def server_sent_events(response: http.client.HTTPResponse) -> Iterator[dict[bytes, bytes]]:
    """Each event's fields; one that is cut off in the middle is none."""
    fields: dict[bytes, bytes] = {}
    while line := response.readline():
        if not line.endswith(b"\n"):
            return
        name, colon, value = line[:-1].partition(b":")
        if line == b"\n":
            yield fields
            fields = {}
        elif name and colon:
            fields[name] = value.removeprefix(b" ")


def main() -> None:
    """Follow until all is there."""
    kind, folder, port, token = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    notes = Notes(folder)
    if kind == "stream":
        stream(notes, port, token)
    else:
        trio.run({"frames": frames, "library": library}[kind], notes, port, token)


if __name__ == "__main__":
    main()
