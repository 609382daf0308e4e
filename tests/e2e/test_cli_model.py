"""`greenroom run` and `demo` with a model of a provider: `--model` and `--base-url`."""

from pathlib import Path

import pytest
import trio

from greenroom.testing import FaultReply, call, open_fault_server, reply

from ..support.providers import KEY
from .cli_kit import Cli

AGENT = """
import greenroom as gr
from greenroom.testing import ScriptedModel

@gr.tool
async def add(a: int, b: int) -> int:
    return a + b

agent = gr.Agent("adder", tools=[add], model=ScriptedModel(["I am the script."]), plugins=[gr.Retry(attempts=1)])
named = gr.Agent("named", model="openai:large", plugins=[gr.Retry(attempts=1)])
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    folder = tmp_path / "work"
    folder.mkdir()
    return Cli(folder, tmp_path / "state")


@pytest.mark.slow
async def test_run_asks_the_model_that_is_named(cli):
    (cli.folder / "agents.py").write_text(AGENT)
    cli.env["OPENAI_API_KEY"] = KEY
    async with open_fault_server(
        reply(call("add", a=40, b=2, id="c")), reply("It is 42."), reply("Large."), reply("Local.")
    ) as server:
        url = server.base_url("chat")
        words = ("run", "agents.py:agent", "What is 40 + 2?", "--model", "openai:small", "--base-url", url)
        done = await trio.to_thread.run_sync(cli, *words)
        assert done.returncode == 0, done.stderr
        assert "It is 42." in done.stdout
        assert KEY not in done.stdout + done.stderr
        done = await trio.to_thread.run_sync(cli, "run", "agents.py:named", "Hi", "--base-url", url)
        assert "Large." in done.stdout
        words = ("run", "agents.py:agent", "Hi", "--model", "ollama:qwen3", "--base-url", url)
        assert "Local." in (await trio.to_thread.run_sync(cli, *words)).stdout
        assert [asked.body["model"] for asked in server.requests] == ["small", "small", "large", "qwen3"]


@pytest.mark.slow
async def test_a_refused_key_is_an_error_that_does_not_show_it(cli):
    (cli.folder / "agents.py").write_text(AGENT)
    cli.env["ANTHROPIC_API_KEY"] = KEY
    async with open_fault_server(FaultReply(status=401, message=f"no such key: {KEY}")) as server:
        words = (
            "run",
            "agents.py:agent",
            "Hi",
            "--model",
            "anthropic:small",
            "--base-url",
            server.base_url("anthropic"),
        )
        done = await trio.to_thread.run_sync(cli, *words)
    assert done.returncode == 1
    assert "unauthorized" in done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
async def test_the_demo_asks_a_real_model(cli):
    (cli.folder / "a.txt").write_text("one line\n")
    looking = reply(call("list_directory", path=".", id="c"))
    async with open_fault_server(looking, reply("It is a folder.")) as server:
        words = ("demo", "--model", "gemini:small", "--base-url", server.base_url("gemini"), "--no-serve", "--yes")
        done = await trio.to_thread.run_sync(cli, *words)
        assert done.returncode == 0, done.stderr
        assert "It is a folder." in done.stdout
        assert "a.txt" in repr(server.requests[1].body)


@pytest.mark.slow
def test_wrong_options_are_named(cli):
    (cli.folder / "agents.py").write_text(AGENT)
    cli.env.pop("OPENAI_API_KEY", None)
    cli.env.pop("OPENAI_BASE_URL", None)
    cli.env.pop("GROQ_API_KEY", None)
    for words, said in (
        (("--model", "openia:x"), "did you mean 'openai'?"),
        (("--model", "openai:x", "--base-url", "localhost:80"), 'give one such as "https://host/v1"'),
        (("--model", "openai:x", "--base-url", ""), "base_url='': give one such as"),
        (("--base-url", "http://localhost"), "add --model openai:NAME"),
        (("--model", "openai:x"), "set OPENAI_API_KEY"),
        (("--model", "groq:x"), "set GROQ_API_KEY"),
        (("--model", "azure:x"), "set AZURE_OPENAI_ENDPOINT"),
        (("--model", "bedrock:x"), "ask its OpenAI-compatible address"),
    ):
        done = cli("run", "agents.py:agent", "Hi", *words)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
