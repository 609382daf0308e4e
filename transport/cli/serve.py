"""`greenroom serve`: agents behind a gateway, until stopped."""

from __future__ import annotations

import argparse
import logging
import os
import resource
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs
import trio

import greenroom as gr

from .. import Address
from ..bearer_token import new_token
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, paths, tokens
from .agents import load_agents
from .collector import collect_rarely
from .hidden import hidden_values
from .hosting import GatewayOptions, hosting
from .session import Interrupts

DRAIN: Final = 5.0
"""Seconds for live runs to reach a durable point when the server stops."""


FILES: Final = 65_536
"""Open files that the server requests from the system: a socket per client, and the store's files."""


@attrs.frozen(kw_only=True)
class Service:
    """The service: agents, database (None: in memory), gateway options, and the maximum number of running runs.

    `shown`: the token may be printed.
    """

    agents: tuple[gr.Agent[object], ...]
    database: Path | None
    gate: GatewayOptions
    max_running: int | None
    shown: bool
    secrets: tuple[str, ...] = ()


def serve(given: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    database = None if given.db is None else paths.database(given.db)
    agents = tuple(agent for target in given.agents for agent in load_agents(target))
    if database is not None and not database.parent.is_dir():
        raise gr.StoreOpenError(f"the folder {database.parent.absolute()} does not exist; make it first")
    shown = tokens.shown()
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
        )
        service = Service(
            agents=agents,
            database=database,
            gate=gate,
            max_running=given.max_running,
            shown=shown,
            secrets=hidden_values(given),
        )
        _allow_files()
        collect_rarely()
        return trio.run(_serve, service, open_screen(machine=given.json, secrets=hidden_values(given)))


def _allow_files() -> None:
    """Raise the limit of open files: the usual soft limit, 1,024, is below the gateway's own limit of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(service: Service, screen: Screen) -> int:
    stop = Interrupts()
    store = None if service.database is None else gr.SQLiteStore(service.database)
    try:
        async with (
            stop.listening(screen),
            gr.open_runtime(
                store, agents=service.agents, max_running=service.max_running, drain=DRAIN, secrets=service.secrets
            ) as runtime,
        ):
            with stop.gently:
                async with hosting(runtime, service.gate) as address:
                    await _announce(service, runtime, address, screen)
                    _log_to_the_operator()
                    await trio.sleep_forever()
    finally:
        screen.close()
    if stop.at_once.cancel_called:
        screen.row("Stopped at once; unfinished work continues at the next start.", "warn")
        return exits.INTERRUPTED
    screen.row("Stopped; nothing is lost." if service.database else "Stopped.", "dim")
    return exits.COMPLETED


async def _announce(service: Service, runtime: gr.Runtime, address: Address, screen: Screen) -> None:
    keys = sorted(agent.key for agent in service.agents)
    file = service.gate.token_file
    console = address.console if service.shown else f"{address.url}/"
    screen.outcome(
        {
            "type": "serving",
            "url": address.url,
            "console": console,
            "tokenFile": None if file is None else str(file),
            "pid": os.getpid(),
            "agents": keys,
        }
    )
    screen.row(f"Serving {', '.join(text_format.one_line(key, 40) for key in keys)} at {address.url}", "strong")
    screen.row(f"console:  {console}")
    if file is not None:
        screen.row(f"token:    {text_format.clean(str(file))}", "dim")
    if service.database is None:
        screen.row("runs:     in memory only; --db FILE keeps them", "warn")
    else:
        await _report_runs(service.database, runtime, screen)
    screen.row("Ctrl-C stops it; runs continue at the next start." if service.database else "Ctrl-C stops it.", "dim")


async def _report_runs(database: Path, runtime: gr.Runtime, screen: Screen) -> None:
    taken = len(await runtime.store.open_runs())
    going_on = f", {text_format.plural(taken, 'run')} not finished" if taken else ""
    screen.row(f"runs:     {text_format.clean(str(database))}{going_on}", "dim")


def _log_to_the_operator() -> None:
    """Log to standard error from now on: crashes and outages have no other reader than the operator."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.getLogger("greenroom").handlers[:] = [handler]
