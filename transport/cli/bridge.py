"""What the bridges share: the gateway that they are clients of, and the standard streams that they speak on.

Theory of operation. A bridge is a program between the standard streams and a gateway. It is a client of the gateway
that an option names, or of the one that has the database open. If none has, and the command names agents, the bridge
hosts a gateway for as long as it lives, announced in the lock file of the database as that of `greenroom run` is. So
two bridges on one database share one gateway, and when the host of it ends, the other bridge becomes the host.

    find -> attached -> (the gateway is lost) -> find
         -> hosting  -> (the standard input has ended) -> stopped in order
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.errors import StoreOpenError, UsageError
from greenroom.actors.stores.sqlite.store import owner_of
from greenroom.supervision.nursery import open_collapsing_nursery

from ..server.hosting import GatewayOptions, hosting
from ..terminal.interrupts import Interrupts
from ..terminal.screen import Screen, complain
from . import exits, owner, paths, places, tokens
from .agents import load_agents
from .collector import collect_rarely
from .hidden import hidden_values
from .owner import NoGateway, ServedBy
from .places import Place, SharedStore
from .serve import log_to_the_operator

DRAIN: Final = 2.0
"""Seconds for live runs to reach a durable point when a bridge ends: its program waits for that."""
PATIENCE: Final = 5.0
"""Seconds for a process that has the database open to announce its gateway."""
PAUSE: Final = 0.2
"""Seconds before a bridge looks again for a gateway that it has lost."""
_CHUNK: Final = 64 * 1024


@attrs.frozen(kw_only=True)
class Bridge:
    """What a bridge was started with; see `read_bridge`.

    Attributes:
        command: The name of the command, for errors.
        agents: The agents of a hosted gateway; empty: the bridge hosts none, but on a shared store.
        args: The options that name the place.
        place: The place of a hosted gateway; None: memory.
        secrets: Values to hide while a store is open.
    """

    command: str
    agents: tuple[gr.Agent[object], ...]
    args: argparse.Namespace = attrs.field(repr=False)
    place: Place | None
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


def read_bridge(args: argparse.Namespace) -> Bridge:
    """Return what the options of a bridge come to, with the agents loaded.

    Raises:
        UsageError: The options contradict each other.
        AgentLoadError: An agent cannot be loaded.
        StoreOpenError: The folder of the database does not exist.
    """
    if args.agents:
        for name in ("url", "token"):
            if getattr(args, name) is not None:
                why = "a gateway that is hosted here has a new address, and its token in a file"
                raise UsageError(
                    f"--{name} is for a gateway that runs already, and agents for one here: {why}; omit one"
                )
    place = places.chosen(args)
    if isinstance(place, Path) and args.agents and not place.parent.is_dir():
        raise StoreOpenError(f"the folder {place.parent.absolute()} does not exist; make it first")
    agents = tuple(agent for target in args.agents for agent in load_agents(target))
    return Bridge(command=args.command, agents=agents, args=args, place=place, secrets=hidden_values(args))


class BridgeGateway:
    """The gateway of a bridge, now: hosted here, or found elsewhere.

    Attributes:
        runtime: The runtime of the gateway while this process hosts it; else None.
        fault: Why there is no gateway now; empty before the first failure.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.runtime: gr.Runtime | None = None
        self.fault = ""
        self._address: ServedBy | None = None
        self._changed = trio.Event()
        self._stay = trio.CancelScope()
        self._ending = False

    def __repr__(self) -> str:
        where = "none now" if self._address is None else self._address.url
        return f"<BridgeGateway: {where}{', hosted here' if self.hosted else ''}>"

    @property
    def hosted(self) -> bool:
        """True while the gateway is one of this process."""
        return self.runtime is not None

    async def address(self) -> ServedBy:
        """Return the address and the token of the gateway; waits while there is none. Bound the wait with a scope."""
        while self._address is None:
            await self._changed.wait()
        return self._address

    def lost(self, address: ServedBy) -> None:
        """Report that no gateway answers at an address that `address` has returned; another one is looked for."""
        if self._address is address and not self.hosted:
            self._set(None)
            self._stay.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Find or host the gateway until `close` is called.

        Raises:
            GreenroomError: There is no gateway at the start, and none can be hosted. Later the search goes on.
        """
        until, started = trio.current_time() + PATIENCE, False
        while not self._ending:
            try:
                async with AsyncExitStack() as stack:
                    self._set(await self._opened(stack))
                    if not started:
                        started = True
                        task_status.started()
                    await self._until_lost()
            except gr.GreenroomError as error:
                if not started and (not isinstance(error, NoGateway) or trio.current_time() >= until):
                    raise
                self.fault = str(error)
            self.runtime = None
            self._set(None)
            await trio.sleep(0 if self._ending else PAUSE)

    def close(self) -> None:
        """End `run` in order: a hosted gateway says goodbye, and its runs reach a durable point."""
        self._ending = True
        self._stay.cancel()

    async def _until_lost(self) -> None:
        with trio.CancelScope() as self._stay:
            if not self._ending:
                await trio.sleep_forever()

    async def _opened(self, stack: AsyncExitStack) -> ServedBy:
        address = await self._found()
        if address is not None:
            return address
        self.runtime, address = await _hosted(self.bridge, stack)
        return address

    async def _found(self) -> ServedBy | None:
        """Return a gateway that runs already; None: the bridge is to host one.

        Raises:
            UsageError: No gateway has the database open, and the bridge has no agents.
            NoGateway: A process without a gateway has the database open.
        """
        bridge = self.bridge
        if bridge.agents and not (isinstance(bridge.place, Path) and bridge.place.exists()):
            return None
        address = await owner.find_in_time(bridge.args)
        if isinstance(address, ServedBy):
            return address
        if not bridge.agents and isinstance(address.place, Path):
            own = paths.typed(bridge.command, "FILE.py", *places.options(address.place))
            raise UsageError(f"no gateway serves {address.place}; start one with `greenroom serve`, or host one: {own}")
        return None

    def _set(self, address: ServedBy | None) -> None:
        self._address = address
        changed, self._changed = self._changed, trio.Event()
        changed.set()


async def _hosted(bridge: Bridge, stack: AsyncExitStack) -> tuple[gr.Runtime, ServedBy]:
    """Open the runtime and its gateway on the stack.

    Raises:
        NoGateway: Another process has opened the database meanwhile.
        GreenroomError: The database cannot be opened, or no address can be bound.
    """
    place = bridge.place
    file = tokens.file_for(place if isinstance(place, Path) else None, bridge.args.token_file, stack, printed=False)
    gate = GatewayOptions(token=tokens.of(file), token_file=file)
    opened = gr.open_runtime(_store(place), agents=bridge.agents, drain=DRAIN, secrets=bridge.secrets)
    try:
        runtime = await stack.enter_async_context(opened)
    except StoreOpenError as error:
        if isinstance(place, Path) and owner_of(place) is not None:
            raise NoGateway(str(error)) from error
        raise
    address = await stack.enter_async_context(hosting(runtime, gate))
    log_to_the_operator()
    where = "in memory only" if place is None else f"in {place}"
    complain(f"serving at {address.url}, runs {where}, token in {file}")
    database = place if isinstance(place, Path) else None
    return runtime, ServedBy(url=address.url, token=gate.token, database=database)


def _store(place: Place | None) -> Store | None:
    if isinstance(place, SharedStore):
        return place.opened(patience=None)
    return None if place is None else gr.SQLiteStore(place)


@asynccontextmanager
async def open_gateway(bridge: Bridge) -> AsyncIterator[BridgeGateway]:
    """Find or host the gateway of a bridge for the block; a hosted one stops in order at its end.

    Raises:
        GreenroomError: There is no gateway, and none can be hosted; the text says why.
    """
    gateway = BridgeGateway(bridge)
    async with open_collapsing_nursery() as nursery:
        try:
            await nursery.start(gateway.run)
            yield gateway
        finally:
            gateway.close()


# --- the standard streams --------------------------------------------------------------------------------------------


class StandardStreams:
    """The standard input and output of a bridge, whatever they are: pipes, files, a terminal.

    Reads and writes run in worker threads, since a file cannot be waited for, and a pipe that does not block would not
    block for its other users either.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._writing = trio.Lock()

    def __repr__(self) -> str:
        return f"<StandardStreams {self._source} and {self._target}>"

    async def read(self) -> bytes:
        """Return the next bytes of the input; b"" at its end. A cancelled read leaves its thread behind."""
        return await trio.to_thread.run_sync(os.read, self._source, _CHUNK, abandon_on_cancel=True)

    async def write_line(self, line: bytes) -> None:
        """Write a line, without its end, as a whole. A cancelled write leaves its thread behind.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        async with self._writing:
            await trio.to_thread.run_sync(partial(_write, self._target, line + b"\n"), abandon_on_cancel=True)


def _write(target: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(target, rest) :]


@contextmanager
def standard_streams() -> Iterator[StandardStreams]:
    """Keep the standard streams for the bridge: what other code prints goes to standard error, and it reads nothing."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        yield StandardStreams(source, target)
    finally:
        sys.stdout = out
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(target)  # not the source: a thread that was left behind may read from it


def run_bridge(bridge: Bridge, speak: Callable[[BridgeGateway, StandardStreams], Awaitable[None]]) -> int:
    """Speak on the standard streams until `speak` returns, at the end of the input; return the exit code.

    Raises:
        GreenroomError: There is no gateway, and none can be hosted; or as `speak` does.
        BrokenPipeError: The reader has closed the standard output.
    """
    collect_rarely()
    with standard_streams() as streams:
        return trio.run(_run, bridge, streams, speak)


async def _run(
    bridge: Bridge, streams: StandardStreams, speak: Callable[[BridgeGateway, StandardStreams], Awaitable[None]]
) -> int:
    stop = Interrupts(note="")
    async with stop.listening(Screen(sys.stderr)), open_gateway(bridge) as gateway:
        with stop.in_order():
            await speak(gateway, streams)
    if not stop.interrupted:
        return exits.COMPLETED
    complain("interrupted")
    return exits.INTERRUPTED
