"""`greenroom rules`: what people have answered with "always", and what rules say about a call."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

import greenroom as gr
from greenroom.actors.contract.casing import wire_of
from greenroom.actors.permission.judgement import Judgement
from greenroom.actors.permission.plugin import Permission, load_rules
from greenroom.actors.permission.remembered import RememberedRule
from greenroom.actors.permission.stored_rules import newest_first
from greenroom.actors.permission.subject import effect_of
from greenroom.actors.runtime.remembering import rules_for, stored_rules

from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits, owner, places
from .agents import load_agent
from .command_target import CommandTarget, open_target
from .hidden import hidden_values
from .inspect import reading, whole_id
from .owner import find_in_time

FIELDS: Final = (
    *("rule_id", "scope", "holder", "form", "tool", "about", "by", "at", "run_id", "ticket_id"),
    *("revoked_at", "revoked_by"),
)
_RULE_FILES: Final = (".toml", ".json")


def rules(args: argparse.Namespace) -> int:
    """List, revoke or explain rules."""
    screen = open_screen(machine=args.json, secrets=hidden_values(args))
    if args.action == "explain":
        return _explained(args, screen)
    if args.action == "revoke":
        return trio.run(_revoked, args, screen)
    lines = [rule for rule in trio.run(_remembered, args) if args.all or rule.revoked_at is None]
    for rule in lines:
        screen.outcome(wire_of(rule, FIELDS))
        _show(rule, screen)
    if not lines:
        screen.row("no rules", "dim")
    return exits.COMPLETED


async def _remembered(args: argparse.Namespace) -> Sequence[RememberedRule]:
    if owner.named(args) is not None:
        async with open_target(owner.find(args)) as target:
            return await target.access.rules(None if args.run is None else await target.whole_id(args.run))
    async with reading(places.kept(args)) as store:
        if args.run is None:
            return newest_first(await stored_rules(store).all())
        return newest_first(await rules_for(store, await whole_id(store, args.run)))


async def _revoked(args: argparse.Namespace, screen: Screen) -> int:
    async with open_target(await find_in_time(args)) as target:
        rule_id = await _meant(target, args.rule_id)
        rule = await target.access.revoke_rule(rule_id)
    if rule is None:
        raise gr.UsageError(f"no rule has the id {rule_id}; `greenroom rules list` shows the rules")
    screen.outcome(wire_of(rule, FIELDS))
    _show(rule, screen)
    return exits.COMPLETED


async def _meant(target: CommandTarget, text: str) -> str:
    """Return the id of the rule whose id begins or ends with a text.

    Raises:
        UsageError: No rule has such an id, or several have.
    """
    ids = [rule.rule_id for rule in await target.access.rules()]
    matching = [rule_id for rule_id in ids if rule_id.startswith(text) or rule_id.endswith(text)]
    if len(matching) > 1:
        raise gr.UsageError(f"{len(matching)} ids of rules begin or end with {text!r}; give more of it")
    if not matching:
        raise gr.UsageError(f"no rule has an id that begins or ends with {text!r}; `greenroom rules list` shows them")
    return matching[0]


def _show(rule: RememberedRule, screen: Screen) -> None:
    about = f": {text_format.one_line(rule.about, 120)}" if rule.about else ""
    holder = text_format.one_line(rule.holder, 60)
    by = text_format.one_line(rule.by or "an unnamed principal", 60)
    title = f"{rule.form} of {text_format.subject(rule.tool)}{about}"
    screen.row(title, "strong" if rule.revoked_at is None else "dim")
    screen.row(f"  for the {rule.scope} {holder}, by {by} at {rule.at:%Y-%m-%d %H:%M} UTC", "")
    if rule.revoked_at is not None:
        by = text_format.one_line(rule.revoked_by or "an unnamed principal", 60)
        screen.row(f"  revoked by {by} at {rule.revoked_at:%Y-%m-%d %H:%M} UTC", "warn")
    screen.row(f"  {rule.rule_id}", "dim")


# --- explain ---------------------------------------------------------------------------------------------------------


def _explained(args: argparse.Namespace, screen: Screen) -> int:
    plugins, effect, definition = _source(args)
    call = gr.CallFacts(
        call_id="", tool=args.tool, arguments=_arguments(args.arguments), effect=effect, definition=definition
    )
    more_rules = trio.run(_remembered, args) if args.run is not None else ()
    for plugin in plugins:
        judgement = plugin.explain(call, more_rules)
        screen.outcome(_plain(judgement))
        for number, line in enumerate(str(judgement).splitlines()):
            screen.row(text_format.clean(line), "strong" if number == 0 else "")
    return exits.COMPLETED


def _source(args: argparse.Namespace) -> tuple[Sequence[Permission], str, str]:
    """Return the plugins that judge the call, its effect, and the definition of its tool."""
    if args.rules.endswith(_RULE_FILES):
        effect = args.effect or effect_of(args.tool, {})
        return [Permission(load_rules(args.rules), root=args.root)], effect, ""
    agent = load_agent(args.rules)
    plugins = [plugin for plugin in agent.plugins if isinstance(plugin, Permission)]
    if not plugins:
        raise gr.UsageError(f"the agent {agent.key!r} has no gr.ext.Permission; name a file of rules, or another agent")
    tool = agent.spec.tools.get(args.tool)
    effect = args.effect or (effect_of(args.tool, {}) if tool is None else tool.effect)
    return plugins, effect, "" if tool is None else tool.definition


def _arguments(text: str) -> dict[str, Any]:
    """Return arguments as they were typed: a JSON object, or a command.

    Raises:
        UsageError: The text begins as a JSON object, and is not one.
    """
    if not text.lstrip().startswith("{"):
        return {"command": text}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise gr.UsageError(f"ARGUMENTS is no JSON ({error}); write an object, or the command itself") from error
    return dict(value)


def _plain(judgement: Judgement) -> Mapping[str, Any]:
    return {
        "verdict": judgement.verdict,
        "tool": judgement.subject.tool,
        "effects": sorted(judgement.subject.effects),
        "rules": [{"layer": match.layer, "rule": str(match.rule)} for match in judgement.matches],
        "default": judgement.default,
        "remembered": None if judgement.remembered is None else wire_of(judgement.remembered, FIELDS),
        "mayRemember": judgement.may_remember,
    }
