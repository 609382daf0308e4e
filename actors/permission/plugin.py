"""`Permission`: the plugin whose gate judges each call by rules, and the file from which rules come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from ..contract.codec import shortened
from ..contract.decisions import Allow, Deny, Suspend, Verdict
from ..contract.facts import CallFacts
from ..contract.plain import JSONValue
from ..errors import UsageError
from ..plugins.contexts import GateContext
from ..plugins.plugin import Plugin
from ..workspaces.withheld import SECRETS, SETTINGS, Withheld
from ..workspaces.workspace import WorkspaceRule
from ..workspaces.worktree import Worktree
from .judgement import Judgement, RuleLayer, judge, with_remembered
from .remembered import PERMISSION, Holder, RememberedRule
from .rule_files import FILE_LIMIT, rules_of
from .rules import Rule, check_rules
from .stored_rules import rules_of_holder
from .subject import Ground, subject_of


class Permission(Plugin):
    """Rules that decide which calls of an agent run, which ask a person, and which are refused.

    Of the matching rules deny counts before ask, and ask before allow; without a matching rule the default of the
    call's effect counts. A call that a person has approved is not asked about again, but a deny rule still refuses it.

    A person's "always" beside an approval (`gr.ext.Always`) is kept in the runtime's store, as a rule for the run, its
    thread or its workspace; it turns later questions about the same into allowed calls, in every process.

    In a run that works in a workspace, its worktree says which paths are inside, what is withheld, and what the rules
    of the workspace are (`gr.ext.Workspace(rules=...)`); of both layers the stricter verdict counts.

    Args:
        rules: The rules of the agent.
        root: For runs without a workspace, the absolute path of the folder that the agent works in; None: no path
            counts as inside.
        workspace_rules: The rules of that folder.
        withheld: Names of files in it that no call may touch, as patterns.

    Raises:
        UsageError: a list is empty or has an item that is not a rule, or `root` is not an absolute path.
    """

    name: ClassVar[str] = "permission"

    def __init__(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        workspace_rules: Sequence[Rule] | None = None,
        withheld: Iterable[str] = SECRETS + SETTINGS,
    ) -> None:
        self._agent_layer = RuleLayer("agent", check_rules(rules, "Permission(rules)"))
        self._workspace_layer = RuleLayer("workspace", check_rules(workspace_rules, "Permission(workspace_rules=)"))
        self._layers_of_workspaces: dict[int, RuleLayer] = {}
        folder = None if root is None else os.fspath(root)
        if folder is not None and not os.path.isabs(folder):
            raise UsageError(f"Permission(root={folder!r:.200}): give an absolute path, as Path(...).resolve()")
        self._ground = Ground(root=folder, withheld=Withheld(tuple(withheld)))

    def __repr__(self) -> str:
        return f"Permission({len(self._agent_layer.rules) + len(self._workspace_layer.rules)} rules)"

    def explain(
        self, call: CallFacts, remembered: Iterable[RememberedRule] = (), *, workspace: object = None
    ) -> Judgement:
        """Return the judgement about a call: the verdict, each matching rule with its layer, and the default.

        Pure: no ticket, no store. `str` of the judgement is one line for each rule.

        Args:
            call: The call; `gr.CallFacts(call_id="", tool=..., arguments=..., effect=...)` makes one.
            remembered: The remembered rules that may apply, such as `await runtime.rules(run_id=...)`.
            workspace: What the run works in, `ctx.workspace` of gates; anything but a `Worktree` counts as None.
        """
        arguments, ground, layer = call.arguments, self._ground, self._workspace_layer
        if isinstance(workspace, Worktree):
            ground = Ground(root=str(workspace.path), withheld=workspace.withheld)
            layer = self._layer_of(workspace.rules or ())
        judgement = judge(subject_of(call.tool, call.effect, arguments, ground), (layer, self._agent_layer))
        return with_remembered(judgement, remembered, arguments, call.definition)

    def _layer_of(self, rules: tuple[WorkspaceRule, ...]) -> RuleLayer:
        """Return the compiled rules of a workspace; a layer keeps its rules, so that their identity stays theirs."""
        layer = self._layers_of_workspaces.get(id(rules))
        if layer is None:
            layer = RuleLayer("workspace", cast("tuple[Rule, ...]", rules))
            self._layers_of_workspaces[id(rules)] = layer
        return layer

    async def tool_gate(self, ctx: GateContext[Any]) -> Verdict | None:
        """Judge the call."""
        judgement = self.explain(ctx.call, workspace=ctx.workspace)
        approved = ctx.decision is not None and ctx.decision.action == "resume"
        if judgement.may_remember and not approved:
            holders = [Holder(scope="run", name=ctx.run_id), Holder(scope="thread", name=ctx.thread_id)]
            if isinstance(ctx.workspace, Worktree):
                holders.append(Holder(scope="workspace", name=ctx.workspace.name))
            rules = [rule for holder in holders for rule in await rules_of_holder(ctx.stored_values, holder)]
            judgement = self.explain(ctx.call, rules, workspace=ctx.workspace)
        match judgement.verdict:
            case "allow":
                return Allow(note=_permit(judgement))
            case "deny":
                return Deny(_refusal(judgement))
            case "ask":
                return Allow() if approved else _question(judgement, ctx.call)


def load_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Return the rules of a file in TOML or JSON, which has a list `rules`.

    Raises:
        UsageError: the file cannot be read, or a rule is invalid; names the file, the line and the rule.
    """
    name = os.fspath(path)
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(FILE_LIMIT + 1)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{name}: the file of rules cannot be read: {error}") from error
    return rules_of(text, name=name)


_SHOWN: Final = 500
"""Most characters of a command, an address or a rule in a ticket; the whole command is in its arguments."""
_PATHS_SHOWN: Final = 20
"""Most paths among the parameters of a ticket."""
_RULES_SHOWN: Final = 5
"""Most rules among the parameters of a ticket."""


def _permit(judgement: Judgement) -> str:
    """Return what lets the call pass: a remembered rule, the rules that allow it, or the default."""
    if judgement.remembered is not None:
        return f"remembered: {judgement.remembered}"
    rules = [f"{match.layer}: {match.rule}" for match in judgement.deciding[:_RULES_SHOWN]]
    return "; ".join(rules) or f"default: {judgement.default}"


def _refusal(judgement: Judgement) -> str:
    reasons = [match.rule.reason for match in judgement.deciding if match.rule.reason]
    why = reasons[0] if reasons else judgement.default or "a rule forbids it"
    return f"{judgement.subject.tool} is not allowed: {why}."


def _question(judgement: Judgement, call: CallFacts) -> Suspend:
    subject, rules = judgement.subject, [match.rule for match in judgement.deciding]
    expires = [rule.expires for rule in rules if rule.expires is not None]
    facts: dict[str, JSONValue] = {
        "effects": sorted(subject.effects),
        "command": None if subject.command is None else shortened(subject.command.text, _SHOWN),
        "folder": subject.folder,
        "paths": list(subject.paths[:_PATHS_SHOWN]),
        "host": subject.host,
        "compound": subject.compound or None,
        "unread": sorted(subject.unread),
        "rules": [
            f"{match.layer}: {shortened(str(match.rule), _SHOWN)}" for match in judgement.deciding[:_RULES_SHOWN]
        ],
        "default": judgement.default,
    }
    facts["definition"] = call.definition
    known_facts = {name: value for name, value in facts.items() if value}
    return Suspend(
        reason="tool_permission",
        message=_message(judgement),
        parameters={PERMISSION: {"effect": call.effect, "remember": judgement.may_remember, **known_facts}},
        reviewers=judgement.reviewers,
        expires_after=min(expires, default=None),
    )


def _message(judgement: Judgement) -> str:
    subject = judgement.subject
    what = f"{subject.tool}: {shortened(subject.headline, _SHOWN)}" if subject.headline else subject.tool
    reasons = [match.rule.reason for match in judgement.deciding if match.rule.reason]
    return f"May this run? {what}" + (f" ({reasons[0]})" if reasons else "")
