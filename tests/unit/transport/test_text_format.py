"""Values as words: nothing invisible, nothing too long, units that people read."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.transport.terminal import text_format


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    """Whatever a model or a file name holds, it cannot move the cursor, hide a word or turn the reading direction."""
    shown = text_format.clean(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)
    shown.encode("utf-8")


@given(st.text(), st.integers(1, 80))
def test_one_line_is_one_line_of_that_width(text: str, width: int) -> None:
    shown = text_format.one_line(text, width)
    assert text_format.columns(shown) <= width
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("  one two", 6, ["  one", "two"]),
        ("a/path/that/is/long b", 8, ["a/path/that/is/long", "b"]),
        ("退款申请已经收到", 8, ["退款申请", "已经收到"]),
        ("他说“好”。再见", 7, ["他说", "“好”。", "再见"]),
        ("退款 order-7 已完成", 9, ["退款", "order-7", "已完成"]),
        ("", 5, [""]),
    ],
)
def test_lines_end_where_a_reader_expects_it(text: str, width: int, lines: list[str]) -> None:
    begins = [0, *text_format.breaks(text, width), len(text)]
    assert [text[begin:end].rstrip() for begin, end in pairwise(begins)] == lines


@given(st.text(), st.integers(1, 40))
def test_a_line_is_too_wide_only_for_one_word(text: str, width: int) -> None:
    begins = [0, *text_format.breaks(text, width), len(text)]
    lines = [text[begin:end] for begin, end in pairwise(begins)]
    assert "".join(lines) == text
    assert begins == sorted(set(begins)) or text == ""
    assert all(text_format.columns(line.rstrip()) <= width or len(line.split()) <= 1 for line in lines)


@pytest.mark.no_cover
@pytest.mark.parametrize("worst", [" ", "a", "退", "“", "（", "，", "a ", "\u3000", "e\u0301"])  # noqa: RUF001
def test_breaking_a_line_costs_its_length(worst: str) -> None:
    """A quadratic reader of this length would take minutes of the processor, whatever else a machine does."""
    text = worst * (200_000 // len(worst))
    started = time.thread_time()
    text_format.breaks(text, 48)
    text_format.cut(text, 48)
    assert time.thread_time() - started < 10


@pytest.mark.parametrize(
    ("text", "columns"),
    [("plain", 5), ("退款", 4), ("e\u0301", 1), ("🧪", 2), ("über", 4), ("（）", 4)],  # noqa: RUF001
)
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    assert text_format.columns(text) == columns
    assert text_format.columns(text_format.padded(text, 9)) == 9
    assert text_format.columns(text_format.cut(text * 9, columns * 5)) <= columns * 5


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
    assert text_format.clean(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 ms"), (0.0214, "21 ms"), (1.44, "1.4 s"), (125, "2 min 5 s"), (11_400, "3 h 10 min"), (200_000, "2 days")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert text_format.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (2_100, "2.1 kB"), (3_400_000, "3.4 MB")]
)
def test_sizes(count: int, shown: str) -> None:
    assert text_format.size(count) == shown


def test_arguments_tell_long_texts_by_their_size() -> None:
    shown = text_format.arguments({"name": "a.md", "content": "x\n" * 1200, "deep": True}, 200)
    assert shown == 'name="a.md" content=1,200 lines, 2.4 kB deep=true'


def test_a_result_is_reported_by_its_summary() -> None:
    assert text_format.result({"lines": {}, "summary": "3 files"}, 40) == "3 files"
    assert text_format.result({"a": [1, 2]}, 40) == '{"a": [1, 2]}'
    assert text_format.result(None, 40) == ""


def test_images_and_files_of_a_result_are_lines():
    image = {"type": "image", "media_type": "image/png", "size": 2_100, "sha256": "00"}
    file = {"type": "file", "media_type": "text/csv", "size": 9, "sha256": "00", "name": "a\nb.csv"}
    at = {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"}
    assert text_format.result(image, 80) == "image/png 2.1 kB"
    assert text_format.result(["a chart", file, at], 200) == (
        '"a chart", text/csv 9 bytes a b.csv, image/png https://example.org/a.png'
    )
    assert text_format.result([image] * 9, 40).endswith("…")
    assert text_format.result({"type": "image", "media_type": 7}, 80) == '{"type": "image", "media_type": 7}'
    assert text_format.attached({"type": "image", "mediaType": "image/png", "size": 1}) == "image/png 1 byte"


def test_tokens_name_those_that_were_cached():
    assert text_format.tokens(gr.Usage(input=1_200, output=20)) == "1,200 tokens in, 20 out"
    assert text_format.tokens(gr.Usage(input=1_200, output=20, cached=1_000)) == (
        "1,200 tokens in (1,000 of them cached), 20 out"
    )
