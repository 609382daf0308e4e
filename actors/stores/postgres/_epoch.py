"""The identity of the logs, bound to the history of the server that they are on.

A failover to a standby that lags behind, a restored backup or a copied database may lack events that readers have seen.
Each of them has another system identifier, another timeline or another database, so the first process that finds
another one than the stored one writes a new epoch, by compare and set. A new epoch after a failover that lost nothing
costs each reader one snapshot.
"""

from __future__ import annotations

import secrets
from typing import Final

from ._connect import Link
from ._driver import psycopg

# The timeline of the WAL file that is written now; the control file names it only after the next checkpoint.
_ORIGIN: Final = """SELECT (pg_control_system()).system_identifier || '/' ||
  substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' ||
  (SELECT oid FROM pg_database WHERE datname = current_database())"""
_READ: Final = "SELECT name, value FROM {s}.about WHERE name IN ('epoch', 'origin')"
_FIRST: Final = "INSERT INTO {s}.about(name, value) VALUES ('origin', %s) ON CONFLICT (name) DO NOTHING"
_CHANGE: Final = """WITH origin AS (
  UPDATE {s}.about SET value = %s WHERE name = 'origin' AND value = %s RETURNING 1)
UPDATE {s}.about SET value = %s WHERE name = 'epoch' AND EXISTS (SELECT 1 FROM origin)"""


def new_epoch() -> str:
    """Return a new identity of the logs."""
    return secrets.token_hex(8)


def epoch(link: Link) -> str:
    """Return the epoch of the server's present history; a new one if the history is another than before.

    Where the server hides its identity (a provider, a right that was taken away), the stored epoch counts alone.

    Raises:
        Outage, StoreDown: see `Link.execute`.
    """
    origin = _origin(link)
    stored = dict(link.persistent(_READ))
    if origin is not None and stored.get("origin") != origin:
        if "origin" not in stored:
            link.persistent(_FIRST, (origin,))
        else:
            link.persistent(_CHANGE, (origin, stored["origin"], new_epoch()))
        stored = dict(link.persistent(_READ))
    return str(stored["epoch"])


def _origin(link: Link) -> str | None:
    """Return the identity of the server's history; None if the server does not say."""
    try:
        return str(link.unsorted(_ORIGIN)[0][0])
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFunction):
        return None
