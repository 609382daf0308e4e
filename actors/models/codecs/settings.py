"""The settings of models: one name for each, whatever a provider calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from greenroom.supervision.fields import did_you_mean

from ...contract.plain import JSONObject, JSONValue

EXTRA: Final = ("extra_headers", "extra_body")
"""Settings of every provider: headers, and fields of the request's body, as given."""
_SYNONYMS: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "num_predict": "max_tokens",
    "reasoning": "thinking",
    "reasoning_effort": "thinking",
    "stop": "stop_sequences",
    "stopSequences": "stop_sequences",
    "topK": "top_k",
    "topP": "top_p",
}
"""Names of providers, each with the name of this library."""


def fault_of_settings(settings: JSONObject, options: Iterable[str]) -> str | None:
    """Return what is wrong with settings, and what to give; None if nothing is."""
    names = (*options, *EXTRA)
    for name in settings:
        if name not in names:
            near = did_you_mean(name, names, synonyms=_SYNONYMS)
            return f"there is no setting {name!r}; {near}use one of {', '.join(names)}"
    headers = settings.get("extra_headers", {})
    if not isinstance(headers, Mapping) or not all(map(is_header, headers.items())):
        return "extra_headers has what is no header; give a dict of str"  # without values, which may be secret
    if not isinstance(settings.get("extra_body", {}), Mapping):
        return f"extra_body={settings['extra_body']!r:.100}: give a dict"
    thinking = settings.get("thinking", True)
    if not isinstance(thinking, bool | str) or thinking == "":
        return f"thinking={thinking!r:.100}: give True, False, or an effort such as 'low'"
    return None


def is_header(pair: tuple[object, object]) -> bool:
    """Return True if the pair can be sent as a header: printable ASCII, and a name without blanks and colons."""
    name, value = pair
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and name.isascii()
        and name.isprintable()
        and name != ""
        and not set(name) & set(' :"(),/;<=>?@[\\]{}')
        and value.isascii()
        and value.isprintable()
    )


def renamed(settings: JSONObject, names: Mapping[str, str]) -> dict[str, JSONValue]:
    """Return the given settings under the names of the wire."""
    return {wire: settings[name] for name, wire in names.items() if settings.get(name) is not None}


def extra_headers(settings: JSONObject) -> dict[str, str]:
    """Return the headers of the settings."""
    return dict(settings.get("extra_headers") or {})


def extra_body(settings: JSONObject) -> dict[str, JSONValue]:
    """Return the fields that go over those of the body."""
    return dict(settings.get("extra_body") or {})
