"""Docstrings and documents name their subject: words that replace one, or personify code, are rare.

Each of WORDS is counted in the docstrings of the three packages and in README.md and docs/*.md without their
code blocks, and compared with its limit per 10,000 words. A word over its limit is reported with each place.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytestmark = pytest.mark.no_cover

PACKAGES = ("actors", "supervision", "transport")
WORDS = ("nobody", "somebody", "whoever", "told", "can not be", "stands", "goes on", "heard")
LIMITS: dict[str, dict[str, float]] = {
    "docstrings": dict.fromkeys(WORDS, 1.0),
    "documents": dict.fromkeys(WORDS, 1.0),
}
"""Kind of text -> word -> how often the word may occur per 10,000 words."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Passage:
    """A text and its place: the file, and the line at which the text begins."""

    file: str
    line: int
    text: str


def docstrings(file: str, source: str) -> Iterator[Passage]:
    """The docstrings of a module: of the module, its classes and functions, and of its attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            values = [child.value for child in node.body if isinstance(child, ast.Expr)]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield Passage(file, value.lineno, value.value)


def prose(file: str, text: str) -> Passage:
    """A document without its code blocks; lines keep their numbers."""
    return Passage(file, 1, FENCE.sub(lambda block: "\n" * block[0].count("\n"), text))


def places(word: str, passages: list[Passage]) -> list[str]:
    """The places of a word, as file:line. Case does not matter, and the space in a phrase may be a line break."""
    pattern = re.compile(rf"\b{re.escape(word)}\b".replace(r"\ ", r"\s+"), re.IGNORECASE)
    return [
        f"{passage.file}:{passage.line + passage.text.count(chr(10), 0, found.start())}"
        for passage in passages
        for found in pattern.finditer(passage.text)
    ]


def excess(word: str, limit: float, passages: list[Passage]) -> list[str]:
    """The places of a word that occurs more often than `limit` per 10,000 words; none if it does not."""
    found = places(word, passages)
    words = sum(len(passage.text.split()) for passage in passages)
    return found if len(found) * 10_000 > limit * words else []


@pytest.fixture(scope="module")
def texts(root: Path) -> dict[str, list[Passage]]:
    modules = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return {
        "docstrings": [
            passage
            for path in modules
            for passage in docstrings(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
        ],
        "documents": [prose(str(path.relative_to(root)), path.read_text(encoding="utf-8")) for path in pages],
    }


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("word", WORDS)
def test_words_that_replace_a_subject_are_rare(texts: dict[str, list[Passage]], kind: str, word: str) -> None:
    found = excess(word, LIMITS[kind][word], texts[kind])
    assert not found, (
        f"{word!r} {len(found)} times in {kind}, more than {LIMITS[kind][word]} per 10,000 words:\n" + "\n".join(found)
    )


def test_there_is_prose_to_count(texts: dict[str, list[Passage]]) -> None:
    """A search in the wrong place would find no word, and pass."""
    for passages in texts.values():
        assert sum(len(passage.text.split()) for passage in passages) > 20_000


def test_a_word_is_found_in_each_kind_of_docstring() -> None:
    source = '"""Told."""\nclass A:\n    """Told."""\n    b: int\n    """Is\n    told."""\n    def c(self): "Told."\n'
    assert sorted(places("told", list(docstrings("a.py", source)))) == ["a.py:1", "a.py:3", "a.py:6", "a.py:7"]


def test_strings_that_document_nothing_are_not_counted() -> None:
    assert not places("told", list(docstrings("a.py", 'x = "told"\nprint("told")\n# told\n')))


def test_a_phrase_may_break_across_lines_and_words_are_whole() -> None:
    assert places("can not be", [prose("a.md", "it can\nnot be\nuntold")]) == ["a.md:1"]
    assert not places("told", [prose("a.md", "untold")])


def test_code_blocks_do_not_count_and_keep_their_lines() -> None:
    assert places("told", [prose("a.md", "told\n```python\ntold\n```\ntold")]) == ["a.md:1", "a.md:5"]


def test_a_word_over_its_limit_is_reported_with_each_place() -> None:
    many = [prose("a.md", "word " * 9_998 + "\ntold\ntold")]
    assert excess("told", 1.0, many) == ["a.md:2", "a.md:3"]
    assert not excess("told", 2.0, many)
