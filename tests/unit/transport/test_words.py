"""Values as words: nothing invisible, nothing too long, units that people read."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.transport.terminal import words


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    """Whatever a model or a file name holds, it can not move the cursor, hide a word or turn the reading direction."""
    shown = words.clean(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)
    shown.encode("utf-8")


@given(st.text(), st.integers(1, 80))
def test_one_line_is_one_line_of_that_width(text: str, width: int) -> None:
    shown = words.one_line(text, width)
    assert len(shown) <= width
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("windows\r\nline", "windows\nline"),
        ("old\rmac", "old\\rmac"),
        ("\x1b[2J", "\\x1b[2J"),
        ("exe\u202etxt.py", "exe\\u202etxt.py"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\ud800", "\\ud800"),
        ("über 漢字 ✓", "über 漢字 ✓"),
    ],
)
def test_the_invisible_is_spelled_out(text: str, shown: str) -> None:
    assert words.clean(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 ms"), (0.0214, "21 ms"), (1.44, "1.4 s"), (125, "2 min 5 s"), (11_400, "3 h 10 min"), (200_000, "2 days")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (2_100, "2.1 kB"), (3_400_000, "3.4 MB")]
)
def test_sizes(count: int, shown: str) -> None:
    assert words.size(count) == shown


def test_arguments_tell_long_texts_by_their_size() -> None:
    shown = words.arguments({"name": "a.md", "content": "x\n" * 1200, "deep": True}, 200)
    assert shown == 'name="a.md" content=1,200 lines, 2.4 kB deep=true'


def test_a_result_is_told_by_its_summary() -> None:
    assert words.result({"lines": {}, "summary": "3 files"}, 40) == "3 files"
    assert words.result({"a": [1, 2]}, 40) == '{"a": [1, 2]}'
    assert words.result(None, 40) == ""
