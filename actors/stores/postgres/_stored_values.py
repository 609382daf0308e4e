"""The statement that writes values beside the runs.

A set is one statement. It locks the rows that it finds and compares their revisions as of then, so that of two sets
that meet the second one finds what the first one wrote. A new name that another set has made meanwhile breaks the
primary key; the set is executed again, and finds the name. The revision of a set's values is drawn by the writer, so
that a set whose answer was lost is recognised; one of removals alone by their success.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import attrs

from ...stored_values import ValueWrite
from ._connect import Link
from ._driver import psycopg
from ._values import Bigints, Blobs, Texts

_WRITES: Final = "unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[]) AS w(space, name, value, expected)"
_SET: Final = f"""WITH w AS (SELECT * FROM {_WRITES}),
held AS (SELECT v.space, v.name, v.revision FROM {{s}}.stored_values v JOIN w USING (space, name)
  ORDER BY v.space, v.name FOR UPDATE OF v),
fits AS (SELECT count(*) FILTER (WHERE coalesce(h.revision, 0) <> w.expected) = 0 AS good,
    coalesce(bool_or(h.revision = %s), %s AND count(w.value) = 0) AS mine
  FROM w LEFT JOIN held h USING (space, name)),
removed AS (DELETE FROM {{s}}.stored_values v USING w, fits
  WHERE good AND v.space = w.space AND v.name = w.name AND w.value IS NULL),
changed AS (UPDATE {{s}}.stored_values v SET value = w.value, revision = %s FROM w, fits
  WHERE good AND v.space = w.space AND v.name = w.name AND w.value IS NOT NULL),
added AS (INSERT INTO {{s}}.stored_values(space, name, value, revision)
  SELECT w.space, w.name, w.value, %s FROM w, fits WHERE good AND w.expected = 0)
SELECT good OR mine FROM fits"""


@attrs.define(eq=False)
class SetValues:
    """Writes one set, until its answer arrives; `sent`: the values may be written already."""

    writes: Sequence[ValueWrite]
    revision: int = attrs.field(factory=lambda: 1 + secrets.randbits(52))
    sent: bool = False

    def __call__(self, link: Link) -> bool:
        """Write the values, or none if one is not at its expected revision."""
        spaces, names, bodies, revisions = zip(*self.writes, strict=True)
        revision = self.revision
        values = (
            Texts(spaces),
            Texts(names),
            Blobs(bodies),
            Bigints(revisions),
            revision,
            self.sent,
            revision,
            revision,
        )
        self.sent = True
        try:
            rows = link.persistent(_SET, values)
        except psycopg.errors.UniqueViolation:  # another set was faster, and has ended
            rows = link.persistent(_SET, values)
        return bool(rows[0][0])
