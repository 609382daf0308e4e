"""Evidence files: what is written is read, every damage of a file is a sentence, every change of a log has its kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.evidence.account import RunEvidence
from greenroom.actors.evidence.file import (
    EvidenceFileError,
    EvidenceWriter,
    LogDifference,
    LogEvidence,
    compare,
    digest,
    read,
)

FRAMES = [b'{"sequence":%d}' % number for number in range(1, 7)]


def made(frames: list[bytes] = FRAMES, *, run_id: str = "r", child: list[bytes] | None = None) -> list[bytes]:
    """The lines of a file."""
    writer = EvidenceWriter()
    lines = [writer.head(RunEvidence(run_id=run_id), "2031-05-01T12:00:00.000Z")]
    lines += writer.log(run_id, frames, terminal=True)
    lines += [] if child is None else writer.log("child", child, terminal=False)
    return [*lines, writer.end()]


def kept(frames: list[bytes], *, terminal: bool = True) -> LogEvidence:
    return LogEvidence(run_id="r", digests=tuple(map(digest, frames)), terminal=terminal)


def test_a_file_has_the_digests_of_its_logs():
    own, child = read(made(child=FRAMES[:2]), "r")
    assert own == kept(FRAMES)
    assert (child.run_id, child.digests, child.terminal) == ("child", tuple(map(digest, FRAMES[:2])), False)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [], "no evidence file, or is cut"),
        (lambda lines: [b"hello\n"], "no evidence file, or is cut"),
        (lambda lines: [b"[]\n", *lines[1:]], "no evidence file, or is cut"),
        (lambda lines: lines[:-1], "the file is cut: it has no last line"),
        (lambda lines: lines[:4], "the file is cut: it has no last line"),
        (lambda lines: [*lines, b"{}\n"], "its SHA-256 is not that of its lines"),
        (lambda lines: [*lines[:3], lines[3].replace(b"2", b"9"), *lines[4:]], "its SHA-256 is not"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], "with the release that made it"),
        (lambda lines: made(run_id="other"), "of run 'other', not of r"),
        (lambda lines: [lines[0], b'{"type":"log","runId":"r","events":"6"}\n'], "neither an event nor begins a log"),
        (lambda lines: [lines[0], b"[" * 100_000 + b"\n"], "no evidence file, or is cut"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_it_was_made_is_refused(change, sentence):
    with pytest.raises(EvidenceFileError, match=sentence):
        read(change(made()), "r")


def test_the_first_change_of_a_log_is_named():
    a, b, c, d, *rest = FRAMES
    for now, sequence, kind in [
        ([a, b, c + b" ", d, *rest], 3, "changed"),
        ([a, c, d, *rest], 2, "dropped"),
        ([a, d, *rest], 2, "dropped"),
        ([a, c, b, d, *rest], 2, "moved"),
        ([a, b, b"x", c, d, *rest], 3, "added"),
        ([a, b, b, c, d, *rest], 3, "added"),
        (FRAMES[:-1], 6, "dropped"),
        ([], 1, "dropped"),
        ([*FRAMES, b"x"], 7, "added"),
    ]:
        assert compare(kept(FRAMES), [*map(digest, now)]) == LogDifference(run_id="r", sequence=sequence, kind=kind)


def test_a_run_that_went_on_has_a_longer_log():
    assert compare(kept(FRAMES[:3], terminal=False), [*map(digest, FRAMES)]) is None
    assert compare(kept(FRAMES), [*map(digest, FRAMES)]) is None


@given(st.lists(st.integers(0, 99), unique=True, min_size=1), st.data())
def test_one_change_at_any_place_is_found_there(numbers, data):
    frames = [b"%d" % number for number in numbers]
    place = data.draw(st.integers(0, len(frames) - 1))
    dropped = [*frames[:place], *frames[place + 1 :]]
    changed = [*frames[:place], b"changed", *frames[place + 1 :]]
    added = [*frames[:place], b"added", *frames[place:]]
    for now, kind in ((dropped, "dropped"), (changed, "changed"), (added, "added")):
        difference = compare(kept(frames), [*map(digest, now)])
        assert difference is not None
        assert (difference.sequence, difference.kind) == (place + 1, kind)
