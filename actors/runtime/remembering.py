"""Keep rules that people make with "always" beside an approval: checked before the decision, written after it.

Theory of operation. The rule is made of the ticket before anything is posted, so that an answer that may not be
remembered decides nothing. It is written once the decision is accepted: a decision that loses a race leaves no rule. A
sender that did not learn of the outcome repeats its decision with the same id; the repeated decision is a duplicate,
and writes the rule again, which stays one. A question of a child run that is shown at its parent is answered at the
child run: the parent alone does not know whether the decision counts there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from ..abc import Store, ValueStore
from ..contract.decisions import Command, CommandResult
from ..contract.rows import RunInfo
from ..engine.command_rules import reject
from ..errors import StoreDown, StoreError, StoreUnavailable, UnknownRun, UsageError
from ..permission.remembered import SCOPES, Always, Holder, RememberedRule, RememberScope
from ..permission.stored_rules import HOLDER_LIMIT, StoredRules
from ..services.services import Services
from .placing import name_of

NOT_REMEMBERED: Final = "not_remembered"
"""The code of an accepted decision whose rule could not be kept."""
Post = Callable[[str, Command], Awaitable[CommandResult]]
"""(run id, command) -> its result."""


def stored_rules(store: Store) -> StoredRules:
    """Return the remembered rules of a store.

    Raises:
        UsageError: The store keeps none.
    """
    if not isinstance(store, ValueStore):
        raise UsageError(f"{type(store).__name__} keeps no values, and so no rules; use a ValueStore")
    return StoredRules(store)


def holder_of(info: RunInfo, scope: RememberScope) -> Holder | None:
    """Return the run, thread or workspace of a run; None for the workspace of a run without one."""
    if scope == "workspace":
        workspace = None if info.place is None else info.workspace
        return None if workspace is None else Holder(scope=scope, name=name_of(workspace))
    return Holder(scope=scope, name=info.run_id if scope == "run" else info.thread_id)


async def rules_for(store: Store, run_id: str) -> Sequence[RememberedRule]:
    """Return the rules that hold for a run: its own, those of its thread, and those of its workspace.

    Raises:
        UnknownRun: No run has this id.
        UsageError: The store keeps none.
    """
    rules, outline = stored_rules(store), await store.outline(run_id)
    if outline is None:
        raise UnknownRun(run_id)
    holders = [holder_of(outline.info, scope) for scope in SCOPES]
    return [rule for holder in holders if holder is not None for rule in await rules.of(holder)]


@attrs.frozen
class Remembering:
    """Decisions with "always"."""

    _services: Services

    async def decide(self, run_id: str, command: Command, always: Always, post: Post) -> CommandResult:
        """Post a decision, and keep its rule if it is accepted, or was by an earlier attempt.

        Args:
            run_id: The run.
            command: The decision: an approval, signed, its values checked.
            always: What the person wants to be remembered.
            post: Judges and journals the command.

        Returns:
            The result of the decision; with the code "not_remembered" the decision is accepted, and the rule could not
            be kept.

        Raises:
            UsageError: The decision is a denial, or the store keeps no values.
            UnknownRun: No run has this id.
            StoreUnavailable, StoreDown: Nothing was decided.
        """
        rules = stored_rules(self._services.store)
        try:
            run_id, command, rule = await self._rule(run_id, command, always)
        except _NotRememberedError as error:
            return reject(command, error.code, str(error))
        if await rules.is_full(Holder(scope=rule.scope, name=rule.holder)):
            text = f"the {rule.scope} {rule.holder} has {HOLDER_LIMIT} remembered rules, and no room for more"
            return reject(command, "not_allowed", f"{text}; answer without always, or make a rule of the agent")
        result = await post(run_id, command)
        if not result.ok:
            return result
        try:
            await rules.add(rule)
        except (StoreError, StoreUnavailable, StoreDown) as error:
            text = f"the decision is accepted, and its rule could not be kept ({error}); repeat it with the same id"
            return attrs.evolve(result, code=NOT_REMEMBERED, detail=text)
        return result

    async def _rule(self, run_id: str, command: Command, always: Always) -> tuple[str, Command, RememberedRule]:
        """Return the run that asks, the decision about its ticket, and the rule that the decision makes."""
        from ..permission.always import remember  # noqa: PLC0415 - 15 ms of import for those that remember answers

        store, decision = self._services.store, command.decision
        if decision is None or decision.action != "resume":
            raise UsageError("remember=Always(...): only an approval is remembered; deny without it")
        ticket = await store.ticket(run_id, decision.target)
        while ticket is not None and ticket.child_run_id is not None:
            run_id, target = ticket.child_run_id, ticket.child_ticket_id or ""
            decision, ticket = attrs.evolve(decision, target=target), await store.ticket(run_id, target)
        outline = await store.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        if ticket is None:
            text = f"no question of run {run_id} is named {decision.target!r}; only an answer to one is remembered"
            raise _NotRememberedError("unknown_target", text)
        decision = attrs.evolve(decision, target=ticket.ticket_id)  # of a call: not of a question that follows
        holder = holder_of(outline.info, always.scope)
        if holder is None:
            raise _NotRememberedError("not_allowed", f"run {run_id} works in no workspace; use scope 'run' or 'thread'")
        try:
            rule = remember(
                ticket, always, holder=holder.name, at=self._services.clock.now(), by=command.by,
                arguments=decision.edited_arguments,
            )  # fmt: skip
        except UsageError as error:
            raise _NotRememberedError("not_allowed", str(error)) from error
        redactor = self._services.redactor.within(outline.info.workspace)
        rule = attrs.evolve(rule, about=redactor.text(rule.about))
        return run_id, attrs.evolve(command, decision=decision), rule


class _NotRememberedError(Exception):
    """The answer may not be remembered, and nothing is decided."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
