"""The messages that bodies are saying: their text, before it is stored."""

from __future__ import annotations

from collections.abc import Callable

from ..contract.excerpt import is_large
from ..engine.body_inputs import BodySpoke
from ..engine.inputs import Input
from .delta_buffers import DeltaBuffers

Place = tuple[str, int, int]
"""A call, the attempt of its body, and the number of the message in the attempt."""


class SpokenText:
    """The text buffers of the incomplete messages of a run's bodies.

    Args:
        make: makes empty buffers.
    """

    def __init__(self, make: Callable[[], DeltaBuffers]) -> None:
        self._make = make
        self._open: dict[Place, DeltaBuffers] = {}

    def __repr__(self) -> str:
        return f"<SpokenText of {len(self._open)} messages>"

    def stream(self, place: Place) -> DeltaBuffers:
        """Return the buffers of a message; created on first use."""
        streams = self._open.get(place)
        if streams is None:
            streams = self._open[place] = self._make()
        return streams

    def discard_further(self) -> None:
        """Stop all waiting for room."""
        for streams in self._open.values():
            streams.discard_further()

    def ready(self) -> bool:
        """Return True if showable text waits."""
        return any(streams.text or streams.reasoning for streams in self._open.values())

    def take(self) -> list[Input]:
        """Return all showable text, as one input per message."""
        inputs = [_taken(place, streams) for place, streams in self._open.items() if streams.text or streams.reasoning]
        return [message for message in inputs if message is not None]

    def close(self, message: BodySpoke) -> list[Input]:
        """Close the buffers of a message that is complete, and return their remaining text as inputs.

        A text of which nothing was shown arrives whole with the message, without any delta. A text too large for one
        event is returned as deltas.
        """
        place = (message.call_id, message.attempt, message.number)
        whole, streams = message.whole or "", self._open.pop(place, None)
        large = is_large(whole)
        if streams is None and not large:
            return []
        streams = streams or self._make()
        if large and not streams.printed and not streams.text.waiting:
            streams.text.add(whole)
        inputs, with_text = list[Input](), bool(streams.printed) or large
        while (rest := _taken(place, streams, last=True, with_text=with_text)) is not None:
            inputs.append(rest)
        return inputs

    def drop(self, call_id: str, attempt: int) -> None:
        """Forget the incomplete messages of an attempt that has ended."""
        for place in [place for place in self._open if place[:2] == (call_id, attempt)]:
            del self._open[place]


def _taken(place: Place, streams: DeltaBuffers, *, last: bool = False, with_text: bool = True) -> BodySpoke | None:
    """Take the next deltas of a message; None if there are none."""
    text = streams.text.take(last=last) if with_text else ""
    reasoning = streams.reasoning.take(last=last)
    if not text and not reasoning:
        return None
    call_id, attempt, number = place
    message = BodySpoke(
        call_id=call_id,
        attempt=attempt,
        number=number,
        text=text,
        reasoning=reasoning,
        index=streams.printed,
        reasoning_index=streams.thought,
    )
    streams.printed += bool(text)
    streams.thought += bool(reasoning)
    return message
