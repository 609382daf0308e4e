"""The conformance suite of the Dialect port, for the author of a dialect.

    check_dialect(lambda: MyDialect(("my-program",)), [output_of_one_session, output_of_another])

An output is what the program wrote to its standard output for the first prompt of a session, as bytes. Ids of requests
are part of a dialect and counted from a fixed start, so that a recorded output answers them. A check fails with an
AssertionError whose sentence states the broken promise, and a note that names the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from ..backends.dialect import Declined, Dialect, Granted, ProgramExit, Prompt, Supplied
from ..backends.items import (
    Asked,
    CallEnded,
    Item,
    Notice,
    PromptDone,
    Question,
    SaidText,
    Seen,
    SendBytes,
    Unparsed,
    Withdrawn,
)

OpenDialect = Callable[[], Dialect]
"""Makes a new dialect for each conversation."""
_PROMPT: Final = Prompt(text="Do it.", folder="/srv/shop")
_GARBAGE: Final = b"\x1b[1mWelcome\x1b[0m\n\xff\xfe\n"
_EXITS: Final = (
    ProgramExit(status=0),
    ProgramExit(status=1, stderr="boom"),
    ProgramExit(status=-15, stopped="cancelled"),
)


def check_dialect(
    open_dialect: OpenDialect, outputs: Sequence[bytes], *, prompt: Prompt = _PROMPT, lines: bool = True, seed: int = 0
) -> None:
    """Check the promises of a dialect against recorded outputs.

    Args:
        open_dialect: makes a dialect.
        outputs: recorded outputs, each of one session.
        prompt: the prompt of the sessions.
        lines: the output is lines, so that CR before LF, and what stands before the first line, do not matter.
        seed: decides what is drawn by lot.

    Raises:
        AssertionError: the dialect breaks a promise; a note names the output.
    """
    for number, output in enumerate(outputs, 1):
        try:
            _check(open_dialect, output, prompt, lines=lines, rng=Random(seed))  # noqa: S311 - repeatable
        except AssertionError as error:
            error.add_note(f"output {number}: {output[:200]!r}")
            raise


def _check(open_dialect: OpenDialect, output: bytes, prompt: Prompt, *, lines: bool, rng: Random) -> None:
    def items_of(*pieces: bytes) -> list[Item]:
        dialect = open_dialect()
        dialect.begin(prompt)
        items = [item for piece in pieces for item in dialect.feed(piece)]
        return _merged([*items, *dialect.end()])

    whole = items_of(output)
    for place in range(1, len(output)):
        _expect(
            items_of(output[:place], output[place:]) == whole, f"the items differ if the bytes are split at {place}"
        )
    singly = items_of(*(output[n : n + 1] for n in range(len(output))))
    _expect(singly == whole, "the items differ if each byte comes alone")
    _check_items(whole)
    if lines:
        _expect(
            items_of(output.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")) == whole,
            "the items differ if lines end in CR LF",
        )
        behind = [item for item in items_of(_GARBAGE + output) if not isinstance(item, Notice | Unparsed)]
        plain = [item for item in whole if not isinstance(item, Notice | Unparsed)]
        _expect(behind == plain, "the items differ behind lines of another form")
    for place in range(0, len(output), max(1, len(output) // 200)):
        _converse(open_dialect, [output[:place]], prompt, rng)
    for _ in range(20):
        parts = output.splitlines(keepends=True)
        rng.shuffle(parts)
        noise = bytes(rng.randrange(256) for _ in range(50))
        _converse(open_dialect, [*parts[: len(parts) // 2], noise, *parts], prompt, rng)


def _check_items(items: Iterable[Item]) -> None:
    calls, ended, done = set[str](), set[str](), 0
    for item in items:
        match item:
            case Asked() | Seen():
                calls.add(item.call_id)
            case CallEnded(call_id=call_id):
                _expect(call_id in calls, f"the call {call_id} ends, and was neither asked about nor seen")
                _expect(call_id not in ended, f"the call {call_id} ends twice")
                ended.add(call_id)
            case PromptDone():
                done += 1
                _expect(done == 1, "the prompt is done twice")
            case _:
                pass


def _converse(open_dialect: OpenDialect, pieces: Iterable[bytes], prompt: Prompt, rng: Random) -> None:
    """Hold a conversation in which each question is answered by lot, now, later or twice."""
    dialect = open_dialect()
    dialect.begin(prompt)
    _expect(dialect.answer("no such question", Granted()) == b"", "a question that was never asked is answered")
    items, waiting = list[Item](), dict[str, Item]()
    for piece in pieces:
        news = dialect.feed(piece)
        items += news
        _note(news, waiting)
        for ask_id in [one for one in waiting if rng.random() < 0.5]:
            _answer(dialect, ask_id, waiting.pop(ask_id), rng)
        if rng.random() < 0.05:
            dialect.interrupt()
            waiting.clear()  # some protocols demand that their questions end with it
    news = dialect.end()
    items += news
    _note(news, waiting)
    for ask_id, item in waiting.items():
        _answer(dialect, ask_id, item, rng)
    _check_items(items)
    verdict = dialect.ended(rng.choice(_EXITS))
    _expect((verdict.outcome == "failed") == bool(verdict.code), f"the verdict contradicts itself: {verdict}")


def _note(items: Iterable[Item], waiting: dict[str, Item]) -> None:
    for item in items:
        match item:
            case Asked(ask_id=ask_id) | Question(ask_id=ask_id):
                waiting[ask_id] = item
            case Withdrawn(ask_id=ask_id):
                waiting.pop(ask_id, None)
            case SendBytes(data=data):
                _expect(data.endswith(b"\n"), f"bytes that are no whole lines are to be sent: {data[:100]!r}")
            case _:
                pass


def _answer(dialect: Dialect, ask_id: str, item: Item, rng: Random) -> None:
    grant = Granted(arguments={"edited": True}) if isinstance(item, Asked) and item.editable else Granted()
    answers = (Granted(), grant, Declined(text="no"), Declined(), Supplied(value={}), Supplied(value={"x": ["y"]}))
    data = dialect.answer(ask_id, rng.choice(answers))
    _expect(data.endswith(b"\n"), f"the question {ask_id} is open and gets no answer")
    _expect(dialect.answer(ask_id, Granted()) == b"", f"the question {ask_id} is answered twice")


def _expect(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)


def _merged(items: Iterable[Item]) -> list[Item]:
    """Return items with the pieces of one text joined: a dialect may cut them where the bytes are cut."""
    joined = list[Item]()
    for item in items:
        if isinstance(item, SaidText) and joined and isinstance(joined[-1], SaidText):
            joined[-1] = SaidText(text=joined[-1].text + item.text)
        else:
            joined.append(item)
    return joined
