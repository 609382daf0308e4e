"""A parent, and N processes that work on one shared store and accept on one port.

Theory of operation. The parent binds the port and passes the listening socket on, so the workers accept from one queue:
a client sees one server, and a worker that ends takes only its own connections with it. A gateway in the parent would
be one process through which everything goes, and which must not crash; the parent does nothing but wait.

The parent learns immediately that a worker has ended. It then ends the rest of the worker's process group, such as
programs that a tool has started, declares the worker dead in the store, which frees its runs for the other workers, and
starts a new one: immediately the first time, later with back-off. Without the parent the others would have to wait for
the worker's lease.

Each worker leads a process group of its own, so that Ctrl-C in a terminal reaches the parent alone, which lets the
workers drain. A worker holds the reading end of a pipe whose other end only the parent has: if the parent is killed,
the pipe ends, and the worker stops in order.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.supervision.nursery import open_collapsing_nursery
from greenroom.supervision.spec import Backoff

from .hosting import CannotBind
from .open_store import open_store
from .serve import BACKLOG

AGAIN: Final = Backoff(initial=0.5, factor=2.0, maximum=30.0, jitter=0.25)
"""Pause before a worker that ended again soon after its start is replaced."""
STEADY: Final = 30.0
"""Seconds of life after which the next end of a worker counts as the first one."""
LEAVING: Final = 30.0
"""Seconds for workers to drain, to close their connections and the store; then they are killed."""
BURYING: Final = 5.0
"""Seconds to free the runs of workers that did not end in order."""
BURY_AGAIN: Final = 0.5
"""Seconds before a store that does not answer is asked again to free the runs of a dead worker."""


@attrs.frozen
class WorkerLink:
    """The descriptors that a worker has from its parent.

    Attributes:
        name: The name of the process in the store.
        listeners: The descriptors of the listening sockets.
        parent: The descriptor of a pipe that ends with the parent.
        ready: The descriptor of a pipe that takes a byte once the worker serves.
    """

    name: str
    listeners: tuple[int, ...]
    parent: int
    ready: int

    def text(self) -> str:
        """Return the option's value for the worker's command line."""
        return f"{self.name},{self.parent},{self.ready},{','.join(map(str, self.listeners))}"

    @classmethod
    def read(cls, text: str) -> WorkerLink:
        """Read the option of a worker.

        Raises:
            ValueError: The text is not of a parent.
        """
        name, *numbers = text.split(",")
        if len(numbers) < 3 or not all(number.isdigit() for number in numbers):
            raise ValueError(f"{text!r:.100} is not the link of a worker")
        parent, ready, *listeners = map(int, numbers)
        return cls(name, tuple(listeners), parent, ready)

    def sockets(self) -> list[socket.socket]:
        """Return the listening sockets."""
        return [socket.socket(fileno=number) for number in self.listeners]

    @asynccontextmanager
    async def serving(self, orphaned: Callable[[], object]) -> AsyncIterator[None]:
        """Tell the parent that the worker serves, and call `orphaned` once if the parent ends during the block."""

        async def watch() -> None:
            await trio.lowlevel.wait_readable(self.parent)
            while os.read(self.parent, 64):
                await trio.lowlevel.wait_readable(self.parent)
            orphaned()

        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(watch)
            os.write(self.ready, b"r")
            os.close(self.ready)
            yield
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class Workers:
    """The workers of one parent.

    Attributes:
        store: The store, open in the parent; the workers open their own.
        command: The command line of a worker, without its link.
        environment: The variables of the workers.
        count: Number of workers.
        listeners: The bound sockets.
        own_listeners: For each worker the sockets on which only this worker accepts; empty if there are none.
        on_end: Called when a worker has ended and is replaced: its number, its exit code, and the seconds until then.
        pids: The process ids of the workers.
    """

    store: Store
    command: Sequence[str]
    environment: dict[str, str]
    count: int
    listeners: Sequence[trio.SocketListener]
    on_end: Callable[[int, int, float], None]
    own_listeners: Sequence[Sequence[trio.SocketListener]] = ()
    pids: set[int] = attrs.field(init=False, factory=set)
    _stopping: trio.Event = attrs.field(init=False, factory=trio.Event)
    _serving: set[int] = attrs.field(init=False, factory=set)
    _refused: int | None = attrs.field(init=False, default=None)
    _settled: trio.Event = attrs.field(init=False, factory=trio.Event)
    _processes: set[trio.Process] = attrs.field(init=False, factory=set)
    _ended: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, as bound."""
        host, port = self.listeners[0].socket.getsockname()[:2]
        return str(host), int(port)

    async def run(self, *, task_status: trio.TaskStatus[int | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the workers until `stop`. Reports None once all serve, or the exit code of one that never did."""
        life, writer = os.pipe()
        try:
            async with trio.open_nursery() as nursery:
                for index in range(self.count):
                    nursery.start_soon(self._keep, index + 1, life)
                await self._settled.wait()
                task_status.started(self._refused)
        finally:
            self._ended.set()
            os.close(writer)
            os.close(life)

    async def stop(self) -> None:
        """Let the workers drain and end; those that take too long are killed. A second call kills them sooner."""
        again = self._stopping.is_set()
        self._stopping.set()
        self._settled.set()
        for process in tuple(self._processes):
            with suppress(ProcessLookupError):
                process.terminate()
        with trio.move_on_after(3.0 if again else LEAVING):
            for process in tuple(self._processes):
                await process.wait()
        for process in tuple(self._processes):
            _end_group(process.pid)
        with trio.move_on_after(BURYING):
            await self._ended.wait()

    async def _keep(self, index: int, life: int) -> None:
        """Start a worker, and another one whenever it ends."""
        failures = 0
        while not self._stopping.is_set():
            began = trio.current_time()
            code = await self._work(index, life, first=failures == 0)
            if self._stopping.is_set():
                return
            failures = 1 if trio.current_time() - began >= STEADY else failures + 1
            pause = 0.0 if failures == 1 else AGAIN.delay(failures - 1, secrets.randbelow(1000) / 1000 - 0.5)
            self.on_end(index, code, pause)
            await trio.sleep(pause)

    async def _work(self, index: int, life: int, *, first: bool) -> int:
        """Run one worker to its end, then end its group and free its runs; return its exit code."""
        ready, reports = os.pipe()
        link = WorkerLink(
            f"{socket.gethostname()}-{os.getpid()}-{index}-{secrets.token_hex(3)}",
            tuple(listener.socket.fileno() for listener in self._listeners_of(index)),
            life,
            reports,
        )
        try:
            process = await trio.lowlevel.open_process(
                [*self.command, "--worker", link.text()],
                env=self.environment,
                pass_fds=(*link.listeners, link.parent, link.ready),
                start_new_session=True,
                stdin=None,
            )
        finally:
            os.close(reports)
        self._processes.add(process)
        self.pids.add(process.pid)
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._note_ready, index, ready)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._processes.discard(process)
            self.pids.discard(process.pid)
        _end_group(process.pid)
        if not (self._stopping.is_set() and code == 0):
            await self._bury(link.name)
        # a worker that has served is replaced; one that never did has a reason that the next one would have, too
        if first and index not in self._serving and not self._settled.is_set() and not self._stopping.is_set():
            self._refused = code if code > 0 else 1
            self._settled.set()
        return code

    def _listeners_of(self, index: int) -> Sequence[trio.SocketListener]:
        return [*self.listeners, *(self.own_listeners[index - 1] if self.own_listeners else ())]

    async def _note_ready(self, index: int, descriptor: int) -> None:
        async with trio.lowlevel.FdStream(descriptor) as stream:
            if await stream.receive_some(1):
                self._serving.add(index)
                if len(self._serving) == self.count:
                    self._settled.set()

    async def _bury(self, name: str) -> None:
        """Declare a worker dead; the others wait for its lease if the store does not answer until then.

        A worker that was declared dead before, and continued, has another name since: the first one and a drawn part.
        """
        while True:
            try:
                if not await self.store.bury(name):
                    for info in await self.store.processes():
                        if info.name.startswith(f"{name}."):
                            await self.store.bury(info.name)
            except gr.StoreUnavailable:
                if self._stopping.is_set():
                    return
                await trio.sleep(BURY_AGAIN)
            else:
                return


def _end_group(leader: int) -> None:
    """Kill the processes of a worker's group, such as programs that a tool has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """The options of a parent.

    Attributes:
        count: Number of workers.
        host, port: Address to bind; 0 for a free port.
        metrics_port: First of further ports, one for each worker, on which only that worker accepts; None for no ports.
        command: The command line of a worker, without its address and its link.
        environment: The variables of the workers.
        on_end: Called when a worker has ended and is replaced, as in `Workers`.
    """

    count: int
    host: str
    port: int
    command: Sequence[str]
    environment: dict[str, str] = attrs.field(repr=False)
    on_end: Callable[[int, int, float], None]
    metrics_port: int | None = None


@asynccontextmanager
async def open_workers(store: Store, options: WorkerOptions) -> AsyncIterator[tuple[Workers, trio.Nursery]]:
    """Bind the port and open the store for the block; the workers are stopped at its end.

    Yields the workers, which are not started, and the nursery for `Workers.run`.

    Raises:
        CannotBind: The address cannot be bound.
        StoreError: The store cannot be opened, or has failed.
    """
    listeners = await _bound(options.host, options.port)
    own_listeners = list[Sequence[trio.SocketListener]]()
    try:
        if options.metrics_port is not None:
            for index in range(options.count):
                own_listeners.append(await _bound(options.host, options.metrics_port + index))
        async with open_store(store), open_collapsing_nursery() as nursery:
            store.publish({}, room=0)
            command = [*options.command, "--host", options.host, "--port", str(listeners[0].socket.getsockname()[1])]
            workers = Workers(
                store, command, options.environment, options.count, listeners, options.on_end, own_listeners
            )
            try:
                yield workers, nursery
            finally:
                with trio.CancelScope(shield=True):
                    await workers.stop()
            nursery.cancel_scope.cancel()
    finally:
        for listener in itertools.chain(listeners, *own_listeners):
            listener.socket.close()


async def _bound(host: str, port: int) -> Sequence[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        raise CannotBind(host, port, error) from error
