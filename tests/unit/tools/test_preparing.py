"""What may prepare a tool, and what a preparation may return or raise."""

import pickle
from typing import Any

import pytest

import greenroom as gr


async def prepares(ctx: gr.PreparationContext[Any]) -> None: ...


def prepares_now(ctx: Any) -> None: ...


async def takes_nothing() -> None: ...


@pytest.mark.parametrize(
    "prepare", [True, "probe", prepares_now, takes_nothing], ids=["bool", "str", "sync", "no context"]
)
def test_a_preparation_is_an_async_function_of_a_context(prepare: Any) -> None:
    with pytest.raises(gr.ToolDefinitionError, match=r"option prepare=.*give an async function \(ctx\) -> Preparation"):

        @gr.tool(prepare=prepare)
        async def program() -> None:
            """Work."""


def test_an_agent_with_such_a_tool_is_another_agent() -> None:
    def program() -> None:
        """Work."""

    plain, prepared = gr.tool(program), gr.tool(program, prepare=prepares)
    assert (plain.spec.prepares, prepared.spec.prepares) == (False, True)
    assert gr.Agent("a", tools=[plain]).spec.digest != gr.Agent("a", tools=[prepared]).spec.digest
    assert (gr.Agent("a", tools=[plain]).spec.prepares, gr.Agent("a", tools=[prepared]).spec.prepares) == (False, True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"facts": ["x"]}, "facts=.*give a dict"),
        ({"doubts": ["x"]}, "doubts=.*give a dict of up to 20 sentences"),
        ({"doubts": {f"n{number}": "x" for number in range(21)}}, "give a dict of up to 20 sentences"),
        ({"doubts": {"no word": "x"}}, "give an identifier and a sentence"),
        ({"doubts": {"new": 5}}, "give an identifier and a sentence"),
    ],
    ids=str,
)
def test_a_preparation_has_a_form(values: dict[str, Any], text: str) -> None:
    with pytest.raises(gr.UsageError, match=text):
        gr.Preparation(**values)


def copied(error: Any) -> Any:
    """The error as another process gets it."""
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - its own


def test_an_error_names_a_code_of_the_catalogue_and_a_word() -> None:
    with pytest.raises(gr.UsageError, match="did you mean 'runtime_unavailable'"):
        gr.PreparationError("runtime_unavailible", "x")
    with pytest.raises(gr.UsageError, match="give one word"):
        gr.PreparationError("runtime_unavailable", "x", reason="not here")
    error = gr.PreparationError("runtime_unavailable", "log in", reason="unauthorized")
    copy = copied(error)
    assert (str(copy), copy.code, copy.reason) == ("log in", "runtime_unavailable", "unauthorized")
    refusal = copied(gr.WorkspaceRefused("target_offline", "nobody", "shop"))
    assert (str(refusal), refusal.code, refusal.names) == ("nobody", "target_offline", ("shop",))
