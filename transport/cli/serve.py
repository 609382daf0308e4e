"""`greenroom serve`: agents behind a gateway, until stopped."""

from __future__ import annotations

import argparse
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store

from ..gateway.descriptors import raise_soft_limit
from ..gateway.prices import read_prices
from ..gateway.sign_ins.sign_in import SignIn
from ..gateway.sign_ins.token_file import token_file
from ..gateway.sign_ins.trusted_proxy import trusted_proxy
from ..server.hosting import EVERYWHERE, CannotBind, GatewayOptions, hosting
from ..server.serve import Address
from ..server.workers import WorkerLink, WorkerOptions, Workers, open_workers
from ..terminal import text_format
from ..terminal.interrupts import Interrupts
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, places, tokens
from .agents import load_agents
from .collector import collect_rarely
from .hidden import hidden_values
from .places import STORE, Place, SharedStore

DRAIN: Final = 5.0
"""Seconds for live runs to reach a durable point when the server stops."""

STOPS_SHARED: Final = "Ctrl-C stops it; other processes continue the runs, or the next one that starts."
"""How a server on a shared store says that nothing is lost."""

CONNECTIONS: Final = 49_000
"""Connections for which the server requests descriptors: some 65,000 with the store's files."""

EXECUTABLE: Final = (sys.executable, "-P", "-m", "greenroom.transport.cli")
"""The command of a worker; -P: modules of the present folder do not replace installed ones."""


@attrs.frozen
class Service:
    """The service: agents, place of the runs (None: memory), gateway options, and the maximum number of running runs.

    With `shown`, the token may be printed. `link` leads a worker to its parent.
    """

    agents: tuple[gr.Agent[object], ...]
    place: Place | None
    gate: GatewayOptions
    max_running: int | None
    shown: bool
    secrets: tuple[str, ...]
    link: WorkerLink | None

    def store(self) -> Store | None:
        """Return the store, not open yet; None for memory."""
        if isinstance(self.place, SharedStore):
            return self.place.opened(patience=None, name=None if self.link is None else self.link.name)
        return None if self.place is None else gr.SQLiteStore(self.place)


def serve(args: argparse.Namespace) -> int:
    """Run the command."""
    place, link = places.chosen(args), None if args.worker is None else _link(args.worker)
    _check(args, place)
    shown, secrets = tokens.shown(), hidden_values(args)
    with ExitStack() as stack, naming_options():
        if isinstance(place, SharedStore) and args.workers is not None and link is None:
            return _parent(args, place, stack, shown=shown)
        agents = tuple(agent for target in args.agents for agent in load_agents(target))
        file = tokens.file_for(place if isinstance(place, Path) else None, args.token_file, stack, printed=shown)
        gate = GatewayOptions(
            token=tokens.of(file),
            token_file=file,
            host=args.host,
            port=args.port,
            hosts=args.host_name,
            origins=args.origin,
            on_abort=args.on_abort,
            mcp=args.mcp or None,
            a2a=args.a2a or None,
            a2a_default=args.a2a_default,
            a2a_cards=args.a2a_cards,
            prices=None if args.prices is None else read_prices(Path(args.prices)),
            authenticate=_sign_ins(args),
            sockets=() if link is None else link.sockets(),
        )
        service = Service(agents, place, gate, args.max_running, shown, secrets, link)
        raise_soft_limit(CONNECTIONS)
        collect_rarely()
        quiet = link is not None  # the parent speaks for its workers
        screen = Screen(io.StringIO()) if quiet else open_screen(machine=args.json, secrets=secrets)
        return trio.run(_serve, service, screen)


def _sign_ins(args: argparse.Namespace) -> tuple[SignIn, ...]:
    """Return the sign-ins of the options: people whom a proxy names, then a file of tokens."""
    if (args.proxy_header is None) != (args.proxy_secret is None):
        way = "the header counts only with the secret of the proxy"
        raise gr.UsageError(f"give --proxy-header and --proxy-secret, or none of them: {way}")
    people = []
    if args.proxy_header is not None:
        secret, proxies = (
            tokens.read(args.proxy_secret, option="--proxy-secret"),
            args.proxy or ["127.0.0.1", "::1"],
        )
        people.append(trusted_proxy(args.proxy_header, proxies=proxies, secret=secret))
    return (*people, *(() if args.tokens is None else (token_file(args.tokens),)))


@contextmanager
def naming_options() -> Iterator[None]:
    """Name the options that choose another address in the error for one that cannot be bound.

    Raises:
        GreenroomError: The address cannot be bound.
    """
    try:
        yield
    except CannotBind as error:
        free = "choose one with --port, or a free one with --port 0"
        way = free if error.taken else "choose another with --host and --port"
        raise gr.GreenroomError(f"{error}; {way}") from error


def _link(text: str) -> WorkerLink:
    try:
        return WorkerLink.read(text)
    except ValueError as error:
        raise gr.UsageError("--worker is for the processes that --workers starts") from error


def _check(args: argparse.Namespace, place: Place | None) -> None:
    """Check that the options fit together.

    Raises:
        UsageError: They do not.
        StoreOpenError: The folder of the database does not exist.
    """
    shared = isinstance(place, SharedStore)
    if not args.agents and not shared:
        way = "only a gateway to a shared store has none: --store"
        raise gr.UsageError(f"name an agent, such as support.py:agent; {way}")
    if args.workers is not None and not shared:
        way = "processes share runs only in a shared store: add --store URL"
        raise gr.UsageError(f"--workers {args.workers}: {way}")
    if args.metrics_port is not None and args.workers is None:
        way = "one process has its metrics on its own port; leave it out"
        raise gr.UsageError(f"--metrics-port {args.metrics_port} is for --workers: {way}")
    if isinstance(place, Path) and not place.parent.is_dir():
        raise gr.StoreOpenError(f"the folder {place.parent.absolute()} does not exist; make it first")


# --- a parent with workers -------------------------------------------------------------------------------------------


def _parent(args: argparse.Namespace, place: SharedStore, stack: ExitStack, *, shown: bool) -> int:
    screen = open_screen(machine=args.json, secrets=hidden_values(args))
    token_file = tokens.file_for(None, args.token_file, stack, printed=shown)
    file = token_file or tokens.file_for(None, None, stack, printed=False)
    assert file is not None  # noqa: S101 - a temporary one if no other
    token = tokens.kept(file)

    def announce(workers: Workers) -> None:
        host, port = workers.address
        address = Address(host=EVERYWHERE.get(host, host), port=port, token=token)
        _show(screen, address, token_file, args.agents, shown=shown, workers=sorted(workers.pids))
        screen.row(f"runs:     {text_format.clean(str(place))}", "dim")
        screen.row(STOPS_SHARED, "dim")
        log_to_the_operator()

    def on_end(index: int, code: int, pause: float) -> None:
        reason = signal.Signals(-code).name if code < 0 else f"code {code}"
        again = f" in {pause:.1f} s" if pause else ""
        screen.row(f"Worker {index} ended ({reason}); its runs are free, and it is replaced{again}.", "warn")

    options = WorkerOptions(
        count=args.workers,
        host=args.host,
        port=args.port,
        metrics_port=args.metrics_port,
        command=[*EXECUTABLE, "serve", *_words(args, file)],
        environment={**os.environ, STORE: place.url},  # not in the command line, which others can see
        on_end=on_end,
    )
    try:
        return trio.run(_serve_with_workers, place.opened(patience=None), options, announce, screen)
    finally:
        screen.close()


async def _serve_with_workers(
    store: Store, options: WorkerOptions, announce: Callable[[Workers], None], screen: Screen
) -> int:
    """Serve until interrupted; return the exit code: that of a worker if one ended before all served."""
    stop, code = Interrupts(), None
    async with open_workers(store, options) as (workers, nursery), stop.listening(screen):
        with stop.in_order():
            code = await nursery.start(workers.run)
            if code is None:
                announce(workers)
                await trio.sleep_forever()
        await workers.stop()
    if code is not None:
        return int(code)
    if stop.abruptly.cancel_called:
        return exits.INTERRUPTED
    screen.row("Stopped; nothing is lost.", "dim")
    return exits.COMPLETED


def _words(args: argparse.Namespace, token_file: Path) -> list[str]:
    """Return the options of a worker."""
    options: list[tuple[str, Sequence[object]]] = [
        ("--token-file", [token_file]),
        ("--tokens", [] if args.tokens is None else [args.tokens]),
        ("--proxy-header", [] if args.proxy_header is None else [args.proxy_header]),
        ("--proxy-secret", [] if args.proxy_secret is None else [args.proxy_secret]),
        ("--proxy", args.proxy),
        ("--host-name", args.host_name),
        ("--origin", args.origin),
        ("--on-abort", [args.on_abort]),
        ("--mcp", args.mcp),
        ("--a2a", args.a2a),
        ("--a2a-default", [] if args.a2a_default is None else [args.a2a_default]),
        ("--a2a-cards", [args.a2a_cards]),
        ("--prices", [] if args.prices is None else [args.prices]),
        ("--max-running", [] if args.max_running is None else [args.max_running]),
        ("--secret-env", args.secret_env or ()),
        ("--secrets-file", args.secrets_file or ()),
    ]
    words = [f"{name}={value}" for name, values in options for value in values]
    return [*args.agents, *words, *(["--debug"] if args.debug else [])]


# --- one process -----------------------------------------------------------------------------------------------------


async def _serve(service: Service, screen: Screen) -> int:
    stop = Interrupts()
    try:
        async with (
            stop.listening(screen),
            gr.open_runtime(
                service.store(),
                agents=service.agents,
                max_running=service.max_running,
                drain=DRAIN,
                secrets=service.secrets,
            ) as runtime,
        ):
            with stop.in_order():
                link = service.link
                membership = nullcontext() if link is None else link.serving(stop.gently.cancel)
                async with hosting(runtime, service.gate) as address, membership:
                    await _announce(service, runtime, address, screen)
                    log_to_the_operator()
                    await trio.sleep_forever()
    finally:
        screen.close()
    if stop.abruptly.cancel_called:
        later = "Stopped at once; unfinished work continues at the next start."
        screen.row(later if stop.begun else "Stopped at the start.", "warn")
        return exits.INTERRUPTED
    screen.row("Stopped; nothing is lost." if service.place else "Stopped.", "dim")
    return exits.COMPLETED


async def _announce(service: Service, runtime: gr.Runtime, address: Address, screen: Screen) -> None:
    keys = sorted(agent.key for agent in service.agents)
    _show(screen, address, service.gate.token_file, keys, shown=service.shown)
    if service.place is None:
        screen.row("runs:     in memory only; --db FILE keeps them", "warn")
    elif service.link is None:
        count = len(await runtime.store.open_runs()) if isinstance(service.place, Path) else 0
        unfinished = f", {text_format.plural(count, 'run')} not finished" if count else ""
        screen.row(f"runs:     {text_format.clean(str(service.place))}{unfinished}", "dim")
    way = "Ctrl-C stops it; runs continue at the next start." if service.place else "Ctrl-C stops it."
    screen.row(STOPS_SHARED if runtime.store.shared else way, "dim")


def _show(
    screen: Screen,
    address: Address,
    token_file: Path | None,
    agents: Sequence[str],
    *,
    shown: bool,
    workers: Sequence[int] = (),
) -> None:
    """Show the address of the server, to programs and to people."""
    facts = address_facts(address, token_file, shown=shown)
    more = {"workers": list(workers)} if workers else {}
    screen.outcome({**facts, "pid": os.getpid(), "agents": list(agents), **more})
    names = ", ".join(text_format.one_line(key, 40) for key in agents) or "the runs of other processes"
    many = f" with {text_format.plural(len(workers), 'worker')}" if workers else ""
    screen.row(f"Serving {names} at {address.url}{many}", "strong")
    screen.row(f"console:  {facts['console']}")
    if token_file is not None:
        screen.row(f"token:    {text_format.clean(str(token_file))}", "dim")


def address_facts(address: Address, token_file: Path | None, *, shown: bool) -> dict[str, Any]:
    """Return the address of a gateway for programs; with the token in the console's URL if it may be `shown`."""
    return {
        "type": "serving",
        "url": address.url,
        "console": address.console if shown else f"{address.url}/",
        "tokenFile": None if token_file is None else str(token_file),
    }


def log_to_the_operator() -> None:
    """Log to standard error from now on: crashes and outages have no other reader than the operator."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.getLogger("greenroom").handlers[:] = [handler]
