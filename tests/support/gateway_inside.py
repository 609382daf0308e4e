"""A gateway on loopback whose inside can be looked at: what attacks leave behind, and what others notice of them."""

import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import trio
from tests.support.gateway import TOKEN, http, welcomed
from tests.support.raw_ws import Raw, calling, host_of, upgrade

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel
from greenroom.transport import Address, serve
from greenroom.transport.gateway.gateway import Gateway

PATIENCE = 60.0
"""Seconds after which what an attack has left behind counts as left for ever."""
CONNECTED = ("_run_handler", "Pump.", "Door.", "Conversation.", "WebSocketConnection.")
"""What the names of tasks have that belong to connections."""
HELPER = gr.Agent("helper", model=ScriptedModel(["done"] * 1000))


async def until(holds: Callable[[], object]) -> None:
    """Wait until something is the case that no one tells, or for as long as one may wait for it."""
    with trio.move_on_after(PATIENCE):
        while not holds():  # noqa: ASYNC110 - real sockets: no one sets an event
            await trio.sleep(0.005)


class Failures(logging.Handler):
    """What the gateway says about itself that only a bug makes it say."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def listening(*names: str) -> Iterator[Failures]:
    """Collect what is logged as a failure during the block; with names, only the test gets those loggers' lines."""
    failures, loggers = Failures(), [logging.getLogger(name) for name in names or ("greenroom", "trio")]
    for logger in loggers:
        logger.addHandler(failures)
        logger.propagate = not names
    try:
        yield failures
    finally:
        for logger in loggers:
            logger.removeHandler(failures)
            logger.propagate = True


@attrs.define(eq=False)
class House:
    """A runtime, its gateway, and where it is.

    Attributes:
        scope: around `serve`. ended: `serve` has returned. errors: what it has raised.
    """

    runtime: gr.Runtime
    gateway: Gateway
    address: Address
    failures: Failures
    scope: trio.CancelScope
    ended: trio.Event
    errors: list[Exception]

    @property
    def host(self) -> str:
        return host_of(self.address)

    @asynccontextmanager
    async def calling(self, **options: Any) -> AsyncIterator[Raw]:
        """A TCP connection."""
        async with calling(self.address, **options) as raw:
            yield raw

    @asynccontextmanager
    async def talking(self, token: str | None = TOKEN, **options: Any) -> AsyncIterator[Raw]:
        """A WebSocket; welcomed, if it has a token."""
        async with calling(self.address, **options) as raw:
            await raw.upgraded(upgrade(self.host, token))
            if token is not None:
                assert (await raw.tell())["type"] == "gw.welcome"
            yield raw

    def left(self) -> Iterator[str]:
        """What is still there of connections."""
        gateway, signals = self.gateway, self.runtime._parts.services.signals
        for name in ("open", "turned_away", "idle", "conversations"):
            if getattr(gateway, name):
                yield f"{name}: {getattr(gateway, name)}"
        if gateway._of.total():
            yield f"counted: {gateway._of}"
        if signals.followed:
            yield f"followed: {signals.followed}"
        if gateway.fanout._pumps:
            yield f"pumps: {gateway.fanout._pumps}"
        names = [task.name for task in chaos.program_tasks()]
        yield from (f"task: {name}" for name in names if any(one in name for one in CONNECTED))

    async def settled(self) -> None:
        """Nothing is left of all connections, and no bug has been reported.

        Raises:
            AssertionError: something is.
        """
        await until(lambda: not list(self.left()))
        assert list(self.left()) == []
        assert self.failures.texts == []

    async def honest(self, *, seconds: float = 60.0) -> None:
        """A client that does nothing wrong is served."""
        with trio.fail_after(seconds):
            assert (await http(self.address, "GET", "/healthz")).status == 200
            async with welcomed(self.address) as talk:
                ack = await talk.ask("start", id=self.runtime.commands.new_id(), agent="helper", text="hi")
                assert ack["status"] == "accepted", ack
                await talk.say("subscribe", run=ack["run"])
                frames = await talk.until("gw.unsubscribed")
                sequences = [frame["sequence"] for frame in frames if not frame["type"].startswith("gw.")]
                assert sequences == list(range(1, len(sequences) + 1))
                assert frames[-1]["reason"] == "done"


@asynccontextmanager
async def standing(runtime: gr.Runtime, **options: Any) -> AsyncIterator[House]:
    """A gateway before a runtime, for the time of the block; its error, or the block's, leaves bare."""
    scope, ended, errors = trio.CancelScope(), trio.Event(), list[Exception]()
    options = {"port": 0, **({} if "principals" in options else {"token": TOKEN}), **options}

    async def live(*, task_status: trio.TaskStatus[Address]) -> None:  # noqa: ASYNC128 - `serve` does
        try:
            with scope:
                await serve(runtime, task_status=task_status, **options)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            errors.append(error)
        ended.set()

    with listening() as failures:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(live)
            (found,) = [one for one in gc.get_objects() if type(one) is Gateway and one.runtime is runtime]
            try:
                yield House(runtime, found, address, failures, scope, ended, errors)
            except Exception as error:  # noqa: BLE001 - raised below, outside of the nursery's group
                errors.append(error)
            nursery.cancel_scope.cancel()
    for error in errors:
        raise error


@asynccontextmanager
async def house(*agents: gr.Agent[Any], **options: Any) -> AsyncIterator[House]:
    """A house for the time of the block; afterwards an honest client is served, and nothing is left of the others."""
    async with gr.open_runtime(agents=[HELPER, *agents]) as runtime, standing(runtime, **options) as here:
        yield here
        if "principals" not in options:
            await here.honest()
        await here.settled()
        here.scope.cancel()
        await here.ended.wait()
        assert here.failures.texts == []
