"""Arguments that switch a program's checks off are refused where the backend is made, and the others pass."""

from typing import Any

import pytest

import greenroom as gr

REFUSED: list[tuple[Any, list[str]]] = [
    (gr.backends.Claude, ["--dangerously-skip-permissions"]),
    (gr.backends.Claude, ["--permission-mode", "bypassPermissions"]),
    (gr.backends.Claude, ["--permission-mode=acceptEdits"]),
    (gr.backends.Claude, ["--settings", '{"permissions":{}}']),
    (gr.backends.Claude, ["--setting-sources", "project"]),
    (gr.backends.Claude, ["--allowed-tools=Bash"]),
    (gr.backends.Claude, ["-c"]),
    (gr.backends.Codex, ["--yolo"]),
    (gr.backends.Codex, ["--dangerously-bypass-approvals-and-sandbox"]),
    (gr.backends.Codex, ["--full-auto"]),
    (gr.backends.Codex, ["-a", "never"]),
    (gr.backends.Codex, ["-anever"]),
    (gr.backends.Codex, ["-s", "danger-full-access"]),
    (gr.backends.Codex, ["-c", "approval_policy=never"]),
    (gr.backends.Codex, ["-capproval_policy=never"]),
    (gr.backends.Codex, ["--config=sandbox_mode=read-only"]),
    (gr.backends.Codex, ["--config", "sandbox_workspace_write.network_access=true"]),
    (gr.backends.Codex, ["-c", '"mcp_servers".x.command="sh"']),
    (gr.backends.GeminiCLI, ["-y"]),
    (gr.backends.GeminiCLI, ["--approval-mode", "yolo"]),
    (gr.backends.GeminiCLI, ["--approval-mode=auto_edit"]),
]
PASSES: list[tuple[Any, list[str]]] = [
    (gr.backends.Claude, ["--fallback-model", "small", "--append-system-prompt", "be brief"]),
    (gr.backends.Codex, ["-c", 'model_provider="local"', "-c", "model_providers.local.wire_api=responses"]),
    (gr.backends.Codex, ["-c", "model=gpt-5"]),
    (gr.backends.GeminiCLI, ["--debug", "/srv/bypass/settings.json"]),
]


@pytest.mark.parametrize(("make", "args"), REFUSED)
def test_a_switch_is_refused_by_name(make, args):
    with pytest.raises(gr.AgentDefinitionError, match="is never passed; let rules allow") as caught:
        make(args=args)
    assert any(word in str(caught.value) for word in args)


@pytest.mark.parametrize(("make", "args"), PASSES)
def test_other_arguments_pass(make, args):
    assert make(args=args).args == tuple(args)


def test_a_switch_behind_the_name_of_the_program_is_refused_too():
    with pytest.raises(gr.AgentDefinitionError, match="--yolo"):
        gr.backends.Acp(["qwen", "--acp", "--yolo"])


def test_an_option_of_a_runner_is_not_the_program_s():
    assert gr.backends.Acp(["npx", "-y", "@google/gemini-cli", "--acp"]).name == "acp"
    with pytest.raises(gr.AgentDefinitionError, match="'-y'"):
        gr.backends.Acp(["npx", "-y", "@google/gemini-cli", "--acp", "-y"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"command": []}, r"give words"),
        ({"command": ["a\0b"]}, r"give words"),
        ({"folder": "shop"}, r"give an absolute path"),
        ({"idle": 0}, r"idle=0: give seconds"),
        ({"timeout": float("inf")}, r"timeout=inf: give seconds"),
    ],
)
def test_an_invalid_value_is_named(options, words):
    with pytest.raises(gr.AgentDefinitionError, match=words):
        gr.backends.Claude(**options)


def test_a_program_that_asks_nothing_needs_a_word_for_that():
    with pytest.raises(gr.AgentDefinitionError, match="say so with unattended=True"):
        gr.backends.Plain(["aider"])
    assert gr.backends.Plain(["aider"], unattended=True).name == "plain"


def test_opencode_is_always_told_to_ask():
    assert '"permission": "ask"' in gr.backends.OpenCode().env["OPENCODE_CONFIG_CONTENT"]
    for content, words in (("{", "this is not JSON"), ('{"permission": "allow"}', "leave it out")):
        with pytest.raises(gr.AgentDefinitionError, match=words):
            gr.backends.OpenCode(env={"OPENCODE_CONFIG_CONTENT": content})


@pytest.mark.parametrize("option", ["model", "tools", "toolsets", "handoffs", "tool_choice", "tool_use"])
def test_an_agent_of_a_backend_takes_no_option_that_the_backend_decides(option):
    with pytest.raises(gr.AgentDefinitionError, match=f"{option}=...\\): .*leave {option}= out"):
        gr.backends.agent("coder", gr.backends.Claude(), **{option: ()})


def test_an_agent_of_a_backend_has_one_permission():
    own = gr.ext.Permission([gr.ext.Rule("deny", effect="shell")])
    agent = gr.backends.agent("coder", gr.backends.Claude(), plugins=[own])
    assert agent.plugins == (own,)
    with pytest.raises(gr.AgentDefinitionError, match="plugins= has a Permission; give the rules to that one"):
        gr.backends.agent("coder", gr.backends.Claude(), plugins=[own], rules=[gr.ext.Rule("ask", effect="shell")])


def test_the_environment_is_in_no_repr():
    backend = gr.backends.Claude(env={"ANTHROPIC_API_KEY": "canary-1234567"})
    assert "canary" not in repr(backend) + repr(gr.backends.agent("coder", backend))
