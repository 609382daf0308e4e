"""The driver of PostgreSQL, which is an extra: its absence is reported with the way to install it."""

from __future__ import annotations

from ...errors import UsageError

try:
    import psycopg as psycopg  # noqa: PLC0414 - exported to the modules of this store
    from psycopg.types.numeric import Int8 as Int8  # noqa: PLC0414 - as above
except ImportError as error:
    raise UsageError(
        f"a store in PostgreSQL needs psycopg, which cannot be imported ({error}); pip install 'greenroom[postgres]'"
    ) from error
