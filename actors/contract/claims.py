"""Claims: the right to work on a run."""

from __future__ import annotations

from .row_forms import Value


class Claim(Value, frozen=True, kw_only=True):
    """The right to append to a run. `token` is the fencing token: a newer claim voids all older ones."""

    run_id: str
    token: int
