"""Payloads of hints: what is read, what is dropped, and that no number of them takes more than a bounded place."""

import pytest

from greenroom.actors.stores.postgres._heard import (
    LOUD,
    MOST_AGENTS,
    MOST_BYTES,
    MOST_NUMBERS,
    WEIGHED,
    ArrivedPayloads,
    HeardHints,
    TooLoud,
)

BIGINT = (1 << 63) - 1


def heard(*payloads: str | bytes, nonce: str = "n") -> HeardHints:
    hints = HeardHints()
    hints.nonce = nonce
    for payload in payloads:
        hints.read(payload if isinstance(payload, bytes) else payload.encode())
    return hints


@pytest.mark.parametrize(
    "payload",
    [
        *("", ":", "x", "c", "c:x", "c:1 x", "c:1.5", "c:-1", f"c:{BIGINT + 1}", "c:" + "9" * 7_990, "h:one", "h:1;2"),
        *("m:1", "m:1:", "m:x:1", "m:1:x", f"m:1:{BIGINT + 1}", "m:1:2:3", "w:", "w:x:agent", "w:agent", "s:", "s:1"),
        *("k:1", "cc:1", "DROP TABLE runs", '{"kind":"c"}', "\x7f"),
        *(b"\xff\xfe", b"c:\xff", b"w:0:\xff"),
    ],
)
def test_a_payload_that_cannot_be_read_is_dropped_and_counted(payload: str | bytes) -> None:
    """`c` and `h` without a number are about no run, which is no fault."""
    hints = heard(payload)
    assert (hints.commands, hints.freed, hints.moves, hints.work) == (set(), set(), {}, {})
    assert [hints.joined, hints.tested, hints.all_commands, hints.all_freed] == [False] * 4
    assert hints.dropped + hints.received == 1
    assert hints.dropped == (payload != "c")


def test_hints_are_read() -> None:
    hints = heard("c:1 2", "c:2 3", "h:4", "m:5:6 7:8", "m:5:9", "w:2:an:agent", "p:", "s:n")
    assert (hints.commands, hints.freed) == ({1, 2, 3}, {4})
    assert (hints.moves, hints.work) == ({5: 9, 7: 8}, {"an:agent": 2})
    assert hints.joined
    assert hints.tested
    assert (hints.received, hints.dropped) == (7, 0), "a hint to oneself is no hint of another process"


def test_hints_about_more_runs_than_are_kept_are_one_look_at_all_own_runs() -> None:
    some = [f"c:{' '.join(map(str, range(at, at + 500)))}" for at in range(1, 100_000, 500)]
    hints = heard(*some, *(payload.replace("c", "h") for payload in some))
    assert (hints.commands, hints.all_commands) == (set(), True)
    assert (hints.freed, hints.all_freed) == (set(), True)
    few = heard(*some[: MOST_NUMBERS // 500])
    assert (len(few.commands), few.all_commands) == (MOST_NUMBERS, False)


def test_moves_and_agents_are_kept_up_to_a_number() -> None:
    hints = heard(*(f"m:{number}:1" for number in range(5_000)), *(f"w:0:{number}" for number in range(5_000)))
    assert (len(hints.moves), len(hints.work)) == (MOST_NUMBERS, MOST_AGENTS)


def test_payloads_that_are_not_read_take_a_bounded_place_and_are_missed() -> None:
    arrived = ArrivedPayloads()
    for _ in range(1_000):
        arrived.add(b"x" * 7_999)
    kept = arrived.take()
    assert sum(map(len, kept)) < MOST_BYTES + 8_000
    assert arrived.lost == 1_000 - len(kept)
    assert arrived.weight == 1_000 * (1 + 7_999 // WEIGHED) < LOUD
    assert arrived.take() == []
    arrived.add(b"c:1")
    assert arrived.take() == [b"c:1"]
    hints = heard()
    hints.miss(arrived.lost)
    assert hints.all_commands
    assert hints.all_freed
    assert hints.dropped == arrived.lost


def test_more_payloads_than_processes_send_are_an_error_of_the_connection() -> None:
    arrived = ArrivedPayloads()
    for _ in range(LOUD):
        arrived.add(b"c:1")
    for _ in range(2):
        with pytest.raises(TooLoud):
            arrived.add(b"c:1")
    arrived.weight = 0
    arrived.add(b"c:1")
