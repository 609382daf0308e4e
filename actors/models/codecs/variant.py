"""What a server takes and gives otherwise than OpenAI's own chat completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import attrs

from ...contract.plain import JSONValue
from .history import IdForm, usual_id
from .strict_schemas import Strictness
from .thinking import Thinking, openai_thinking, plain_thinking

Ask = Callable[[str, Thinking], dict[str, JSONValue]]
"""(name of the model, the setting `thinking`) -> fields of the request's body."""


@attrs.frozen(kw_only=True)
class ChatVariant:
    """One server's form of chat completions. The defaults are those of a server about which nothing is known.

    Attributes:
        limit_field: The field for max_tokens. OpenAI's own models refuse "max_tokens"; many servers know no other one.
        seed_field: The field for seed.
        required: The value of tool_choice that demands a call.
        thinking: writes the setting `thinking`.
        budgets: `thinking` may be a number of tokens.
        counts: ask for the counts of tokens by `stream_options`; False where they come anyway and the field is refused.
        form: how the form of an answer is asked for: by `response_format`, by that field if no tools are offered, or
            in words.
        strict: send schemas in the strict form of OpenAI where they have one: never, if they have no limits, or always.
        ends_without_reason: an answer may end with `[DONE]` alone.
        keeps_reasoning: reasoning goes back with the history, under the name under which it came.
        call_id: writes the ids of calls.
        key_header: The header for the key; "" sends it as a Bearer token.
        lacks: The settings that the server refuses or ignores.
    """

    limit_field: str = "max_tokens"
    seed_field: str = "seed"
    required: str = "required"
    thinking: Ask = plain_thinking
    budgets: bool = False
    counts: bool = True
    form: Literal["native", "without_tools", "words"] = "native"
    strict: Strictness = "never"
    ends_without_reason: bool = True
    keeps_reasoning: bool = True
    call_id: IdForm = usual_id
    key_header: str = ""
    lacks: tuple[str, ...] = ("cache_key", "cache_retention")


OPENAI: Final = ChatVariant(
    limit_field="max_completion_tokens", thinking=openai_thinking, strict="limits", ends_without_reason=False, lacks=()
)
"""OpenAI's own service."""
COMPATIBLE: Final = ChatVariant()
"""Any other server."""
