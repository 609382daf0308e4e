"""A program without a process: the surface of `ProgramProcess`, whose output a test writes, on any clock."""

import json
from typing import Any

import trio

from greenroom.actors.backends.process import ProcessExit, ProgramEnded, ProgramGroup


class FakeProgram:
    """A test calls `say` and `end`, and reads `received`.

    Args:
        stops: Seconds that the program takes to end when it is stopped.
    """

    def __init__(self, stops: float = 0.0) -> None:
        self.group = ProgramGroup(pid=0, mark="fake")
        self.heard_at = trio.current_time()
        self.received = b""
        self.input_closed = trio.Event()
        self.stopped_with: bytes | None = None
        self._stops = stops
        self._to_say, self._output = trio.open_memory_channel[bytes](1_000)
        self._exit: ProcessExit | None = None
        self._ended = trio.Event()
        self._news = trio.Event()

    def say(self, *messages: Any) -> None:
        """Write lines, of objects or bytes."""
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            self._to_say.send_nowait(data)

    def end(self, code: int = 0, errors: str = "") -> None:
        """End by itself."""
        self._exit = self._exit or ProcessExit(code=code, signal=None, errors=errors)
        self._to_say.close()
        self._ended.set()

    @property
    def answers(self) -> list[Any]:
        """The messages that it has received."""
        return [json.loads(line) for line in self.received.splitlines()]

    async def heard(self, count: int) -> list[Any]:
        """The messages, as soon as there are so many."""
        while len(self.answers) < count:
            await self._news.wait()
        return self.answers

    # --- the surface of ProgramProcess ---

    async def receive(self) -> bytes:
        try:
            data = await self._output.receive()
        except trio.EndOfChannel:
            return b""
        self.heard_at = trio.current_time()
        return data

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._ended.is_set():
            raise ProgramEnded("it reads no more")
        self.received += data
        self._news.set()
        self._news = trio.Event()

    async def close_input(self) -> None:
        await trio.lowlevel.checkpoint()
        self.input_closed.set()

    async def wait(self) -> ProcessExit:
        await self._ended.wait()
        assert self._exit is not None
        return self._exit

    async def stop(self, interrupt: bytes = b"") -> ProcessExit:
        with trio.CancelScope(shield=True):
            self.stopped_with = interrupt
            await trio.sleep(self._stops)
            if self._exit is None:
                self._exit = ProcessExit(code=None, signal=15, stopped=True)
            self._to_say.close()
            self._ended.set()
        return self._exit
