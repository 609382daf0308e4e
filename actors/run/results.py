"""Results of bodies as they are stored: converted to JSON without stopping the loop, and within their limits.

The body has returned, so its effect has happened: whatever is wrong with the value, the call ends, and says that the
body ran.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from ..contract.codec import StoredResult, normalising
from ..contract.excerpt import shown_value
from ..contract.sizes import STEP_LIMIT, VALUE_LIMIT, TooLarge, measured, too_large
from ..engine.inputs import CallReturned
from ..state.access import WritableState
from .children import Children

_encode: Final = msgspec.json.Encoder().encode


async def stored(value: object) -> StoredResult:
    """Return a result as `normalise_result` does; the loop turns during the conversion of a large one.

    Cancellation: no checkpoint for a usual result; a large one is converted to its end, for its effect has happened.

    Raises:
        InvalidPart, TooLarge: as `normalise_result`.
    """
    work = normalising(value)
    try:
        while True:
            next(work)
            await trio.lowlevel.cancel_shielded_checkpoint()
    except StopIteration as end:
        result: StoredResult = end.value
        return result


def returned(call_id: str, attempt: int, result: StoredResult, state: WritableState) -> CallReturned:
    """Return the input about a body's result, with the text for the model and the body's state writes.

    Never fails, because the effect has already happened.
    """
    data, parts, why = result
    shown, large = shown_value(data)
    if why is not None:
        shown, large = f"The call succeeded, but its result cannot be shown ({why}).", False
    return CallReturned(
        call_id=call_id,
        attempt=attempt,
        result=data,
        shown=shown,
        large=large,
        batch=state.batch(),
        keys=state.used,
        parts=parts,
    )


def check_room(children: Children, step: int, done: CallReturned) -> None:
    """Count a result and its state writes among those of the step.

    Raises:
        TooLarge: the writes, or all results of the step, exceed their limit.
    """
    writes: list[Any] = [] if done.batch is None else [[write.value, write.result] for write in done.batch.writes]
    written = measured(writes, VALUE_LIMIT)
    if written > VALUE_LIMIT:
        raise TooLarge(f"with what it wrote to state {too_large(written)}")
    size = written + (len(_encode(done.result)) if done.large else len(done.shown))
    known, sum_before = children.kept
    total = size + (sum_before if known == step else 0)
    if total > STEP_LIMIT:
        raise TooLarge(f"with the other results of its step {too_large(total, STEP_LIMIT)}")
    children.kept = (step, total)
