"""One query in the trio thread: sent without waiting, its answer read when the socket is readable.

A statement in a thread costs two changes of thread, which take longer than a small query. Here libpq sends and reads,
and trio waits. The caller owns the connection: nothing else uses it before the answer is there.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

import trio

from ..common.faults import Outage
from ._connect import Again, Link
from ._driver import Int8, psycopg
from ._prepared import refusal

_PLACE: Final = re.compile("%s")
_BINARY: Final = psycopg.pq.Format.BINARY


class UnthreadedQuery:
    """A statement that the trio thread executes over one link, prepared once for each connection."""

    def __init__(self, link: Link, text: str, name: str) -> None:
        """`text`: with a %s for each parameter and no other percent sign. `name`: of the prepared statement."""
        numbers = itertools.count(1)
        self._text = _PLACE.sub(lambda _: f"${next(numbers)}", text)
        self._link, self._name = link, name.encode()
        self._prepared = -1

    def __repr__(self) -> str:
        """Return the name and the link."""
        return f"<UnthreadedQuery {self._name.decode()} over {self._link!r}>"

    async def __call__(self, *parameters: Any) -> list[tuple[Any, ...]]:
        """Execute the statement and return its rows.

        Cancellation: shielded, because the connection is of no use before its answer; the watchdog bounds the time.

        Raises:
            Outage: the connection is closed or lost, or the statement has to be prepared on another one.
            StoreDown: a table or a right is missing.
            psycopg.Error: the request's own error.
        """
        link = self._link
        connection = link.opened_connection
        if connection is None:
            raise Outage(OSError("the connection is closed"))
        pgconn = connection.pgconn
        form = psycopg.adapt.Transformer(connection)
        # as bigint whatever its size: the types of a prepared statement are fixed
        arguments = [Int8(value) if isinstance(value, int) else value for value in parameters]
        values = form.dump_sequence(arguments, [psycopg.adapt.PyFormat.BINARY] * len(arguments))
        try:
            with link.sorted(), trio.CancelScope(shield=True):
                if self._prepared != link.opened:
                    pgconn.send_prepare(self._name, link.text(self._text), form.types)
                    await self._answer(pgconn)
                    self._prepared = link.opened
                pgconn.send_query_prepared(self._name, values, param_formats=form.formats, result_format=_BINARY)
                result = await self._answer(pgconn)
        except Again as conflict:
            raise Outage(conflict.error) from conflict
        form.set_pgresult(result)
        return form.load_rows(0, result.ntuples, tuple)

    async def _answer(self, pgconn: Any) -> Any:
        """Return the newest result of what was sent.

        Raises:
            psycopg.Error: the server's, or of the connection.
        """
        while pgconn.flush():
            await trio.lowlevel.wait_writable(pgconn.socket)
        result = None
        while True:
            while pgconn.is_busy():
                await trio.lowlevel.wait_readable(pgconn.socket)
                pgconn.consume_input()
                self._link.hear(pgconn)
            one = pgconn.get_result()
            if one is None:
                break
            result = one
        if result is None:
            raise psycopg.OperationalError("the connection was lost before the answer")
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise refusal(result)
        return result
