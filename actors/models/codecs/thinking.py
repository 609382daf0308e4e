"""The setting `thinking` in the form that a model takes: a switch, an effort, or a budget of tokens.

Models are known by the beginnings and parts of their names; a model that no table names is taken for a new one, because
providers change the form for new models and leave older ones as they are. Read on 2026-11-28.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...contract.plain import JSONObject, JSONValue

Thinking = bool | int | str
"""True: as the provider chooses; False: none, or as little as the model can; an effort; tokens."""

OPENAI_LEAST: Final = (
    (re.compile(r"gpt-[34]|chatgpt-"), ""),
    (re.compile(r"o\d"), "low"),
    (re.compile(r"gpt-5(?![.\d])"), "minimal"),
)
"""OpenAI's models that do not know the effort "none", each with the least that they know; "" for those that do not
reason (developers.openai.com/api/docs/guides/reasoning)."""

BUDGETED: Final = re.compile(r"claude-3-7-|claude-(?:opus|sonnet|haiku)-4(?:-[015])?(?:-\d{6,}|-latest|[@:]|$)")
"""Anthropic's models that know no other thinking than with a budget; later ones decide how long they think
(platform.claude.com/docs/en/build-with-claude/thinking)."""
THOUGHTLESS: Final = re.compile(r"claude-(?:2|instant|3-5-|3-opus|3-sonnet|3-haiku)")
"""Anthropic's models that do not think."""
THOUGHTFUL: Final = re.compile(r"claude-(?:mythos|fable)-")
"""Anthropic's models that always think, and refuse to be told not to
(docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-adaptive-thinking.html)."""
BUDGETS: Final[Mapping[str, int]] = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384}
"""Effort -> tokens of a budget of Anthropic's; beyond "high": `LARGEST`."""
LARGEST: Final = 20_480
"""With the default for max_tokens it stays below 32,000 tokens, the most that Claude Opus 4 writes."""
SMALLEST: Final = 1_024
"""The smallest budget that Anthropic takes."""

GEMINI_BUDGETS: Final[Mapping[str, int]] = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Effort -> tokens, as Google's own OpenAI-compatible address maps them (ai.google.dev/gemini-api/docs/openai)."""
GEMINI_PRO_LEAST: Final = 128
"""The least that Gemini 2.5 Pro takes (ai.google.dev/gemini-api/docs/thinking)."""


def effort(thinking: Thinking, on: str = "medium", off: str = "none") -> dict[str, JSONValue]:
    """Return the field of an effort, as OpenAI has it. The words are those for True and False."""
    return {"reasoning_effort": thinking if isinstance(thinking, str) else on if thinking else off}


def plain_thinking(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """Ask for reasoning as most servers have it."""
    return effort(thinking)


def openai_thinking(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """Ask OpenAI for reasoning; False asks for the least that the model knows."""
    least = next((least for name, least in OPENAI_LEAST if name.match(model)), "none")
    return effort(thinking, off=least) if thinking or least else {}


def anthropic_takes_budget(model: str) -> bool:
    """Return True for a model that thinks with a budget only."""
    return BUDGETED.search(model) is not None


def anthropic_fault(model: str, settings: JSONObject) -> str | None:
    """Return why a model cannot think with these settings; None if it can, or need not."""
    thinking, most = settings.get("thinking"), settings.get("max_tokens")
    if not thinking:
        return None
    if THOUGHTLESS.search(model):
        return f"thinking={thinking!r:.100}: this model does not think; leave the setting out"
    if anthropic_takes_budget(model) and isinstance(most, int) and most <= SMALLEST:
        return f"max_tokens={most}: this model thinks within them; give more than {SMALLEST:,}"
    return None


def anthropic_thinking(
    model: str, settings: JSONObject, default: int, *, must_call: bool
) -> tuple[dict[str, JSONValue], dict[str, JSONValue]]:
    """Return the fields of the body, max_tokens among them where a budget needs more, and those of output_config.

    Args:
        model: the provider's name of the model.
        settings: The settings of the request; without `thinking` it is as the provider has it.
        default: what is sent without the setting max_tokens.
        must_call: a call is demanded; models with a budget refuse that beside thinking. Not sure about later ones.
    """
    thinking, most = settings.get("thinking"), settings.get("max_tokens")
    takes_budget = anthropic_takes_budget(model)
    if thinking is None or (not thinking and THOUGHTLESS.search(model)) or (must_call and takes_budget):
        return {}, {}
    if not thinking and not THOUGHTFUL.search(model):
        return {"thinking": {"type": "disabled"}}, {}
    if not takes_budget:
        config: dict[str, JSONValue] = {"type": "adaptive", "display": "summarized"}
        word = "low" if thinking is False else thinking
        return {"thinking": config}, {"effort": word} if isinstance(word, str) else {}
    word = thinking if isinstance(thinking, str) else "medium"
    budget = BUDGETS.get(word, LARGEST) if isinstance(thinking, bool | str) else max(SMALLEST, thinking)
    limit = most or default + budget
    config = {"type": "enabled", "budget_tokens": min(budget, limit - 1)}
    return {"max_tokens": limit, "thinking": config}, {}


def gemini_takes_budget(model: str) -> bool:
    """Return True for generation 2, which thinks with a budget; later ones have levels, and always think."""
    return "gemini-2" in model


def gemini_thinking(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """Return the thinkingConfig of a model."""
    takes_budget = gemini_takes_budget(model)
    if thinking is False:
        if takes_budget:
            return {"thinkingBudget": GEMINI_PRO_LEAST if "pro" in model else 0}
        return {"thinkingLevel": "minimal" if "flash" in model else "low"}
    if thinking is True:
        return {"includeThoughts": True}
    if not takes_budget:
        return {"includeThoughts": True, "thinkingLevel": thinking}
    tokens = GEMINI_BUDGETS.get(thinking, GEMINI_BUDGETS["high"]) if isinstance(thinking, str) else thinking
    return {"includeThoughts": True, "thinkingBudget": tokens}
