"""Models of OpenAI, and of services and local servers that speak its formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import quote, urlencode, urlsplit

import attrs

from greenroom.supervision.fields import did_you_mean

from ..errors import AgentDefinitionError
from .codecs.openai_chat import OpenAIChatCodec
from .codecs.openai_responses import OpenAIResponsesCodec
from .codecs.variant import COMPATIBLE
from .http import SILENCE, HTTPModel, base_url_of, default_url, key_of
from .presets import PRESETS, SYNONYMS, Preset

OPENAI: Final = PRESETS["openai"]


class OpenAIChat(HTTPModel):
    """A model behind OpenAI's chat completions, or behind one of the many servers with the same format.

    The name in events and digests is "PRESET:NAME".

    Args:
        name: the provider's name of the model; for Azure, the name of the deployment.
        preset: The service, a key of `PRESETS`: its address, the variable of its key, what it has otherwise.
        api_key: default: the variable of the preset. Another host than the preset's needs none.
        base_url: ends in /v1; default: the variable of the preset, else its own. For Azure the address of the resource.
        headers: sent with each request.
        structured: "native" asks for the form of an answer by `response_format`, "prompt" in the system text.
        strict: True sends the schemas of tools and answers in the strict form where they have one, False as they are;
            None: as the service is known to take them.
        idle_timeout: seconds without a byte after which the request has failed (kind timeout); None: no limit.
        api_version: A dated version of Azure's API; default: OPENAI_API_VERSION, else the v1 address, which has none.

    Raises:
        AgentDefinitionError: an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        preset: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        structured: Literal["native", "prompt"] = "native",
        strict: bool | None = None,
        idle_timeout: float | None = SILENCE,
        api_version: str | None = None,
    ) -> None:
        model = f"{preset}:{name}"
        if preset not in PRESETS:
            near = did_you_mean(preset, PRESETS, synonyms=SYNONYMS)
            raise AgentDefinitionError(f"model {model!r}: preset={preset!r}: {near}use one of {', '.join(PRESETS)}")
        if api_version is not None and preset != "azure":
            raise AgentDefinitionError(f"model {model!r}: api_version={api_version!r}: only the preset azure takes one")
        service = PRESETS[preset]
        place, path = _address(model, base_url, service), "/chat/completions"
        if preset == "azure":
            place, path = azure_address(place, name, api_version or os.environ.get("OPENAI_API_VERSION", ""))
        is_own = not service.base_url or urlsplit(place).hostname == urlsplit(service.base_url).hostname
        variant = COMPATIBLE if preset == "openai" and not is_own else service.variant
        if checked_strict(model, strict) is not None:
            variant = attrs.evolve(variant, strict="limits" if strict else "never")
        codec = OpenAIChatCodec(
            name,
            provider=preset if is_own else f"{preset} at {urlsplit(place).hostname}",
            variant=variant,
            path=path,
            native=structured == "native",
        )
        super().__init__(
            preset,
            name,
            codec,
            base_url=place,
            key=key_of(model, api_key, *service.keys),
            missing=missing_key(service, place) if is_own and not service.local else None,
            headers={**(preset_headers(service) if is_own else {}), **(headers or {})},
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
        strict: True sends the schemas of tools and answers in the strict form where they have one, False as they are;
            None: as the service is known to take them.
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
        strict: bool | None = None,
        idle_timeout: float | None = SILENCE,
    ) -> None:
        model = f"openai-responses:{name}"
        strict = checked_strict(model, strict)
        place = _address(model, base_url, OPENAI)
        is_own = urlsplit(place).hostname == urlsplit(OPENAI.base_url).hostname
        super().__init__(
            "openai-responses",
            name,
            OpenAIResponsesCodec(name, native=structured == "native", strict=is_own if strict is None else strict),
            base_url=place,
            key=key_of(model, api_key, *OPENAI.keys),
            missing=missing_key(OPENAI, place) if is_own else None,
            headers={**(preset_headers(OPENAI) if is_own else {}), **(headers or {})},
            structured=structured,
            idle_timeout=idle_timeout,
        )


def _address(model: str, base_url: str | None, service: Preset) -> str:
    place = default_url(base_url, service.address, service.base_url)
    if not place and base_url is None:
        way = f"set {service.address}, such as https://NAME.openai.azure.com, or give base_url="
        raise AgentDefinitionError(f"model {model!r}: there is no address: {way}")
    return base_url_of(model, place)


def azure_address(place: str, deployment: str, api_version: str) -> tuple[str, str]:
    """Return base URL and path of a deployment: the v1 address, or that of a dated version."""
    root = place.removesuffix("/v1").removesuffix("/openai")
    if not api_version:
        return f"{root}/openai/v1", "/chat/completions"
    query = urlencode({"api-version": api_version})
    return f"{root}/openai/deployments/{quote(deployment, safe='')}", f"/chat/completions?{query}"


def checked_strict(model: str, strict: bool | None) -> bool | None:
    """Return the option `strict` of a model; AgentDefinitionError for another value."""
    if strict not in (None, True, False):
        raise AgentDefinitionError(f"model {model!r}: strict={strict!r:.100}: give True, False or None")
    return strict


def missing_key(service: Preset, place: str) -> str:
    """Return what to do about a missing key."""
    return f"there is no API key for {urlsplit(place).hostname}: set {service.keys[0]}, or give api_key="


def preset_headers(service: Preset) -> dict[str, str]:
    """Return the headers for which the environment has a value."""
    return {name: value for name, source in service.headers if (value := os.environ.get(source, "").strip())}
