"""The judgement of one call: the rules of two layers, the default of the effect, and what people have remembered.

Theory of operation. In each layer the strictest of the matching rules counts: deny, then ask, then allow. Of the two
layers the stricter counts; a layer without a matching rule says nothing, and if no layer says anything, the default of
the effect counts. A remembered rule turns an ask into an allow and changes nothing else.

An allow rule opens what is refused or asked about for a reason of its own only if the rule names it: a path outside of
the workspace or withheld with a condition on the path, a folder outside with one on the folder, publishing, deploying
and secrets by their effect, the first two also by the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import attrs

from ..contract.plain import JSONObject
from .always import covers, may_be_remembered
from .matchers import FieldIndex
from .remembered import RememberedRule
from .rules import VERDICTS, WHERE, Rule, RuleVerdict
from .subject import Subject

Layer = Literal["workspace", "agent"]
_CACHED: Final = 1_024
"""Most pairs of tool and effects whose rules are kept."""

DEFAULTS: Final[Mapping[str, RuleVerdict]] = {
    "read": "allow",
    "apply_changes": "ask",
    "shell": "ask",
    "network": "ask",
    "publish": "ask",
    "deploy": "ask",
    "secret": "deny",
    "external": "ask",
    "delegate": "allow",
    "unknown": "ask",
}
"""Effect -> the verdict without a rule. Read, write and patch depend on the place; an effect without a row is asked."""
_BY_PLACE: Final[Mapping[tuple[str, str], tuple[RuleVerdict, str]]] = {
    **{(effect, "inside"): ("allow", "inside the workspace") for effect in ("read", "write", "patch")},
    **{(effect, "none"): ("ask", "no file is named") for effect in ("write", "patch")},
    **{(effect, "unknown"): ("ask", "without a workspace") for effect in ("read", "write", "patch")},
    **{(effect, "outside"): ("deny", "outside the workspace") for effect in ("read", "write", "patch")},
}


@attrs.frozen(kw_only=True)
class RuleMatch:
    """A rule that matches a call, and its layer."""

    layer: Layer
    rule: Rule


@attrs.frozen(kw_only=True)
class Judgement:
    """The verdict about a call, and where it comes from.

    Attributes:
        verdict: "deny", "ask" or "allow".
        subject: What the rules have read of the call.
        matches: The matching rules, the workspace's first, each layer in its order.
        default: The sentence of the default verdict; empty if a rule matches.
        remembered: The remembered rule that turned an ask into an allow, if one did.
        may_remember: Whether a person may answer with "always".
    """

    verdict: RuleVerdict
    subject: Subject
    matches: tuple[RuleMatch, ...] = ()
    default: str = ""
    remembered: RememberedRule | None = None
    may_remember: bool = False

    @property
    def deciding(self) -> tuple[RuleMatch, ...]:
        """The matching rules with the verdict that counts, before a remembered rule."""
        strictest = min((match.rule.verdict for match in self.matches), key=VERDICTS.index, default=None)
        return tuple(match for match in self.matches if match.rule.verdict == strictest)

    @property
    def reviewers(self) -> tuple[str, ...]:
        """The principals that may answer the question; empty: any principal."""
        return next((tuple(match.rule.reviewers) for match in self.deciding if match.rule.reviewers), ())

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.subject.tool} ({', '.join(sorted(self.subject.effects))})"]
        lines += [f"  {match.layer}: {match.rule}" for match in self.matches]
        lines += [f"  default: {self.default}"] if self.default else []
        lines += [f"  remembered: {self.remembered}"] if self.remembered else []
        return "\n".join(lines)


class RuleLayer:
    """The rules of one layer, compiled: judging a call costs a few searches, whatever the number of rules.

    Args:
        name: The layer.
        rules: The rules.
    """

    def __init__(self, name: Layer, rules: Sequence[Rule]) -> None:
        self.name: Layer = name
        self.rules = tuple(rules)
        self._strict = _Rules((n, rule) for n, rule in enumerate(rules) if rule.verdict != "allow")
        self._allowing = _Rules((n, rule) for n, rule in enumerate(rules) if rule.verdict == "allow")

    def __repr__(self) -> str:
        return f"<RuleLayer {self.name}: {len(self.rules)} rules>"

    def matches(self, subject: Subject) -> Iterator[RuleMatch]:
        """Yield the rules that match a call."""
        bits = self._strict.met_by_any(subject) | self._allowing.met_by_all(subject)
        while bits:
            lowest = bits & -bits
            rule = self.rules[lowest.bit_length() - 1]
            if rule.verdict != "allow" or _opens(rule, subject):
                yield RuleMatch(layer=self.name, rule=rule)
            bits ^= lowest


class _Rules:
    """Rules that are matched alike: a set of rules is an int with the bit of each rule's number."""

    def __init__(self, rules: Iterable[tuple[int, Rule]]) -> None:
        self._by_number = dict(rules)
        strict = any(rule.verdict != "allow" for rule in self._by_number.values())
        self._fields = {field: self._index(field, anywhere=strict) for field in WHERE}
        self._tools = self._index("tool", anywhere=strict)
        self._cache: dict[tuple[str, frozenset[str]], tuple[int, int]] = {}

    def _index(self, field: str, *, anywhere: bool) -> FieldIndex:
        pairs = ((1 << n, one) for n, rule in self._by_number.items() for one in rule.conditions if one.field == field)
        return FieldIndex(pairs, anywhere=anywhere)

    def met_by_any(self, subject: Subject) -> int:
        """Return the rules of which each condition is met by some text of its field, or cannot be read."""
        bits, _ = self._candidates(subject)
        for field, index in self._fields.items():
            if not bits & index.bits:
                continue
            if field in subject.unread:
                hits = index.bits
            elif field == "argv":
                hits = 0 if subject.command is None else index.loosely(subject.command.steps)
            else:
                hits = 0
                for text in subject.texts(field):
                    hits |= index.matching(text)
            bits &= hits | ~index.bits
        return bits

    def met_by_all(self, subject: Subject) -> int:
        """Return the rules of which each condition is met by every text of its field, and can be read."""
        _, bits = self._candidates(subject)
        for field, index in self._fields.items():
            if not bits & index.bits:
                continue
            if field == "argv":
                argv = None if subject.command is None else subject.command.argv
                hits = 0 if argv is None else index.exactly(argv)
            else:
                texts = subject.texts(field)
                hits = index.bits if texts and field not in subject.unread else 0
                for text in texts:
                    hits &= index.matching(text)
            bits &= hits | ~index.bits
        return bits

    def _candidates(self, subject: Subject) -> tuple[int, int]:
        """Return the rules whose tool and effect fit: one of the call's effects, and all of them."""
        key = (subject.tool, subject.effects)
        cached = self._cache.get(key)
        if cached is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            tools = self._tools.matching(subject.tool) | ~self._tools.bits
            cached = (self._with_effect(subject.effects, any) & tools, self._with_effect(subject.effects, all) & tools)
            self._cache[key] = cached
        return cached

    def _with_effect(self, effects: frozenset[str], of: Callable[[Iterator[bool]], bool]) -> int:
        return sum(
            1 << n
            for n, rule in self._by_number.items()
            if rule.effect is None or of(effect in rule.effect for effect in effects)
        )


def judge(subject: Subject, layers: Iterable[RuleLayer]) -> Judgement:
    """Return the judgement about a call, without remembered rules.

    Args:
        subject: The call.
        layers: The rules of the workspace and of the agent.
    """
    matches = tuple(match for layer in layers for match in layer.matches(subject))
    verdict, default = min((match.rule.verdict for match in matches), key=VERDICTS.index, default=None), ""
    if verdict is None:
        verdict, default = default_of(subject)
    may = verdict == "ask" and may_be_remembered(subject)
    may = may and all(match.rule.remember for match in matches)
    return Judgement(verdict=verdict, subject=subject, matches=matches, default=default, may_remember=may)


def with_remembered(
    judgement: Judgement, rules: Iterable[RememberedRule], arguments: JSONObject, definition: str = ""
) -> Judgement:
    """Return the judgement with the first remembered rule that covers the call; unchanged if none may or does.

    Args:
        judgement: The judgement without remembered rules.
        rules: The remembered rules that may apply.
        arguments: The arguments of the call.
        definition: The digest of the tool's definition; "" is unknown.
    """
    if not judgement.may_remember:
        return judgement
    reviewers = judgement.reviewers
    for rule in rules:
        if (not reviewers or rule.by in reviewers) and covers(rule, judgement.subject, arguments, definition):
            return attrs.evolve(judgement, verdict="allow", remembered=rule)
    return judgement


def default_of(subject: Subject) -> tuple[RuleVerdict, str]:
    """Return the verdict without a rule, and the sentence that explains it."""
    if subject.place == "withheld":
        return "deny", "withheld files are not touched"
    if subject.unread:
        verdicts = [_default(effect, subject.place)[0] for effect in subject.effects]
        verdict: RuleVerdict = "deny" if "deny" in verdicts else "ask"
        return verdict, f"{' and '.join(sorted(subject.unread))} of the call cannot be read"
    return min((_default(effect, subject.place) for effect in subject.effects), key=lambda one: VERDICTS.index(one[0]))


def _default(effect: str, place: str) -> tuple[RuleVerdict, str]:
    verdict, why = _BY_PLACE.get((effect, place), (DEFAULTS.get(effect, "ask"), ""))
    return verdict, f"{effect} {why}".strip()


def _opens(rule: Rule, subject: Subject) -> bool:
    """Return True if an allow rule names whatever is special about the call (see the theory of operation)."""
    if subject.unread or (subject.compound and not rule.compound):
        return False
    if subject.place in ("outside", "withheld") and not rule.names("path", "folder"):
        return False
    special = subject.effects & {"secret", "publish", "deploy"} - set(rule.effect or ())
    return not special or ("secret" not in special and rule.names("argv", "command"))
