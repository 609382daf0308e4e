"""`open_runtime`: open a store, recover its runs, and close everything in order.

Theory of operation. One supervisor keeps the store, the parts that all runs share (models, passivation, wakeup timer,
clock watch, work taker; on a shared store also the reader of moved runs) and, as its last child, the supervisor of the
runs' owners. Parts are never given up (`part_exits.py`). Closing: commands are refused, live runs get `drain` seconds
to reach a durable point, their work is cancelled, then the store writes its queue and closes. Closing ends no run: the
next `open_runtime` on the store continues each of them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import trio

from greenroom.supervision import (
    ActorContext,
    ChildSpec,
    StartFailed,
    Supervisor,
    SupervisorGaveUp,
    SupervisorStopping,
    flatten,
    open_supervisor,
)
from greenroom.supervision.exits import cause_of

from ..abc import Store, Surroundings
from ..agents.agent import Agent
from ..agents.attachments import File, Image
from ..agents.graph import secrets_of
from ..agents.options import Deps
from ..contract.codec import message_of
from ..contract.outcomes import Cancelled, Completed, Failed, Waiting
from ..contract.secrets.named_secrets import searchable
from ..contract.secrets.redaction import Redactor
from ..entry import checks_options
from ..errors import RuntimeFailed, StoreDown, UsageError
from ..models import ModelFactory
from ..services.clock import CLOCK, Clock
from ..services.error_log import ErrorLog
from ..services.open_models import MODELS
from ..services.passivation import PASSIVATION
from ..services.wakeup_timer import ALARM
from ..store_events import Report
from ..stores.memory.store import MemoryStore
from ..stores.sqlite.store import SQLiteStore
from .cleaning import CLEANING
from .owners import GRACE, WORKPLACE
from .part_exits import STORE, PartExits, part_spec
from .parts import RuntimeParts, assemble
from .placing import places_of
from .runtime import Runtime
from .shared.moved_runs import MOVED
from .work_taker import WORK

T = TypeVar("T")

SQLITE_PATIENCE: Final = 30.0
"""Seconds that a SQLite file may be unavailable before the runtime fails."""

SLACK: Final = 1.0
"""Seconds that the supervisor of the owners gets beyond theirs."""
_SHARED_STORE: Final = re.compile(
    r"postgres(ql)?://|\s*(service|host|hostaddr|port|dbname|user|password|passfile|sslmode|schema|pooled|listen)\s*="
)


def is_store_url(text: str) -> bool:
    """Return True for the URL of a shared store, or a key=value text as for libpq."""
    return _SHARED_STORE.match(text) is not None


def make_store(store: Store | str | Path | None, *, patience: float | None = None, name: str | None = None) -> Store:
    """Return the store for an argument of `open_runtime`. `name`: of this process, in a shared store.

    Raises:
        UsageError: the argument names no store, or the driver of its store is missing.
        StoreOpenError: the URL cannot be read.
    """
    match store:
        case None:
            return MemoryStore()
        case Store():
            return store
        case str() if is_store_url(store):
            from ..stores.postgres.store import PATIENCE, PostgresStore  # noqa: PLC0415 - its driver is an extra

            return PostgresStore(store, name=name, patience=PATIENCE if patience is None else patience)
        case str() if "://" in store:
            scheme = store.partition("://")[0]  # the rest may hold a password
            raise UsageError(f"store={scheme!r}://...: give postgresql://..., a path (SQLite), or None (memory)")
        case str() | Path():
            return SQLiteStore(store, patience=SQLITE_PATIENCE if patience is None else patience)
    raise UsageError(f"store={store!r}: give None (memory), a path (SQLite), postgresql://..., or a Store object")


def _need_trio() -> None:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        way = "write trio.run(main), or, in a program on asyncio, open it with greenroom.aio.open_runtime(...)"
        raise UsageError(f"greenroom runs on trio, and this is not called in a trio program; {way}") from None


@checks_options
@asynccontextmanager
async def open_runtime(
    store: Store | str | Path | None = None,
    *,
    agents: Iterable[Agent[object]] = (),
    deps: object = None,
    drain: float = 5.0,
    store_patience: float | None = None,
    max_running: int | None = None,
    max_depth: int | None = 8,
    passivate_after: float | None = 60.0,
    secrets: Iterable[str] = (),
    clock: Clock | None = None,
    record: bool = True,
    providers: Mapping[str, ModelFactory] = MappingProxyType({}),
    workspaces: Surroundings | None = None,
) -> AsyncIterator[Runtime]:
    """Open a runtime for the time of the block. Every run in the store that is not done is taken up again.

    In a store that several processes share, each takes up runs that no process owns, as far as it has room, and any of
    them starts, decides, cancels and follows all runs.

    Leaving the block stops the runs, it does not wait for their ends: commands are refused, live runs get `drain`
    seconds to reach a durable point, then their work is cancelled. They get no terminal event; the next `open_runtime`
    on the store continues them. (`await runtime.join()` waits until no run is running.) A block that is cancelled from
    outside has no drain.

    Code that you give to runs (tools, hooks, models, a provider of deps) sees the context variables of the place where
    the runtime is opened, regardless of the task that starts, decides or wakes a run. Pass values of one run in its
    deps.

    Args:
        store: None for memory, a path for a SQLite file, postgresql://... for PostgreSQL (or libpq's text, such as
            service=NAME), which many processes may open, or a Store object.
        agents: agents that can be started by key and taken up again; start() adds the agents it is given.
        deps: passed to tools as ctx.deps; or a provider, (RunInfo) -> deps, sync or async.
        drain: seconds.
        store_patience: seconds to wait for an unavailable store before the runtime fails; None: 30 for a file, 300 for
            PostgreSQL.
        max_running: runs that may work concurrently; others wait in stage planned (in a shared store in their queue,
            for any process). A run that waits for people holds no slot, and takes a slot back without queueing when it
            continues; so does a run that is taken up in the middle of its work. A tool that waits for a run that it
            started keeps its own run's slot: without free slots both block. A child run (`Agent.as_tool`) works in the
            slot of its parent run.
        max_depth: how deep child runs may be nested (`Agent.as_tool`): a run that a caller starts has depth 0. A call
            that would go deeper fails with depth_exceeded. None: no limit.
        passivate_after: seconds after which a run that waits for people leaves memory and costs only its rows. A
            command or a timer wakes it. None: never. A run with separate deps stays if there is no provider, because
            its deps exist nowhere else.
        secrets: values that must not appear in events, ticket views and error messages; the password of a store's
            address is one by itself, and so are the variables that programs of `agents` get (`pass_env`).
        clock: another clock than the system's; pass the same clock again to reopen a store in virtual time.
        record: store the inputs of each run's machine, so that `Runtime.replay` can fold them again. The record is
            private, as rows are, costs about a tenth of a run's bytes, and is deleted with its run. False: nothing is
            recorded from now on, and runs worked on meanwhile cannot be replayed.
        providers: factories of models, (name) -> Model, by the prefix of models' names: with {"local": make} the model
            "local:qwen3" is make("qwen3"), called once per runtime and name.
        workspaces: the folders in which runs may work; `start(workspace=...)` then takes their names alone. None: any
            text, which nothing checks.

    Raises:
        StoreOpenError: the store cannot be opened.
        UsageError: an argument is invalid, also the names and places that `workspaces` returns.
        RuntimeFailed: the store failed for good; the block is cancelled; raised from the cause.
        BaseException: the block's own exception, not in a group.
    """
    _need_trio()
    _check_options(max_running, max_depth, drain=drain, store_patience=store_patience, passivate_after=passivate_after)
    table, real_store = _by_key(agents), make_store(store, patience=store_patience)
    places, roots = await places_of(workspaces), () if workspaces is None else workspaces.roots()
    found_values = (*real_store.secrets, *roots, *secrets_of(table.values()))
    redactor = Redactor((*_values(secrets), *filter(searchable, found_values)))
    exits = PartExits(ErrorLog(redactor))
    try:
        async with open_supervisor(
            name="runtime", on_exit=exits.note_exit, on_restart=exits.note_restart, tracebacks=False
        ) as supervisor:
            parts = assemble(
                real_store,
                supervisor.nursery,
                clock=clock,
                redactor=redactor,
                agents=table,
                deps=deps,
                max_running=max_running,
                max_depth=max_depth,
                passivate_after=passivate_after,
                record=record,
                providers=_providers(providers),
                surroundings=workspaces,
                places=places,
            )
            await _begin_parts(supervisor, parts, exits)
            try:
                await parts.taker.recover()
                yield Runtime(parts)
            except BaseException:  # an error is never replaced by a cancellation, which meets its scope all the same
                with suppress(trio.Cancelled):
                    await _close(parts, drain)  # noqa: ASYNC102 - a cancel ends it
                raise
            else:
                await _close(parts, drain)
    except SupervisorGaveUp as error:
        raise RuntimeFailed(f"the runtime cannot continue: {message_of(cause_of(error))}") from cause_of(error)
    except (StoreDown, BaseExceptionGroup) as error:  # the block was in a call when the store failed for good
        if exits.failure is None or not isinstance(flatten(error), StoreDown):
            raise
        raise RuntimeFailed(f"the runtime cannot continue: {message_of(exits.failure)}") from exits.failure


async def _close(parts: RuntimeParts, drain: float) -> None:
    """Refuse commands, let live runs reach a durable point, then wake all waiting tasks. A cancel ends the drain."""
    parts.registry.close()
    is_cancelled = trio.current_effective_deadline() <= trio.current_time()
    try:
        await parts.registry.drain(0.0 if is_cancelled else drain)
    finally:
        parts.close()


def _check_options(max_running: object, max_depth: object, **seconds: object) -> None:
    if max_depth is not None and (type(max_depth) is not int or max_depth < 0):
        raise UsageError(f"max_depth={max_depth!r}: give 0 (no child runs) or more, or None for no limit")
    if max_running is not None and (type(max_running) is not int or max_running < 1):
        raise UsageError(f"max_running={max_running!r}: give at least 1, or None for no limit")
    for name, value in seconds.items():
        if value is None and name in ("store_patience", "passivate_after"):
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise UsageError(f"{name}={value!r}: give seconds, 0 or more")


def _providers(providers: object) -> Mapping[str, ModelFactory]:
    if not isinstance(providers, Mapping):
        raise UsageError(f"providers={providers!r:.100}: give a dict of prefix and function, (name) -> Model")
    for prefix, factory in providers.items():
        if not isinstance(prefix, str) or not prefix or ":" in prefix or not callable(factory):
            raise UsageError(f"providers: {prefix!r}: {factory!r:.100}: give a prefix without a colon and a function")
    return dict(providers)


def _values(secrets: object) -> tuple[str, ...]:
    if isinstance(secrets, str) or not isinstance(secrets, Iterable):
        raise UsageError("secrets is one value; give a list of them")  # the value is not shown: it may be a secret
    values = tuple(secrets)
    wrong = next((type(value).__name__ for value in values if not isinstance(value, str)), None)
    if wrong is not None:
        raise UsageError(f"secrets has a value that is {wrong}; give a list of str")
    return values


def _by_key(agents: object) -> dict[str, Agent[object]]:
    table: dict[str, Agent[object]] = {}
    if isinstance(agents, str) or not isinstance(agents, Iterable):
        raise UsageError(f"agents={agents!r}: give a list of agents")
    for agent in agents:
        if not isinstance(agent, Agent):
            raise UsageError(f"agents: {agent!r} is not an Agent; make one with gr.Agent(...)")
        if table.setdefault(agent.key, agent) is not agent:
            raise UsageError(f"two agents have the key {agent.key!r}; keys must be unique in a runtime")
    return table


async def _begin(supervisor: Supervisor, spec: ChildSpec[object]) -> None:
    try:
        await supervisor.start_child_ready(spec)
    except (SupervisorStopping, StartFailed) as error:
        failure = cause_of(error)
    else:
        return
    # a checkpoint: if the store failed already, the cancelled block raises that failure
    await trio.lowlevel.checkpoint()
    raise failure


async def _begin_parts(supervisor: Supervisor, parts: RuntimeParts, exits: PartExits) -> None:
    """Open the store, then start the other actors that all runs share."""
    services = parts.services
    parts.reports.crashes = exits.crashes
    exits.ended[MODELS] = services.models.close  # also of a part that ends in its pause after a crash
    await _open_store(supervisor, services.store, parts.reports)
    exits.open = True
    for name, body in (
        (MODELS, services.models.body),
        (PASSIVATION, services.passivation.body),
        (ALARM, services.alarm.body),
        (CLOCK, services.clock_watch.body),
        (WORK, parts.taker.body),
        *([] if parts.moved is None else [(MOVED, parts.moved.body)]),
        *([] if parts.cleaning is None else [(CLEANING, parts.cleaning.body)]),
        (WORKPLACE, parts.owners.body),  # the last one, so that runs are stopped before the parts that they use
    ):
        await _begin(supervisor, part_spec(name, body, shutdown=GRACE + SLACK))


async def _open_store(supervisor: Supervisor, store: Store, report: Report) -> None:
    async def serve(ctx: ActorContext[object]) -> None:
        class Ready:
            def started(self, _: object = None) -> None:
                ctx.ready()

        await store.run(report, task_status=Ready())

    refusal: BaseException | None = None
    try:
        await supervisor.start_child_ready(
            ChildSpec(id=STORE, start=serve, restart="permanent", max_restarts=0, within=1.0, shutdown=60.0)
        )
    except StartFailed as error:
        refusal = cause_of(error)
    if refusal is not None:
        raise refusal


@checks_options
async def run(
    agent: Agent[T, Deps], text: str, /, *, deps: Deps | None = None, attachments: Sequence[Image | File] = ()
) -> Completed[T] | Waiting | Failed | Cancelled:
    """Run an agent once, in memory, and return its outcome.

    No decision can be made here: a run that asks for an approval ends as `Waiting` and is dropped.

    Raises:
        UsageError: the input is not a str, or blank without attachments.
        InvalidAttachment: the attachments are invalid; see `Runtime.start`.
        AgentDefinitionError: the agent has no model.
    """
    async with open_runtime(agents=[agent]) as runtime:
        handle = await runtime.start(agent, text, deps=deps, attachments=attachments)
        return await handle.wait()
