"""What has to hold before a program works: each lack is named, with the way out, before the first step."""

import stat
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.backends.probes import Releases, version_in

OK = "echo '2.1.331 (Claude Code)'"


class Bin:
    """A folder with programs that are shell scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.calls = folder / "calls"

    def put(self, name: str, version: str = OK, **answers: str) -> str:
        cases = "".join(f"  {word}) {script};;\n" for word, script in answers.items())
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "$*" >> {self.calls}\ncase "$1" in\n--version) {version};;\n{cases}esac\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    @property
    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def programs(tmp_path: Path) -> Bin:
    return Bin(tmp_path)


async def prepared(backend: Any, workspace: object = None) -> gr.Preparation:
    info: Any = None
    result = await backend.prepare(gr.PreparationContext(deps=None, info=info, workspace=workspace))
    assert isinstance(result, gr.Preparation)
    return result


async def refusal(backend: Any) -> tuple[str, str, str]:
    with pytest.raises(gr.PreparationError) as caught:
        await prepared(backend)
    return caught.value.code, caught.value.reason, str(caught.value)


async def test_a_program_that_can_work_says_its_version(programs, tmp_path):
    claude = programs.put("claude", auth="""echo '{"loggedIn": true}'""")
    result = await prepared(gr.backends.Claude(command=claude, folder=tmp_path))
    assert result.facts == {"claude": {"program": "claude", "version": "2.1.331"}}
    assert result.doubts == {}


async def test_a_version_that_was_not_tried_is_a_doubt_and_one_that_is_too_old_a_refusal(programs, tmp_path):
    newer = gr.backends.Claude(command=programs.put("newer", "echo 3.0.0"), folder=tmp_path)
    assert "3.0.0: this release was tried with 2.1.330 to" in (await prepared(newer)).doubts["untested_version"]
    older = gr.backends.Claude(command=programs.put("older", "echo 1.9.9"), folder=tmp_path)
    code, reason, text = await refusal(older)
    assert (code, reason) == ("runtime_unavailable", "incompatible")
    assert "1.9.9 is too old; install 2.0 or newer" in text


async def test_a_program_without_a_version_is_a_doubt(programs, tmp_path):
    backend = gr.backends.Claude(command=programs.put("claude", "echo hello"), folder=tmp_path)
    assert "does not say its version" in (await prepared(backend)).doubts["untested_version"]


async def test_the_version_is_asked_for_once_until_the_file_changes(programs, tmp_path):
    path = programs.put("claude")
    backend = gr.backends.Claude(command=path, folder=tmp_path)
    await prepared(backend)
    await prepared(backend)
    assert programs.asked.count("--version") == 1
    programs.put("claude", f"{OK}; true")
    await prepared(backend)
    assert programs.asked.count("--version") == 2


async def test_a_program_that_is_not_there_is_named_with_the_way_out(tmp_path):
    code, reason, text = await refusal(gr.backends.Claude(command="no-such-claude", folder=tmp_path))
    assert (code, reason) == ("runtime_unavailable", "missing")
    assert "no program 'no-such-claude' in PATH; install it, or name its path with command=" in text


async def test_a_program_that_does_not_work_says_how_it_ended(programs, tmp_path):
    backend = gr.backends.Claude(command=programs.put("claude", "echo 'no libc' >&2; exit 3"), folder=tmp_path)
    code, reason, text = await refusal(backend)
    assert (code, reason, "exit 3: no libc" in text) == ("runtime_unavailable", "broken", True)


async def test_claude_that_is_not_logged_in_is_refused(programs, tmp_path):
    backend = gr.backends.Claude(
        command=programs.put("claude", auth="""echo '{"loggedIn": false}'; exit 1"""), folder=tmp_path
    )
    code, reason, text = await refusal(backend)
    assert (code, reason, "claude auth login" in text) == ("runtime_unavailable", "not_logged_in", True)


@pytest.mark.parametrize("answer", ["echo hello", "exit 2", "echo '[]'", """echo '{"loggedIn": "?"}'"""])
async def test_an_answer_that_does_not_say_whether_claude_is_logged_in_is_no_refusal(programs, tmp_path, answer):
    await prepared(gr.backends.Claude(command=programs.put("claude", auth=answer), folder=tmp_path))


class TestCodex:
    """`codex login status` knows accounts only."""

    NOT = "echo 'Not logged in' >&2; exit 1"

    def codex(self, programs: Bin, tmp_path: Path, **options: Any) -> gr.backends.Codex:
        env = {"HOME": str(tmp_path), **options.pop("env", {})}
        command = programs.put("codex", "echo codex-cli 0.169.0", login=self.NOT)
        return gr.backends.Codex(command=command, folder=tmp_path, env=env, **options)

    async def test_it_is_refused_without_a_login(self, programs, tmp_path):
        code, reason, text = await refusal(self.codex(programs, tmp_path))
        assert (code, reason, "codex login" in text) == ("runtime_unavailable", "not_logged_in", True)

    async def test_a_key_in_its_environment_is_enough(self, programs, tmp_path):
        await prepared(self.codex(programs, tmp_path, env={"CODEX_API_KEY": "none-1234567"}))

    async def test_another_provider_is_enough(self, programs, tmp_path):
        await prepared(self.codex(programs, tmp_path, args=["-c", "model_provider=local"]))
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text('model_provider = "local"\n')
        await prepared(self.codex(programs, tmp_path))


async def test_a_run_without_a_folder_is_refused(programs, tmp_path):
    path = programs.put("claude")
    for folder in (None, tmp_path / "nowhere"):
        code, _, text = await refusal(gr.backends.Claude(command=path, folder=folder))
        assert (code, text.partition(";")[0]) == (
            "workspace_outside_allowlist",
            "claude: there is no folder to work in",
        )


async def test_a_program_that_asks_nothing_degrades_its_runs(tmp_path):
    doubts = (await prepared(gr.backends.Plain(["sh"], unattended=True, folder=tmp_path))).doubts
    assert set(doubts) == {"not_asked", "little_evidence"}


async def test_a_run_whose_program_is_missing_fails_before_its_first_step(tmp_path):
    backend = gr.backends.Claude(command="no-such-claude", folder=tmp_path)
    async with gr.open_runtime(agents=[gr.backends.agent("coder", backend)]) as runtime:
        run = await runtime.start("coder", "Do it.")
        outcome = await run.result()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "runtime_unavailable"
    assert outcome.message.startswith("missing: claude: there is no program")


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.1.332 (Claude Code)", (2, 1, 332)), ("codex-cli 0.169.0", (0, 169, 0)), ("v1.2", (1, 2)), ("one", None)],
)
def test_a_version_is_the_first_in_a_text(text, version):
    assert version_in(text) == version


def test_a_version_of_two_numbers_lies_below_its_patches():
    releases = Releases(least=(2, 1), tried=((2, 1, 0), (2, 1, 9)))
    assert releases.doubt("p", (2, 1, 5)) is None
    assert releases.doubt("p", (2, 2)) is not None
