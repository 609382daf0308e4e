"""A peer on trio: a list of texts, and tasks that send each of them to their connection."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import trio
from course import END, Course, arguments, event, say


class Feed:
    """The texts so far, for any number of followers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._lot = trio.lowlevel.ParkingLot()

    async def follow(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send each text once, in order, until cancelled."""
        cursor = 0
        while True:
            if cursor < len(self.texts):
                await send(self.texts[cursor])
                cursor += 1
            else:
                await self._lot.park()

    def wake(self) -> None:
        """There are more texts."""
        self._lot.unpark_all()


async def order() -> bytes:
    """The next order."""
    await trio.lowlevel.wait_readable(0)
    return os.read(0, 1)


async def drive(feed: Feed, port: int) -> None:
    """Tell the port, and obey."""
    options = arguments()
    course = Course(options["events"], options["rate"])
    say({"port": port})
    letter = await order()
    course.begin()
    while course.left and letter not in END:
        feed.texts += [event(index + 1, stamp) for index, stamp in course.take()]
        feed.wake()
        if course.rate:
            await trio.sleep(course.pause())
        else:
            letter = await order()
    while letter not in END:
        letter = await order()
