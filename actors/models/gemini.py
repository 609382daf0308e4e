"""Gemini models of Google, and of services that speak their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from .codecs.gemini import GeminiCodec
from .http import SILENCE, HTTPModel, base_url_of, default_url, key_of

OFFICIAL: Final = "https://generativelanguage.googleapis.com"


class Gemini(HTTPModel):
    """A model behind Gemini's generateContent.

    The name in events and digests is "gemini:NAME".

    Args:
        name: the provider's name of the model.
        api_key: default: GOOGLE_API_KEY, else GEMINI_API_KEY. Another host than Google's needs none.
        base_url: without a version; default: GOOGLE_GEMINI_BASE_URL, else Google's own.
        headers: sent with each request.
        structured: "native" asks for the form of an answer by `responseJsonSchema` if no tools are offered, "prompt" in
            the system text.
        idle_timeout: seconds without a byte after which the request has failed (kind timeout); None: no limit.
        api_version: The version of the API, a part of the path.

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
        api_version: str = "v1beta",
    ) -> None:
        place = base_url_of(f"gemini:{name}", default_url(base_url, "GOOGLE_GEMINI_BASE_URL", OFFICIAL))
        host = urlsplit(OFFICIAL).hostname
        missing = f"there is no API key for {host}: set GEMINI_API_KEY, or give api_key="
        super().__init__(
            "gemini",
            name,
            GeminiCodec(name, api_version=api_version, native=structured == "native"),
            base_url=place,
            key=key_of(f"gemini:{name}", api_key, "GOOGLE_API_KEY", "GEMINI_API_KEY"),
            missing=missing if urlsplit(place).hostname == host else None,
            headers=headers,
            structured=structured,
            idle_timeout=idle_timeout,
        )
