"""Services that speak OpenAI's chat completions, each with its address, its key and what it has otherwise.

A preset is a row of `PRESETS`: no service has a codec of its own. Each row names its sources; what no page says is left
as OpenAI has it. They were read on 2026-11-28; "issue" is a report of users on GitHub with the server's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from ..contract.plain import JSONValue
from .codecs.history import nine_id
from .codecs.thinking import Thinking, effort
from .codecs.variant import COMPATIBLE, OPENAI, ChatVariant


@attrs.frozen(kw_only=True)
class Preset:
    """One service.

    Attributes:
        base_url: its address; "" if each customer has another one.
        keys: The environment variables for the key; the first that has a value counts.
        address: The environment variable for the base URL; "" if there is none.
        variant: what it has otherwise than OpenAI.
        local: its address is on this machine, and it needs no key.
        headers: (name, environment variable) of headers that are sent if the variable has a value.
    """

    base_url: str
    keys: tuple[str, ...]
    address: str = ""
    variant: ChatVariant = COMPATIBLE
    local: bool = False
    headers: tuple[tuple[str, str], ...] = ()


# --- the setting `thinking` -------------------------------------------------------------------------------------------


def _openrouter(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """One object for the models of all vendors; the service maps efforts to budgets and back."""
    if not isinstance(thinking, bool | str):
        return {"reasoning": {"max_tokens": thinking}}
    if isinstance(thinking, str):
        return {"reasoning": {"effort": thinking}}
    return {"reasoning": {"enabled": True} if thinking else {"effort": "none"}}


def _deepseek(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    switch: dict[str, JSONValue] = {"thinking": {"type": "enabled" if thinking else "disabled"}}
    return {**switch, "reasoning_effort": thinking} if isinstance(thinking, str) else switch


def _groq(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """Qwen's models know "none" and "default", and put reasoning into the text if not told otherwise."""
    if "qwen" not in model.lower():
        return effort(thinking)
    return effort(thinking, on="default") | {"reasoning_format": "parsed"}


def _mistral(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    return effort(thinking, on="high")


def _together(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """A switch for models that can do both, an effort for GPT-OSS."""
    return {"reasoning_effort": thinking} if isinstance(thinking, str) else {"reasoning": {"enabled": thinking}}


def _vllm(model: str, thinking: Thinking) -> dict[str, JSONValue]:
    """The switch is an argument of the model's template: "enable_thinking" for Qwen, "thinking" for the others."""
    if isinstance(thinking, str):
        return {"reasoning_effort": thinking}
    return {"chat_template_kwargs": {"enable_thinking": thinking, "thinking": thinking}}


# --- the table --------------------------------------------------------------------------------------------------------

_CACHE: Final = ("cache_key", "cache_retention")

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "openai": Preset(
            base_url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            address="OPENAI_BASE_URL",
            variant=OPENAI,
            headers=(("openai-organization", "OPENAI_ORG_ID"), ("openai-project", "OPENAI_PROJECT_ID")),
        ),
        # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle, openai-python's lib/azure.py: the v1 address
        # takes the deployment as the model; a dated version has it in the path, and the version in the query.
        "azure": Preset(
            base_url="",
            keys=("AZURE_OPENAI_API_KEY",),
            address="AZURE_OPENAI_ENDPOINT",
            variant=attrs.evolve(OPENAI, key_header="api-key", strict="plain"),
        ),
        # api-docs.deepseek.com/guides/thinking_mode: the switch; reasoning_content has to come back where tools are
        # called, and is ignored elsewhere. guides/json_mode: response_format knows json_object only.
        "deepseek": Preset(
            base_url="https://api.deepseek.com/v1",
            keys=("DEEPSEEK_API_KEY",),
            variant=ChatVariant(thinking=_deepseek, form="words"),
        ),
        # console.groq.com/docs/reasoning: reasoning_effort, reasoning_format. docs/structured-outputs took neither
        # streaming nor tools beside json_schema; not sure that it still does, and words always work.
        "groq": Preset(
            base_url="https://api.groq.com/openai/v1",
            keys=("GROQ_API_KEY",),
            variant=ChatVariant(limit_field="max_completion_tokens", thinking=_groq, form="words"),
        ),
        # docs.mistral.ai/api: random_seed, "any"; capabilities/reasoning/adjustable: "none" and "high". Unknown fields
        # are 422 extra_forbidden: stream_options (issue avante.nvim 2347), max_completion_tokens (eca 231),
        # reasoning_content (crush 1590). Ids of calls: "must be a-z, A-Z, 0-9, with a length of 9" (opencode 1680).
        "mistral": Preset(
            base_url="https://api.mistral.ai/v1",
            keys=("MISTRAL_API_KEY",),
            variant=ChatVariant(
                seed_field="random_seed",
                required="any",
                thinking=_mistral,
                counts=False,
                form="without_tools",
                keeps_reasoning=False,
                call_id=nine_id,
                lacks=(*_CACHE, "service_tier"),
            ),
        ),
        # docs.ollama.com/api/openai-compatibility: the fields that are supported. A format binds the whole answer, so
        # that no tool is called beside it.
        "ollama": Preset(
            base_url="http://127.0.0.1:11434/v1",
            keys=("OLLAMA_API_KEY",),
            address="OLLAMA_BASE_URL",
            variant=ChatVariant(form="without_tools", lacks=(*_CACHE, "service_tier", "parallel_tool_calls")),
            local=True,
        ),
        # openrouter.ai/docs: app-attribution (the headers), guides/best-practices/reasoning-tokens,
        # guides/features/structured-outputs. The variables of the headers are those of pydantic-ai.
        "openrouter": Preset(
            base_url="https://openrouter.ai/api/v1",
            keys=("OPENROUTER_API_KEY",),
            variant=ChatVariant(thinking=_openrouter, budgets=True, strict="plain"),
            headers=(("HTTP-Referer", "OPENROUTER_APP_URL"), ("X-Title", "OPENROUTER_APP_TITLE")),
        ),
        # docs.together.ai/docs/inference/openai-compatibility; inference/chat/reasoning: the switch and the effort.
        "together": Preset(
            base_url="https://api.together.ai/v1",
            keys=("TOGETHER_API_KEY",),
            variant=ChatVariant(thinking=_together, form="without_tools", lacks=(*_CACHE, "service_tier")),
        ),
        # docs.vllm.ai/en/stable/features/reasoning_outputs: `reasoning`, once `reasoning_content`; the switch. A
        # structured output binds the whole answer, as with Ollama.
        "vllm": Preset(
            base_url="http://127.0.0.1:8000/v1",
            keys=("VLLM_API_KEY",),
            address="VLLM_BASE_URL",
            variant=ChatVariant(thinking=_vllm, form="without_tools", lacks=(*_CACHE, "service_tier")),
            local=True,
        ),
        # docs.x.ai/docs/api-reference: max_tokens is the old name; reasoning_content; effort by model, "none" for 4.3.
        "xai": Preset(
            base_url="https://api.x.ai/v1",
            keys=("XAI_API_KEY",),
            variant=ChatVariant(limit_field="max_completion_tokens"),
        ),
    }
)

_BEDROCK: Final = (
    "Bedrock's own API signs its requests; ask its OpenAI-compatible address with a Bedrock API key:"
    ' OpenAIChat("NAME", base_url="https://bedrock-runtime.REGION.amazonaws.com/openai/v1", api_key=...),'
    " or openai:NAME with that --base-url, or a gateway with such an address in front of it, such as LiteLLM"
)
_VERTEX: Final = (
    "Vertex AI takes tokens that expire; ask its OpenAI-compatible address:"
    ' OpenAIChat("google/NAME", base_url="https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/'
    'LOCATION/endpoints/openapi", api_key=...), or openai:google/NAME with that --base-url, or a gateway in front'
    " of it that renews the token, such as LiteLLM; gemini:NAME takes a key of Google AI Studio"
)
ROADS: Final[Mapping[str, str]] = MappingProxyType({"bedrock": _BEDROCK, "vertex": _VERTEX, "google-vertex": _VERTEX})
"""Prefixes of services that have another kind of key, and the way to them."""
SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "claude": "anthropic",
        "google": "gemini",
        "google-gla": "gemini",
        "gpt": "openai",
        "grok": "xai",
        "lmstudio": "openai",
        "llamacpp": "openai",
        "llama-cpp": "openai",
    }
)
"""What other libraries and people call a provider; the last three are servers that speak OpenAI's format."""
