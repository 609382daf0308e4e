"""The bytes of one stream to deltas and the answer: framing, JSON, the decoder of the format, and the mask of the key.

Theory of operation. `feed` takes bytes in pieces of any size; `end` is called when the body has ended, for whatever
reason. An answer exists only if the decoder has seen the format's own mark of its end; every other end is an
interruption, and an event that is incomplete at the end of the body is part of that interruption.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from ...abc import CallDelta, ModelDelta, ReasoningDelta, TextDelta
from ...contract.messages import ModelResponse, Usage
from ...contract.plain import JSONValue
from ...errors import ModelError
from ...json_text import values_of
from .faults import provider_error
from .masking import KeyMask, StreamMask
from .port import Codec, Decoder, StreamError
from .sse import EventParser, EventTooLong, ServerSentEvent

DONE: Final = b"[DONE]"
"""The data of OpenAI's last event, which is not JSON."""
EVENT_VALUES: Final = 250_000
"""Most commas and opening brackets of one event: each is a JSON value, of which a millisecond decodes some 20,000. The
commas of texts count, too: the largest real event, a whole answer of 1 MiB of JSON inside a text, has some 80,000."""
EVENTS: Final = 2_000_000
"""Most events of one answer, those that show nothing among them: some for each token of the longest answers."""
BYTES: Final = 512 * 1024 * 1024
"""Most bytes of one answer: 250 for each event, as the wordiest formats take."""
_SHOWN: Final = 4_096
"""Bytes that an error quotes of an event that is not a JSON object: a key in front of the cut is masked whole."""
SURROGATES: Final = 1024 * 1024
"""Most bytes of an event that is read again in search of a surrogate pair that was split."""


class StreamReader:
    """Reads one streamed answer.

    Args:
        name: the model's name, for errors.
        codec: the format.
        mask: hides the key in everything that the service sends.
    """

    def __init__(self, name: str, codec: Codec, mask: KeyMask) -> None:
        self._name = name
        self._codec = codec
        self._decoder: Decoder = codec.decoder()
        self._events = EventParser()
        self._mask = mask
        self._text, self._reasoning = StreamMask(mask), StreamMask(mask)
        self._calls: dict[int, StreamMask] = {}
        self._bytes = self._count = 0

    @property
    def complete(self) -> bool:
        """The answer is whole."""
        return self._decoder.complete

    @property
    def finished(self) -> bool:
        """Nothing that matters comes after this."""
        return self._decoder.finished

    @property
    def usage(self) -> Usage:
        """The tokens of the request as far as the stream has reported them."""
        return self._decoder.usage

    def feed(self, piece: bytes) -> Iterator[ModelDelta]:
        """Yield what the next bytes of the body show.

        Raises:
            ModelError: the stream reports a failure, or cannot be read.
        """
        self._bytes += len(piece)
        if self._bytes > BYTES:
            raise self._broken(f"the answer has more than {BYTES:,} bytes")
        try:
            for event in self._events.feed(piece):
                self._count += 1
                if self._count > EVENTS:
                    raise self._broken(f"the answer has more than {EVENTS:,} events")
                yield from self._take(event)
        except EventTooLong as error:
            raise self._broken(str(error)) from error

    def end(self, why: str = "the stream ended") -> tuple[list[ModelDelta], ModelResponse]:
        """Return the last deltas and the answer.

        Args:
            why: how the body ended.

        Raises:
            ModelError: interrupted: the answer is not whole; else as `feed`.
        """
        last = list[ModelDelta]()
        event = self._events.end()
        if event is not None and not self.complete and (event.data == DONE or _json(event.data) is not None):
            last.extend(self._take(event))
        if not self.complete:
            place = "in the middle of the answer" if self._count else "before the answer began"
            text = f"{self._name}: {self._mask.text(why)} {place}"
            raise ModelError(text, kind="interrupted", usage=self._decoder.usage)
        try:
            answer = self._masked(self._decoder.response())
        except RecursionError:
            raise self._broken("the answer is nested too deeply") from None
        text, reasoning = self._text.end(), self._reasoning.end()
        last.extend(CallDelta(index, arguments=rest) for index, call in self._calls.items() if (rest := call.end()))
        last.extend((*([ReasoningDelta(reasoning)] if reasoning else []), *([TextDelta(text)] if text else [])))
        return last, answer

    def interrupted(self, why: str, *, timeout: bool = False) -> ModelError:
        """Return the error for a connection that broke, or was silent too long, before the answer was whole."""
        text = f"{self._name}: {self._mask.text(why)}"
        return ModelError(text, kind="timeout" if timeout else "interrupted", usage=self._decoder.usage)

    def _take(self, event: ServerSentEvent) -> Iterator[ModelDelta]:
        if event.data == DONE:
            self._decoder.done()
            return
        values = values_of(event.data)
        if values > EVENT_VALUES:
            raise self._broken(f"an event of the stream has {values:,} values, at most {EVENT_VALUES:,}")
        data = _json(event.data)
        if not isinstance(data, dict):
            beginning = self._mask.beginning(event.data[:_SHOWN].decode("utf-8", "replace"), _SHOWN)[:100]
            raise self._broken(f"an event of the stream is not a JSON object: {beginning!r}")
        try:
            yield from self._shown(self._decoder.take(event.name, data))
        except StreamError as error:
            report = self._codec.error(None, error.data)
            raise provider_error(self._name, report, self._mask, usage=self._decoder.usage) from None

    def _shown(self, deltas: Iterable[ModelDelta]) -> Iterator[ModelDelta]:
        for delta in deltas:
            if isinstance(delta, CallDelta):
                stream = self._calls.setdefault(delta.index, StreamMask(self._mask))
                yield CallDelta(delta.index, self._mask.text(delta.tool), stream.feed(delta.arguments))
                continue
            stream = self._text if isinstance(delta, TextDelta) else self._reasoning
            if text := stream.feed(delta.text):
                yield type(delta)(text)

    def _broken(self, what: str) -> ModelError:
        return ModelError(f"{self._name}: {what}", kind="provider", usage=self._decoder.usage)

    def _masked(self, answer: ModelResponse) -> ModelResponse:
        mask = self._mask
        text = tuple(map(mask.text, answer.text))
        whole = mask.text("".join(answer.text))
        return replace(
            answer,
            text=text if "".join(text) == whole else (whole,),  # a key that spans two texts
            calls=tuple(
                replace(
                    call,
                    call_id=mask.text(call.call_id),
                    tool=mask.text(call.tool),
                    arguments=mask.value(call.arguments),
                    fault=None if call.fault is None else mask.text(call.fault),
                )
                for call in answer.calls
            ),
            model=mask.text(answer.model),
            refusal=None if answer.refusal is None else mask.text(answer.refusal),
            items=tuple(mask.value(item) for item in answer.items),
        )


def _json(data: bytes) -> JSONValue:
    """Return JSON data; None if the bytes are something else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if len(data) > SURROGATES:
            return None
    try:
        return json.loads(data)  # takes a surrogate pair that a server has split over two events
    except (ValueError, RecursionError):
        return None
