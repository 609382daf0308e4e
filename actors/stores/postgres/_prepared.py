"""Prepared statements that a thread sends and whose answers it reads by libpq alone, for what people wait for.

Theory of operation. The driver's cursors, and more so its pipelines, take several looks at the socket for each
statement, which cost more than a small statement itself. Here a statement is prepared once for a connection, sent with
one call, and its answer is read when the socket is readable. A second statement may be sent in the same flight.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from ._driver import psycopg

Parameters = Sequence[Any] | Mapping[str, Any]
"""Of a statement: for each %s, or by name."""

REPLAN: Final = 10.0
"""Seconds for which the server keeps its plans: made while a table has a page, one may read all of it later on."""
MOST: Final = 100
"""Statements that one connection keeps: one for each text and types of parameters."""
_PLACE: Final = re.compile(rb"%(?:\((\w+)\))?s")
_BINARY: Final = psycopg.pq.Format.BINARY
_ERROR, _SYNC = psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.PIPELINE_SYNC


@cache
def numbered(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with $1, $2 and so on for its places, and the names of the places if they have names."""
    names: dict[bytes, int] = {}

    def place(match: re.Match[bytes]) -> bytes:
        name = match[1] or b"%d" % len(names)
        return b"$%d" % names.setdefault(name, len(names) + 1)

    return _PLACE.sub(place, text), tuple(name.decode() for name in names)


def refusal(result: Any) -> psycopg.Error:
    """Return the error that a result reports; one without a code comes from the connection."""
    error = psycopg.errors.error_from_result(result)
    return error if error.sqlstate else psycopg.OperationalError(str(error))


class PreparedStatements:
    """The prepared statements of one connection. Used by one thread at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Prepare nothing yet."""
        self._connection = connection
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._drawn = 0
        self._planned = time.monotonic()

    def __repr__(self) -> str:
        """Return how many there are."""
        return f"<PreparedStatements: {len(self._names)}>"

    def execute(
        self, text: bytes, parameters: Parameters, by: tuple[bytes, Parameters] | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows.

        Args:
            text: has a %s or a %(name)s for each parameter, and no other percent sign.
            parameters: The values for `text`.
            by: another statement, sent in the same flight and executed after the commit of the first one; an error of
                it is not reported.

        Raises:
            psycopg.Error: the server's, about the first statement; or the connection is lost before its answer, and
                closed.
            Exception: a parameter cannot be encoded; nothing was sent.
        """
        self._replan()
        form = psycopg.adapt.Transformer(self._connection)
        first = self._prepared(form, text, parameters)
        other = None if by is None else self._prepared(psycopg.adapt.Transformer(self._connection), *by)
        try:
            result = self._alone(first) if other is None else self._together(first, other)
        except BaseException:  # raised again; an answer that is not read would be taken for the next one
            self._connection.close()
            raise
        if result.status == _ERROR:
            raise refusal(result)
        form.set_pgresult(result)
        return form.load_rows(0, result.ntuples, tuple)

    def _prepared(self, form: Any, text: bytes, parameters: Parameters) -> tuple[bytes, Any, Any]:
        """Return the name of a statement with its values and their formats.

        Raises:
            psycopg.Error: the server refuses the statement, or the connection is lost.
        """
        query, names = numbered(text)
        arguments = [parameters[name] for name in names] if isinstance(parameters, Mapping) else parameters
        values = form.dump_sequence(arguments, [psycopg.adapt.PyFormat.AUTO] * len(arguments))
        types = tuple(form.types or ())
        name = self._names.pop((query, types), None)
        if name is None:
            self._forget()
            self._drawn += 1
            name = b"greenroom_%d" % self._drawn
            self._check(self._connection.pgconn.prepare(name, query, types))
        self._names[query, types] = name  # the newest is the last
        return name, values, form.formats

    def _replan(self) -> None:
        """Let the server plan again, for tables that have grown."""
        now = time.monotonic()
        if now - self._planned >= REPLAN:
            self._planned = now
            self._check(self._connection.pgconn.exec_(b"DISCARD PLANS"))

    def _forget(self) -> None:
        """Let the server forget the statement that was not used for the longest time, if there are `MOST`."""
        if len(self._names) >= MOST:
            oldest = next(iter(self._names))
            self._check(self._connection.pgconn.exec_(b"DEALLOCATE " + self._names[oldest]))
            del self._names[oldest]

    @staticmethod
    def _check(result: Any) -> None:
        if result.status == _ERROR:
            raise refusal(result)

    def _alone(self, statement: tuple[bytes, Any, Any]) -> Any:
        """Send a statement and return its result."""
        self._send(statement)
        self._flush()
        result = None
        while (one := self._next()) is not None:
            result = one
        if result is None:
            raise psycopg.OperationalError("the connection was lost before the answer")
        return result

    def _together(self, first: tuple[bytes, Any, Any], other: tuple[bytes, Any, Any]) -> Any:
        """Send two statements, each a separate transaction, and return the result of the first one."""
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        result, ends = None, 0
        try:
            for statement in (first, other):
                self._send(statement)
                pgconn.pipeline_sync()
            self._flush()
            while ends < 2:
                one = self._next()
                if one is None:
                    continue
                if one.status == _SYNC:
                    ends += 1
                elif not ends:
                    result = one
        except psycopg.Error:
            if not ends:  # a server that dies sends the rows of a statement whose commit has not ended
                raise
            self._connection.close()  # lost after the commit
            return result
        pgconn.exit_pipeline_mode()
        return result

    def _send(self, statement: tuple[bytes, Any, Any]) -> None:
        name, values, formats = statement
        self._connection.pgconn.send_query_prepared(name, values, param_formats=formats, result_format=_BINARY)

    def _flush(self) -> None:
        """Send what is to be sent; what the server answers meanwhile is read, so that neither waits for the other."""
        pgconn = self._connection.pgconn
        while pgconn.flush():
            if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                pgconn.consume_input()

    def _next(self) -> Any:
        """Return the next result; None between two statements."""
        pgconn = self._connection.pgconn
        while pgconn.is_busy():
            self._wait(select.POLLIN)
            pgconn.consume_input()
        return pgconn.get_result()

    def _wait(self, events: int) -> int:
        poll = select.poll()
        poll.register(self._connection.pgconn.socket, events)
        return poll.poll()[0][1]
