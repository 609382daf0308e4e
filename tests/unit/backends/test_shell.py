"""The tool `shell`: where commands run, what comes back, how they end."""

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.workspaces import Shop

import greenroom as gr
from greenroom.actors.backends import shell as shell_module
from greenroom.actors.backends.shell import SHOWN, STREAMED, ShellOutput, shell_tool
from greenroom.actors.errors import ToolError
from greenroom.actors.workspaces.worktree import Worktree

pytestmark = pytest.mark.slow

SHELL: Any = shell_tool()


@pytest.fixture
async def worktree(tmp_path: Path) -> Worktree:
    shop = Shop(tmp_path, repository=False)
    shop.write("src/a.txt", "one\n")
    return await shop.worktree()


async def run(worktree: Worktree, command: str | list[str], **arguments: Any) -> str:
    return str(await SHELL(gr.ToolContext(workspace=worktree), command, **arguments))


async def test_a_command_runs_in_a_folder_of_the_worktree(worktree: Worktree) -> None:
    assert await run(worktree, "pwd") == f"exit code 0\n{worktree.path}"
    assert await run(worktree, ["cat", "a.txt"], folder="src") == "exit code 0\none"
    assert await run(worktree, "echo no >&2; exit 3") == "exit code 3\nno"
    assert await run(worktree, ["no-such-program"]) != "exit code 0"
    assert (await run(worktree, ["no-such-program"])).startswith("exit code 127\n")
    assert await run(worktree, "kill -9 $$") == "ended by signal 9"
    assert await run(worktree, "cat") == "exit code 0"


async def test_words_are_no_text_for_a_shell(worktree: Worktree) -> None:
    assert await run(worktree, ["printf", "%s|", "a b", "$HOME", "; true"]) == "exit code 0\na b|$HOME|; true|"


@pytest.mark.parametrize("folder", ["..", "/etc", "nothing", "src/a.txt", ".git"])
async def test_a_folder_outside_gets_the_text_of_a_missing_one(worktree: Worktree, folder: str) -> None:
    with pytest.raises(ToolError, match="workspace_outside_allowlist"):
        await run(worktree, "pwd", folder=folder)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("  ", "is empty"),
        ([], "is empty"),
        (["", "x"], "is empty"),
        ("a\0b", "a NUL"),
        (["\udc80"], "a lone surrogate"),
    ],
)
async def test_a_command_that_no_program_can_get_is_refused(
    worktree: Worktree, command: str | list[str], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        await run(worktree, command)


async def test_a_command_that_the_system_cannot_start_is_a_failure_of_the_call(worktree: Worktree) -> None:
    with pytest.raises(ToolError, match="the program was not started"):
        await run(worktree, ["echo", "x" * 3_000_000])


async def test_the_environment_has_nothing_of_ours(worktree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "canary")
    assert "canary" not in await run(worktree, "env")


async def test_a_command_that_takes_too_long_is_stopped_with_its_descendants(
    worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "LIMIT", 0.5)
    started = trio.current_time()
    assert await run(worktree, "echo begun; sleep 60 & sleep 60") == "stopped after 0.5 seconds\nbegun"
    assert trio.current_time() - started < 30


async def test_output_is_streamed_in_its_order(worktree: Worktree) -> None:
    pieces = list[str]()

    async def hear(text: str) -> None:
        pieces.append(text)

    ctx = gr.ToolContext(workspace=worktree, report_output=hear)
    await SHELL(
        ctx, "for n in 1 2 3; do echo $n; sleep 0.05; done; echo e >&2; printf 'h\\303'; sleep 0.05; printf '\\251'"
    )
    assert "".join(pieces) == "1\n2\n3\ne\nhé"
    assert len(pieces) > 1


def test_of_a_long_output_head_and_tail_are_shown_and_followers_see_a_bounded_part() -> None:
    output, streamed = ShellOutput(), 0
    for number in range(3_000):
        streamed += len(output.add(f"{number:04} {'x' * 1_000}\n".encode()))
    shown = output.shown()
    assert shown.startswith("0000 x")
    assert shown.endswith("x\n")
    assert "2999 x" in shown
    assert "bytes are left out]" in shown
    assert len(shown) < SHOWN + 100
    assert STREAMED < streamed < STREAMED + 100
    assert ShellOutput().shown() == ""


async def test_withheld_files_that_a_command_has_made_are_removed_before_the_next_one_and_named(
    worktree: Worktree,
) -> None:
    await run(worktree, "mkdir .claude && echo '{}' > .claude/settings.json && echo k > .env")
    said = await run(worktree, "ls -A . .claude")
    assert said.startswith("[removed, no run may have such files: .claude/settings.json, .env]\nexit code 0\n")
    assert said.endswith("\n.:\n.claude\n.git\nsrc\n\n.claude:")
