"""Results of bodies as they are stored: converted to JSON without stopping the loop, and within their limits.

The body has returned, so its effect has happened: whatever is wrong with the value, the call ends, and says that the
body ran.
"""

from __future__ import annotations

from ..contract.codec import PIECE, ManyItems, StoredResult, normalise_result, normalising
from ..contract.excerpt import shown_result
from ..contract.sizes import STEP_LIMIT, VALUE_LIMIT, TooLarge, measured, too_large
from ..engine.body_inputs import CallReturned
from ..services.children import Children
from ..services.stepping import in_steps
from ..state.access import WritableState


async def stored(value: object) -> StoredResult:
    """Return a result as `normalise_result` does; the loop turns during the conversion of a large one.

    Cancellation: no checkpoint for a usual result; a large one is converted to its end, for its effect has happened.

    Raises:
        InvalidPart, TooLarge: as `normalise_result`.
    """
    try:
        return normalise_result(value, PIECE)
    except ManyItems:  # rare, so converting the first items a second time costs little
        return await in_steps(normalising(value))


def kept(
    call_id: str, attempt: int, result: StoredResult, state: WritableState, *, children: Children, step: int
) -> CallReturned:
    """Return the input about a body's result, with the text for the model and the body's state writes.

    Counts the result and the writes among those of the step.

    Raises:
        TooLarge: the result, the writes, or all results of the step exceed their limit.
    """
    data, parts, why = result
    text, large, size = shown_result(data)
    if why is not None:
        text, large = f"The call succeeded, but its result cannot be shown ({why}).", False
    batch = state.batch()
    if batch is not None:
        state_size = measured([[write.value, write.result] for write in batch.writes], VALUE_LIMIT)
        if state_size > VALUE_LIMIT:
            raise TooLarge(f"with what it wrote to state {too_large(state_size)}")
        size += state_size
    count_among_results(size, children=children, step=step)
    return CallReturned(
        call_id=call_id,
        attempt=attempt,
        result=data,
        shown=text,
        large=large,
        batch=batch,
        keys={} if batch is None else state.used,
        parts=parts,
    )


def count_among_results(size: int, *, children: Children, step: int) -> None:
    """Count the bytes of a value among those of all results of the step.

    Raises:
        TooLarge: the values of the step exceed their limit; this one is not counted.
    """
    last_step, before = children.result_bytes
    total = size + (before if last_step == step else 0)
    if total > STEP_LIMIT:
        raise TooLarge(f"with the other results of its step {too_large(total, STEP_LIMIT)}")
    children.result_bytes = (step, total)
