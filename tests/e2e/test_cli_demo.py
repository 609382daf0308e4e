"""`greenroom demo` as people use it: unattended, asked, interrupted, killed, resumed."""

import json
import re
import signal
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .cli_kit import PATIENCE, Cli, Inside, Terminal, interrupt, one_line, wait_for

pytestmark = pytest.mark.slow

REPORT = "CENSUS.md"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project with everything that a census meets: code, a binary, a cache, links that lead out."""
    tree = tmp_path / "project"
    (tree / "src" / "deep").mkdir(parents=True)
    (tree / "docs").mkdir()
    (tree / ".git").mkdir()
    (tree / "README.md").write_text("# A project\n\nIt does things.\n")
    (tree / "LICENSE").write_text("MIT License\n\nDo what you like.\n")
    (tree / "src" / "a.py").write_text("a = 1\nb = 2\n")
    (tree / "src" / "deep" / "c.py").write_text("c = 3\nd = 4\ne = 5")  # no newline at the end
    (tree / "src" / "deep" / "picture.png").write_bytes(b"\x89PNG\0\0\0")
    (tree / "docs" / "guide.md").write_text("guide\n" * 7)
    (tree / ".git" / "config").write_text("not counted\n" * 1000)
    (tmp_path / "secret.txt").write_text("outside\n" * 500)
    (tree / "way_out").symlink_to(tmp_path)
    (tree / "docs" / "link.md").symlink_to(tmp_path / "secret.txt")
    return tree


@pytest.fixture
def cli(tree: Path, tmp_path: Path) -> Cli:
    return Cli(tree, tmp_path / "state")


@pytest.fixture
def inside(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(tree, tmp_path / "state", monkeypatch)


def counted(tree: Path) -> dict[str, list[int]]:
    """An independent count: language -> [files, lines]."""
    found: dict[str, list[int]] = {}
    for suffix, language in ((".py", "Python"), (".md", "Markdown"), ("LICENSE", "other text")):
        paths = [path for path in tree.rglob(f"*{suffix}") if path.is_file() and not path.is_symlink()]
        paths = [path for path in paths if path.name != REPORT]
        found[language] = [len(paths), sum(len(path.read_text().splitlines()) for path in paths)]
    return found


def table(report: str, title: str) -> dict[str, list[int]]:
    """A table of the report: name -> numbers."""
    part = report.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d,]+) \|$", part, re.MULTILINE)
    return {name: [int(files), int(lines)] for name, files, lines in rows}


def story(cli: Cli | Inside, run_id: str) -> dict[str, Any]:
    shown = cli("show", run_id, "--json", "--events")
    assert shown.returncode == 0, shown.stderr
    report: dict[str, Any] = json.loads(shown.stdout)
    return report


def assert_whole(report: dict[str, Any]) -> Counter[str]:
    """No hole, no repeat, begun once, ended once; returns how often each type came."""
    events = report["events"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    types = Counter(event["type"] for event in events)
    assert types["run.created"] == types["run.started"] == types["run.completed"] == 1
    return types


def test_unattended_it_writes_a_report_whose_numbers_are_right(cli: Cli, tree: Path) -> None:
    done = cli("demo", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = (tree / REPORT).read_text()
    assert table(report, "Languages") == counted(tree)
    assert table(report, "Folders") == {"(top)": [2, 6], "docs/": [1, 7], "src/": [2, 5]}
    assert "- README.md: A project" in report
    assert "- LICENSE: MIT License" in report
    assert "1 binary" in report
    assert "\x1b" not in done.stdout
    assert f"wrote {REPORT}" in done.stdout


def test_a_second_report_replaces_the_first_and_does_not_count_it(inside: Inside, tree: Path) -> None:
    assert inside("demo", "--yes").returncode == 0
    first = (tree / REPORT).read_text()
    assert inside("demo", "--yes").returncode == 0
    assert (tree / REPORT).read_text() == first


def test_what_is_not_a_report_is_never_replaced(inside: Inside, tree: Path) -> None:
    """The agent is told so, and proposes another name."""
    (tree / REPORT).write_text("mine\n")
    done = inside("demo", "--yes")
    assert done.returncode == 0
    assert (tree / REPORT).read_text() == "mine\n"
    assert (tree / "CENSUS-2.md").read_text().startswith("<!-- written by the greenroom census -->")


def test_with_nobody_to_ask_it_waits_and_says_how_to_go_on(inside: Inside, tree: Path) -> None:
    waiting = inside("demo")
    assert waiting.returncode == 3
    assert not (tree / REPORT).exists()
    command = re.search(r"resume with: greenroom (.+)", waiting.stdout)
    assert command is not None
    done = inside(*command[1].split(), "--yes")
    assert done.returncode == 0, done.stdout
    assert (tree / REPORT).exists()
    types = assert_whole(story(inside, command[1].split()[-1]))
    assert types["run.waiting"] == 1


def test_its_database_is_for_its_user_only(inside: Inside, tmp_path: Path) -> None:
    inside("demo")
    database = tmp_path / "state" / "greenroom" / "demo.db"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


def test_ctrl_c_in_the_middle_and_resume_is_one_run(cli: Cli, inside: Inside, tree: Path) -> None:
    with cli.started("demo", "--json", "--yes", "--pace", "1") as process:
        seen = wait_for(process, "run.step.started", 2)
        code, rest, err = interrupt(process)
    assert (code, err) == (130, "")
    assert rest[-1]["status"] == "interrupted"
    run_id = seen[0]["runId"]
    assert rest[-1]["resume"] == f"greenroom demo --resume {run_id}"
    assert not (tree / REPORT).exists()
    done = inside("demo", "--resume", run_id, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed"
    assert_whole(story(inside, run_id))
    assert table((tree / REPORT).read_text(), "Languages") == counted(tree)


def test_kill_nine_in_the_middle_and_resume_is_one_run(cli: Cli, inside: Inside, tree: Path) -> None:
    """Without a run id the newest unfinished run is resumed, from any folder."""
    with cli.started("demo", "--json", "--yes", "--pace", "1") as process:
        seen = wait_for(process, "run.step.started", 2)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    inside.folder = tree.parent
    done = inside("demo", "--resume", "--yes")
    assert done.returncode == 0, done.stderr
    assert_whole(story(inside, seen[0]["runId"]))
    assert (tree / REPORT).exists()


def test_a_second_interrupt_ends_at_once_and_loses_nothing(cli: Cli, inside: Inside) -> None:
    with cli.started("demo", "--pace", "60") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("census: ")
        process.send_signal(signal.SIGINT)
        while "Stopping in order" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "")
    assert "resume with: greenroom demo --resume run_" in out
    assert inside("demo", "--resume", "--yes").returncode == 0


def test_json_lines_are_the_events_as_they_are_stored(inside: Inside) -> None:
    done = inside("demo", "--json", "--yes")
    *events, outcome = [json.loads(line) for line in done.stdout.splitlines()]
    assert events == story(inside, outcome["runId"])["events"]
    assert (outcome["type"], outcome["status"], outcome["exit"]) == ("outcome", "completed", 0)


# --- in a terminal ---------------------------------------------------------------------------------------------------


def asked(terminal: Terminal) -> str:
    """Wait for the question; returns what was shown with it."""
    terminal.sees("May write_report run?")
    return terminal.sees("leave it waiting ? ")


def test_the_question_shows_exactly_what_would_be_written(cli: Cli, tree: Path) -> None:
    with cli.terminal("demo", "--pace", "0") as terminal:
        shown = asked(terminal)
        assert f"file:{tree / REPORT}(new:" in re.sub(r"\s", "", shown)
        terminal.types("v\n")
        whole = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.sees("leave it waiting ? "))
        terminal.types("y\n")
        terminal.sees("completed")
        assert terminal.ends() == 0
    lines = [line[4:].rstrip() for line in whole.splitlines() if line.startswith("  +")]
    assert lines == (tree / REPORT).read_text().splitlines()


def test_a_former_report_is_shown_as_a_diff(cli: Cli, inside: Inside, tree: Path) -> None:
    assert inside("demo", "--yes").returncode == 0
    (tree / "src" / "new.py").write_text("x\n")
    with cli.terminal("demo", "--pace", "0") as terminal:
        shown = asked(terminal)
        assert "-| Python | 2 | 5 |" in shown
        assert "+| Python | 3 | 6 |" in shown
        terminal.types("y\n")
        assert terminal.ends() == 0


def test_no_with_a_reason_reaches_the_agent(cli: Cli, tree: Path) -> None:
    with cli.terminal("demo", "--pace", "0") as terminal:
        asked(terminal)
        terminal.types("what\n")
        terminal.sees("type one of: y, e, n, v, q")
        terminal.types("n\n")
        terminal.sees("Why not?")
        terminal.types("not today\n")
        terminal.sees("No report was written:")
        assert terminal.ends() == 0
        assert "The reviewer denied this call: not today" in " ".join(terminal.seen.split())
    assert not (tree / REPORT).exists()


@pytest.mark.parametrize(("keys", "code"), [("q\n", 3), ("\x04", 3), ("\x03", 130)])
def test_leaving_the_question_leaves_the_run_waiting(
    cli: Cli, inside: Inside, tree: Path, keys: str, code: int
) -> None:
    """By q, by Ctrl-D, by Ctrl-C; each says how to go on, and the same run does."""
    with cli.terminal("demo", "--pace", "0") as terminal:
        asked(terminal)
        terminal.types(keys)
        terminal.sees("resume with: greenroom demo --resume ")
        assert terminal.ends() == code
        assert "Traceback" not in terminal.seen
        assert terminal.seen.count("\x1b[?25l") == terminal.seen.count("\x1b[?25h")  # the cursor is back
    assert not (tree / REPORT).exists()
    assert inside("demo", "--resume", "--yes").returncode == 0
    assert (tree / REPORT).exists()


def test_what_was_typed_before_the_question_does_not_answer_it(cli: Cli, tree: Path) -> None:
    with cli.terminal("demo", "--pace", "1") as terminal:
        terminal.sees("census")
        terminal.types("y\n")
        asked(terminal)
        terminal.types("q\n")
        assert terminal.ends() == 3
    assert not (tree / REPORT).exists()


# --- wrong usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "nowhere"], "there is no folder nowhere"),
        (["demo", "README.md"], "README.md is not a folder"),
        (["demo", "--report", "../x.md"], "'../x.md' cannot be the report's name"),
        (["demo", "--pace", "99"], "99 is not between 0 and 60"),
        (["demo", "--yes", "--no-approve"], "not allowed with argument"),
        (["demo", ".", "--db", "own.db", "--resume", "x"], "omit DIRECTORY"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(inside: Inside, arguments: list[str], words: str) -> None:
    done = inside(*arguments)
    assert done.returncode == 2
    assert words in one_line(done.stderr)
    assert done.stdout == ""


def test_resume_without_an_unfinished_run_says_so(inside: Inside) -> None:
    inside("demo", "--yes")
    done = inside("demo", "--resume")
    assert done.returncode == 2
    assert "no run of 'census'" in one_line(done.stderr)


def test_resume_of_a_run_that_is_done_tells_its_outcome(inside: Inside) -> None:
    first = json.loads(inside("demo", "--yes", "--json").stdout.splitlines()[-1])
    for run_id in (first["runId"], first["runId"][:-3]):
        done = inside("demo", "--resume", run_id)
        assert done.returncode == 0
        assert first["output"] in done.stdout


def test_resume_says_when_the_folder_is_gone(inside: Inside, tree: Path) -> None:
    inside("demo")
    inside.folder = tree.parent
    tree.rename(tree.with_name("moved"))
    done = inside("demo", "--resume")
    assert done.returncode == 2
    assert f"there is no folder {tree}" in one_line(done.stderr)
