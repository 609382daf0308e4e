"""`Workspace`: a folder that runs may work in, as a program names it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from ..errors import UsageError
from .allowlist import check_name, parts_of
from .withheld import withhold

_MOST_COPIES: Final = 20
_MOST_RULES: Final = 2_000


class WorkspaceRule:
    """The base of what `Workspace(rules=)` takes: `gr.ext.Rule`. Only permission knows what rules mean."""

    __slots__ = ()


def _rules(value: object) -> tuple[WorkspaceRule, ...] | None:
    if value is None:
        return None
    rules = tuple(value) if isinstance(value, list | tuple) else ()
    if not 0 < len(rules) <= _MOST_RULES or not all(isinstance(rule, WorkspaceRule) for rule in rules):
        raise UsageError(f"Workspace(rules={value!r:.200}): give a list of 1 to {_MOST_RULES:,} gr.ext.Rule, or None")
    return rules


@attrs.frozen
class Workspace:
    """A folder that a runtime allows runs to work in, under a name.

    Attributes:
        name: 1 to 64 of a-z, 0-9, `.`, `_`, `-`, beginning with a letter or digit.
        folder: The folder; `~` is the home of the user.
        rules: Rules about the calls of all runs that work in the folder, for the `Permission` of each agent, beside the
            rules of the agent; of both the stricter verdict counts.
        copy: Paths in it that git ignores and each worktree gets all the same, such as `node_modules`; at most 20.
        withhold: Patterns of secrets, in place of `SECRETS` (see `Withheld`); None for these.
        trusted: The settings of coding agents in the folder (`SETTINGS`) are not withheld.

    Raises:
        UsageError: the name, a rule or a pattern is invalid.
        OutsideWorkspace: a path of `copy` is invalid.
    """

    name: str
    folder: Path = attrs.field(converter=Path)
    rules: tuple[WorkspaceRule, ...] | None = attrs.field(default=None, converter=_rules, kw_only=True)
    copy: tuple[str, ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    withhold: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(tuple), kw_only=True
    )
    trusted: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_name(self.name)
        withhold(self.withhold, trusted=self.trusted)
        if len(self.copy) > _MOST_COPIES or not all(parts_of(path) for path in self.copy):
            raise UsageError(f"workspace {self.name!r}: copy= takes up to {_MOST_COPIES} paths of folders in it")
