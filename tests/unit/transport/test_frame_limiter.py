"""The meter of a client's frames: the same verdict however the bytes are cut up, and before anybody keeps them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.raw_ws import BINARY, CLOSE, MORE, PING, PONG, frame

from greenroom.transport import Limits
from greenroom.transport.gateway.frame_limiter import FRAGMENTS, FrameLimiter
from greenroom.transport.protocol.codes import TOO_BIG, TOO_FAST

LIMITS = Limits(message_bytes=1000, messages_per_second=10)


def verdict_of(data, cuts=(), limits=LIMITS, step=0.0):
    """Feed the data in pieces; the verdict, and how many bytes could be read."""
    meter, at, now = FrameLimiter(limits, 0.0), 0, 0.0
    for end in (*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)):
        good = meter.feed(data[at:end], now)
        assert good == end - at or meter.verdict is not None
        if meter.verdict is not None:
            return meter.verdict, at + good
        at, now = end, now + step
    return None, at


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 999, 1000])
@pytest.mark.parametrize("kind", [1, BINARY])
def test_messages_up_to_the_limit_pass(size, kind):
    assert verdict_of(frame(b"x" * size, kind) * 20)[0] is None


@pytest.mark.parametrize("mask", [b"abcd", None])
def test_one_byte_more_is_too_big_as_soon_as_the_header_says_so(mask):
    reported = frame(b"", says=1001, mask=mask)
    assert verdict_of(reported[:3])[0] is None
    assert verdict_of(reported)[0] is TOO_BIG
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


def test_what_comes_before_the_fault_may_be_read(rng: random.Random):
    """Commands that are whole are not lost with the message that is too big."""
    before = frame(b"x" * rng.randrange(1000)) * 3
    found, at = verdict_of(before + frame(b"x" * 2000))
    assert (found, at) == (TOO_BIG, len(before))
    found, at = verdict_of(before + frame(b"x" * 2000), range(5000))
    assert found is TOO_BIG
    assert len(before) <= at <= len(before) + 8, "the header may have been passed on before it was whole"


def test_after_a_verdict_nothing_may_be_read():
    meter = FrameLimiter(LIMITS, 0.0)
    meter.feed(frame(b"x" * 2000), 0.0)
    assert meter.feed(frame(b"x"), 1e6) == 0
