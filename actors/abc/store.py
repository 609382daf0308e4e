"""The whole port of a store: rows, owners and hints."""

from __future__ import annotations

from .claims import Claims
from .notifier import Notifier
from .run_store import RunStore


class Store(RunStore, Claims, Notifier):
    """The storage of runs; `actors.testing.check_store` checks an implementation against this contract.

    A store that is also a `ValueStore` keeps values beside the runs.
    A store that only one process has open takes `Claims` and `Notifier` from `actors.stores.sole.SoleProcess`.
    """
