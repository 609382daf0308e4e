"""The rules of an MCP server, the names of its tools, its arguments, and its results: all without a server."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.agents.graph import secrets_of
from greenroom.actors.toolsets.mcp_results import result_of
from greenroom.actors.toolsets.mcp_rules import Rule, Rules, is_offered, shown_name

READ = Rule(effect="read", needs_approval=False, replay="safe")

# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-2")
@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_every_name_is_one_that_models_accept_and_no_two_are_the_same(tools: list[str]) -> None:
    names = [shown_name("a-server", tool) for tool in tools]
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert len({*names}) == len(tools)


@pytest.mark.rule("MC-2")
def test_a_name_that_models_accept_stays() -> None:
    assert shown_name("github", "create_issue") == "mcp__github__create_issue"
    assert shown_name("github", "x" * 80)[:40] == "mcp__github__" + "x" * 27
    assert len(shown_name("github", "x" * 80)) == 64


@pytest.mark.rule("MC-2")
def test_a_tool_is_offered_if_a_glob_includes_and_none_excludes_it() -> None:
    assert is_offered("get_issue", ["*"], [])
    assert not is_offered("get_issue", ["*"], ["get_*"])
    assert not is_offered("get_issue", [], [])


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-3")
def test_what_is_not_known_is_dangerous() -> None:
    rule = Rules(by_glob={"get_*": READ}).rule_of("delete", {"readOnlyHint": True})
    assert (rule.effect, rule.needs_approval, rule.replay) == ("external", True, "unsafe")


@pytest.mark.rule("MC-3")
def test_the_first_glob_that_fits_counts_even_before_hints() -> None:
    rules = Rules(by_glob={"get_*": READ, "*": Rule(effect="deploy")}, trust_hints=True)
    assert rules.rule_of("get_x", {}) is READ
    assert rules.rule_of("x", {"readOnlyHint": True}).effect == "deploy"


@pytest.mark.rule("MC-3")
@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({}, ("external", True, "unsafe")),
        ({"readOnlyHint": True}, ("read", False, "safe")),
        ({"idempotentHint": True}, ("external", True, "safe")),
        ({"readOnlyHint": "yes", "idempotentHint": 1}, ("external", True, "unsafe")),
        ({"destructiveHint": False}, ("external", True, "unsafe")),
    ],
)
def test_hints_that_are_trusted_say_what_may_go_unasked(hints: dict[str, Any], expected: tuple[Any, ...]) -> None:
    rule = Rules(by_glob={}, trust_hints=True).rule_of("x", hints)
    assert (rule.effect, rule.needs_approval, rule.replay) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"effect": "reads"}, "did you mean 'read'"),
        ({"replay": "save"}, "did you mean 'safe'"),
        ({"timeout": 0}, "seconds greater than 0"),
        ({"needs_approval": "yes"}, "True, False, or a function"),
        ({"approval": True}, "needs_approval"),
    ],
)
def test_a_rule_with_a_wrong_option_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(gr.ToolDefinitionError, match=text):
        Rule(**options)


# --- arguments of a server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "command=[...], or url="),
        ({"command": ["a"], "url": "http://a"}, "one of the two"),
        ({"command": []}, "none of them empty"),
        ({"command": ["a", ""]}, "none of them empty"),
        ({"command": ["a\0"]}, "none of them empty"),
        ({"url": "ftp://a"}, "an http or https address"),
        ({"url": "https://user:pw@a"}, "without a user and a password"),
        ({"url": "http://[a"}, "an http or https address"),
        ({"url": 5}, "an http or https address"),
        ({"command": ["a"], "headers": {"A": "b"}}, "a server that is a program has none"),
        ({"url": "http://a", "env": {"A": "b"}}, "a server at an address has none"),
        ({"url": "http://a", "headers": {"A b": "c"}}, "no header"),
        ({"url": "http://a", "headers": {"A": "b\nc"}}, "no header"),
        ({"url": "http://a", "headers": {"A": 5}}, "a dict of names"),
        ({"command": ["a"], "env": ["A"]}, "a dict of names"),
        ({"command": ["a"], "folder": "relative"}, "an absolute path"),
        ({"command": ["a"], "tools": {"x": {}}}, "a dict of globs"),
        ({"command": ["a"], "scope": "thread"}, "'runtime' or 'run'"),
        ({"command": ["a"], "idle": 0}, "more than 0, or None"),
        ({"comand": ["a"]}, "did you mean command"),
    ],
)
def test_a_server_with_a_wrong_argument_is_refused_and_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(gr.AgentDefinitionError, match=re.escape(text)):
        gr.mcp.Server("github", **options)


def test_the_name_of_a_server_is_checked_with_its_agent() -> None:
    server = gr.mcp.Server("GitHub", command=["a"])
    with pytest.raises(gr.AgentDefinitionError, match="toolset name 'GitHub'"):
        gr.Agent("a", toolsets=[server])


@pytest.mark.rule("MC-1")
def test_the_secrets_of_a_server_are_the_values_of_its_headers_and_variables(monkeypatch: Any) -> None:
    monkeypatch.setenv("PASSED", "passed-value")
    monkeypatch.setenv("NAMED", "named-value")
    env = {"API_KEY": "key-value", "MODE": "fast", "TOKEN": gr.env("NAMED")}
    program = gr.mcp.Server("p", command=["a"], pass_env=["PASSED", "NOT_SET"], env=env)
    address = gr.mcp.Server("u", url="http://a", headers={"Authorization": "Bearer header-value"})
    agent = gr.Agent("a", toolsets=[program, address])
    assert {*secrets_of([agent])} == {
        *("passed-value", "named-value", "key-value"),
        *("Bearer header-value", "header-value"),
    }
    assert "header-value" not in repr(address)
    assert "key-value" not in repr(program)


@pytest.mark.parametrize("arguments", [("",), ("A=B",), (5,), ("A", "x"), ("A", "{}{}"), ("A", None)])
def test_a_variable_needs_a_name_and_a_form_with_one_place(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(gr.UsageError, match="env"):
        gr.env(*arguments)


# --- results ---------------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "a"}


@pytest.mark.rule("MC-4")
@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": []}, ""),
        ({"content": [TEXT, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [TEXT], "structuredContent": [1]}, [1]),
        ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "t"}}]}, "t"),
        ({"content": [{"type": "resource_link", "uri": "x:y", "name": "n", "description": "d"}]}, "n x:y d"),
        ({"content": [{"type": "hologram"}]}, "[a part of the result that this client does not know]"),
        ({"content": ["text"]}, "[a part of the result that this client does not know]"),
    ],
)
def test_the_value_is_the_structured_content_or_the_texts(result: dict[str, Any], value: Any) -> None:
    assert result_of("s", result, None) == value


@pytest.mark.rule("MC-4")
def test_attachments_are_named_after_their_addresses_and_what_is_none_becomes_a_text() -> None:
    blob = {"uri": "file:///tmp/a b/r%C3%A9.pdf?x", "blob": "JVBERg==", "mimeType": "application/pdf; a=b"}
    value: Any = result_of("s", {"content": [{"type": "resource", "resource": blob}]}, None)
    assert (value.part.name, value.part.media_type) == ("r_C3_A9.pdf", "application/pdf")
    for item in (
        {"type": "image", "data": "no base64", "mimeType": "image/png"},
        {"type": "image", "data": "JVBERg==", "mimeType": "nonsense"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
    ):
        assert "cannot be kept" in str(result_of("s", {"content": [item]}, None))
    both: Any = result_of("s", {"content": [{"type": "resource", "resource": blob}], "structuredContent": 5}, None)
    assert both[0] == 5
    assert isinstance(both[1], gr.File)


@pytest.mark.rule("MC-4")
@pytest.mark.parametrize(
    ("result", "text", "code"),
    [
        ({"content": [TEXT], "isError": True}, "a", None),
        ({"content": [], "isError": True}, "does not say why", None),
        ({"content": [TEXT]}, "it has no structuredContent", "schema_validation_failed"),
        ({"content": [], "structuredContent": "a"}, "$: 'a' is not of type 'number'", "schema_validation_failed"),
    ],
)
def test_a_failure_and_a_misfit_are_failed_calls(result: dict[str, Any], text: str, code: str | None) -> None:
    with pytest.raises(gr.ToolError) as caught:
        result_of("s", result, {"type": "number"})
    assert text in str(caught.value)
    assert caught.value.run_code == code


def test_the_folder_of_a_program_is_its_own_or_none() -> None:
    assert gr.mcp.Server("a", command="one-word", folder="/srv").folder == Path("/srv")
    assert gr.mcp.Server("a", command="one-word").command == ("one-word",)
