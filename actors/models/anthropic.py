"""Models of Anthropic, and of services that speak its messages format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from .codecs.anthropic import NEWEST, AnthropicCodec
from .http import SILENCE, HTTPModel, base_url_of, default_url, key_of

OFFICIAL: Final = "https://api.anthropic.com"


class Anthropic(HTTPModel):
    """A model behind Anthropic's messages.

    The name in events and digests is "anthropic:NAME".

    Args:
        name: the provider's name of the model.
        api_key: default: ANTHROPIC_API_KEY; without both, ANTHROPIC_AUTH_TOKEN is sent as a Bearer token. Another host
            than Anthropic's needs none.
        base_url: without a version; default: ANTHROPIC_BASE_URL, else Anthropic's own.
        headers: sent with each request.
        structured: "native" asks for the form of an answer by `output_config`, "prompt" in the system text.
        idle_timeout: seconds without a byte after which the request has failed (kind timeout); None: no limit.
        api_version: The version of the API; "2023-06-01" takes the settings temperature, top_p and top_k, the
            newest refuses them.

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
        api_version: str = NEWEST,
    ) -> None:
        place = base_url_of(f"anthropic:{name}", default_url(base_url, "ANTHROPIC_BASE_URL", OFFICIAL))
        host, key = urlsplit(OFFICIAL).hostname, key_of(f"anthropic:{name}", api_key, "ANTHROPIC_API_KEY")
        token = None if key or api_key is not None else key_of(f"anthropic:{name}", None, "ANTHROPIC_AUTH_TOKEN")
        if token:
            headers = {"authorization": f"Bearer {token}", **(headers or {})}
        missing = f"there is no API key for {host}: set ANTHROPIC_API_KEY, or give api_key="
        super().__init__(
            "anthropic",
            name,
            AnthropicCodec(name, api_version=api_version, native=structured == "native"),
            base_url=place,
            key=key,
            missing=missing if urlsplit(place).hostname == host and not token else None,
            headers=headers,
            structured=structured,
            idle_timeout=idle_timeout,
        )
