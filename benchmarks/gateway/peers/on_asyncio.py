"""A peer on asyncio: a list of texts, and tasks that send each of them to their connection."""

from __future__ import annotations

import asyncio  # noqa: TID251 - these peers know no other loop
import os
from collections.abc import Awaitable, Callable

from course import END, Course, arguments, event, say


class Feed:
    """The texts so far, for any number of followers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def follow(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send each text once, in order, until cancelled."""
        cursor = 0
        while True:
            if cursor < len(self.texts):
                await send(self.texts[cursor])
                cursor += 1
            else:
                more = asyncio.get_running_loop().create_future()
                self._waiting.append(more)
                await more

    def wake(self) -> None:
        """There are more texts."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class Orders:
    """The bytes on standard input."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(0, self._read)

    def _read(self) -> None:
        data = os.read(0, 64)
        for number in data or b"q":
            self._queue.put_nowait(bytes((number,)))
        if not data:
            asyncio.get_running_loop().remove_reader(0)

    async def next(self) -> bytes:
        """The next one."""
        return await self._queue.get()


async def drive(feed: Feed, port: int, publish: Callable[[str], None] | None = None) -> None:
    """Tell the port, and obey. `publish`: sends a text to all at once, in place of the followers."""
    options = arguments()
    course, orders = Course(options["events"], options["rate"]), Orders()
    say({"port": port})
    order = await orders.next()
    course.begin()
    while course.left and order not in END:
        texts = [event(index + 1, stamp) for index, stamp in course.take()]
        if publish is None:
            feed.texts += texts
            feed.wake()
        else:
            for text in texts:
                publish(text)
        if course.rate:
            await asyncio.sleep(course.pause())
        else:
            order = await orders.next()
    while order not in END:
        order = await orders.next()
