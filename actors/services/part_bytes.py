"""The bytes of images and files, put back into messages on their way to a model.

Theory of operation. Messages in memory hold the facts of their parts only. Bytes that this owner has committed are kept
here, because the commit may not be durable yet; all others are read from the store, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from msgspec.structs import replace

from ..contract.decisions import Command
from ..contract.messages import Message
from ..contract.parts import Part
from ..contract.rows import CallRow
from .services import Services, retry_until_available

_NONE: Final[Mapping[str, bytes]] = {}
"""One for all runs: most have no parts, and a waiting run should be small."""


@attrs.define(eq=False)
class PartBytes:
    """Fills the messages of one run's thread.

    Attributes:
        needed: the thread may have parts; while it has none, a request costs nothing more.
    """

    _services: Services
    _thread_id: str
    needed: bool = False
    _bytes_of: Mapping[str, bytes] = attrs.field(default=_NONE, repr=False)

    def keep(self, parts: Iterable[Part]) -> None:
        """Take the bytes of parts that join the thread."""
        self.needed = True
        self._bytes_of = {**self._bytes_of, **{part.sha256: part.data for part in parts if part.data is not None}}

    def forget(self) -> None:
        """Leave the bytes to the store: all commits are durable, and a run that waits should be small."""
        self._bytes_of = _NONE

    def note(self, carriers: Iterable[Message | CallRow | Command]) -> None:
        """Note whether messages, calls or commands have parts."""
        for carrier in carriers:
            if carrier.parts:
                self.needed = True
                return

    async def filled(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages whose parts have their bytes. A part whose bytes are lost stays without.

        Raises:
            StoreDown: the store has failed for good.
        """
        parts = [part for message in messages for part in message.parts if part.sha256 and part.data is None]
        missing = {part.sha256 for part in parts if part.sha256 not in self._bytes_of}
        if missing:
            read_parts = self._services.store.parts
            self._bytes_of = {
                **self._bytes_of,
                **await retry_until_available(read_parts, self._thread_id, tuple(sorted(missing))),
            }
        bytes_of = self._bytes_of
        return [
            replace(
                message, parts=tuple(replace(part, data=bytes_of.get(part.sha256, part.data)) for part in message.parts)
            )
            if message.parts
            else message
            for message in messages
        ]
