"""Many followers of one run by server-sent events, in a process of its own; the standard library only.

Says `ready` when all of them have the stream, and then how many events each has got. It looks at the bytes as little as
it may: events are counted, the newest id of each follower is read at the end, and a few followers look at the stamps.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import sys
import time

MARK = b"\ndata: "
STAMP = re.compile(rb'"text":"at (\d+) ')
LAST = re.compile(rb"id: [0-9a-f]+-(\d+)\n")
WATCHED = 20
"""Followers that look at the stamps."""
KEPT = 4096
"""Bytes of the end of each stream that are kept."""


class Follower:
    """One connection."""

    def __init__(self, port: int, path: str, token: str, *, watched: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
        self.socket.sendall(f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
        self.socket.setblocking(False)
        self.events, self.watched, self.began = 0, watched, False
        self.tail = b""
        self.waits: list[int] = []

    def read(self) -> bool:
        """Take what is there; False at the end of the stream."""
        data = self.socket.recv(262_144)
        if not data:
            return False
        text = self.tail[-(len(MARK) - 1) :] + data
        self.events += text.count(MARK)
        self.began = self.began or b"retry: " in self.tail + data
        if self.watched:
            now = time.monotonic_ns()
            self.waits += [now - int(stamp) for stamp in STAMP.findall(data)]
        self.tail = (self.tail + data)[-KEPT:]
        return True

    @property
    def last(self) -> int:
        """The newest sequence."""
        return int(LAST.findall(self.tail)[-1])


def pump(selector: selectors.BaseSelector, followers: list[Follower], done: str, most: float) -> int:
    """Read until all have begun, or have so many events; return the number of reads."""
    reads, limit, open_ones = 0, time.monotonic() + most, len(followers)

    def waiting() -> bool:
        return any(not f.began if done == "began" else f.events < int(done) for f in followers)

    while time.monotonic() < limit and open_ones and waiting():
        for key, _ in selector.select(0.05):
            reads += 1
            if not key.data.read():
                selector.unregister(key.fileobj)
                open_ones -= 1
    return reads


def main() -> None:
    """Follow."""
    parser = argparse.ArgumentParser()
    for name in ("port", "clients", "events", "after"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("path", "token"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    began, selector = time.monotonic(), selectors.DefaultSelector()
    followers = [
        Follower(options.port, options.path, options.token, watched=index < WATCHED) for index in range(options.clients)
    ]
    for follower in followers:
        selector.register(follower.socket, selectors.EVENT_READ, follower)
    pump(selector, followers, "began", 60)
    joining = time.monotonic() - began
    print("ready", flush=True)
    start, cpu = time.monotonic(), time.process_time()
    reads = pump(selector, followers, str(options.events), options.seconds)
    seconds = time.monotonic() - start
    waits = sorted(wait for follower in followers for wait in follower.waits)
    deliveries = sum(follower.events for follower in followers)
    whole = [f for f in followers if f.events == options.events]
    wrong = sum(f.last != options.after + options.events for f in whole) + sum(
        f.events > options.events for f in followers
    )
    report = {
        "clients": options.clients,
        "delivered": deliveries,
        "expected": options.clients * options.events,
        "seconds": seconds,
        "reads": reads,
        "wrong": wrong,
        "joined_s": joining,
        "cpu_s": time.process_time() - cpu,
        "p50_ms": waits[len(waits) // 2] / 1e6 if waits else 0.0,
        "p99_ms": waits[len(waits) * 99 // 100] / 1e6 if waits else 0.0,
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
