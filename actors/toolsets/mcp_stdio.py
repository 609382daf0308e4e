"""The transport to a server that is a program: one JSON-RPC message per line, over a process of `backends.process`.

So a server starts behind a gate, has a watchdog, and ends with all its descendants, whatever ends this process. The
SDK's own transport bounds no line, and leaves a server behind when this process is killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Final

import attrs
import trio

from ...supervision.nursery import open_collapsing_nursery
from ..backends.lines import LineReader
from ..backends.process import ProcessExit, ProgramCommand, ProgramEnded, ProgramProcess, open_program
from ..json_text import ANSWER_VALUES, JSONTextError, read_json
from .mcp_limits import PAGE_LIMIT, refusal
from .mcp_messages import ServerConnection
from .mcp_sdk import SessionMessage, ValidationError, anyio, types

LINE_LIMIT: Final = 12 * 2**20
"""Bytes of a line: an attachment of the largest size in base64, and what is around it."""
MOST_INVALID: Final = 20
"""Lines that are not messages, of one process of a server."""
CLOSING: Final = 2.0
"""Seconds for a server to end after its input is closed, as the protocol says."""
LAST_WORDS: Final = 500
"""Characters of a server's standard error that tell why it has ended."""
_SLICE: Final = 64
"""Lines that are read before other tasks may run."""


@attrs.define(eq=False, repr=False)
class ProgramTransport:
    """The streams of one process of a server."""

    _program: ProgramProcess
    _incoming: Any
    _outgoing: Any
    _report: Callable[[str], None]
    _fault: str = ""
    _invalid: int = 0

    def __repr__(self) -> str:
        return f"<ProgramTransport of {self._program!r}>"

    async def read(self, connection: ServerConnection) -> None:
        """Hand all messages on, until the program says no more or breaks the protocol too often."""
        lines = LineReader(LINE_LIMIT)
        try:
            while not self._fault and (data := await self._program.receive()):
                for number, line in enumerate(lines.feed(data)):
                    if number % _SLICE == _SLICE - 1:
                        await trio.lowlevel.checkpoint()
                    await self._take(line)
        finally:
            self._incoming.close()
        connection.lose(self._fault or _how(await self._program.wait()))

    async def _take(self, line: bytes | None) -> None:
        if line is None:
            self._fault = self._fault or f"it sent a line of more than {LINE_LIMIT:,} bytes"
            return
        if not line.strip() or self._fault:
            return
        try:
            message = types.jsonrpc_message_adapter.validate_python(read_json(line, most=ANSWER_VALUES), by_name=False)
        except (ValidationError, JSONTextError):
            self._note_invalid(line)
            return
        item = SessionMessage(message)
        if len(line) > PAGE_LIMIT and isinstance(message, types.JSONRPCResponse) and "tools" in message.result:
            item = refusal(message, f"it sent a page of tools of {len(line):,} bytes; at most {PAGE_LIMIT:,} are read")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody reads any more
            await self._incoming.send(item)

    def _note_invalid(self, line: bytes) -> None:
        self._invalid += 1
        self._report(f"a line that is no message: {line[:200].decode(errors='replace')}")
        if self._invalid > MOST_INVALID:
            self._fault = f"it sent more than {MOST_INVALID} lines that are no messages"

    async def write(self) -> None:
        """Send all messages, until the program reads no more."""
        with suppress(ProgramEnded):  # the reader says how the program ended
            async with self._outgoing:
                async for item in self._outgoing:
                    line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self._program.send(f"{line}\n".encode())

    async def close(self, connection: ServerConnection) -> None:
        """Close the program's input, and give it `CLOSING` seconds to end."""
        with trio.move_on_after(CLOSING, shield=True):
            await self._program.close_input()
            connection.lose(self._fault or _how(await self._program.wait()))


def _how(end: ProcessExit) -> str:
    how = f"was ended by signal {end.signal}" if end.signal is not None else f"ended with exit code {end.code}"
    tail = end.errors.strip()[-LAST_WORDS:]
    return f"it {how}" + (f"; its last words: {tail}" if tail else "")


@asynccontextmanager
async def connect_program(
    command: ProgramCommand, *, heed_errors: Callable[[bytes], None], report: Callable[[str], None]
) -> AsyncIterator[ServerConnection]:
    """Start the program of a server, and connect to it.

    Args:
        command: What to start.
        heed_errors: Called with each piece of its standard error.
        report: Called with each message that breaks the protocol.

    Raises:
        ProgramNotStarted: the operating system refused.
    """
    async with open_program(command, heed_errors=heed_errors) as program:
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        transport = ProgramTransport(program, incoming, outgoing, report)
        connection = ServerConnection(streams=nullcontext((read, write)), is_one=True)
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(transport.read, connection)
            nursery.start_soon(transport.write)
            try:
                yield connection
            finally:
                read.close()
                write.close()
                await transport.close(connection)  # noqa: ASYNC102 - bounded and shielded inside
                nursery.cancel_scope.cancel()
