"""The program of `make demo-work`, as a process behind our dialect and behind raw lines."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.actors.backends.dialect import AskAnswer, Declined, Granted, ProgramExit, ProgramVerdict, Prompt
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.items import Asked, CallEnded, FileRead, Item, MessageDone, Plan, PromptDone, SendBytes
from greenroom.actors.backends.process import ProgramCommand, environment, open_program
from greenroom.actors.permission.subject import subject_of
from greenroom.transport.demo import acp_program

COMMAND = (sys.executable, "-I", acp_program.__file__)
PATIENCE = 30.0
TOTAL = "| README.md | 3 |\n| a.py | 2 |\n| total | 5 |\n"

Answers = Callable[[Asked], AskAnswer | None]
"""Answers a question of the program; None interrupts the program instead."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project."""
    tree = tmp_path / "project"
    tree.mkdir()
    (tree / "README.md").write_text("# A project\n\nIt does things.\n")
    (tree / "a.py").write_text("a = 1\nb = 2\n")
    (tree / "picture.png").write_bytes(b"\x89PNG\0")
    return tree


def all_granted(_: Asked) -> AskAnswer:
    return Granted()


def only(effect: str) -> Answers:
    """Grant the calls of one effect."""
    return lambda asked: Granted() if asked.effect == effect else Declined()


async def played(
    folder: Path, text: str = "Do it.", answers: Answers = all_granted, *options: str
) -> tuple[list[Item], ProgramVerdict]:
    """Let the program work for one prompt; returns what our dialect understands of its work, and the verdict."""
    dialect = ACPDialect((*COMMAND, *options))
    launch = dialect.begin(Prompt(text=text, folder=str(folder)))
    items: list[Item] = []
    command = ProgramCommand(argv=launch.argv, folder=folder, environment=environment())
    with trio.fail_after(PATIENCE):
        async with open_program(command) as program:
            await program.send(launch.data)
            while data := await program.receive():
                for item in dialect.feed(data):
                    items.append(item)
                    if isinstance(item, SendBytes):
                        await program.send(item.data)
                    elif isinstance(item, Asked):
                        answer = answers(item)
                        await program.send(
                            dialect.interrupt() if answer is None else dialect.answer(item.ask_id, answer)
                        )
                    elif isinstance(item, PromptDone):
                        await program.close_input()
            ended = await program.wait()
    items += dialect.end()
    assert ended.errors == ""
    return items, dialect.ended(ProgramExit(status=ended.code, stderr=ended.errors))


def asked(items: list[Item]) -> list[Asked]:
    return [item for item in items if isinstance(item, Asked)]


# --- the work --------------------------------------------------------------------------------------------------------


async def test_the_program_asks_for_a_command_and_writes_a_page(tree):
    items, verdict = await played(tree)
    command, page = asked(items)
    assert list(command.arguments) == ["title", "toolCallId", "kind", "rawInput"]
    run = subject_of(command.tool, command.effect, command.arguments).command
    assert run is not None
    assert (command.effect, run.argv, run.compound) == ("shell", ("wc", "-l", "--", "README.md", "a.py"), False)
    (difference,) = page.arguments["content"]
    assert (page.effect, difference["path"], difference["oldText"]) == ("write", str(tree / "LINES.md"), None)
    assert (tree / "LINES.md").read_text() == difference["newText"]
    assert difference["newText"] == f"# A project\n\n| file | lines |\n|---|--:|\n{TOTAL}"
    assert verdict == ProgramVerdict(outcome="completed", text=verdict.text)
    assert verdict.text.strip() == "LINES.md says how long the files of this folder are."
    assert sorted(path.name for path in tree.iterdir()) == ["LINES.md", "README.md", "a.py", "picture.png"]


async def test_the_program_says_what_it_reads_plans_and_does(tree):
    items, _ = await played(tree)
    assert [item.path for item in items if isinstance(item, FileRead)] == [str(tree / "README.md")]
    assert [item.entries[1][1] for item in items if isinstance(item, Plan)] == ["pending", "in_progress", "completed"]
    assert [item.failed for item in items if isinstance(item, CallEnded)] == [False, False, False]
    said = [item.text.strip() for item in items if isinstance(item, MessageDone)]
    assert said[:2] == ["First I read what the folder says of itself.", "Then I count its lines."]


async def test_a_refused_command_leaves_the_numbers_out(tree):
    items, verdict = await played(tree, answers=only("write"))
    assert [item.failed for item in items if isinstance(item, CallEnded)] == [False, True, False]
    page = (tree / "LINES.md").read_text()
    assert page == "# A project\n\nNot counted: the command was refused.\n\n- README.md\n- a.py\n"
    assert verdict.outcome == "completed"


async def test_a_refused_page_is_not_written(tree):
    _, verdict = await played(tree, answers=only("shell"))
    assert not (tree / "LINES.md").exists()
    assert verdict.text.strip() == "Nothing was written: LINES.md was refused."


async def test_the_prompt_names_the_page_and_a_page_that_is_there_is_replaced(tree):
    (tree / "SIZES.md").write_text("<<<<<<< ours\n")
    items, _ = await played(tree, "The workspace has moved: resolve the markers in README.md and SIZES.md, no x/Y.md.")
    (difference,) = asked(items)[1].arguments["content"]
    assert (difference["path"], difference["oldText"]) == (str(tree / "SIZES.md"), "<<<<<<< ours\n")
    assert TOTAL in (tree / "SIZES.md").read_text()


async def test_the_page_replaces_a_link_and_never_writes_through_it(tree, tmp_path):
    (tmp_path / "outside").write_text("theirs")
    (tree / "LINES.md").symlink_to(tmp_path / "outside")
    (tree / "bad\nname.py").write_text("x\n")
    await played(tree)
    assert (tmp_path / "outside").read_text() == "theirs"
    assert TOTAL in (tree / "LINES.md").read_text()


async def test_an_empty_folder_has_an_empty_page_and_no_command(tmp_path):
    items, verdict = await played(tmp_path)
    assert [question.effect for question in asked(items)] == ["write"]
    assert (tmp_path / "LINES.md").read_text().startswith(f"# {tmp_path.name}\n")
    assert verdict.outcome == "completed"


# --- its end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["shell", "write"])
async def test_a_cancel_while_the_program_asks_ends_the_prompt(tree, effect):
    items, verdict = await played(tree, answers=lambda item: None if item.effect == effect else Granted())
    assert verdict.outcome == "cancelled"
    assert asked(items)[-1].effect == effect
    assert not (tree / "LINES.md").exists()


def test_a_cancel_while_the_program_works_ends_the_prompt(tree):
    with client(tree, "--pace", "100") as talk:
        talk.opened()
        talk.send(id=3, method="session/prompt", params=talk.prompt)
        talk.until(lambda message: message.get("method") == "session/update")
        talk.send(method="session/cancel", params={"sessionId": "session-1"})
        (*_, answer) = talk.until(lambda message: message.get("id") == 3)
        assert answer["result"] == {"stopReason": "cancelled"}


class Talk:
    """A client that writes lines of its own."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder = process, folder
        self.prompt = {"sessionId": "session-1", "prompt": [{"type": "text", "text": "Do it."}]}

    def line(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        self.line(json.dumps({"jsonrpc": "2.0", **message}))

    def until(self, condition: Callable[[Any], bool]) -> list[Any]:
        """Read messages up to the first one for which a condition holds."""
        messages: list[Any] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            messages.append(json.loads(line))
            if condition(messages[-1]):
                return messages
        raise AssertionError(f"the program has ended: {messages}")

    def asks(self, method: str, **params: Any) -> Any:
        """Send a request and return the answer."""
        self.send(id=method, method=method, params=params)
        return self.until(lambda message: message.get("id") == method)[-1]

    def opened(self) -> None:
        """Open a session."""
        assert self.asks("initialize", protocolVersion=1)["result"]["protocolVersion"] == 1
        assert self.asks("session/new", cwd=str(self.folder), mcpServers=[])["result"] == {"sessionId": "session-1"}


@contextmanager
def client(folder: Path, *options: str) -> Iterator[Talk]:
    """Start the program; it ends by itself when its input does."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, *options], cwd=folder, **pipes) as process:
        try:
            yield Talk(process, folder)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_requests_that_are_wrong_get_errors_and_the_program_goes_on(tree):
    with client(tree) as talk:
        talk.line("{")
        talk.line("[]")
        assert [message["error"]["code"] for message in talk.until(lambda message: "'[]'" in str(message))] == [
            -32700
        ] * 2
        assert talk.asks("session/prompt", sessionId="s")["error"]["message"] == "there is no session s"
        assert talk.asks("session/new", cwd="here")["error"]["code"] == -32602
        assert talk.asks("fs/read_text_file", path="x")["error"]["code"] == -32601
        talk.opened()
        talk.send(id=3, method="session/prompt", params=talk.prompt)
        talk.until(lambda message: message.get("method") == "session/request_permission")
        assert talk.asks("session/prompt", **talk.prompt)["error"]["code"] == -32600


def test_the_program_ends_with_its_input_while_it_asks(tree):
    with client(tree) as talk:
        talk.opened()
        talk.send(id=3, method="session/prompt", params=talk.prompt)
        talk.until(lambda message: message.get("method") == "session/request_permission")
    assert not (tree / "LINES.md").exists()
