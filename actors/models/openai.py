"""Models of OpenAI, and of services and local servers that speak its formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from .codecs.openai_chat import OpenAIChatCodec
from .codecs.openai_responses import OpenAIResponsesCodec
from .http import SILENCE, HTTPModel, base_url_of, default_url, key_of

OFFICIAL: Final = "https://api.openai.com/v1"
MISSING: Final = "there is no API key for api.openai.com: set OPENAI_API_KEY, or give api_key="


class OpenAIChat(HTTPModel):
    """A model behind OpenAI's chat completions, or behind one of the many servers with the same format.

    The name in events and digests is "openai:NAME".

    Args:
        name: the provider's name of the model.
        api_key: default: OPENAI_API_KEY. Another host than OpenAI's needs none.
        base_url: ends in /v1; default: OPENAI_BASE_URL, else OpenAI's own.
        headers: sent with each request.
        structured: "native" asks for the form of an answer by `response_format`, "prompt" in the system text.
        idle_timeout: seconds without a byte after which the request has failed (kind timeout); None: no limit.

    Raises:
        AgentDefinitionError: an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        structured: Literal["native", "prompt"] = "native",
        idle_timeout: float | None = SILENCE,
    ) -> None:
        place = base_url_of(f"openai:{name}", default_url(base_url, "OPENAI_BASE_URL", OFFICIAL))
        official = is_official(place)
        codec = OpenAIChatCodec(
            name,
            provider="openai" if official else f"openai at {urlsplit(place).hostname}",
            limit_field="max_completion_tokens" if official else "max_tokens",
            native=structured == "native",
        )
        super().__init__(
            "openai",
            name,
            codec,
            base_url=place,
            key=key_of(f"openai:{name}", api_key, "OPENAI_API_KEY"),
            missing=MISSING if official else None,
            headers={**(account_headers() if official else {}), **(headers or {})},
            structured=structured,
            idle_timeout=idle_timeout,
        )


class OpenAIResponses(HTTPModel):
    """A model behind OpenAI's responses. Nothing is stored at the provider: each request has the whole history.

    The name in events and digests is "openai-responses:NAME".

    Args:
        name: the provider's name of the model.
        api_key: default: OPENAI_API_KEY. Another host than OpenAI's needs none.
        base_url: ends in /v1; default: OPENAI_BASE_URL, else OpenAI's own.
        headers: sent with each request.
        structured: "native" asks for the form of an answer by `text.format`, "prompt" in the system text.
        idle_timeout: seconds without a byte after which the request has failed (kind timeout); None: no limit.

    Raises:
        AgentDefinitionError: an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        structured: Literal["native", "prompt"] = "native",
        idle_timeout: float | None = SILENCE,
    ) -> None:
        prefix = "openai-responses"
        place = base_url_of(f"{prefix}:{name}", default_url(base_url, "OPENAI_BASE_URL", OFFICIAL))
        official = is_official(place)
        super().__init__(
            prefix,
            name,
            OpenAIResponsesCodec(name, native=structured == "native"),
            base_url=place,
            key=key_of(f"{prefix}:{name}", api_key, "OPENAI_API_KEY"),
            missing=MISSING if official else None,
            headers={**(account_headers() if official else {}), **(headers or {})},
            structured=structured,
            idle_timeout=idle_timeout,
        )


def is_official(base_url: str) -> bool:
    """Return True for OpenAI's own host."""
    return urlsplit(base_url).hostname == urlsplit(OFFICIAL).hostname


def account_headers() -> dict[str, str]:
    """Return the headers of the account that the environment names."""
    names = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
    return {header: value for header, name in names.items() if (value := os.environ.get(name, "").strip())}
