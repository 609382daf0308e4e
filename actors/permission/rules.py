"""A rule of permission: a verdict, and the conditions under which it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import attrs

from greenroom.supervision.fields import did_you_mean

from ..errors import UsageError
from ..options import checks_fields, unknown_value
from ..workspaces.workspace import WorkspaceRule
from .matchers import FIELDS, Condition, Matcher, condition_of

RuleVerdict = Literal["deny", "ask", "allow"]
VERDICTS: Final[tuple[RuleVerdict, ...]] = get_args(RuleVerdict)
"""The strictest first."""
EFFECTS: Final = (
    *("read", "write", "patch", "apply_changes", "shell", "network", "publish", "deploy", "secret"),
    *("external", "delegate", "unknown"),
)
"""The effects that have a default; a tool, and so a rule, may name another identifier."""
RULES_LIMIT: Final = 2_000
"""Most rules of one layer."""
WHERE: Final = tuple(field for field in FIELDS if field != "tool")
"""The fields of a subject that `where` may name."""

_YEAR: Final = 365 * 86_400
"""Seconds; a longer wait is a mistake."""


def _verdict(_: object, __: object, value: object) -> None:
    if value not in VERDICTS:
        raise unknown_value("verdict", value, VERDICTS)


def _flag(_: object, field: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{field.name}={value!r:.100}: give True or False")


def _effects(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    effects = (value,) if isinstance(value, str) else value
    if not isinstance(effects, list | tuple) or not effects:
        raise UsageError(f"effect={value!r:.200}: give an effect such as 'shell', or a list of some")
    for effect in effects:
        near = did_you_mean(effect, EFFECTS)
        if effect not in EFFECTS and (near or not isinstance(effect, str) or not effect.isidentifier()):
            raise UsageError(f"effect={effect!r:.100} is not known; {near}use one of {', '.join(EFFECTS)}")
    return tuple(effects)


def _names(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"reviewers={value!r:.200}: give a list of principals that is not empty, or leave it out")
    return tuple(value)


@checks_fields(UsageError)
@attrs.frozen
class Rule(WorkspaceRule):
    """A rule of permission. All conditions that it names must hold; a rule without conditions holds for every call.

    A matcher is a text (exact), `{"glob": "src/**"}` (`*` stops at a slash, `**` does not; without a slash the name of
    a file in any folder), `{"regex": "..."}` (RE2, compared with the whole text), `{"under": "src"}` (the folder and
    everything in it), `{"host": "example.com"}` (and its subdomains), or a list of words for argv, in which a last "*"
    stands for any further words. Of a call that names several paths an allow rule must match all, another rule one.

    Attributes:
        verdict: "deny", "ask" or "allow".
        tool: A matcher of the tool's name.
        effect: The effect of the call, or several.
        where: Field of the subject (path, folder, command, argv, host, url) -> matcher.
        reason: Text for the model (deny) or for the deciding person (ask).
        reviewers: The principals that may decide (ask only).
        expires: Seconds after which the question counts as denied (ask only).
        remember: Whether a person may answer with "always" (ask only).
        compound: An allow rule also matches compound commands, by their whole text.
        place: The place of the rule in a file, for messages.

    Raises:
        UsageError: a field or value is unknown or invalid; names it and says what to give.
    """

    verdict: RuleVerdict = attrs.field(validator=_verdict)
    tool: Matcher | None = attrs.field(default=None, kw_only=True)
    effect: str | Sequence[str] | None = attrs.field(default=None, converter=_effects, kw_only=True)
    where: Mapping[str, Matcher] | None = attrs.field(default=None, kw_only=True)
    reason: str = attrs.field(default="", kw_only=True)
    reviewers: Sequence[str] | None = attrs.field(default=None, converter=_names, kw_only=True)
    expires: float | None = attrs.field(default=None, kw_only=True)
    remember: bool = attrs.field(default=True, validator=_flag, kw_only=True)
    compound: bool = attrs.field(default=False, validator=_flag, kw_only=True)
    place: str = attrs.field(default="", eq=False, kw_only=True)
    conditions: tuple[Condition, ...] = attrs.field(init=False, repr=False, eq=False)
    """The conditions of `tool` and `where`."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(self._conditions()))
        if not isinstance(self.reason, str):
            raise UsageError(f"reason={self.reason!r:.100}: give a text")
        expires: object = self.expires
        number = isinstance(expires, int | float) and not isinstance(expires, bool)
        if expires is not None and not (number and 0 < expires <= _YEAR):  # type: ignore[operator]
            raise UsageError(f"expires={expires!r:.100}: give seconds, more than 0 and at most {_YEAR:,}")
        asking = {"reviewers": self.reviewers, "expires": self.expires, "remember": not self.remember}
        for name in (name for name, value in asking.items() if value and self.verdict != "ask"):
            raise UsageError(f"{name}={getattr(self, name)!r:.100}: only a rule with verdict 'ask' has it")
        if self.compound and self.verdict != "allow":
            raise UsageError("compound=True: only a rule with verdict 'allow' has it; the others match in any case")
        if self.compound and any(condition.field == "argv" for condition in self.conditions):
            raise UsageError("compound=True beside argv: a compound command has no words; match its text: command")

    def _conditions(self) -> list[Condition]:
        conditions = [] if self.tool is None else [condition_of("tool", self.tool)]
        where: object = self.where
        if where is None:
            return conditions
        if not isinstance(where, Mapping) or not where:
            raise UsageError(f"where={where!r:.200}: give a mapping of {', '.join(WHERE)}, or leave it out")
        for field, matcher in where.items():
            if field not in WHERE:
                raise unknown_value("where", field, WHERE)
            conditions.append(condition_of(field, matcher))
        return conditions

    def names(self, *fields: str) -> bool:
        """Return True if the rule has a condition on one of these fields."""
        return any(condition.field in fields for condition in self.conditions)

    def __str__(self) -> str:
        parts = [self.verdict, *map(str, self.conditions)]
        if self.effect is not None:
            parts.append(f"effect {' or '.join(self.effect)}")
        return " ".join(parts) + (f" ({self.place})" if self.place else "")


def check_rules(rules: object, name: str) -> tuple[Rule, ...]:
    """Return a layer's rules, checked.

    Raises:
        UsageError: the list is empty or too long, or an item is not a rule.
    """
    if rules is None:
        return ()
    if not isinstance(rules, list | tuple) or not rules:
        raise UsageError(f"{name}={rules!r:.200}: give a list of gr.ext.Rule that is not empty, or leave it out")
    if len(rules) > RULES_LIMIT:
        raise UsageError(f"{name}: it has {len(rules):,} rules; give at most {RULES_LIMIT:,}")
    for number, rule in enumerate(rules, 1):
        if not isinstance(rule, Rule):
            way = "give gr.ext.Rule('ask', tool='Bash')"
            raise UsageError(f"{name}: item {number} is not a rule: {rule!r:.200}; {way}")
    return tuple(rules)
