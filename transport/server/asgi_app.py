"""`asgi_app`: the gateway as an ASGI 3 application, for a server that runs on trio.

`greenroom.aio.asgi_app` is its counterpart for servers on asyncio; it opens the same `OpenGateway` in a trio thread.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypedDict, Unpack

import attrs
import trio

import greenroom as gr
from greenroom.actors.options import unknown_option
from greenroom.supervision import ActorContext
from greenroom.supervision.nursery import open_collapsing_nursery

from ..gateway.access import OriginPolicy, Principal
from ..gateway.asgi import AsgiStream, Doorways, serve_connection
from ..gateway.exposed import Cards
from ..gateway.gateway import Gateway, OnAbort
from ..gateway.http import refusal
from ..gateway.outbox import Outbox, Receive, Send, TrioOutbox
from ..gateway.sign_ins.sign_in import Authenticate, SignIn
from ..protocol.codes import Refused
from ..protocol.limits import Limits
from .plan import all_principals, all_sign_ins, plan_gateway
from .serve import supervise

logger = logging.getLogger("greenroom.gateway")

FAREWELL: Final = 1.0
"""Seconds for the end of a connection whose server has cancelled it."""

Opening = AbstractAsyncContextManager[gr.Runtime]


class AsgiOptions(TypedDict, total=False):
    """The options of `asgi_app`; see there."""

    token: str | None
    principals: Iterable[Principal]
    authenticate: Authenticate | SignIn | Iterable[SignIn]
    hosts: Iterable[str]
    origins: Iterable[str]
    limits: Limits | None
    on_abort: OnAbort
    a2a: Iterable[str] | None
    a2a_default: str | None
    a2a_cards: Cards
    mcp: Iterable[str] | None
    prices: Mapping[str, gr.Price] | None


class AsgiHost(Protocol):
    """Serves connections of an ASGI server."""

    @property
    def is_open(self) -> bool:
        """False once no connection can begin."""

    async def serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection until everything is sent."""


@attrs.define(eq=False, repr=False)
class OpenGateway:
    """A gateway whose connections belong to an ASGI server; all methods are for trio.

    Attributes:
        gateway: The gateway.
        doorways: The accepted headers.
    """

    gateway: Gateway
    doorways: Doorways
    _nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        return f"<OpenGateway {self.gateway!r}>"

    @property
    def is_open(self) -> bool:
        """False before the beginning, after the end, and between a crash and the next incarnation."""
        return self._nursery is not None

    async def connections(self, ctx: ActorContext[object]) -> None:
        """Run the connections until cancelled; a static child of the gateway's supervisor."""
        try:
            async with open_collapsing_nursery() as self._nursery:
                self.gateway.fanout.open(self._nursery)
                ctx.ready()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def begin(self, scope: Mapping[str, Any], receive: Receive, outbox: Outbox) -> AsgiStream:
        """Serve a connection, in a task of the gateway."""
        stream = AsgiStream(self.gateway, receive, outbox)
        if self._nursery is None:
            outbox.end()
        else:
            self._nursery.start_soon(serve_connection, stream, self.doorways, scope)
        return stream

    async def serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection of a server on trio until everything is sent.

        Cancellation: the stream or WebSocket ends well-formed, which takes at most `FAREWELL` seconds.
        """
        outbox = TrioOutbox()
        if self._nursery is not None:
            self._nursery.start_soon(outbox.run, send)
        stream = self.begin(scope, receive, outbox)
        try:
            await outbox.over()
            await stream.drain()
        except trio.Cancelled:
            stream.stop()
            with trio.move_on_after(FAREWELL, shield=True):
                await outbox.over()
            raise
        finally:
            outbox.abandon()


Opens = Callable[[], AbstractAsyncContextManager[AsgiHost]]
OpensGateway = Callable[[gr.Runtime], AbstractAsyncContextManager[OpenGateway]]


class AsgiApp:
    """The gateway as an ASGI 3 application: scopes http, websocket and lifespan. Returned by `asgi_app`.

    It serves during its lifespan, or during an `async with` block, which a framework needs that does not pass the
    lifespan on to mounted applications. Otherwise each request is refused with the code `closing`.
    """

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._opened: AsgiHost | None = None
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<AsgiApp {'closed' if self._opened is None else 'open'}>"

    async def __aenter__(self) -> Self:
        """Begin to serve.

        Raises:
            UsageError: An option is invalid, or the application serves already.
        """
        if self._opened is not None:
            raise gr.UsageError("this application serves already; enter it once, by its lifespan or by `async with`")
        self._opened = await self._stack.enter_async_context(self._opens())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Close all connections with a reconnect delay, which takes at most 5 s. No run is ended."""
        try:
            return await self._stack.__aexit__(kind, error, traceback)  # noqa: ASYNC102 - as `async with` would
        finally:
            self._opened = None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one scope."""
        if scope["type"] == "lifespan":
            await lifespan(self, receive, send)
        elif self._opened is None or not self._opened.is_open:
            await refuse_closed(scope, receive, send)
        else:
            await self._opened.serve(scope, receive, send)


async def lifespan(app: AbstractAsyncContextManager[object], receive: Receive, send: Send) -> None:
    """Serve the scope lifespan: enter an application between startup and shutdown, and report an error as failed."""
    phase = "startup"
    await receive()
    try:
        async with app:
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except (gr.GreenroomError, OSError) as error:
        logger.exception("the gateway's %s has failed", phase)
        await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
    else:
        await send({"type": "lifespan.shutdown.complete"})


async def refuse_closed(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Refuse a connection outside of the application's lifespan."""
    why = "the gateway is not open: its lifespan has not begun, or has ended; a framework must enter it (async with)"
    response = refusal(Refused("closing", why))
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1013, "reason": "the gateway is not open"})
        return
    headers = [("content-type", response.content_type), ("content-length", str(len(response.body))), *response.headers]
    fields = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": response.status, "headers": fields})
    await send({"type": "http.response.body", "body": response.body})


def asgi_app(runtime: gr.Runtime | Opening, **options: Unpack[AsgiOptions]) -> AsgiApp:
    """Return the gateway as an ASGI 3 application for a server on trio, such as `hypercorn -k trio`.

        app = asgi_app(gr.open_runtime("runs.db", agents=[support]), token=...)

    The routes, the WebSocket, the limits and the errors are those of `serve`. The server's own are: the time for a
    head, idle connections, pings, fragments and control frames of WebSockets, and what TLS and HTTP/2 need. Under a
    path of another application (`root_path`), the addresses in documents and cards begin with it.

    Args:
        runtime: An open runtime, or what `gr.open_runtime` returns: it is then entered with the application, and left
            after it.
        **options: `token`, `principals` or `authenticate` must be given. `hosts` are accepted Host headers: on
            loopback in addition to its names, elsewhere without others. `limits.connections` counts requests and
            WebSockets. `authenticate`, `origins`, `on_abort`, `a2a`, `a2a_default`, `a2a_cards`, `mcp` and `prices` are
            those of `serve`.

    Raises:
        UsageError: An option is invalid. Keys of agents are checked when the application is entered.
    """
    opens = gateway_opener(**options)

    @asynccontextmanager
    async def entered() -> AsyncIterator[OpenGateway]:
        async with AsyncExitStack() as stack:
            inner = runtime if isinstance(runtime, gr.Runtime) else await stack.enter_async_context(runtime)
            yield await stack.enter_async_context(opens(inner))

    return AsgiApp(entered)


def gateway_opener(**options: Unpack[AsgiOptions]) -> OpensGateway:
    """Return a function that opens a gateway with these options for a runtime; see `asgi_app`.

    Raises:
        UsageError: An option is invalid.
    """
    for name in sorted(options.keys() - AsgiOptions.__annotations__.keys()):
        raise unknown_option("asgi_app", name, AsgiOptions.__annotations__)
    who = all_principals(options.get("principals", ()), options.get("token"))
    sign_ins = all_sign_ins(options.get("authenticate", ()))
    if not who and not sign_ins:
        way = "give token=..., principals=[...] or authenticate=..."
        raise gr.UsageError(f"an application can be reached from outside: {way}")
    doorways = Doorways(options.get("hosts", ()), options.get("origins", ()))

    @asynccontextmanager
    async def opens(runtime: gr.Runtime) -> AsyncIterator[OpenGateway]:
        make = await plan_gateway(
            runtime,
            who,
            limits=options.get("limits"),
            on_abort=options.get("on_abort", "continue"),
            a2a=options.get("a2a"),
            a2a_default=options.get("a2a_default"),
            a2a_cards=options.get("a2a_cards", "private"),
            mcp=options.get("mcp"),
            sign_ins=sign_ins,
            prices=options.get("prices"),
        )
        server = OpenGateway(make(OriginPolicy(hosts=None)), doorways)

        async def run(*, task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128 - `supervise` calls it
            await supervise(server.gateway, server.connections, task_status.started)

        async with open_collapsing_nursery() as nursery:
            await nursery.start(run)
            yield server
            nursery.cancel_scope.cancel()

    return opens
