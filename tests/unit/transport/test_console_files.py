"""The console's files: nothing in them lets foreign text become a program, and nothing is missing or left over."""

import re
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

from greenroom.actors.contract.catalogue import CATALOGUE

FOLDER = Path(str(files("greenroom.transport.console") / "index.html")).parent
VENDORED = {"markdown-it-15.0.3.min.js": "d5432491790141da046b1197353705db03264f40b5727f3b4b591f5aba193e30"}
"""Files of others, as they were published -> their SHA-256. Beside each lies its licence."""
SCRIPTS = sorted(path for path in FOLDER.glob("*.js") if path.name not in VENDORED)
TABLES = ("words.js", "inboxwords.js")
"""The files with the words."""
KEY = re.compile(r"""["'`]([a-z]+(?:\.[a-z_0-9]+)+)["'`]""")
"""A key of the words: lower-case words with dots between them, quoted."""
MADE = re.compile(r"`([a-z.]+\.)\$\{")
"""The beginning of a key that is put together."""


def words() -> list[str]:
    """The keys of the English words."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in TABLES]
    english = "\n".join(text[text.index("const en = {") : text.index("const zh = {")] for text in texts)
    return re.findall(r'^  "?([a-z_.0-9]+)"?:', english, re.MULTILINE)


def sources() -> str:
    """Everything that says words."""
    return "\n".join(
        one.read_text(encoding="utf-8") for one in (*SCRIPTS, FOLDER / "index.html") if one.name not in TABLES
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_text_never_becomes_html_style_or_code(script: Path):
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|createContextualFragment|\beval\(|"
        r"new Function|javascript:|setAttribute\(.(?:style|on\w+).|console\.\w+\("
    )
    lines = script.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if forbidden.search(line)] == []


def test_the_page_holds_no_inline_script_style_or_handler():
    """The policy that it is served with would refuse them."""
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=|<form[^>]*\baction=|<base", page) == []


@pytest.mark.parametrize("name", VENDORED)
def test_a_file_of_others_is_as_it_was_published_and_has_its_licence(name: str):
    assert sha256((FOLDER / name).read_bytes()).hexdigest() == VENDORED[name]
    licence = (FOLDER / name.replace(".min.js", ".LICENSE.txt")).read_text(encoding="utf-8")
    package, _, version = name.removesuffix(".min.js").rpartition("-")
    assert f"npm package {package}, version {version}," in licence
    assert licence.count("Permission is hereby granted") >= 4


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda one: one.name)
def test_nothing_is_fetched_from_elsewhere(file: Path):
    if file.name not in VENDORED and file.suffix in (".html", ".js", ".css", ".svg"):
        addresses = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", file.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}


def test_every_file_that_is_named_is_there_and_every_file_is_named():
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:src|href)="console/([^"]+)"', page))
    named |= {
        name for script in SCRIPTS for name in re.findall(r' from "\./([^"]+)"', script.read_text(encoding="utf-8"))
    }
    there = {path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".svg")}
    assert named == there


def test_every_sentence_that_is_said_is_there_and_every_one_is_said():
    known, said = words(), sources()
    assert len(known) == len(set(known)) > 200
    groups = {key.split(".")[0] for key in known}
    used = {
        key for key in KEY.findall(said) if key.split(".")[0] in groups and not key.endswith((".js", ".css", ".svg"))
    }
    used |= {key for key in known if f'"{key}"' in said}
    used -= set(CATALOGUE)
    beginnings = tuple(MADE.findall(said))
    assert used - set(known) == set()
    assert [key for key in known if key not in used and not key.startswith(beginnings)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_a_script_is_small_enough_to_hold_in_the_head(script: Path):
    """As for Python: 400 lines, 120 columns. The words are a table."""
    lines = script.read_text(encoding="utf-8").splitlines()
    assert script.name in TABLES or len(lines) <= 500
    assert script.name in TABLES or [line for line in lines if len(line) > 120] == []
