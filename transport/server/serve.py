"""`serve`: run a runtime's gateway until cancelled."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.entry import checks_options
from greenroom.actors.runtime.part_exits import part_spec
from greenroom.supervision import ActorContext, Exit, Ref, open_collapsing_nursery, open_supervisor
from greenroom.supervision.exits import Crashed

from ..bearer_token import new_token
from ..gateway.access import OriginPolicy, Principal, is_loopback, own_hosts
from ..gateway.exposed import Cards
from ..gateway.gateway import Gateway, OnAbort
from ..gateway.http import nothing
from ..gateway.http_connection import serve_connection
from ..gateway.sign_ins.sign_in import Authenticate, SignIn
from ..protocol.limits import Limits
from .plan import all_principals, all_sign_ins, plan_gateway

FAREWELL: Final = 5.0
"""Seconds for all connections to receive gw.bye and close."""
BACKLOG: Final = 2048
"""Size of the listen queue: after a restart many clients reconnect together."""
PULSE: Final = 0.05
"""Interval of liveness checks, as a part of the heartbeat: once per second for 20 s."""


@attrs.frozen(kw_only=True)
class Address:
    """The address of a gateway.

    Attributes:
        host, port: As bound.
        url: URL of the HTTP API.
        console: URL of the console, with the token in the fragment, which browsers do not send.
        token: Token of the operator; None if the caller passed principals.
    """

    host: str
    port: int
    token: str | None = attrs.field(default=None, repr=False)

    @property
    def url(self) -> str:
        """http://host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def console(self) -> str:
        """URL of the console for a browser."""
        return f"{self.url}/" if self.token is None else f"{self.url}/#token={self.token}"


@checks_options
async def serve(  # noqa: ASYNC128 - `_serve` calls task_status.started
    runtime: gr.Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    principals: Iterable[Principal] = (),
    authenticate: Authenticate | SignIn | Iterable[SignIn] = (),
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: Limits | None = None,
    on_abort: OnAbort = "continue",
    a2a: Iterable[str] | None = None,
    a2a_default: str | None = None,
    a2a_cards: Cards = "private",
    mcp: Iterable[str] | None = None,
    prices: Mapping[str, gr.Price] | None = None,
    sockets: Iterable[socket.socket] = (),
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve WebSocket, HTTP, server-sent events and the console on one port until cancelled.

        address = await nursery.start(serve, runtime)

    On loopback a token is generated if none is given; other addresses require a token or principals.

    Args:
        runtime: The runtime to serve.
        host: Address or name to bind to.
        port: 0 selects a free port.
        token: Token of the principal "operator", which has all scopes.
        principals: Further principals; with principals and without a token there is no operator.
        authenticate: An async function from the head of a request to its principal, for all requests that name none of
            the principals above; or a `SignIn`, which has its limits; or several, of which the first answer counts.
            There is no operator without a token then, either.
        hosts: Accepted Host headers in addition to those of loopback; needed for browsers if bound elsewhere.
        origins: Pages of other hosts that may use the gateway (Origin headers); they get CORS headers.
        limits: Limits on what clients can send and hold.
        on_abort: "cancel" cancels a run whose client closes the stream of the AI SDK or of AG-UI before the run is at
            rest (`chat.stop()`, an abort, a closed page and a lost network are indistinguishable for a server).
            "continue": the run continues, and the client may reconnect for the rest.
        a2a: Keys of the agents that A2A clients may use; None offers all, () none.
        a2a_default: The agent whose card is at /.well-known/agent-card.json; without it that of the only agent.
        a2a_cards: "public" shows the cards without a token; "private" needs one, as all else does.
        mcp: Keys of the agents that MCP clients can call as tools (`/v1/mcp`); () for none, None for all agents of the
            runtime.
        prices: Model name, such as "openai:gpt-5-mini" -> its price per million tokens; the console shows the cost of
            runs by these.
        sockets: Sockets that listen already, in place of binding `host` and `port`: a parent whose processes share
            one port passes them on, or a service manager. They are closed at the end.
        task_status: Receives the address.

    Raises:
        UsageError: An argument is invalid.
        OSError: The address cannot be bound.
        RuntimeClosed: The runtime closes first.

    Cancellation: every connection is closed with a reconnect delay (a different one each), which takes at most
    `FAREWELL` seconds; then Cancelled is raised. No run is ended.
    """
    who = tuple(principals)
    sign_ins = all_sign_ins(authenticate)
    made = _made_token(host, token, [*who, *sign_ins])
    make = await plan_gateway(
        runtime,
        all_principals(who, made),
        limits=limits,
        on_abort=on_abort,
        a2a=a2a,
        a2a_default=a2a_default,
        a2a_cards=a2a_cards,
        mcp=mcp,
        sign_ins=sign_ins,
        prices=prices,
    )
    accepting = [trio.socket.from_stdlib_socket(given) for given in _listening(sockets)]
    if not accepting:
        accepting = [one.socket for one in await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)]
    addresses = [given.getsockname()[:2] for given in accepting]
    named = tuple(hosts)
    doorway = OriginPolicy(
        hosts=own_hosts(addresses, named) if named or is_loopback(host) else None, origins=frozenset(origins)
    )
    gateway = make(doorway)
    hall = Acceptor(gateway, accepting)
    address = Address(host=str(addresses[0][0]), port=addresses[0][1], token=made)
    try:
        await supervise(gateway, hall.body, lambda: task_status.started(address), hall.close)
    finally:
        hall.close()


async def supervise(
    gateway: Gateway,
    connections: Callable[[ActorContext[object]], Awaitable[None]],
    started: Callable[[], object],
    stopping: Callable[[], object] = nothing,
) -> None:
    """Run the parts of a gateway until cancelled, and then close its connections.

    Args:
        gateway: The gateway.
        connections: Body of the part that runs the connections.
        started: Called when all parts run.
        stopping: Called first of all when the gateway stops.

    Raises:
        RuntimeClosed: The runtime closes first.
    """

    def log_exit(ref: Ref[object], exit_: Exit) -> None:
        if isinstance(exit_, Crashed):
            gateway.log_failure(ref.name, exit_.error)

    def log_restart(ref: Ref[object], exit_: Exit, _: int) -> None:
        gateway.crashes.note(ref.name)
        log_exit(ref, exit_)

    async with open_supervisor(
        name="gateway", on_restart=log_restart, on_exit=log_exit, tracebacks=False
    ) as supervisor:
        await supervisor.start_child_ready(part_spec("connections", connections, shutdown=FAREWELL))
        await supervisor.start_child_ready(part_spec("lists", _lists(gateway), shutdown=1.0))
        await supervisor.start_child_ready(part_spec("pulse", _pulse(gateway), shutdown=1.0))
        if gateway.sign_ins:
            await supervisor.start_child_ready(part_spec("sign-ins", _sign_in_watch(gateway), shutdown=1.0))
        end_renames = gateway.runtime.reader.on_rename(gateway.renamed)
        started()
        restart = True
        try:
            await gateway.runtime.closed()
            restart = False
        finally:
            end_renames()
            with trio.move_on_after(FAREWELL, shield=True):
                stopping()
                gateway.say_goodbye(restart=restart)
                if gateway.open:
                    await gateway.emptied.wait()
    gateway.runtime.reader.check_open()


class Acceptor:
    """Accepts and runs the connections in one nursery; a static child of the gateway's supervisor.

    After a crash the next incarnation uses the same sockets. Each incarnation listens on duplicates, because trio
    closes the sockets that it has listened on.
    """

    def __init__(self, gateway: Gateway, sockets: Sequence[trio.socket.SocketType]) -> None:
        self._gateway = gateway
        self._sockets = sockets
        self._accepting = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Acceptor on {len(self._sockets)} sockets>"

    async def body(self, ctx: ActorContext[object]) -> None:
        """Accept connections until closed, and run them until cancelled."""
        listeners = [trio.SocketListener(socket.dup()) for socket in self._sockets]
        async with open_collapsing_nursery() as nursery:
            self._gateway.fanout.open(nursery)
            with trio.CancelScope() as self._accepting:
                ctx.ready()
                await trio.serve_listeners(self._connection, listeners, handler_nursery=nursery)
            await trio.sleep_forever()

    def close(self) -> None:
        """Stop accepting connections."""
        self._accepting.cancel()
        for listener in self._sockets:
            listener.close()

    async def _connection(self, stream: trio.SocketStream) -> None:
        await serve_connection(self._gateway, stream)


def _lists(gateway: Gateway) -> Callable[[ActorContext[Any]], Any]:
    async def body(ctx: ActorContext[object]) -> None:
        ctx.ready()
        if ctx.attempt:  # changes may have been lost with the incarnation before
            gateway.feed.begin_again()
        await gateway.feed.run()
        await trio.sleep_forever()

    return body


def _pulse(gateway: Gateway) -> Callable[[ActorContext[Any]], Any]:
    async def body(ctx: ActorContext[object]) -> None:
        ctx.ready()
        while True:
            await trio.sleep(PULSE * gateway.limits.heartbeat_seconds)
            now = trio.current_time()
            for index, conversation in enumerate(tuple(gateway.conversations)):
                conversation.heartbeat(now)
                if index % 256 == 255:
                    await trio.lowlevel.checkpoint()

    return body


def _sign_in_watch(gateway: Gateway) -> Callable[[ActorContext[Any]], Any]:
    async def body(ctx: ActorContext[object]) -> None:
        ctx.ready()
        await gateway.authenticator.run()

    return body


def _made_token(host: str, token: str | None, others: Sequence[Principal | SignIn]) -> str | None:
    if token is not None or others:
        return token
    if not is_loopback(host):
        raise gr.UsageError(
            f"host={host!r} can be reached from outside: give token=..., principals=[...] or authenticate=..."
        )
    return new_token()


def _listening(sockets: object) -> Sequence[socket.socket]:
    candidates = tuple(sockets) if isinstance(sockets, Iterable) else (sockets,)
    wrong = next((one for one in candidates if not isinstance(one, socket.socket)), None)
    if wrong is not None:
        raise gr.UsageError(f"sockets has {wrong!r:.100}; give sockets that listen")
    return candidates
