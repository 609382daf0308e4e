"""What a tool of an MCP server may do: rules by its name, and the names under which models see tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final, Literal

import attrs

from ..contract.plain import JSONObject
from ..contract.spec import Concurrency
from ..errors import ToolDefinitionError
from ..options import checks_fields
from ..tools.definition import Predicate, Tool

LONGEST_NAME: Final = 64
"""Characters of a name that models accept."""
_DIGITS: Final = 8
"""Hex digits of the digest at the end of a name that was changed."""
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")


@checks_fields(ToolDefinitionError)
@attrs.frozen(kw_only=True)
class Rule:
    """What is known about tools of a server; the defaults hold for a tool about which nothing is known.

    Attributes:
        effect: The effect class, as of `tool`.
        needs_approval: A person must approve each call; or a predicate, as of `tool`.
        replay: "safe": the call may be sent again when its outcome is unknown.
        concurrency: shared, ordered or exclusive, as of `tool`.
        timeout: Seconds for one call, questions to people included; None: no limit but the server's `idle`.

    Raises:
        ToolDefinitionError: an option is invalid, as of `tool`.
    """

    effect: str = "external"
    needs_approval: bool | Predicate = True
    replay: Literal["unsafe", "safe"] = "unsafe"
    concurrency: Concurrency = "shared"
    timeout: float | None = None

    def __attrs_post_init__(self) -> None:
        Tool.from_schema(_stand_in, schema={"type": "object"}, name="Rule", **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a tool with this rule."""
        return {
            "effect": self.effect,
            "needs_approval": self.needs_approval,
            "replay": self.replay,
            "concurrency": self.concurrency,
            "timeout": self.timeout,
        }


def _stand_in(ctx: Any, arguments: dict[str, Any]) -> None:
    """Stand for the body of a tool."""


UNKNOWN: Final = Rule()


@attrs.frozen(kw_only=True)
class Rules:
    """The rules of a server.

    Attributes:
        by_glob: glob of a server's name of a tool -> its rule; the first one that fits counts.
        trust_hints: A tool that no glob fits is judged by the server's own hints about it.
    """

    by_glob: Mapping[str, Rule]
    trust_hints: bool = False

    def rule_of(self, tool: str, hints: JSONObject) -> Rule:
        """Return the rule of a tool, by its name at the server and the annotations in its definition."""
        for glob, rule in self.by_glob.items():
            if fnmatchcase(tool, glob):
                return rule
        if not self.trust_hints:
            return UNKNOWN
        reads = hints.get("readOnlyHint") is True
        safe = reads or hints.get("idempotentHint") is True
        return Rule(
            effect="read" if reads else UNKNOWN.effect,
            needs_approval=not reads,
            replay="safe" if safe else "unsafe",
        )


def is_offered(tool: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Return whether a tool is offered at all, by its name at the server."""
    return any(fnmatchcase(tool, glob) for glob in include) and not any(fnmatchcase(tool, glob) for glob in exclude)


def shown_name(server: str, tool: str) -> str:
    """Return the name under which models see a tool: `mcp__<server>__<tool>`.

    A name with other characters than models accept, or with too many, is changed and ends in a digest of the tool's
    own, so that two tools never get one name by the change.
    """
    name = _OTHER.sub("_", f"mcp__{server}__{tool}")
    if len(name) <= LONGEST_NAME and name.endswith(f"__{tool}"):
        return name
    digest = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: LONGEST_NAME - _DIGITS - 1]}_{digest}"
