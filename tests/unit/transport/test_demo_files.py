"""The census looks into its folder and nowhere else, and writes nothing but its report."""

import os
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.contract.messages import CallRequest
from greenroom.transport.demo.census import census
from greenroom.transport.demo.demo_model import task, thinking, tool_outcomes
from greenroom.transport.demo.files import LARGEST, MARK, Folder, language_of
from greenroom.transport.demo.report import summary
from greenroom.transport.demo.tools import count_lines, list_directory, read_file
from greenroom.transport.demo.writing import check_name, former_report, write_report


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a neighbour of nearly the same name, and links that lead there."""
    (tmp_path / "in").mkdir()
    (tmp_path / "inside-out").mkdir()
    (tmp_path / "inside-out" / "secret.txt").write_text("secret\n")
    (tmp_path / "in" / "a.py").write_text("1\n2\n")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "inside-out")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "inside-out" / "secret.txt")
    (tmp_path / "in" / "dangling").symlink_to(tmp_path / "nowhere")
    return Folder(tmp_path / "in")


def never(_: int, __: str) -> None: ...


@pytest.mark.parametrize(
    "path",
    ["..", "../inside-out", "../inside-out/secret.txt", "/etc/passwd", "link", "link/secret.txt", "link.txt", "\0"],
)
def test_no_path_leads_out(folder: Folder, path: str) -> None:
    for look in (folder.listing, folder.read, lambda p: folder.count(p, deep=True, heed=never)):
        with pytest.raises(gr.ToolError):
            look(path)


@given(st.lists(st.sampled_from(["..", ".", "in", "inside-out", "link", "a.py", ""]), max_size=6))
def test_whatever_is_joined_is_inside_or_refused(parts: list[str]) -> None:
    here = Folder(Path(__file__).parent)
    try:
        found = here.inside("/".join(parts))
    except gr.ToolError:
        return
    assert found.is_relative_to(here.root)


def test_links_are_skipped_and_counted_as_skipped(folder: Folder) -> None:
    found = folder.listing(".")
    assert (found.folders, found.files, found.skipped) == ((), ("a.py",), 3)
    assert folder.count(".", deep=True, heed=never).lines == {"Python": 2}


@pytest.mark.parametrize(
    ("lines", "files", "said"),
    [
        (1, 1, "1 text file with 1 line; most of it is Python (100%)."),
        (2_000, 3, "3 text files with 2,000 lines; most of it is Python (100%)."),
    ],
)
def test_the_census_counts_in_words_that_fit(lines: int, files: int, said: str) -> None:
    assert summary([{"lines": {"Python": lines}, "files": {"Python": files}}]) == said


def test_pipes_binaries_and_large_files_block_no_run(folder: Folder) -> None:
    os.mkfifo(folder.root / "pipe")
    (folder.root / "b.bin").write_bytes(b"\0" * 10)
    with (folder.root / "large.txt").open("wb") as file:
        file.truncate(LARGEST + 1)
    found = folder.count(".", deep=True, heed=never)
    assert (found.lines, found.binary) == ({"Python": 2}, 2)
    with pytest.raises(gr.ToolError, match="binary"):
        folder.read("b.bin")
    for name in ("pipe", "."):
        with pytest.raises(gr.ToolError, match="cannot be read"):
            folder.read(name)


def test_languages_are_known_by_name() -> None:
    names = ["a.py", "A.PYI", "Makefile", "x.rs", "LICENSE", "dir.py/notes"]
    assert [language_of(name) for name in names] == ["Python", "Python", "Make", "Rust", "other text", "other text"]


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", ".md", ".hidden.md", "a.txt", "../a.md", "/a.md", "a/b.md", "a\\b.md", "a\n.md", "x" * 100 + ".md"]
)
def test_a_report_has_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(gr.ToolError, match="cannot be the report's name"):
        check_name(name)
    with pytest.raises(gr.ToolError):
        write_report(tmp_path, name, MARK)
    assert list(tmp_path.iterdir()) == []


def test_only_a_former_report_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "R.md"
    write_report(tmp_path, "R.md", f"{MARK}\none\n")
    assert former_report(path) == f"{MARK}\none\n"
    write_report(tmp_path, "R.md", f"{MARK}\ntwo\n")
    assert path.read_text() == f"{MARK}\ntwo\n"
    path.write_text("mine")
    with pytest.raises(gr.ToolError, match="left alone"):
        write_report(tmp_path, "R.md", f"{MARK}\nthree\n")
    assert path.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["R.md"]


@pytest.mark.parametrize("kind", ["folder", "link to a report", "dangling link"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "R.md", tmp_path / "other.md"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
        if kind == "link to a report":
            other.write_text(f"{MARK}\nfar\n")
    with pytest.raises(gr.ToolError, match="left alone"):
        write_report(tmp_path, "R.md", f"{MARK}\nnew\n")
    assert not other.exists() or other.read_text() == f"{MARK}\nfar\n"


def test_a_folder_that_cannot_be_written_is_a_tool_error() -> None:
    with pytest.raises(gr.ToolError, match="cannot be written"):
        write_report(Path("/proc"), "R.md", MARK)


# --- the mind --------------------------------------------------------------------------------------------------------


def said(tool: str, arguments: dict[str, object], content: str) -> tuple[gr.Message, gr.Message]:
    """A call and what the model read about it."""
    wanted = CallRequest(call_id=f"{tool}{arguments}", tool=tool, arguments=arguments)
    asked = gr.Message(id="m", role="assistant", content="", calls=(wanted,))
    return asked, gr.Message(id="t", role="tool", content=content, call_id=wanted.call_id)


def request(*messages: gr.Message) -> gr.ModelRequest:
    first = gr.Message(id="u", role="user", content=task("here", "R.md"))
    return gr.ModelRequest(agent="census", messages=(first, *messages))


def test_it_says_what_it_is_for() -> None:
    other = gr.ModelRequest(agent="census", messages=(gr.Message(id="u", role="user", content="sing"),))
    assert "I only take a census" in str(thinking(0.0)(other))


def test_a_folder_that_cannot_be_listed_ends_it_politely() -> None:
    step = thinking(0.0)(request(*said("list_directory", {"path": "."}, "'.' cannot be listed: Permission denied")))
    assert "cannot look into the folder: '.' cannot be listed" in str(step)


def test_a_call_that_fails_is_a_line_of_the_report() -> None:
    listing = '{"path": ".", "folders": [], "files": ["README"], "skipped": 0}'
    history = [
        *said("list_directory", {"path": "."}, listing),
        *said("read_file", {"path": "README"}, "'README' cannot be read"),
        *said("count_lines", {"path": ".", "deep": False}, "The tool 'count_lines' timed out after 120 s."),
    ]
    step = thinking(0.0)(request(*history))
    assert "'README' cannot be read" in str(step)
    assert "timed out" in str(step)
    assert len(tool_outcomes(request(*history))) == 3


def test_a_folder_with_very_many_folders_is_counted_as_a_whole() -> None:
    names = ", ".join(f'"d{number}"' for number in range(100))
    listing = f'{{"path": ".", "folders": [{names}], "files": [], "skipped": 0}}'
    step = thinking(0.0)(request(*said("list_directory", {"path": "."}, listing)))
    assert str(step).count("count_lines") == 1


async def test_the_agent_runs_embedded_and_takes_no_for_an_answer(folder: Folder) -> None:
    """Without a terminal: a run in memory, denied by its embedder."""
    async with gr.open_runtime(agents=[census()], deps=folder) as runtime:
        run = await runtime.start("census", task("in", "R.md"))
        outcome = await run.wait()
        assert isinstance(outcome, gr.Waiting)
        (ticket,) = outcome.tickets
        assert ticket.tool == "write_report"
        assert (await run.decide(ticket.deny("no paper"))).ok
        with trio.fail_after(120):
            end = await run.result()
    assert isinstance(end, gr.Completed)
    assert end.output.endswith("No report was written: The reviewer denied this call: no paper")
    assert not (folder.root / "R.md").exists()


def test_tools_are_functions(folder: Folder) -> None:
    """And are tested as such; what they report goes nowhere then."""
    ctx: gr.SyncToolContext[Folder] = gr.SyncToolContext(deps=folder)
    assert list_directory(ctx, ".")["summary"] == "0 folders, 1 file, 3 skipped"
    assert count_lines(ctx, ".")["lines"] == {"Python": 2}
    assert read_file(ctx, "a.py")["text"] == "1\n2\n"
