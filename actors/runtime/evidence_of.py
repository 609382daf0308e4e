"""Read the evidence of a run, and of the runs that worked for its calls. Writes nothing.

A run may work while it is read: its account and its file end at the newest event then.
"""

from collections.abc import AsyncIterator

import attrs

from ..abc import Store
from ..contract.codec import SchemaError
from ..contract.envelope import decode_event
from ..errors import StoreError, UnknownRun
from ..evidence.account import AccountFold, RunEvidence

PAGE = 500
"""Events read together; other tasks run between two pages."""
PAGE_BYTES = 4 * 1024 * 1024
DEEPEST = 32
"""Child runs below child runs that are followed; `Agent` allows fewer."""


@attrs.frozen(kw_only=True)
class ReadLog:
    """The log of a run, as it is stored.

    Attributes:
        account: What it says, child runs included.
        frames: Its events, encoded.
        children: The logs of the runs that worked for its calls, in the order of the calls.
    """

    account: RunEvidence
    frames: tuple[bytes, ...]
    children: "tuple[ReadLog, ...]" = ()

    def logs(self) -> "tuple[ReadLog, ...]":
        """Return this log and all below."""
        return (self, *(log for child in self.children for log in child.logs()))


async def frames_of(store: Store, run_id: str) -> AsyncIterator[bytes]:
    """Yield the encoded events of a run as they are stored, also where a stranger has removed or moved some.

    A removed event leaves a gap, so the next page begins after as many events as were read, and may repeat what the
    page before had: repeated frames are left out.
    """
    after, last = 0, b""
    while page := await store.events(run_id, after=after, limit=PAGE, max_bytes=PAGE_BYTES):
        for frame in page[page.index(last) + 1 :] if last in page else page:
            yield frame
        if page[-1] == last:
            return
        last = page[-1]
        after += len(page)


async def read_log(store: Store, run_id: str, depth: int = DEEPEST) -> ReadLog:
    """Return the log of a run and those below it.

    Raises:
        UnknownRun: No run has this id.
        StoreError: The store cannot be read, or an event of the log is damaged.
    """
    if await store.outline(run_id) is None:
        raise UnknownRun(run_id)
    fold, frames = AccountFold(run_id), list[bytes]()
    async for frame in frames_of(store, run_id):
        frames.append(frame)
        try:
            fold.add(decode_event(frame))
        except SchemaError as error:
            raise StoreError(f"event {len(frames)} of run {run_id} cannot be read: {error}") from error
    names = [call.child_run_id for call in fold.account().calls if call.child_run_id is not None] if depth else []
    # a child run may be pruned before its parent
    children = [await read_log(store, name, depth - 1) for name in names if await store.outline(name) is not None]
    account = fold.account(tuple(child.account for child in children))
    return ReadLog(account=account, frames=tuple(frames), children=tuple(children))
