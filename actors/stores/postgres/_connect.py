"""Connections to PostgreSQL: how they are opened, and the meaning of their errors.

Theory of operation. A `Link` is one connection that opens itself again: after an error of the connection the next
statement opens another one. The user of a link repeats what was on the way, so each statement has to tolerate being
executed twice. `severity` sorts errors into four kinds, and `Link.execute` raises each kind as one type: the whole
server is unavailable (`Outage`), the same statement may work immediately (`Again`), the request is at fault (the
driver's own error), or the schema or a right is missing (`StoreDown`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeVar

from ...errors import StoreDown
from ..common.faults import Outage
from ._attempt import Attempt
from ._driver import psycopg
from ._heard import ArrivedPayloads
from ._prepared import Parameters, PreparedStatements
from ._schema import quoted
from ._target import SEARCH_PATH, PgTarget
from ._values import adapt

T = TypeVar("T")
ANSWER: Final = 10.0
"""Seconds after which a connection that gives no answer is cut."""

ATTEMPTS: Final = 10
"""Immediate attempts after a conflict with another statement; then it counts as an outage, like a wait for a lock."""

SNAPSHOT: Final = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""Of a transaction whose statements all see one state of the database."""

_SEARCH: Final = f"search_path={SEARCH_PATH}"
"""Until the end of the transaction: a session of a pool is that of other programs, too, and may have any path."""

Severity = Literal["outage", "again", "request", "schema"]

_AGAIN: Final = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialization failure, deadlock, lock timeout, statement timeout."""
_WAITED: Final = 3.0
"""Seconds after which such an error has waited: repeated immediately, the statement would wait for as long again."""
_LOCKED: Final = "55P03"
_OUTAGES: Final = ("08", "53", "57", "58", "25006", "28", "3D", "F0", "XX001", "XX002")
"""Connection, resources (disk full, too many connections), shutdown, I/O, read-only server, login, damage."""
_NO_MEMORY: Final = "53200"
"""The server has no memory for this statement; it may have for others."""
SLOWEST: Final = 2**20
"""Bytes per second that a connection carries at least: so much more time has the answer to a large statement."""
_SCHEMA: Final = ("42", "3F")
"""Unknown table or column, no right, unknown schema."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: the last close resets the connection (POSIX, setsockopt)."""
_STALE: Final = frozenset({"0A000", "26000"})
"""A prepared statement whose tables have changed, or that the server has lost: prepared again by another connection."""

_POOL: Final = "unsupported startup parameter"
"""The answer of pgbouncer to the options of a session."""
_HOPELESS: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "authentication method",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
    "certificate",
    "could not translate host name",
    f"[Errno {socket.EAI_NONAME}]",  # of the driver, which looks names up before libpq
    "server does not support SSL",
    "definition of service",
    "invalid port number",
    'value: "',  # invalid sslmode value: "...", and others
    "could not match",  # the numbers of hosts and ports
    "unrecognized configuration parameter",  # of options=
    "invalid value for parameter",
    "requires a value",
    "invalid command-line argument",
    _POOL,
)
"""Parts of libpq's messages about connections that no wait makes possible."""

_TIMEOUT: Final = "connection timeout expired"
"""The driver's words for a host that does not answer."""


class Again(Exception):
    """The statement met another one (deadlock, lock, serialization): nothing was written, and a retry may work.

    Attributes:
        error: The error in words.
        waited: The statement has waited for seconds; an immediate retry would wait for as long again.
    """

    def __init__(self, error: Exception, *, waited: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.waited = error, waited


class NoMemory(Outage):
    """The server has no memory for a statement; nothing was written, and the statement may be at fault."""


def severity(error: BaseException) -> Severity:
    """Return what an error of the driver means."""
    state = getattr(error, "sqlstate", None)
    if isinstance(error, psycopg.InterfaceError) or (isinstance(error, psycopg.OperationalError) and not state):
        return "outage"  # an error without a code comes from the connection
    if isinstance(error, OSError | MemoryError):
        return "outage"
    if not state:
        return "request"
    if state in _AGAIN or state in _STALE:
        return "again"
    if state.startswith(_OUTAGES):
        return "outage"
    return "schema" if state.startswith(_SCHEMA) else "request"


# --- a connection -----------------------------------------------------------------------------------------------------


def setting_text(*settings: str) -> str:
    """Return the statement that makes settings such as "jit=off" until the end of its transaction."""
    pairs = (setting.split("=") for setting in settings)
    return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in pairs)


class Link:
    """One connection that opens itself again after an outage. Used by one thread at a time.

    Times are read and written as milliseconds since 1970 (`Moment`, `Moments`); `{s}` in a statement is the schema.

    Attributes:
        since: The time, by `time.monotonic`, at which the statement on the way was sent; None: none is on the way.
        opened: The number of connections that were opened.
        carries: bytes of the statement that is sent next, if they are many.
        unknown: it is unknown whether the statement that met the newest outage was executed.
        repeated: The number of calls that `twice` repeated although the first may have been executed.
        payloads: The payloads of the notifications that have arrived.
    """

    def __init__(self, target: PgTarget, name: str, settings: Sequence[str] = ()) -> None:
        """`name`: for the server's list of connections. `settings`: of the session; a pool in between has none."""
        self.target, self._name, self._settings = target, name, settings
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        # A second descriptor of the connection's socket: libpq closes its own when the connection breaks, and by the
        # time of a cut the number may belong to another file.
        self._socket: socket.socket | None = None
        self._cutting = threading.Lock()
        self._prepared: PreparedStatements
        self._texts: dict[str, bytes] = {}
        self._schema = quoted(target.schema)
        self._search_text = setting_text(_SEARCH, *settings).encode()
        self.payloads = ArrivedPayloads()
        self.since: float | None = None
        self.opened = self.carries = 0
        self._attempt: Attempt | None = None
        self._cut_after: float | None = None
        self._sent = False  # the statement on the way may have been sent
        self._broke = False
        self._inside = False  # in a block of `transaction`
        self.unknown = False
        self.repeated = 0

    def __repr__(self) -> str:
        """Return the target without a password."""
        return f"<Link {self._name} to {self.target.text}>"

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The open connection; opened if it is not open.

        Raises:
            psycopg.Error, OSError: it cannot be opened.
        """
        if self._connection is None or self._connection.closed:
            self.close()
            self._attempt = Attempt(self._connect)
            try:
                connection = self._attempt.result()
            finally:
                self._attempt = None
            try:
                self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
            except OSError:  # the process is out of descriptors
                connection.close()
                raise
            self._connection, self._sent = connection, True
            self.opened += 1
            adapt(connection)
            self._prepared = PreparedStatements(connection)
            self.payloads.clear()
            # Called for what arrives with the answer of a statement. The driver's own handler fails where a payload is
            # no UTF-8, and keeps all of them.
            connection.pgconn.notify_handler = lambda notification: self.payloads.add(notification.extra)
        return self._connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            **self.target.connection_fields(self._name, self._settings),  # type: ignore[arg-type]  # all are str
            autocommit=True,
            prepare_threshold=None if self.target.pooled else 1,
        )

    def text(self, statement: str) -> bytes:
        """Return a statement with the schema in it."""
        if "{s}" not in statement:  # not kept, because it may contain the number of a process
            return statement.encode()
        encoded_text = self._texts.get(statement)
        if encoded_text is None:
            encoded_text = self._texts[statement] = statement.replace("{s}", self._schema).encode()
        return encoded_text

    def execute(self, text: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Execute one statement, one transaction, and return its rows.

        Raises:
            Outage: the server is unavailable. It is unknown whether the statement was executed.
            Again: it met another statement; nothing was written.
            StoreDown: a table or a right is missing.
            psycopg.Error: the request's own error; nothing was written.
        """
        with self.sorted(), self._searching():
            cursor = self.connection.execute(self.text(text), parameters or None, binary=True)
        return cursor.fetchall() if cursor.description is not None else []

    def unsorted(self, text: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Execute a statement that the server may refuse. Raises as `execute`, but refusals as they are."""
        try:
            return self.execute(text, parameters)
        except StoreDown as refused:
            if isinstance(refused.__context__, psycopg.Error):
                raise refused.__context__ from None
            raise

    def burst(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[tuple[Any, ...]]:
        """Execute statements that are sent together and are one transaction; return the rows of the last one.

        No lock is held while the client thinks, and each statement sees what was committed before it began. Raises as
        `persistent`.
        """

        def send() -> list[tuple[Any, ...]]:
            with self.sorted(), self._pipeline():
                self._search()
                cursors = [
                    self.connection.execute(self.text(text), parameters or None, binary=True)
                    for text, parameters in statements
                ]
                return cursors[-1].fetchall()

        return self._attempt_again(send)

    def prompt(
        self, text: str, parameters: Parameters, by: tuple[str, Parameters] | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute a statement that is often executed, and return its rows, as `persistent`; it takes less time.

        Another statement, `by`, is sent with it and executed after its commit. So `by` costs no round trip, and is a
        transaction of its own. It may be lost, and whether it was executed is not reported.
        """

        def send() -> list[tuple[Any, ...]]:
            with self.sorted():
                if by is not None and self.target.pooled:
                    return self._piped(text, parameters, by)
                other = None if by is None else (self.text(by[0]), by[1])
                self.connection  # noqa: B018 - opened first: it has other prepared statements than the one before
                return self._prepared.execute(self.text(text), parameters, other)

        if by is None and self.target.pooled:
            return self.persistent(text, parameters)
        return self._attempt_again(send)

    def _piped(self, text: str, parameters: Parameters, by: tuple[str, Parameters]) -> list[tuple[Any, ...]]:
        """Execute two statements by the driver alone: behind a pool none can be prepared."""
        rows: list[tuple[Any, ...]] | None = None
        try:
            with self._pipeline() as pipeline:
                self._search()
                cursor = self.connection.execute(self.text(text), parameters or None, binary=True)
                pipeline.sync()
                self._search()
                self.connection.execute(self.text(by[0]), by[1])
                rows = cursor.fetchall()
        except psycopg.Error:
            # A server that dies sends the rows of a statement whose commit has not ended: without an answer to the
            # second statement, nothing is known of the first one's commit.
            if rows is None or self.opened_connection is None:
                raise
        return rows

    @contextlib.contextmanager
    def _pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Send the block's statements without waiting for answers. Raises the block's error, else that of the end.

        The driver would log a second error, which the end of a pipeline on a lost connection always meets.
        """
        failure: psycopg.Error | None = None
        try:
            with self.connection.pipeline() as pipeline:
                try:
                    yield pipeline
                except psycopg.Error as error:
                    failure = error
        except psycopg.Error:
            if failure is None:
                raise
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def _searching(self) -> Iterator[None]:
        """Send the block's statement together with path and settings, as one transaction, where the session has none.

        A statement in a block of `transaction` follows the path of that block.
        """
        if not self.target.pooled or self._inside:
            yield
            return
        with self._pipeline():
            self._search()
            yield

    def _search(self) -> None:
        if self.target.pooled:
            self.connection.execute(self._search_text)

    @property
    def opened_connection(self) -> psycopg.Connection[tuple[Any, ...]] | None:
        """The connection if it is open."""
        connection = self._connection
        return None if connection is None or connection.closed else connection

    def arrived(self) -> list[bytes]:
        """Return the payloads of notifications that have arrived and are kept; never waits.

        Raises:
            Outage: the connection is closed or lost.
        """
        connection = self.opened_connection
        if connection is None:
            raise Outage(OSError("the connection is closed"))
        with self.sorted():
            connection.pgconn.consume_input()
            self.hear(connection.pgconn)
            return self.payloads.take()

    def hear(self, pgconn: Any) -> None:
        """Keep the payloads of notifications that the driver has read, which would keep all of them itself."""
        while (notification := pgconn.notifies()) is not None:
            self.payloads.add(notification.extra)

    def persistent(self, text: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; one that met another is repeated immediately. Raises as `execute`, without Again."""
        return self._attempt_again(lambda: self.execute(text, parameters))

    def _attempt_again(self, send: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return send()
            except Again as conflict:
                if attempt == ATTEMPTS or conflict.waited:
                    raise Outage(conflict.error) from conflict
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def transaction(self, mode: str = "") -> Iterator[None]:
        """Make the block's statements one transaction; `mode` follows BEGIN. Raises as `execute`."""
        self._inside = True
        try:
            self.execute(f"BEGIN {mode}")
            try:
                with self.sorted():
                    self._search()
                yield
            except BaseException:  # raised again; the server must not keep the transaction open
                with contextlib.suppress(Outage, Again, psycopg.Error):
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")
        finally:
            self._inside = False

    def twice(self, function: Callable[[], T]) -> T:
        """Call a function that executes statements; if the connection breaks, once more, with a new connection.

        A connection that broke while it was idle is not an outage. The function has to tolerate being called twice.
        """
        try:
            return function()
        except Outage:
            if not self._broke:
                raise
        try:
            result = function()
        except Outage:
            self.unknown = True  # the first call may have been executed
            raise
        self.repeated += 1
        return result

    @contextlib.contextmanager
    def sorted(self) -> Iterator[None]:
        """Raise an error of the block's statement as its kind: see `execute`. The watchdog sees the statement."""
        was_open = self._connection is not None and not self._connection.closed
        self.since = time.monotonic()
        self._cut_after = None
        self._sent = was_open
        try:
            yield
        except (psycopg.Error, OSError, MemoryError) as error:
            kind = severity(error)
            if kind == "request":
                raise
            if getattr(error, "sqlstate", None) in _STALE:
                self.close()
            if kind == "again":
                raise Again(self._clean(error), waited=time.monotonic() - self.since > _WAITED) from None
            if kind == "schema":
                raise StoreDown(self.explain(error)) from None
            lost = self._connection is None or self._connection.closed
            self.unknown = lost and self._sent  # without a connection nothing was sent
            self._broke = was_open and lost
            self.close(reset=True)
            kind_of_outage = NoMemory if getattr(error, "sqlstate", None) == _NO_MEMORY else Outage
            raise kind_of_outage(self._clean(error)) from None
        finally:
            self.since = None

    def _clean(self, error: BaseException) -> Exception:
        """Return an error for messages, without secrets."""
        text = self.target.hidden(str(error)) or type(error).__name__
        if self._cut_after is not None:
            text = f"{self.target.place} gives no answer within {self._cut_after:.3g} s; look at the server"
        elif _TIMEOUT in text:
            silence = f"{self.target.place} gives no answer within {self.target.patience:g} s"
            way = "check the host and the port, and whether a firewall drops the packets"
            others = text.partition("All failures were: ")[2].replace(_TIMEOUT, "no answer")
            text = f"{silence}{others and f' ({others})'}; {way}"
        elif _POOL in text:
            text += "; behind a pool in transaction mode write pooled=1 into the address"
        elif getattr(error, "sqlstate", None) == _LOCKED:
            text = f"another session holds a lock on the tables ({text})"
        return PgTrouble(text)

    def explain(self, error: BaseException) -> str:
        """Return what is wrong and what to do."""
        text = self.target.hidden(str(error))
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501":
            way = "grant the role the rights that `greenroom db show` names, or let an owner run `greenroom db migrate`"
        elif state.startswith(("42", "3F")):
            way = "the tables are not as this release needs them; migrate (`greenroom db migrate`), or restore them"
        else:
            way = "look at the server"
        return f"PostgreSQL refuses ({text}); {way}"

    def cut_late(self, answer: float, now: float, *, connecting: float | None = None) -> bool:
        """Cut the connection if the statement on the way has waited for its answer for longer than `answer` seconds.

        May be called in any thread. Returns True if it was cut.

        Args:
            answer: seconds.
            now: The present value of `time.monotonic`.
            connecting: seconds for an attempt to connect instead. None: the attempt ends by itself after a time for
                each host, and only the lookup of a name, which has no limit, is ended after as long again.
        """
        since = self.since
        if since is None:
            return False
        answer += self.carries / SLOWEST
        if self._attempt is not None:
            answer = max(answer, 2 * self.target.patience * self.target.hosts) if connecting is None else connecting
        if now - since <= answer:
            return False
        self.cut()
        return True

    def cut(self) -> None:
        """End the wait for an answer: the thread that waits gets an error. May be called in any thread.

        An open connection has its socket shut down, which needs no further descriptor; an attempt to open one is given
        up.
        """
        since, attempt = self.since, self._attempt
        if since is not None:
            self._cut_after = time.monotonic() - since
        if attempt is not None:
            attempt.give_up()
        with self._cutting, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, *, reset: bool = False) -> None:
        """Close the connection; the next statement opens another one.

        Args:
            reset: drop what is on its way, in both directions. A server that is sending to a full window learns of an
                orderly end only after a minute, and holds a snapshot meanwhile: no index could be made, and no vacuum
                would clean up.
        """
        connection, self._connection = self._connection, None
        with self._cutting:
            copy, self._socket = self._socket, None
            if copy is not None:
                if reset:
                    with contextlib.suppress(OSError):
                        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                copy.close()
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.close()


class PgTrouble(Exception):
    """An error of the server or of a connection, in words and without secrets."""


def hopeless(error: BaseException) -> bool:
    """Return True for an error of opening a connection that no wait makes good."""
    text = str(error)
    return any(part in text for part in _HOPELESS)
