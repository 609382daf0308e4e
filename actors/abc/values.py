"""The port to the stored values: bytes beside the runs, for what is not of one run."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from ..stored_values import StoredValue, ValueWrite


class ValueStore(abc.ABC):
    """Values under a space and a name, which all processes of a storage share; pruning leaves them alone.

    A store may lack this port: then nothing that needs stored values, such as remembered rules, works with it. Errors:
    as of `RunStore`.
    """

    @abc.abstractmethod
    async def values(self, space: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
        """Return a page of the values of a space whose name is greater than `after`, by name; empty at the end.

        Names are ordered by their code points. A page ends early with the value that reaches 4 MiB. Each value is as
        of one consistent snapshot, and a set that has returned True is in it, by whichever process.

        Args:
            space: 1 to 64 bytes of printable text.
            after: A name, or the beginning of some.
            limit: Most values, 1 to 1000.

        Raises:
            UsageError: an argument is invalid.
        """

    @abc.abstractmethod
    async def set_values(self, writes: Sequence[ValueWrite | tuple[str, str, bytes | None, int]]) -> bool:
        """Write values, all or none, in one transaction; True: all are durable.

        False: a value is not at its expected revision, and nothing is written. If the answer of a server is lost, the
        set is sent again and recognised; if others have overwritten all of its values meanwhile, it counts as refused.

        Args:
            writes: (space, name, value or None to remove it, expected revision or 0), for each name once; at most 100,
                each with at most 2 MiB, 8 MiB together.

        Raises:
            UsageError: a write is invalid, or a limit is exceeded.
            StoreUnavailable: nothing is written.
            StoreDown: unknown whether the values are written.
        """
