"""The meter of a client's frames: the same verdict however the bytes are cut up, and before anybody keeps them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.raw_ws import BINARY, CLOSE, MORE, PING, PONG, frame

from greenroom.transport import Limits
from greenroom.transport.gateway.meter import FRAGMENTS, FrameMeter
from greenroom.transport.protocol.codes import TOO_BIG, TOO_FAST

LIMITS = Limits(message_bytes=1000, messages_per_second=10)


def verdict_of(data, cuts=(), limits=LIMITS, step=0.0):
    """Feed the data in pieces; the first verdict, and how many bytes had been fed by then."""
    meter, at, now = FrameMeter(limits, 0.0), 0, 0.0
    for end in (*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)):
        found = meter.feed(data[at:end], now)
        at, now = end, now + step
        if found is not None:
            return found, at
    return None, at


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 999, 1000])
@pytest.mark.parametrize("kind", [1, BINARY])
def test_messages_up_to_the_limit_pass(size, kind):
    assert verdict_of(frame(b"x" * size, kind) * 20)[0] is None


@pytest.mark.parametrize("mask", [b"abcd", None])
def test_one_byte_more_is_too_big_as_soon_as_the_header_says_so(mask):
    told = frame(b"", says=1001, mask=mask)
    assert verdict_of(told[:3])[0] is None
    assert verdict_of(told)[0] is TOO_BIG
    assert verdict_of(frame(b"", says=2**62))[0] is TOO_BIG


def test_bytes_count_and_not_characters():
    assert verdict_of(frame("é" * 500))[0] is None
    assert verdict_of(frame("é" * 501))[0] is TOO_BIG


def test_the_fragments_of_a_message_are_added_up_and_those_of_the_next_begin_afresh():
    half = frame(b"x" * 500, fin=False) + frame(b"x" * 500, MORE)
    assert verdict_of(half * 10)[0] is None
    assert verdict_of(half + frame(b"x" * 500, fin=False) + frame(b"x" * 501, MORE))[0] is TOO_BIG


def test_a_control_frame_between_two_fragments_is_none_of_them():
    data = frame(b"x" * 500, fin=False) + frame(b"y" * 125, PING) + frame(b"x" * 500, MORE)
    assert verdict_of(data)[0] is None


def test_empty_fragments_without_end_are_too_many():
    """They have no characters, so that no limit on those ever finds them."""
    data = frame(b"", fin=False) + frame(b"", MORE, fin=False) * (FRAGMENTS - 1)
    assert verdict_of(data)[0] is None
    assert verdict_of(data + frame(b"", MORE, fin=False))[0] is TOO_BIG


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
def test_control_frames_have_a_rate_of_their_own(opcode):
    burst = frame(b"", opcode)
    assert verdict_of(burst * 20)[0] is None
    assert verdict_of(burst * 21)[0] is TOO_FAST


def test_control_frames_at_the_sustained_rate_pass_for_ever():
    one = frame(b"x", PING)
    assert verdict_of(one * 500, range(0, 500 * len(one), len(one)), step=0.1)[0] is None
    assert verdict_of(one * 500, range(0, 500 * len(one), len(one)), step=0.09)[0] is TOO_FAST


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([1, BINARY, MORE, PING]), st.sampled_from([0, 1, 125, 126, 400, 700, 1001]), st.booleans()
    ),
    max_size=12,
)


@given(FRAMES, st.lists(st.integers(0, 4000), max_size=30))
def test_the_verdict_does_not_depend_on_how_the_bytes_are_cut_up(frames, cuts):
    data = b"".join(frame(b"x" * (min(size, 125) if kind == PING else size), kind, fin=fin or kind == PING)
                    for kind, size, fin in frames)  # fmt: skip
    assert verdict_of(data, cuts)[0] is verdict_of(data)[0]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_what_is_no_frame_at_all_is_followed_without_failing(data, cuts):
    verdict_of(data, cuts)


def test_byte_by_byte_a_verdict_comes_with_the_last_byte_of_the_header(rng: random.Random):
    before = frame(b"x" * rng.randrange(1000))
    data = before + frame(b"x" * 2000)
    found, at = verdict_of(data, range(len(data)))
    assert found is TOO_BIG
    assert at == len(before) + 8
