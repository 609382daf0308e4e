"""The pytest plugin, in sessions of projects that are not ours: each in a process of its own."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.no_cover, pytest.mark.slow]


def session(folder: Path, *arguments: str, tests: str = "", **environment: str) -> str:
    """Run pytest in a folder with this file of tests; return what it prints."""
    (folder / "test_it.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "pytest_greenroom", "-p", "no:cacheprovider", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=plain | environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_entry_point_names_a_plugin(root: Path):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name,) = project["entry-points"]["pytest11"].values()
    assert name in project["entry-points"]["pytest11"]  # so that -p and the entry point are one plugin
    assert importlib.import_module(name).greenroom_clock


@pytest.mark.rule("TK-12")
def test_the_fixtures_work_together(tmp_path: Path):
    printed = session(
        tmp_path,
        "-q",
        tests="""
import pytest, trio
import greenroom as gr
from greenroom.testing import AutoModel, ScriptedModel, delay

agent = gr.Agent("a", model=ScriptedModel([[delay(50), "done"]]))

@pytest.mark.trio
async def test_a_day(greenroom_clock, greenroom_runtime, greenroom_offline):
    run, began = await greenroom_runtime.start(agent, "Go."), greenroom_runtime.clock.now()
    assert (await run.result()).output == "done"
    await trio.sleep(86_400)
    assert (greenroom_runtime.clock.now() - began).days == 1

@pytest.mark.trio
@pytest.mark.greenroom_runtime(agents=[agent], max_running=1)
async def test_options(greenroom_clock, greenroom_runtime):
    assert set(greenroom_runtime.agents) == {"a"}
    await greenroom_runtime.start("a", "Go.")  # and the test ends before the run does
""",
    )
    assert "2 passed" in printed, printed


@pytest.mark.rule("TK-12")
def test_options_that_are_no_options_are_an_error(tmp_path: Path):
    printed = session(
        tmp_path,
        "-q",
        tests="""
import pytest

@pytest.mark.trio
@pytest.mark.greenroom_runtime([])
async def test_a(greenroom_runtime): ...

@pytest.mark.trio
@pytest.mark.greenroom_runtime(agent=[])
async def test_b(greenroom_runtime): ...
""",
    )
    assert "takes options of open_runtime, not ([],)" in printed, printed
    assert "open_runtime() has no option 'agent'" in printed or "agents" in printed, printed
    assert "2 passed" not in printed


@pytest.mark.rule("TK-13")
def test_a_test_that_asks_for_another_machine_fails_even_if_it_hides_the_error(tmp_path: Path):
    printed = session(
        tmp_path,
        "-q",
        tests="""
import contextlib, socket
import pytest
import greenroom as gr
from greenroom.models import OpenAIChat
from greenroom.testing import OfflineError

def test_hidden(greenroom_offline):
    with contextlib.suppress(Exception):
        socket.create_connection(("192.0.2.1", 80))

@pytest.mark.trio
async def test_provider(greenroom_offline):
    outcome = await gr.run(gr.Agent("a", model=OpenAIChat("x", api_key="sk-0")), "Hi.")
    assert outcome.code == "model_bug"

def test_expected(greenroom_offline):
    with pytest.raises(OfflineError):
        socket.create_connection(("192.0.2.1", 80))
    greenroom_offline.attempts.clear()
""",
    )
    assert "3 passed, 2 errors" in printed, printed
    assert "connect to 192.0.2.1:80" in printed
    assert "the address of 'api.openai.com'" in printed


@pytest.mark.rule("TK-14")
def test_the_fault_server_is_a_fixture_and_refuses_virtual_time(tmp_path: Path):
    printed = session(
        tmp_path,
        "-q",
        tests="""
import pytest
import greenroom as gr
from greenroom.models import Anthropic
from greenroom.testing import reply

@pytest.mark.trio
async def test_real(greenroom_faults):
    greenroom_faults.replies += [reply(status=529), reply("Hello.")]
    model = Anthropic("m", base_url=greenroom_faults.base_url("anthropic"), api_key="none")
    outcome = await gr.run(gr.Agent("a", model=model, plugins=[gr.Retry(first=0.0)]), "Hi.")
    assert outcome.output == "Hello."
    assert len(greenroom_faults.requests) == 2

@pytest.mark.trio
async def test_virtual(greenroom_clock, greenroom_faults): ...
""",
    )
    assert "1 passed" in printed, printed
    assert "does not fit the virtual time of greenroom_clock" in printed


@pytest.mark.rule("TK-12")
def test_the_plugin_costs_other_projects_nothing(tmp_path: Path):
    printed = session(
        tmp_path,
        "-q",
        tests="""
import sys

def test_nothing_is_imported():
    assert "pytest_greenroom" in sys.modules
    assert not {"greenroom", "trio", "httpx", "msgspec", "h11", "jsonschema"} & set(sys.modules)
""",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # without pytest-trio, which imports trio
    )
    assert "1 passed" in printed, printed


@pytest.mark.rule("TK-12")
def test_the_fixtures_are_listed_with_their_words(tmp_path: Path):
    printed = session(tmp_path, "--fixtures", "-q")
    for name in ("greenroom_clock", "greenroom_runtime", "greenroom_offline", "greenroom_faults"):
        assert f"{name} -- " in printed, printed
    assert "greenroom_runtime(**options)" in session(tmp_path, "--markers")
