"""A provider that sends anything, as large, often and odd as it likes: the run ends with a name, and the loop turns."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio
from tests.support.providers import KEY, MODELS
from tests.support.runs import events_of, home
from tests.support.wild_streams import WILD, Data, Wild, head, in_chunks, written

import greenroom as gr
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS

from .core import Dice, must, real

GAP: Final = 0.25
"""Seconds of the processor between two turns of a ticker that no stream may take."""
GROWTH: Final = 600 * 2**20
"""Bytes by which one scene may raise the most memory that the process has used."""
UNTYPED: Final = ("model_bug", "internal_error")
"""How a run fails whose model, or whose owner, raised what it must not."""
MOST: Final = 24 * 2**20
"""Bytes of one reply; the smaller ones are drawn more often."""
SIZES: Final = (0, 1, 3, 100, 4_096, 70_000, 1_000_000, 4_300_000, 8_400_000)
COUNTS: Final = (0, 1, 2, 50, 1_000, 4_097, 20_000)
UNITS: Final = ("x", "é", "\x01", '"', "\U0001f600", " ", "\\", ",", "[", KEY, KEY[:12])
NUMBERS: Final = (0, 1, -1, 7.5, 10**12, 10**13, 2**53, 2**63, 2**64, 10**400, True, None, "7", [], {})


def a_text(dice: Dice) -> str:
    """A text of some size."""
    unit, size = dice.choice(UNITS), dice.choice(SIZES) if dice.random() < 0.5 else dice.randrange(200)
    return unit * (size // len(unit.encode()))


def an_id(dice: Dice) -> Any:
    """An id or a name, often a usual one."""
    return dice.choice(
        ("add", "add", "c1", "c2", f"c{dice.randrange(1_000_000)}", "", "x" * dice.choice((300, 70_000)))
    )


def a_value(dice: Dice, depth: int = 0) -> Any:
    """JSON data of some kind, wide or deep."""
    match dice.randrange(9 if depth < 4 else 5):
        case 0 | 1:
            return dice.choice(NUMBERS)
        case 2 | 3:
            return a_text(dice)
        case 4:
            return dice.choice(("\ud83d", "\ufffd", "\x00"))
        case 5:
            return [dice.choice(NUMBERS)] * dice.choice(COUNTS)
        case 6:
            return {f"k{number}": number for number in range(dice.choice(COUNTS))}
        case 7:
            deep: Any = 1
            for _ in range(dice.choice((3, 63, 66, 450, 960))):
                deep = [deep] if dice.random() < 0.5 else {"x": deep}
            return deep
        case _:
            return {an_id(dice): a_value(dice, depth + 1) for _ in range(3)}


def an_event(dice: Dice, wild: Wild) -> list[Data]:
    """One event, or one again and again."""
    index = dice.choice((0, 0, 1, 2, dice.randrange(20_000)))
    match dice.randrange(9):
        case 0:
            return [wild.text(a_text(dice))]
        case 1:
            return [wild.reasoning(a_text(dice))]
        case 2:
            return [wild.call(index, an_id(dice), an_id(dice), dice.choice(("{}", '{"n": 1}', a_text(dice))))]
        case 3:
            return [wild.arguments(index, dice.choice(("{}", '{"n": ', a_text(dice), "[" * 900)))]
        case 4:
            return [wild.calls(dice.choice(COUNTS), "c", "add")]
        case 5:
            return [wild.part(index, {dice.choice(("data", "text", "type", "signature")): a_value(dice)})]
        case 6:
            return [wild.used(dice.choice(NUMBERS))]
        case 7:
            one = dice.choice((wild.text("x"), wild.reasoning("x"), wild.arguments(index, "1"), {}))
            return [one] * dice.choice(COUNTS)
        case _:
            count = dice.choice(COUNTS)
            return [wild.call(number, f"c{number}", "add", "{}") for number in range(count)]


def spoilt(dice: Dice, data: Data) -> Data:
    """An event of which one field, somewhere inside, has another value."""
    place: Any = data
    while isinstance(place, dict) and place:
        name = dice.choice(list(place))
        inner = place[name]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.3:
            place[name] = a_value(dice)
            return data
        place = inner if isinstance(inner, dict) else inner[0]
    return data


def a_body(dice: Dice, wild: Wild) -> bytes:
    """The body of a stream."""
    noise = (b"", b"\n" * dice.choice(SIZES), b":\n" * (dice.choice(SIZES) // 2), b"data:{}\n\n" * dice.choice(COUNTS))
    chunks = [b"\xef\xbb\xbf"] if dice.random() < 0.1 else []
    for _ in range(dice.choice((1, 2, 5, 20))):
        data = an_event(dice, wild)
        if len(data) == 1 and dice.random() < 0.3:
            data = [spoilt(dice, json.loads(json.dumps(data[0])))]
        chunks.append(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in data))
        if dice.random() < 0.3:
            chunks.append(dice.choice((*noise, b"data:\n" * 3_000, b"garbage \xff\xfe\n", b"data: {nonsense\n\n")))
        if sum(map(len, chunks)) > MOST:
            break
    end = dice.choice((written(*wild.end), written(*wild.end), b"", b"data: [DONE]\n\n", error(dice)))
    body = b"".join(chunks)[:MOST] + end
    return body.replace(b"\n", dice.choice((b"\n", b"\n", b"\r\n", b"\r")))


def error(dice: Dice) -> bytes:
    """An event that reports a failure."""
    fault = {"message": a_text(dice), "code": a_value(dice), "type": an_id(dice), "details": [a_value(dice)]}
    return b"data: " + json.dumps({"error": fault, "type": "error"}).encode() + b"\n\n"


def a_reply(dice: Dice, wild: Wild) -> bytes:
    """A whole reply: status, headers, encoding, chunks."""
    body = a_body(dice, wild)
    if dice.random() < 0.8:
        size = dice.choice((0, 0, 1, 7, 1_000, 100_000))
        if size and len(body) < 60_000 * size:
            return head(chunked=True) + in_chunks(body, size)
        return head() + body
    status = dice.choice(("200 OK", "429 Slow", "500 Broken", "301 Moved", "404 No", "204 Nothing", "999 What"))
    wait = dice.choice(("7", "1e308", "-1", "Mon, 01 Jan 99999999999999 00:00:00 GMT", "x" * 9_000))
    many = dice.choice((1, 50, 2_000))
    headers = [f"retry-after: {wait}", f"x-request-id: {KEY}", f"location: http://{KEY}@host/" + "x" * 5_000]
    encoding = dice.choice((None, "gzip", "deflate", "br"))
    if encoding:
        headers.append(f"content-encoding: {encoding}")
        body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)(body[:4_000_000])
    floods = dice.choice((b"", b"", b"HTTP/1.1 102 P\r\n\r\n" * 2_000))
    return floods + head(*headers, *["x-more: y"] * many, status=status) + body


@contextmanager
def serving(replies: list[bytes]) -> Iterator[str]:
    """A server in threads, whose work is none of the loop's: one reply for each connection, the last one again."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket, reply: bytes) -> None:
        with connection, connection.makefile("rb") as request:
            connection.settimeout(30)
            try:
                while request.readline() not in (b"\r\n", b""):
                    pass
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
            except OSError:
                pass

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            reply = replies[min(number, len(replies) - 1)]
            threading.Thread(target=answer, args=(connection, reply), daemon=True).start()
            number += 1

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@attrs.define
class Ticker:
    """Measures the longest time of the processor between two of its turns."""

    longest: float = 0.0

    async def run(self) -> None:
        """Turn for ever."""
        last = time.thread_time()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.thread_time()
            self.longest, last = max(self.longest, now - last), now


async def answered(runtime: gr.Runtime, name: str, replies: list[bytes]) -> None:
    """One run against the replies; it has one end, with a name."""

    @gr.tool
    async def add(n: int = 0) -> int:
        """Add one."""
        return n + 1

    with serving(replies) as url:
        model = MODELS[name]("small", base_url=url, api_key=KEY, idle_timeout=20)
        plugins = [gr.Retry(attempts=2, first=0.01, retry_after_cap=0.5), gr.Recovery(1)]
        agent = gr.Agent("asking", model=model, tools=[add], plugins=plugins)
        run = await runtime.start(agent, "hi")
        outcome = await run.wait()
        events = await events_of(run)
    must(sum(one.type in TERMINAL_EVENTS for one in events) == 1, f"{run.id}: {[one.type for one in events][-5:]}")
    must([one.sequence for one in events] == list(range(1, len(events) + 1)), f"{run.id}: a gap")
    must(KEY not in repr(outcome) and all(KEY not in repr(one) for one in events), f"{run.id}: the key is shown")
    if isinstance(outcome, gr.Failed):
        must(len(outcome.message) < 20_000, f"{run.id}: a message of {len(outcome.message)} characters")
        must(outcome.code not in UNTYPED, f"{run.id}: {outcome.code}: {outcome.message}")


async def beside_a_ticker(dice: Dice) -> None:
    """One scene."""
    name = dice.choice(list(MODELS))
    replies = [a_reply(dice, WILD[name]) for _ in range(dice.choice((1, 1, 2)))]
    replies.append(head() + written(WILD[name].text("Done."), *WILD[name].end))
    before, ticker = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024, Ticker()
    async with home(gr.MemoryStore()) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(ticker.run)
        await answered(runtime, name, replies)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    must(ticker.longest < GAP, f"{name}: the loop stood still for {ticker.longest:.3f} s")
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 - before
    must(growth < GROWTH, f"{name}: {growth:,} bytes more than before")


def streams(dice: Dice) -> None:
    """Replies of providers in all formats, drawn by lot, to runs of a runtime."""
    real(partial(beside_a_ticker, dice))
