"""The store in a SQLite file: durable, for one process, with the standard library alone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

import attrs
import trio
from typing_extensions import override

from ...abc import Pruned, StoreStatistics
from ...errors import StoreDown, StoreError, StoreOpenError, StoreUnavailable
from ...options import unknown_value
from ...processes import Ability, QueueInfo, ReadyRun
from ...store_events import Report
from ..common._inline_writer import InlineWriter
from ..common._outages import NoThread, examine, passes
from ..common._query_store import QueryStore
from ..common._requests import Request
from ..common._thread_writer import ThreadWriter
from ..common._timestamps import milliseconds
from ..common._write_queue import LARGEST_BATCH, PATIENCE, WriteQueue, Writer, closed, pauses
from ..common.faults import OPEN, Faults
from ..common.sole import SoleProcess
from . import _lists, _prune, _reads, _threads, _work_sql
from ._lock import FileLock, Owner, lock_path, owner_of, resolved
from ._open_file import OpenFile
from ._opening import begin_using, explain, look_for, make_ready, open_reader, open_writer
from ._reads import ReadConnections
from ._schema import MIGRATIONS, NEW_EPOCH, Migration
from ._transaction import TransactionWriter

__all__ = ["Owner", "SQLiteStore", "lock_path", "owner_of"]

T = TypeVar("T")
P = ParamSpec("P")

_PATIENT: Final = 1.0
"""Seconds that a statement in a thread waits for a foreign lock before it counts as an outage."""
_IMPATIENT: Final = 0.0
"""As `_PATIENT`, in the trio thread, where waiting would stop everything."""

_CLOSING: Final = 60.0
"""Seconds for closing the file: the last checkpoint writes up to 16 MB."""

_OPENING: Final = 5.0
"""Seconds (of the patience) of retries for an opening and for reads of a read-only store.

Short, because a person may be waiting.
"""

_READERS: Final = 4
"""Concurrent reads: more threads would only wait for the interpreter."""


class SQLiteStore(SoleProcess, QueryStore[sqlite3.Connection]):
    """Runs in a SQLite file.

    WAL and synchronous=FULL: acknowledged writes survive a loss of power. One process owns the file, under any name, by
    OS locks on its inode and on `<path>.lock`. One connection writes, and alone checkpoints; readers never wait for it.
    The path is resolved when the store is opened: a later change of the working directory has no effect.

    writer="thread" gathers the queued requests of all runs into one transaction, in a thread. writer="inline" commits
    in the calling task, by the same code without a thread: for tests under virtual time. There a receipt is delivered
    before `submit` returns (except in an outage).

    An error of the whole store (disk full, I/O, locked, no memory, no descriptor) is retried for `patience` seconds
    while receipts wait and commands raise StoreUnavailable; then the store is down. A read that meets such an error, or
    for which the system gives no thread, raises StoreUnavailable. Two errors are not waited for: a file that SQLite's
    check of the whole file found damaged, and a file that was removed, renamed or replaced while open (noticed after
    each transaction, before it is acknowledged, and every two seconds by an idle writer's thread).
    """

    _queries = _reads
    _lists = _lists
    _threads = _threads

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        writer: Literal["thread", "inline"] = "thread",
        patience: float = PATIENCE,
        read_only: bool = False,
        compact: bool = False,
        faults: Faults | None = None,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        """Prepare a store; nothing is opened before `run`.

        Args:
            path: The path of the file; created (0600) if missing.
            writer: "thread" or "inline".
            patience: seconds of retries while the store is unavailable.
            read_only: read without the lock; works while another process owns the file.
            compact: rewrite a file of an older release at opening, so that it can return the space of pruned runs to
                the file system. That takes seconds for a large file, and disk space for a second copy.
            faults: called at each of `faults.POINTS`; raises to make the store fail there.
            migrations: The migrations to apply; for tests of migrations.

        Raises:
            UsageError: the writer is neither "thread" nor "inline".
            StoreOpenError: the path is a folder, or SQLite's name for a database in memory.
        """
        if writer not in ("thread", "inline"):
            raise unknown_value("writer", writer, ("thread", "inline"))
        self.path = Path(path)
        if self.path.name == ":memory:":  # SQLite would create a file of that name
            raise StoreOpenError(f"{self.path} is no file; runs are kept in memory if no path is given at all")
        if self.path.is_dir():
            raise StoreOpenError(f"{self.path} is a folder; name a file in it, such as {self.path / 'greenroom.db'}")
        self.threaded = writer == "thread"
        self._read_only, self._compact = read_only, compact
        self._migrations = migrations
        self._faults = faults
        self._patience = patience
        self._lock: FileLock | None = None
        self._busy = _PATIENT if self.threaded else _IMPATIENT
        self._limiter = trio.CapacityLimiter(_READERS)
        self._transactor: TransactionWriter | None = None
        self._readers: ReadConnections | None = None
        self._file: OpenFile | None = None
        self._epoch = ""
        refused = StoreDown(f"{self.path} was opened with read_only=True; open it for writing") if read_only else None
        self._queue: WriteQueue[Request] = WriteQueue(self._make_writer, refused)
        self._commits = self._queue

    def __repr__(self) -> str:
        """Return the path, the kind of writer, and whether the store is open."""
        how = "read-only" if self._read_only else "thread" if self.threaded else "inline"
        return f"<SQLiteStore {self.path}: {how}, {'closed' if self._readers is None else 'open'}>"

    @property
    @override
    def epoch(self) -> str:
        """The identity of the logs; kept in the file."""
        return self._epoch

    # --- opening and closing -----------------------------------------------------------------------------------------

    @override
    async def run(self, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the file and serve until cancelled; then write the queue, close, and re-raise Cancelled.

        Raises:
            StoreOpenError: the file cannot be opened (before started); the message has the reason and what to do.
            StoreDown: the store failed for good; every pending and later receipt is "down".
        """
        if self._readers is not None:
            raise StoreOpenError(f"{self.path} is open already by this store; one runtime at a time")
        connection = await self._opened()
        try:
            if connection is None:
                task_status.started()
                await trio.sleep_forever()
            self._queue.open(report)
            task_status.started()
            await self._queue.serve()
        finally:
            with trio.move_on_after(_CLOSING, shield=True):
                try:
                    await self._aside(self._close, connection)
                except NoThread:
                    # closing in the trio thread blocks for a moment, but a file left locked is worse
                    self._close(connection)

    async def _opened(self) -> sqlite3.Connection | None:
        """Open the file; temporary errors are retried.

        Raises:
            StoreOpenError: the file cannot be opened.
        """
        until = trio.current_time() + min(self._patience, _OPENING)
        for pause in pauses():
            try:
                return await self._aside(self._open)
            except (StoreOpenError, NoThread) as error:
                if not passes(error) or trio.current_time() >= until:
                    if isinstance(error, StoreOpenError):
                        raise
                    raise StoreOpenError(f"{self.path} cannot be opened: {error}") from error
            await trio.sleep(min(pause, until - trio.current_time()))
        raise AssertionError("pauses() never ends")

    def _open(self) -> sqlite3.Connection | None:
        """Return the writer's connection; None for a read-only store. Any look at the file may meet an error."""
        try:
            if self._faults is not None:
                self._faults(OPEN)
            return self._open_file(resolved(self.path))
        except sqlite3.Error as error:
            raise StoreOpenError(explain(self.path, error)) from error
        except (OSError, MemoryError) as error:
            why = error if str(error) else "there is no memory for it"
            raise StoreOpenError(f"{self.path} cannot be opened: {why}") from error

    def _open_file(self, real: Path) -> sqlite3.Connection | None:
        connection = None
        with ExitStack() as undo:
            lock = None if self._read_only else self._prepared(real, undo)
            if lock is None:
                look_for(real)
            file = begin_using(real, own=lock is not None)
            undo.callback(file.close)
            if lock is not None:
                connection = open_writer(file, busy=self._busy, migrations=self._migrations, compact=self._compact)
                undo.callback(connection.close)
                file.watch()
            readers = ReadConnections(
                lambda: open_reader(file, busy=self._busy, versions=len(self._migrations)),
                faults=self._faults,
                examine=lambda: examine(file, self._busy),
            )
            undo.callback(readers.close)
            try:
                if connection is None:
                    readers.read(_reads.open_runs)
                self._epoch = readers.read(_reads.epoch)
            except StoreOpenError:
                raise
            except StoreError as error:
                raise StoreOpenError(f"{self.path} cannot be read: {error}") from error
            if connection is not None:
                self._transactor = TransactionWriter(
                    connection, self._faults, in_place=file.check, examine=lambda: examine(file, self._busy)
                )
            undo.pop_all()
        self._readers, self._file, self._lock = readers, file, lock
        return connection

    def _prepared(self, real: Path, undo: ExitStack) -> FileLock:
        """Return the lock beside the file; the file exists afterwards."""
        if not real.parent.is_dir():
            raise StoreOpenError(f"the folder {real.parent} does not exist; make it first")
        lock = FileLock(real)
        lock.acquire()
        undo.callback(lock.release)
        make_ready(real)
        return lock

    def _close(self, connection: sqlite3.Connection | None) -> None:
        readers, self._readers = self._readers, None
        with ExitStack() as rest:  # callbacks run in reverse order, each even if others raise
            lock, self._lock = self._lock, None
            if lock is not None:
                rest.callback(lock.release)
            file, self._file = self._file, None
            if file is not None:
                rest.callback(file.close)
            if connection is not None:
                rest.callback(connection.close)
            if readers is not None:
                rest.callback(readers.close)

    def _look(self) -> None:
        """Check that the file is where it was opened."""
        if self._file is not None:
            self._file.check()

    def announce(self, url: str | None, token_file: str | None = None) -> None:
        """Write this process's gateway address into the lock file, where the CLI finds it."""
        if self._lock is not None:
            self._lock.announce(Owner(pid=os.getpid(), url=url, token_file=token_file))

    # --- writing -----------------------------------------------------------------------------------------------------

    def _make_writer(self, queue: WriteQueue[Request]) -> Writer:
        if self._transactor is None:
            raise closed()
        execute = self._transactor.execute
        if self.threaded:
            return ThreadWriter(queue, execute, patience=self._patience, look=self._look)
        return InlineWriter(queue, execute, patience=self._patience, batch=LARGEST_BATCH)

    @override
    def statistics(self) -> StoreStatistics:
        counts = StoreStatistics() if self._transactor is None else self._transactor.statistics
        return attrs.evolve(counts, queued=self._queue.unsettled)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query on one consistent snapshot, which is released on return."""
        if self._readers is None:
            raise StoreDown("the store is not open; it serves while its run() is running")
        readers = self._readers
        if not self._read_only:
            return await self._aside(lambda: readers.read(query, *args, **kwargs))
        until = trio.current_time() + min(self._patience, _OPENING)
        for pause in pauses():
            try:
                return await self._aside(lambda: readers.read(query, *args, **kwargs))
            except StoreUnavailable:  # a read-only store has no runtime that retries
                if trio.current_time() >= until:
                    raise
            await trio.sleep(min(pause, until - trio.current_time()))
        raise AssertionError("pauses() never ends")

    @override
    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        """Claim runs that need an owner; none of a file that was opened to be read."""
        return () if self._read_only else await super().claim_ready(room, ability, now)

    @override
    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        """Claim runs whose timer fired; none of a file that was opened to be read."""
        return () if self._read_only else await super().claim_due(now, ability, limit=limit)

    @override
    async def queues(self) -> Sequence[QueueInfo]:
        return await self._read(_work_sql.queues, datetime.now(UTC))

    async def _sizes(self) -> tuple[int, int]:
        return await self._read(_prune.sizes)

    async def _forecast(self, before: datetime) -> Pruned:
        return await self._read(_prune.forecast, milliseconds(before))

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole store, as of now, into a new file (0600); writers continue meanwhile.

        The copy has another epoch, so that cursors of this store are not used with the copy.

        Raises:
            StoreError: the file exists, or cannot be written; nothing of it is left then.
        """
        await self._read(_copy, Path(path))


def _copy(source: sqlite3.Connection, path: Path) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; name a new file in a writable folder") from error
    with ExitStack() as undo:
        undo.callback(_remove, path)  # a partial copy must neither pass for a whole one nor block the next backup
        try:
            with closing(sqlite3.connect(path)) as target:
                source.backup(target)
                target.execute(NEW_EPOCH)
                target.commit()
        except sqlite3.Error as error:
            raise StoreError(explain(path, error)) from error
        undo.pop_all()


def _remove(path: Path) -> None:
    """A file, and a journal of it: one that is left behind would be rolled back into the next file of that name."""
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
