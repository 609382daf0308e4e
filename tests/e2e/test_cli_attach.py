"""`greenroom run --attach FILE`: images and files of the input, and files that cannot be one."""

from pathlib import Path

import pytest

from .cli_kit import Inside, one_line

pytestmark = pytest.mark.slow

VIEWER = """
import greenroom as gr
from greenroom.testing import FunctionModel, call

@gr.tool
def look() -> object:
    return gr.Image(b"GIF89a!")

def answer(request):
    if request.messages[-1].role == "user":
        return call("look")
    return " and ".join(f"{part.line()}: {len(part.data)}" for m in request.messages for part in m.parts)

agent = gr.Agent("viewer", tools=[look], model=FunctionModel(answer))
"""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "viewer.py").write_text(VIEWER)
    (folder / "chart").write_bytes(PNG)
    (folder / "sales.csv").write_bytes(b"May,7\n")
    (folder / "strange").write_bytes(b"\x00\x01")
    (folder / "empty.txt").write_bytes(b"")
    with (folder / "large.png").open("wb") as file:
        file.truncate(8 * 1024 * 1024 + 1)
    return folder


@pytest.fixture
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(folder, tmp_path / "state", monkeypatch)


@pytest.mark.rule("AT-22")
def test_files_are_attached_and_shown_as_lines(inside: Inside) -> None:
    done = inside("run", "viewer.py", "what is it?", "--attach", "chart", "--attach", "sales.csv")
    assert done.returncode == 0, done.stderr
    assert "what is it? [image/png 28 bytes] [text/csv 6 bytes sales.csv]" in done.stdout
    assert "look -> image/gif 7 bytes" in done.stdout or "image/gif 7 bytes" in done.stdout
    said = "image image/png, 28 bytes: 28 and file text/csv, 6 bytes, sales.csv: 6 and image image/gif, 7 bytes: 7"
    assert said in " ".join(done.stdout.split())


@pytest.mark.rule("AT-22")
def test_show_has_a_line_for_each_part(inside: Inside) -> None:
    attach = ("--attach", "chart", "--attach", "sales.csv", "--db", "s.db", "--run-id", "r")
    assert inside("run", "viewer.py", "what is it?", *attach).returncode == 0
    shown = inside("show", "r", "--db", "s.db").stdout
    assert "asked: what is it?\nwith:  image/png 28 bytes\nwith:  text/csv 6 bytes sales.csv\n" in shown


@pytest.mark.rule("AT-22")
def test_a_file_alone_is_an_input(inside: Inside) -> None:
    done = inside("run", "viewer.py", "--attach", "chart")
    assert done.returncode == 0, done.stderr
    assert "viewer: [image/png 28 bytes]" in done.stdout


@pytest.mark.rule("AT-22")
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("nothing.png", "--attach nothing.png: No such file or directory"),
        (".", "--attach .: "),
        ("strange", "the file 'strange': its bytes show no media type"),
        ("empty.txt", "there are no bytes"),
        ("large.png", "more than 8,388,608 bytes"),
        ("/dev/zero", "more than 8,388,608 bytes"),
    ],
)
def test_a_file_that_cannot_be_attached_is_named(inside: Inside, file: str, said: str) -> None:
    failed = inside("run", "viewer.py", "hi", "--attach", file)
    assert failed.returncode == 2
    assert said in one_line(failed.stderr)


@pytest.mark.rule("AT-22")
def test_a_resumed_run_has_its_input(inside: Inside) -> None:
    failed = inside("run", "viewer.py", "--db", "s.db", "--resume", "r", "--attach", "chart")
    assert (failed.returncode, "omit --attach" in one_line(failed.stderr)) == (2, True)
