"""`greenroom work` with the demo program: unattended, asked in a terminal, interrupted, killed, resumed, applied."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from greenroom.transport.demo import acp_program

from .cli_kit import Cli, Inside, Terminal, one_line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]

PAGE = "# A project\n\n| file | lines |\n|---|--:|\n| README.md | 3 |\n| a.py | 2 |\n| total | 5 |\n"
RULES = '[[rules]]\nverdict = "allow"\neffect = "shell"\nwhere = { argv = ["wc", "*"] }\n'
GONE = 4.0
"""Seconds after the death of Greenroom in which its program ends, by the watchdog."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a change that is not committed."""
    tree = tmp_path / "project"
    tree.mkdir()
    (tree / "README.md").write_text("# A project\n\nIt does things.\n")
    (tree / "a.py").write_text("a = 1\n")
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first")
    (tree / "a.py").write_text("a = 1\nb = 2\n")
    (tree / "rules.toml").write_text(RULES)
    (tree / ".git/info/exclude").write_text("rules.toml\n")
    return tree


@pytest.fixture
def cli(tree: Path, tmp_path: Path) -> Cli:
    return Cli(tree, tmp_path / "state")


@pytest.fixture
def inside(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(tree, tmp_path / "state", monkeypatch)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def programs() -> list[int]:
    """The processes of the demo program."""
    own = acp_program.__file__.encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if own in (folder / "cmdline").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except OSError:  # it has ended meanwhile
            continue
    return pids


def program_of(state: Path) -> int:
    """The process of the demo program that works in a worktree of this test."""
    (pid,) = [pid for pid in programs() if Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(state)]
    return pid


def ends(pid: int) -> bool:
    """Whether a process ends in time."""
    end = time.monotonic() + GONE
    while pid in programs():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)  # noqa: TID251 - another process ends
    return True


def run_id_of(seen: str) -> str:
    match = re.search(r"run (run_[0-9a-f]+)", seen)
    assert match is not None, seen
    return match[1]


def asks_for_the_command(terminal: Terminal) -> None:
    terminal.sees("May execute run?")
    terminal.sees("wc -l -- README.md a.py")
    terminal.sees("leave it waiting ? ")


def asks_for_the_apply(terminal: Terminal) -> None:
    terminal.sees("May apply_changes run?")
    terminal.sees("diff --git a/LINES.md b/LINES.md")
    terminal.sees("+| total | 5 |")
    terminal.sees("leave it waiting ? ")


# --- the whole way ---------------------------------------------------------------------------------------------------


def test_the_program_works_on_a_copy_and_a_yes_applies_its_file(inside: Inside, tree: Path) -> None:
    before, repository = git(tree, "status", "--porcelain"), contents(tree / ".git")
    done = inside("work", "--with", "demo", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"demo works on a copy of {tree}" in done.stdout
    assert "Applied: LINES.md." in done.stdout
    assert (tree / "LINES.md").read_text() == PAGE
    assert contents(tree / ".git") == repository
    assert git(tree, "status", "--porcelain") == f"{before}?? LINES.md\n"


def test_a_person_is_asked_for_the_command_and_for_the_apply(cli: Cli, tree: Path) -> None:
    with cli.terminal("work", "Count, and write SIZES.md.", "--with", "demo", "--no-serve") as terminal:
        asks_for_the_command(terminal)
        assert not (tree / "SIZES.md").exists()
        terminal.types("y\n")
        terminal.sees("May apply_changes run?")
        terminal.sees("+++ b/SIZES.md")
        terminal.sees("leave it waiting ? ")
        assert not (tree / "SIZES.md").exists()
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert (tree / "SIZES.md").read_text() == PAGE


def test_a_no_with_a_text_goes_back_to_the_program_and_a_no_alone_ends_the_run(cli: Cli, tree: Path) -> None:
    with cli.terminal("work", "--with", "demo", "--no-serve", "--rules", "rules.toml") as terminal:
        asks_for_the_apply(terminal)
        terminal.types("n call it COUNTS.md\n")
        terminal.sees("May apply_changes run?")
        terminal.sees("+++ b/COUNTS.md")
        terminal.sees("leave it waiting ? ")
        terminal.types("n\n")
        terminal.sees("Why not?")
        terminal.types("\n")
        assert terminal.ends() == 4
    assert not (tree / "COUNTS.md").exists()


def test_a_refused_command_leaves_the_numbers_out(cli: Cli, tree: Path) -> None:
    with cli.terminal("work", "--with", "demo", "--no-serve") as terminal:
        asks_for_the_command(terminal)
        terminal.types("n do not count\n")
        terminal.sees("+Not counted: the command was refused.")
        terminal.sees("leave it waiting ? ")
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert "Not counted" in (tree / "LINES.md").read_text()


def test_what_waits_is_shown_and_applied_by_other_commands(inside: Inside, tree: Path) -> None:
    left = inside("work", "--with", "demo", "--rules", "rules.toml", "--no-approve")
    assert left.returncode == 3
    run_id = run_id_of(left.stdout)
    assert re.search(rf"resume with: greenroom work --db \S+demo.db --resume {run_id} --with demo", left.stdout)
    assert "+| total | 5 |" in inside("diff", run_id).stdout
    assert inside("apply", run_id, "--yes").returncode == 0
    assert not (tree / "LINES.md").exists()
    assert inside("work", "--resume", "--with", "demo", "--no-approve").returncode == 0
    assert (tree / "LINES.md").read_text() == PAGE


def test_both_questions_are_answered_from_another_terminal(cli: Cli, inside: Inside, tree: Path) -> None:
    """Through the gateway beside the run, which the lock file of the database names; a console uses the same."""
    with cli.terminal("work", "--with", "demo") as terminal:
        asks_for_the_command(terminal)
        run_id = run_id_of(terminal.seen)
        assert "approved execute" in inside("approve", run_id).stdout
        terminal.sees("It was decided elsewhere.")
        asks_for_the_apply(terminal)
        assert "+| total | 5 |" in inside("diff", run_id).stdout
        assert inside("apply", run_id).returncode == 0
        terminal.sees("It was decided elsewhere.")
        assert terminal.ends() == 0
    assert (tree / "LINES.md").read_text() == PAGE


def test_a_run_in_a_shared_store_waits_and_goes_on(
    inside: Inside, tree: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENROOM_STORE", postgres_url)
    left = inside("work", "--with", "demo", "--rules", "rules.toml", "--no-approve")
    assert left.returncode == 3, left.stdout + left.stderr
    assert "+| total | 5 |" in inside("diff", run_id_of(left.stdout)).stdout
    assert inside("work", "--resume", "--with", "demo", "--yes").returncode == 0
    assert (tree / "LINES.md").read_text() == PAGE


# --- interrupted and killed ------------------------------------------------------------------------------------------


def test_ctrl_c_while_the_program_asks_leaves_a_run_that_goes_on(cli: Cli, tree: Path, tmp_path: Path) -> None:
    with cli.terminal("work", "--with", "demo", "--no-serve") as terminal:
        asks_for_the_command(terminal)
        pid = program_of(tmp_path / "state")
        terminal.types("\x03")
        terminal.sees("resume with: ")
        assert terminal.ends() == 130
    assert ends(pid)
    goes_on_after_the_attempt(cli, tree)


def test_a_process_that_is_killed_while_the_program_asks_leaves_no_program_and_a_run_that_goes_on(
    cli: Cli, tree: Path, tmp_path: Path
) -> None:
    with cli.terminal("work", "--with", "demo", "--no-serve") as terminal:
        asks_for_the_command(terminal)
        pid = program_of(tmp_path / "state")
        terminal.process.kill()
        assert ends(pid)
    goes_on_after_the_attempt(cli, tree)


def goes_on_after_the_attempt(cli: Cli, tree: Path) -> None:
    """Resume a run whose program was cut off."""
    with cli.terminal("work", "--resume", "--with", "demo", "--no-serve") as terminal:
        terminal.sees("Did demo take effect?")
        terminal.sees("leave it waiting ? ")
        terminal.types("r\n")
        asks_for_the_command(terminal)
        terminal.types("y\n")
        asks_for_the_apply(terminal)
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert (tree / "LINES.md").read_text() == PAGE


def test_a_process_that_is_killed_while_a_proposal_waits_asks_again_for_the_same(cli: Cli, tree: Path) -> None:
    with cli.terminal("work", "--with", "demo", "--no-serve", "--rules", "rules.toml") as terminal:
        asks_for_the_apply(terminal)
        terminal.process.kill()
    assert not (tree / "LINES.md").exists()
    with cli.terminal("work", "--resume", "--with", "demo", "--no-serve") as terminal:
        asks_for_the_apply(terminal)
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert (tree / "LINES.md").read_text() == PAGE


# --- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("x", "--with", "cursor"),
            "--with 'cursor' names no program; there are: claude, codex, gemini, opencode, demo",
        ),
        (("x", "--with", "acp:'a"), "No closing quotation; write the command as for a shell"),
        (("x", "--with", "acp:a --yolo"), "never passed"),
        ((" ", "--with", "acp:a"), 'nothing to work on; write greenroom work "TEXT"'),
        (("x", "--with", "demo", "--workspace", "nowhere"), "--workspace nowhere: there is no such folder"),
        (("x", "--with", "demo", "--resume"), "--resume continues a run that has its input; omit TEXT ('x')"),
        (("--with", "demo", "--resume", "--thread", "t"), "omit --thread ('t')"),
        (("x", "--with", "demo", "--rules", "README.md"), "README.md"),
        (("x", "--with", "demo", "--db", "here.db"), "--db here.db is in the folder to work on"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(inside: Inside, words: tuple[str, ...], text: str) -> None:
    done = inside("work", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert text in one_line(done.stderr)


def test_the_first_program_that_is_installed_works_and_without_one_the_way_out_is_said(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert one_line(inside("work", "x").stderr).startswith("none of claude, codex, gemini, opencode is installed;")
    program = tmp_path / "bin/codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert inside("work", "x").stdout.startswith("codex works on a copy of ")


def test_a_program_that_is_missing_is_named_with_the_way_out(inside: Inside) -> None:
    done = inside("work", "x", "--with", "acp:no-such-program-anywhere")
    assert done.returncode == 1
    assert "there is no program 'no-such-program-anywhere' in PATH" in done.stdout


def test_a_run_is_resumed_on_its_own_folder(inside: Inside, tmp_path: Path) -> None:
    left = inside("work", "--with", "demo", "--rules", "rules.toml", "--no-approve", "--json")
    run_id = json.loads(left.stdout.splitlines()[-1])["runId"]
    (tmp_path / "other").mkdir()
    done = inside("work", "--with", "demo", "--resume", run_id, "--workspace", tmp_path / "other")
    assert re.search(r"works on project-[0-9a-f]{8}; name it with --workspace DIR", one_line(done.stderr))
    done = inside("work", "--with", "demo", "--resume", "--workspace", tmp_path / "other")
    assert "no run of 'coder' in" in one_line(done.stderr)
