"""The settings of models: one name for each, whatever a provider calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from greenroom.supervision.fields import did_you_mean

from ...contract.plain import JSONObject, JSONValue

EXTRA: Final = ("provider_tools", "provider_files", "extra_headers", "extra_body")
"""Settings of every provider: its own tools, files that it has, headers, and fields of the request's body, as given."""
MOST: Final = 128
"""Most tools and files of a provider in one request; the smallest limit that a provider documents (OpenAI, tools)."""
_SYNONYMS: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "num_predict": "max_tokens",
    "reasoning": "thinking",
    "reasoning_effort": "thinking",
    "budget_tokens": "thinking",
    "prompt_cache_key": "cache_key",
    "prompt_cache_retention": "cache_retention",
    "cache_control": "cache_retention",
    "builtin_tools": "provider_tools",
    "stop": "stop_sequences",
    "stopSequences": "stop_sequences",
    "topK": "top_k",
    "topP": "top_p",
}
"""Names of providers, each with the name of this library."""


def fault_of_settings(settings: JSONObject, options: Iterable[str], *, budgets: bool = False) -> str | None:
    """Return what is wrong with settings, and what to give; None if nothing is.

    Args:
        settings: The settings of an agent.
        options: The names that the provider has, beside `EXTRA`.
        budgets: the model takes a number of tokens for its reasoning.
    """
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
    for name, words, kinds in _LISTS:
        entries = settings.get(name, ())
        if (
            not isinstance(entries, list | tuple)
            or len(entries) > MOST
            or not all(_is_a(kinds, one) for one in entries)
        ):
            return f"{name}={entries!r:.200}: give a list of at most {MOST} {words}"
    for name in ("cache_key", "cache_retention"):
        if not isinstance(settings.get(name, ""), str):
            return f"{name}={settings[name]!r:.100}: give a text"
    return _fault_of_thinking(settings.get("thinking", True), budgets=budgets)


_LISTS: Final[tuple[tuple[str, str, tuple[type, ...]], ...]] = (
    ("provider_tools", "dicts, each a tool in the provider's form", (Mapping,)),
    ("provider_files", "ids of files, or dicts in the provider's form", (Mapping, str)),
)


def _is_a(kinds: tuple[type, ...], entry: object) -> bool:
    return isinstance(entry, kinds) and bool(entry)


def _fault_of_thinking(thinking: object, *, budgets: bool) -> str | None:
    if isinstance(thinking, bool) or (isinstance(thinking, str) and thinking):
        return None
    if budgets and isinstance(thinking, int) and thinking > 0:
        return None
    more = "or a number of tokens, 1 or more" if budgets else "; this model takes no number of tokens"
    return f"thinking={thinking!r:.100}: give True, False, an effort such as 'low'{', ' if budgets else ''}{more}"


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


def provider_tools(settings: JSONObject) -> list[JSONObject]:
    """Return the provider's own tools of the settings."""
    return list(settings.get("provider_tools") or ())


def provider_files(settings: JSONObject, write: Callable[[str], JSONObject]) -> list[JSONObject]:
    """Return the parts of a message that refer to files which the provider has; `write` makes one of an id."""
    return [write(file) if isinstance(file, str) else file for file in settings.get("provider_files") or ()]


def extra_headers(settings: JSONObject) -> dict[str, str]:
    """Return the headers of the settings."""
    return dict(settings.get("extra_headers") or {})


def extra_body(settings: JSONObject) -> dict[str, JSONValue]:
    """Return the fields that go over those of the body."""
    return dict(settings.get("extra_body") or {})
