"""`greenroom serve`: agents behind a gateway, until stopped."""

from __future__ import annotations

import argparse
import io
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.supervision.nursery import open_collapsing_nursery

from ..bearer_token import new_token
from ..server.serve import Address
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, places, tokens
from .agents import load_agents
from .collector import collect_rarely
from .hidden import hidden_values
from .hosting import EVERYWHERE, GatewayOptions, hosting, unbound
from .places import STORE, Place, SharedStore
from .session import Interrupts
from .workers import WorkerLink, WorkerOptions, serve_with_workers

DRAIN: Final = 5.0
"""Seconds for live runs to reach a durable point when the server stops."""

STOPS_SHARED: Final = "Ctrl-C stops it; other processes continue the runs, or the next one that starts."
"""How a server on a shared store says that nothing is lost."""


FILES: Final = 65_536
"""Open files that the server requests from the system: a socket per client, and the store's files."""

EXECUTABLE: Final = (sys.executable, "-P", "-m", "greenroom.transport.cli")
"""The command of a worker; -P: modules of the present folder do not replace installed ones."""


@attrs.frozen(kw_only=True)
class Service:
    """The service: agents, place of the runs (None: memory), gateway options, and the maximum number of running runs.

    `shown`: the token may be printed. `link`: of a worker to its parent.
    """

    agents: tuple[gr.Agent[object], ...]
    place: Place | None
    gate: GatewayOptions
    max_running: int | None
    shown: bool
    secrets: tuple[str, ...] = ()
    link: WorkerLink | None = None

    def store(self) -> Store | None:
        """Return the store, not open yet; None for memory."""
        if isinstance(self.place, SharedStore):
            return self.place.opened(patience=None, name=None if self.link is None else self.link.name)
        return None if self.place is None else gr.SQLiteStore(self.place)


def serve(given: argparse.Namespace) -> int:
    """Run the command."""
    place, link = places.chosen(given), None if given.worker is None else WorkerLink.read(given.worker)
    _check(given, place)
    if given.workers is not None and link is None:
        return _parent(given, place)
    agents = tuple(agent for target in given.agents for agent in load_agents(target))
    shown = tokens.shown()
    database = place if isinstance(place, Path) else None
    with ExitStack() as stack:
        file = tokens.file_for(database, given.token_file, stack, printed=shown)
        gate = GatewayOptions(
            token=new_token() if file is None else tokens.kept(file),
            token_file=file,
            host=given.host,
            port=given.port,
            hosts=given.host_name,
            origins=given.origin,
            on_abort=given.on_abort,
            sockets=() if link is None else link.sockets(),
        )
        service = Service(
            agents=agents,
            place=place,
            gate=gate,
            max_running=given.max_running,
            shown=shown,
            secrets=hidden_values(given),
            link=link,
        )
        _allow_files()
        collect_rarely()
        quiet = link is not None  # the parent speaks for its workers
        screen = Screen(io.StringIO()) if quiet else open_screen(machine=given.json, secrets=service.secrets)
        return trio.run(_serve, service, screen)


def _check(given: argparse.Namespace, place: Place | None) -> None:
    """Check that the options fit together.

    Raises:
        UsageError: They do not.
        StoreOpenError: The folder of the database does not exist.
    """
    shared = isinstance(place, SharedStore)
    if not given.agents and not shared:
        raise gr.UsageError(
            "name an agent, such as support.py:agent; only a gateway to a shared store has none: --store"
        )
    if given.workers is not None and not shared:
        way = "processes share runs only in a shared store: add --store URL"
        raise gr.UsageError(f"--workers {given.workers}: {way}")
    if isinstance(place, Path) and not place.parent.is_dir():
        raise gr.StoreOpenError(f"the folder {place.parent.absolute()} does not exist; make it first")


# --- a parent with workers -------------------------------------------------------------------------------------------


def _parent(given: argparse.Namespace, place: Place | None) -> int:
    assert isinstance(place, SharedStore)  # noqa: S101 - checked before
    shown, hidden = tokens.shown(), hidden_values(given)
    screen = open_screen(machine=given.json, secrets=hidden)
    with ExitStack() as stack:
        printed = tokens.file_for(None, given.token_file, stack, printed=shown)
        file = printed or tokens.file_for(None, None, stack, printed=False)
        assert file is not None  # noqa: S101 - a temporary one if no other
        token = tokens.kept(file)

        def announce(host: str, port: int, pids: Sequence[int]) -> None:
            address = Address(host=EVERYWHERE.get(host, host), port=port, token=token)
            gate = GatewayOptions(token=token, token_file=printed)
            _show(screen, address, gate, given.agents, shown=shown, workers=pids)
            screen.row(f"runs:     {text_format.clean(str(place))}", "dim")
            screen.row(STOPS_SHARED, "dim")
            log_to_the_operator()

        options = WorkerOptions(
            count=given.workers,
            host=given.host,
            port=given.port,
            command=[*EXECUTABLE, "serve", *_words(given, file)],
            environment={**os.environ, STORE: place.url},  # not in the command line, which others can see
            announce=announce,
        )
        try:
            return trio.run(serve_with_workers, place.opened(patience=None), options, screen)
        except OSError as error:
            raise unbound(given.host, given.port, error) from error
        finally:
            screen.close()


def _words(given: argparse.Namespace, token_file: Path) -> list[str]:
    """Return the options of a worker."""
    named: list[tuple[str, Sequence[object]]] = [
        ("--token-file", [token_file]),
        ("--host-name", given.host_name),
        ("--origin", given.origin),
        ("--on-abort", [given.on_abort]),
        ("--max-running", [] if given.max_running is None else [given.max_running]),
        ("--secret-env", given.secret_env or ()),
        ("--secrets-file", given.secrets_file or ()),
    ]
    words = [f"{name}={value}" for name, values in named for value in values]
    return [*given.agents, *words, *(["--debug"] if given.debug else [])]


# --- one process -----------------------------------------------------------------------------------------------------


def _allow_files() -> None:
    """Raise the limit of open files: the usual soft limit, 1,024, is below the gateway's own limit of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


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
                async with hosting(runtime, service.gate) as address, _linked(service.link, stop):
                    await _announce(service, runtime, address, screen)
                    log_to_the_operator()
                    await trio.sleep_forever()
    finally:
        screen.close()
    if stop.at_once.cancel_called:
        text = (
            "Stopped at once; unfinished work continues at the next start." if stop.begun else "Stopped at the start."
        )
        screen.row(text, "warn")
        return exits.INTERRUPTED
    screen.row("Stopped; nothing is lost." if service.place else "Stopped.", "dim")
    return exits.COMPLETED


@asynccontextmanager
async def _linked(link: WorkerLink | None, stop: Interrupts) -> AsyncIterator[None]:
    """Report to the parent, and stop when the parent has ended."""
    if link is None:
        yield
        return
    parent = link

    async def watch() -> None:
        await parent.orphaned()
        stop.gently.cancel()

    async with open_collapsing_nursery() as nursery:
        nursery.start_soon(watch)
        link.report_ready()
        yield
        nursery.cancel_scope.cancel()


async def _announce(service: Service, runtime: gr.Runtime, address: Address, screen: Screen) -> None:
    keys = sorted(agent.key for agent in service.agents)
    _show(screen, address, service.gate, keys, shown=service.shown)
    if service.place is None:
        screen.row("runs:     in memory only; --db FILE keeps them", "warn")
    elif service.link is None:
        await _report_runs(service.place, runtime, screen)
    kept = "Ctrl-C stops it; runs continue at the next start." if service.place else "Ctrl-C stops it."
    screen.row(STOPS_SHARED if runtime.store.shared else kept, "dim")


def _show(
    screen: Screen,
    address: Address,
    gate: GatewayOptions,
    agents: Sequence[str],
    *,
    shown: bool,
    workers: Sequence[int] = (),
) -> None:
    """Show the address of the server, to programs and to people."""
    console = address.console if shown else f"{address.url}/"
    screen.outcome(
        {
            "type": "serving",
            "url": address.url,
            "console": console,
            "tokenFile": None if gate.token_file is None else str(gate.token_file),
            "pid": os.getpid(),
            "agents": list(agents),
            **({"workers": list(workers)} if workers else {}),
        }
    )
    named = ", ".join(text_format.one_line(key, 40) for key in agents) or "the runs of other processes"
    many = f" with {text_format.plural(len(workers), 'worker')}" if workers else ""
    screen.row(f"Serving {named} at {address.url}{many}", "strong")
    screen.row(f"console:  {console}")
    if gate.token_file is not None:
        screen.row(f"token:    {text_format.clean(str(gate.token_file))}", "dim")


async def _report_runs(place: Place, runtime: gr.Runtime, screen: Screen) -> None:
    taken = len(await runtime.store.open_runs()) if isinstance(place, Path) else 0
    going_on = f", {text_format.plural(taken, 'run')} not finished" if taken else ""
    screen.row(f"runs:     {text_format.clean(str(place))}{going_on}", "dim")


def log_to_the_operator() -> None:
    """Log to standard error from now on: crashes and outages have no other reader than the operator."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.getLogger("greenroom").handlers[:] = [handler]
