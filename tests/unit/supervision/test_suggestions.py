"""Suggestions for misspelt words help or are absent; they do not mislead."""

import pytest

from greenroom.actors.agents.agent import Agent
from greenroom.actors.errors import AgentDefinitionError
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec
from greenroom.actors.models.codecs.openai_responses import OpenAIResponsesCodec
from greenroom.actors.models.codecs.settings import fault_of_settings
from greenroom.supervision.fields import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("statsu", ("status", "agent"), "status"),
        ("instruction", ("instructions", "tools"), "instructions"),
        ("stop", ("top_p", "temperature"), None),
        ("result_type", ("deps_type", "tools"), None),
        ("x" * 1_000_000, ("xx", "status"), None),
        (7, ("seven",), None),
    ],
)
def test_a_known_word_is_suggested_only_if_it_is_similar(
    word: object, known: tuple[str, ...], near: str | None
) -> None:
    assert nearest(word, known) == near
    assert did_you_mean(word, known) == ("" if near is None else f"did you mean {near!r}? ")


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("result_type", "output_type"),
        ("response_format", "output_type"),
        ("system_prompt", "instructions"),
        ("model_settings", "settings"),
        ("max_turns", "stop"),
        ("instrctions", "instructions"),
    ],
)
def test_an_option_of_another_library_leads_to_the_option_of_this_one(option: str, near: str) -> None:
    with pytest.raises(AgentDefinitionError, match=f"no option '{option}'; did you mean {near}\\?"):
        Agent("a", **{option: "x"})  # type: ignore[call-overload]


def test_a_setting_of_a_provider_leads_to_the_setting_that_the_model_has() -> None:
    chat = fault_of_settings({"stop": ["x"]}, OpenAIChatCodec("small").settings)
    assert chat is not None
    assert "there is no setting 'stop'; did you mean 'stop_sequences'? use one of" in chat
    responses = fault_of_settings({"stop": ["x"]}, OpenAIResponsesCodec.settings)
    assert responses is not None
    assert "there is no setting 'stop'; use one of" in responses
