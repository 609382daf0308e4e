"""Patches in both formats: what they change, and what is refused because a guess would change the wrong lines."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.workspaces.tools.patch import (
    MOST_TEXT,
    FilePatch,
    PatchError,
    apply_hunks,
    find_block,
    new_text,
    parse_patch,
)

TEXT = "".join(f"line {n}\n" for n in range(1, 11))


def patched(text: str, patch: str) -> str:
    (file,) = parse_patch(patch)
    return apply_hunks(file.path, text, file.hunks)


def begin(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_a_patch_of_the_first_format_names_its_files_and_what_happens_to_each() -> None:
    files = parse_patch(
        begin(
            "*** Add File: new.txt",
            "+one",
            "+two",
            "*** Delete File: gone.txt",
            "*** Update File: a.txt",
            "*** Move to: b.txt",
            "@@ line 2",
            " line 3",
            "-line 4",
            "+four",
            "*** End of File",
        )
    )
    assert [(file.kind, file.path, file.target) for file in files] == [
        ("add", "new.txt", None),
        ("delete", "gone.txt", None),
        ("update", "a.txt", "b.txt"),
    ]
    assert new_text(files[0]) == "one\ntwo\n"
    assert apply_hunks("a.txt", TEXT, files[2].hunks) == TEXT.replace("line 4", "four")


def test_a_unified_difference_names_its_files_and_what_happens_to_each() -> None:
    files = parse_patch(
        "diff --git a/x b/x\nindex 1..2\n--- a/x\t2026\n+++ b/x\n@@ -1,2 +1,2 @@ def f():\n line 1\n-line 2\n+two\n"
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file\n"
        "--- a/g\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n"
    )
    assert [(file.kind, file.path) for file in files] == [("update", "x"), ("add", "n"), ("delete", "g")]
    assert apply_hunks("x", TEXT, files[0].hunks) == TEXT.replace("line 2", "two")
    assert new_text(files[1]) == "new"


def test_a_removed_line_that_looks_like_a_head_is_a_line() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n--- comment\n keep\n"
    assert patched("-- comment\nkeep\n", patch) == "keep\n"


@pytest.mark.parametrize(
    ("hunk", "words"),
    [
        (["-line 3", "+x"], None),
        (["-nothing", "+x"], "fits nowhere; no line is like its first one: read the file again"),
        (["-  line 3", "+x"], "fits nowhere; a line like its first one is at 3"),
    ],
)
def test_a_hunk_that_fits_nowhere_names_its_line_and_what_resembles(hunk: list[str], words: str | None) -> None:
    patch = begin("*** Update File: a.txt", "@@", *hunk)
    if words is None:
        assert patched(TEXT, patch) == TEXT.replace("line 3", "x")
        return
    with pytest.raises(PatchError, match=words) as caught:
        patched(TEXT, patch)
    assert "a.txt: the hunk at line 3 of the patch" in str(caught.value)


def test_a_hunk_that_fits_twice_names_both_places_and_changes_nothing() -> None:
    text = "a\nb\na\nb\n"
    with pytest.raises(PatchError, match="fits at the lines 1, 3; add context"):
        patched(text, begin("*** Update File: x", "@@", "-a", "+c"))
    with pytest.raises(PatchError, match="which begins with 'a', fits at the lines 1, 3"):
        patched(text, begin("*** Update File: x", "@@ a", "-b", "+c"))


def test_a_line_after_the_marks_or_a_line_number_chooses_among_several_places() -> None:
    text = "def f\n  x\ndef g\n  x\n"
    assert patched(text, begin("*** Update File: x", "@@ def g", "-  x", "+  y")) == "def f\n  x\ndef g\n  y\n"
    assert patched(text, "--- a/x\n+++ b/x\n@@ -4 +4 @@\n-  x\n+  y\n") == "def f\n  x\ndef g\n  y\n"


def test_a_later_hunk_is_looked_for_after_the_earlier_one() -> None:
    patch = begin("*** Update File: x", "@@", "-a", "+1", "@@", "-a", "+2")
    with pytest.raises(PatchError, match="fits at the lines 1, 2"):
        patched("a\na\n", patch)
    assert patched("a\nb\na\n", begin("*** Update File: x", "@@", "-a", "-b", "+1", "@@", "-a", "+2")) == "1\n2\n"


def test_lines_without_context_go_to_the_end_or_behind_the_anchor() -> None:
    assert patched("a\nb\n", begin("*** Update File: x", "+c")) == "a\nb\nc\n"
    assert patched("a\nb\n", begin("*** Update File: x", "@@ a", "+c")) == "a\nc\nb\n"
    assert patched("a\nb\n", "--- a/x\n+++ b/x\n@@ -1,0 +2 @@\n+c\n") == "a\nc\nb\n"


def test_line_ends_of_the_file_stay() -> None:
    patch = begin("*** Update File: x", "@@", "-b", "+c", "+d")
    assert patched("a\r\nb\r\n", patch) == "a\r\nc\r\nd\r\n"
    assert patched("a\nb", patch) == "a\nc\nd"


def test_a_newline_at_the_end_comes_and_goes_as_the_difference_says() -> None:
    goes = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n"
    comes = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    stays = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\n\\ No newline at end of file\n"
    assert patched("a\n", goes) == "b"
    assert patched("a", comes) == "b\n"
    with pytest.raises(PatchError, match="ends too early"):
        parse_patch(stays)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "names no file"),
        ("hello", "names no file"),
        (begin(), "names no file"),
        (begin("+a"), "line 2 of the patch: '\\+a' is not expected"),
        (begin("*** Delete File: x", "+a"), "line 3 of the patch"),
        (begin("*** Add File: x", "-a"), "line 3 of the patch"),
        (begin("*** Update File: x", "*a"), "line 3 of the patch"),
        ("--- a/x\nx", "'\\+\\+\\+ PATH' follows"),
        ("--- /dev/null\n+++ /dev/null\n", "both files are /dev/null"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk before the first"),
        ("--- a/x\n+++ b/x\n@@ -1,999999999 +1 @@\n-a\n", "line last of the patch: the hunk of line 3 ends too early"),
        ("x" * (MOST_TEXT + 1), "the limit is 1,048,576"),
    ],
)
def test_what_is_no_patch_is_refused_with_the_line(patch: str, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        parse_patch(patch)


def test_too_many_hunks_for_a_long_file_are_refused() -> None:
    (file,) = parse_patch(begin("*** Update File: x", *["@@", "-a", "+b"] * 300))
    with pytest.raises(PatchError, match="300 hunks for 100,001 lines are too many"):
        apply_hunks("x", "a\n" * 100_000, file.hunks)


@given(
    block=st.lists(st.sampled_from("ab"), min_size=1, max_size=4), lines=st.lists(st.sampled_from("ab"), max_size=20)
)
def test_a_block_is_found_wherever_it_is_and_nowhere_else(block: list[str], lines: list[str]) -> None:
    places = [n for n in range(len(lines)) if lines[n : n + len(block)] == block]
    assert list(find_block(lines, block)) == places
    assert list(find_block(lines, block, 3)) == [n for n in places if n >= 3]


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "++ y\n"]), max_size=12)


@given(old=LINES, new=LINES, context=st.integers(1, 3))
def test_a_difference_of_two_texts_makes_one_into_the_other(old: list[str], new: list[str], context: int) -> None:
    patch = "".join(difflib.unified_diff(old, new, "a/x", "b/x", n=context))
    if old == new:
        return
    assert patched("".join(old), patch) == "".join(new)


@given(st.text(max_size=200))
def test_any_text_is_a_patch_or_refused(text: str) -> None:
    try:
        files = parse_patch("*** Begin Patch\n" + text)
    except PatchError:
        return
    assert all(isinstance(file, FilePatch) for file in files)
