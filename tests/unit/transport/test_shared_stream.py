"""`SharedStream`: several write on one connection, in turn, each whole; nothing behind a torn frame or the last one."""

import pytest
import trio
from tests.support.raw_ws import closing, frame
from trio.testing import lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from greenroom.transport import Limits
from greenroom.transport.gateway.shared_stream import PeerStalled, SharedStream
from greenroom.transport.protocol.codes import TOO_BIG
from greenroom.transport.protocol.framing import PING, close_frame, text_frame

LIMITS = Limits(message_bytes=100)


def pair(make=memory_stream_pair, stall=30.0):
    ours, theirs = make()
    return SharedStream(ours, b"", stall_seconds=stall), theirs


async def everything(stream):
    data = b""
    while more := await stream.receive_some(1000):
        data += more
    return data


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_writers_take_turns_and_who_comes_back_waits_for_those_who_were_before():
    stream, theirs = pair(lockstep_stream_pair)

    async def write(letter):
        for _ in range(3):
            await stream.send_all(letter)

    async with trio.open_nursery() as nursery:
        for letter in (b"a", b"b", b"c"):
            nursery.start_soon(write, letter)
            await wait_all_tasks_blocked()
        data = b""
        while len(data) < 9:
            data += await theirs.receive_some(1)
        assert data == b"abcabcabc"


async def test_a_cancelled_waiter_writes_nothing_and_tears_nothing():
    stream, theirs = pair(lockstep_stream_pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"a")
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(stream.send_all, b"c")
            scope.cancel()
            await stream.send_all(b"b")
        assert scope.cancelled_caught
        assert not stream.torn
        await wait_all_tasks_blocked()
        assert await theirs.receive_some(1) + await theirs.receive_some(1) == b"ac"


async def test_a_write_that_is_cut_short_is_the_last_one_and_all_who_wait_learn_that(autojump_clock):
    stream, theirs = pair(lockstep_stream_pair)
    received = []

    async def wait():
        await trio.sleep(1)
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"later")
        received.append(True)

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(2) as scope:
            for _ in range(3):
                nursery.start_soon(wait)
            nursery.start_soon(theirs.receive_some, 2)
            await stream.send_all(b"half")
        assert scope.cancelled_caught
        assert stream.torn
        assert not stream.finished
        await trio.sleep(1)
        assert received == [True] * 3
        for write in (stream.send_all, stream.send_last):
            with pytest.raises(trio.BrokenResourceError):
                await write(b"more")
        assert stream.try_send(b"more") == "no"


# --- the last word ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["a close frame", "last", "finish"])
async def test_nothing_follows_the_last_word(how):
    stream, theirs = pair()
    await stream.send_all(text_frame(b"{}"))
    if how == "finish":
        await stream.finish()
    else:
        await (stream.send_all if how == "a close frame" else stream.send_last)(close_frame(1000, "done"))
    assert stream.torn
    assert stream.finished
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(text_frame(b"{}"))
    await stream.finish()
    expected = text_frame(b"{}") + (b"" if how == "finish" else close_frame(1000, "done"))
    assert await everything(theirs) == expected


async def test_ending_the_exchange_of_frames_does_not_close_the_connection():
    stream, theirs = pair()
    stream.begin_frames(b"GET", b"", LIMITS)
    assert await stream.receive_some() == b"GET"
    stream.accepted()
    await stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some()
    await stream.send_last(b"last")
    assert await theirs.receive_some(10) == b"last"
    await theirs.send_all(b"late")
    assert await stream.discard_some(10) == 4


async def test_before_frames_are_exchanged_closing_is_closing():
    stream, theirs = pair()
    await stream.aclose()
    assert await theirs.receive_some(10) == b""


# --- reading ---------------------------------------------------------------------------------------------------------


async def test_frames_wait_until_the_handshake_is_answered_and_early_ones_come_first():
    stream, theirs = pair()
    stream.begin_frames(b"GET", frame("early"), LIMITS)
    assert await stream.receive_some() == b"GET"
    await theirs.send_all(frame("late"))
    with trio.move_on_after(0.01) as limit:
        await stream.receive_some()
    assert limit.cancelled_caught
    stream.accepted()
    assert await stream.receive_some() == frame("early")
    assert await stream.receive_some() == frame("late")


async def test_what_is_before_a_frame_that_is_too_big_is_read():
    stream, theirs = pair()
    stream.begin_frames(b"GET", b"", LIMITS)
    await stream.receive_some()
    stream.accepted()
    await theirs.send_all(frame("good") + frame("x" * 101) + closing())
    assert await stream.receive_some() == frame("good")
    assert stream.verdict is TOO_BIG
    for _ in range(2):
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some()


async def test_the_end_is_read_as_the_end():
    stream, theirs = pair()
    stream.begin_frames(b"GET", b"", LIMITS)
    await stream.receive_some()
    stream.accepted()
    await theirs.aclose()
    assert await stream.receive_some() == b""
    assert stream.verdict is None


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_peer_that_takes_nothing_is_given_up_and_that_is_known(autojump_clock):
    stream, theirs = pair(lockstep_stream_pair, stall=5.0)
    started_at = trio.current_time()
    with pytest.raises(PeerStalled):
        await stream.send_all(b"x" * 100)
    assert trio.current_time() - started_at == 5.0
    assert stream.stalled
    assert stream.torn
    assert not stream.finished
    await theirs.aclose()


async def test_pings_are_no_sign_of_life_for_a_page(autojump_clock):
    stream, _ = pair()
    started_at = trio.current_time()
    await trio.sleep(1)
    await stream.send_all(PING)
    assert (stream.shown_at, stream.sent) == (started_at, started_at + 1)
    await stream.send_all(text_frame(b"{}"))
    assert stream.shown_at == started_at + 1


# --- sockets ---------------------------------------------------------------------------------------------------------


async def test_what_did_not_fit_is_written_before_anything_else():
    left, right = trio.socket.socketpair()
    stream, theirs = SharedStream(trio.SocketStream(left), b"", stall_seconds=60), trio.SocketStream(right)
    big = text_frame(b"x" * 4_000_000)
    assert stream.try_send(big) == "partly"
    assert stream.pending
    assert stream.try_send(text_frame(b"{}")) == "no"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_last, close_frame(1000, ""))
        data = bytearray()
        while len(data) < len(big) + 4:
            data += await theirs.receive_some(1_000_000)
    assert data == big + close_frame(1000, "")
    assert stream.taken > 0
    await stream.aclose()
    await theirs.aclose()


async def test_a_socket_that_is_gone_tears_the_stream_without_an_error():
    left, right = trio.socket.socketpair()
    stream = SharedStream(trio.SocketStream(left), b"", stall_seconds=60)
    right.close()
    assert [stream.try_send(b"x"), stream.try_send(b"x")] == ["no", "no"]
    assert stream.torn
    await stream.aclose()
    assert stream.try_send(b"x") == "no"
