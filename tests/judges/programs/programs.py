"""The real coding agents: where they are, how they reach the model service, and how their models call tools."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import greenroom as gr
from greenroom.testing import FaultReply, FaultServer, ReceivedRequest, call, reply

MODULES = Path(__file__).parent / "node_modules"
KEY = "none-1234567"
"""The key for the model service, which reads none."""

REFUSAL, SECRET = "not in this folder", "secret files are not read"
"""The texts with which people deny."""
SUBAGENT = "You work for another agent."
"""The prompt of a sub-agent."""
SLOW = 0.2
"""Seconds between two events of the model of a sub-agent: it calls after the one that has started it has ended."""
LAST = "All done."
"""The last message of a model."""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What keeps a program away from the network where it can have none of its own."""

Call = Any
Round = list[Call]


@attrs.frozen(kw_only=True)
class JudgeProgram:
    """One program.

    Attributes:
        name: its name, which is that of its dialect's preset.
        binary: the file that must be there.
        command: the words that start the program.
        args: (service) -> words that follow the command.
        kind: the backend whose program it is.
        variables: (service, home) -> its environment besides PATH and HOME.
        write, run, read: a call of the program's own tools, by the model.
        results: how many calls have results, in the body of a request.
        beside: whether the body is one of a request beside the work, such as one for a title.
    """

    name: str
    binary: Path
    command: tuple[str, ...]
    kind: type[gr.backends.Program]
    args: Callable[[FaultServer], tuple[str, ...]] = lambda _: ()
    variables: Callable[[FaultServer, Path], Mapping[str, str]]
    write: Callable[[Path, str, str], Call]
    run: Callable[[str, str], Call]
    read: Callable[[Path, str], Call]
    results: Callable[[Any], int]
    beside: Callable[[Any], bool]

    def backend(self, server: FaultServer, **options: Any) -> gr.backends.Program:
        """The program as a backend, whose model is the service."""
        return self.kind(command=self.command, args=self.args(server), name=self.name, **options)

    def answers_in_turns(self, turns: Sequence[tuple[str, list[Round]]]) -> Callable[[ReceivedRequest], FaultReply]:
        """The model with several prompts: each turn begins with a text that its prompt has, and has rounds of its own.

        A program may send the conversation before, or only what is new.
        """
        bases: dict[int, int] = {}

        def answer(request: ReceivedRequest) -> FaultReply:
            if request.format is None or self.beside(request.body):
                return self.answers([], [])(request)
            text = json.dumps(request.body)
            turn = max(number for number, (words, _) in enumerate(turns) if words in text)
            results = self.results(request.body)
            before = bases.setdefault(turn, results)
            for calls in turns[turn][1]:
                if results <= before:
                    return reply("Now.", *calls)
                before += len(calls)
            return reply(LAST)

        return answer

    def answers(self, rounds: list[Round], inner: list[Round]) -> Callable[[ReceivedRequest], FaultReply]:
        """The model: one round of calls after the other, each when all results of the one before are there."""

        def answer(request: ReceivedRequest) -> FaultReply:
            if request.format is None:
                return reply(status=404, message="no such path")
            if self.beside(request.body):
                return reply("A title")
            of_subagent = SUBAGENT in json.dumps(request.body.get("messages", [])[:1])
            results, before = self.results(request.body), 0
            for calls in inner if of_subagent else rounds:
                if results <= before:
                    return reply("Now.", *calls, pause=SLOW if of_subagent else 0.0)
                before += len(calls)
            return reply(LAST)

        return answer


def _claude(server: FaultServer, home: Path) -> dict[str, str]:
    address = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.base_url("anthropic")}
    return {**address, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}


CLAUDE = JudgeProgram(
    name="claude",
    binary=MODULES / "@anthropic-ai/claude-agent-sdk-linux-x64/claude",
    command=(str(MODULES / "@anthropic-ai/claude-agent-sdk-linux-x64/claude"),),
    kind=gr.backends.Claude,
    variables=_claude,
    write=lambda path, text, name: call("Write", file_path=str(path), content=text, id=f"toolu_{name}"),
    run=lambda command, name: call("Bash", command=command, description="run it", id=f"toolu_{name}"),
    read=lambda path, name: call("Read", file_path=str(path), id=f"toolu_{name}"),
    results=lambda body: json.dumps(body["messages"]).count('"tool_result"'),
    beside=lambda body: not body.get("tools"),
)


def _codex(server: FaultServer, home: Path) -> dict[str, str]:
    return {"CODEX_HOME": str(home), "FAKE_KEY": KEY}


def _codex_args(server: FaultServer) -> tuple[str, ...]:
    provider = f'{{name="fake",base_url="{server.base_url("responses")}",wire_api="responses",env_key="FAKE_KEY"}}'
    return ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}", "-c", 'model="small-1"')


def _patch(path: Path, text: str, name: str) -> Call:
    patch = f"*** Begin Patch\n*** Add File: {path.name}\n+{text}\n*** End Patch\n"
    return call("exec_command", cmd=f"apply_patch <<'EOF'\n{patch}EOF", id=name)


CODEX = JudgeProgram(
    name="codex",
    binary=MODULES / "@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",
    command=(str(MODULES / "@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex"),),
    kind=gr.backends.Codex,
    args=_codex_args,
    variables=_codex,
    write=_patch,
    run=lambda command, name: call("exec_command", cmd=command, id=name),
    read=lambda path, name: call("exec_command", cmd=f"cat {shlex.quote(path.name)}", id=name),
    results=lambda body: sum(item.get("type", "").endswith("call_output") for item in body["input"]),
    beside=lambda _: False,
)


def _gemini(server: FaultServer, home: Path) -> dict[str, str]:
    (home / ".gemini").mkdir(exist_ok=True)
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    address = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": server.base_url("gemini")}
    return {
        **address,
        "GEMINI_MODEL": "gemini-2.5-pro",
    }  # without a fixed one its router asks, and retries for a minute


GEMINI = JudgeProgram(
    name="gemini",
    binary=MODULES / "@google/gemini-cli/bundle/gemini.js",
    command=("node", str(MODULES / "@google/gemini-cli/bundle/gemini.js"), "--acp"),
    kind=gr.backends.GeminiCLI,
    variables=_gemini,
    write=lambda path, text, name: call("write_file", file_path=str(path), content=text, id=name),
    run=lambda command, name: call("run_shell_command", command=command, description="run it", id=name),
    read=lambda path, name: call("read_file", file_path=str(path), id=name),
    results=lambda body: json.dumps(body["contents"]).count('"functionResponse"'),
    beside=lambda body: not body.get("tools"),
)


def _opencode(server: FaultServer, home: Path) -> dict[str, str]:
    options = {"baseURL": server.base_url("chat"), "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options}
    models = {"fake": {**provider, "models": {"small-1": {"name": "small"}}}}
    config = {"provider": models, "model": "fake/small-1", "small_model": "fake/small-1", "permission": "ask"}
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **quiet}


OPENCODE = JudgeProgram(
    name="opencode",
    binary=MODULES / "opencode-linux-x64/bin/opencode",
    command=(str(MODULES / "opencode-linux-x64/bin/opencode"), "acp"),
    kind=gr.backends.OpenCode,
    variables=_opencode,
    write=lambda path, text, name: call("write", filePath=str(path), content=text, id=name),
    run=lambda command, name: call("bash", command=command, description="run it", id=name),
    read=lambda path, name: call("read", filePath=str(path), id=name),
    results=lambda body: sum(message["role"] == "tool" for message in body["messages"]),
    beside=lambda body: not body.get("tools"),
)

PROGRAMS = {program.name: program for program in (CLAUDE, CODEX, GEMINI, OPENCODE)}


def variables(program: JudgeProgram, server: FaultServer, home: Path) -> dict[str, str]:
    """The whole environment of a program."""
    proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **proxies, **program.variables(server, home)}
