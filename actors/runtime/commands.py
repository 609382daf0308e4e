"""`RunCommands`: decide, cancel, pause, send. Each is one command that `Store.post` judges and journals.

Theory of operation. A command is validated here, completed (id, principal, time) and posted. The store runs
`CommandRules` on the run's rows inside its transaction, so that of two concurrent decisions exactly one is accepted, in
every process. The run's owner receives a hint and consumes the journaled command. Results are values: a rejected
command raises no error.
"""

from __future__ import annotations

import secrets as random_ids
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import attrs
import trio

from ..agents.attachments import File, Image, parts_of
from ..contract.decisions import Command, CommandResult, Decision
from ..contract.plain import JSONObject
from ..contract.rows import CommandContext, RunRecord
from ..engine.command_rules import reject
from ..errors import StoreDown, StoreUnavailable, UsageError
from ..permission.remembered import Always
from ..services.agents import Agents
from ..services.sanitize import InvalidDecision, command_of, run_id_of
from ..services.services import Services
from ..services.stepping import in_steps
from .judging import RuntimeJudge
from .remembering import Remembering
from .run_registry import RunRegistry
from .shared.agent_elsewhere import AgentsElsewhere
from .start_request import LOCAL


@attrs.define(eq=False, repr=False)
class RunCommands:
    """Commands to runs by id, for programs that pass on the decisions of others; `Run` offers the same for one run.

    Accepted means journaled: a command acts exactly once, also after a crash. Every method is shielded between submit
    and receipt. After Cancelled the command may be journaled: repeat it with its id, and the result is "duplicate". An
    unavailable store and a closing runtime give rejections (store_unavailable), not errors.
    """

    _services: Services
    _registry: RunRegistry
    _agents: Agents
    _elsewhere: AgentsElsewhere

    def __repr__(self) -> str:
        return f"<RunCommands, {'closing' if self.closing else 'open'}>"

    @property
    def closing(self) -> bool:
        """True once the runtime is closing: every command is rejected."""
        return self._registry.closing

    @staticmethod
    def new_id() -> str:
        """Return a new random id (96 bits), for a command that may have to be repeated."""
        return random_ids.token_hex(12)

    async def decide(self, run_id: str, decision: Decision, *, remember: Always | None = None) -> CommandResult:
        """Decide a ticket or a call of a run; see `Run.decide`.

        Raises:
            UsageError: a field of the decision is invalid; or `remember` goes with a denial, or with a store that keeps
                no values.
            UnknownRun: no run has this id.
        """
        if remember is not None and not isinstance(remember, Always):
            raise UsageError(f"remember={remember!r:.200}: give gr.ext.Always(scope=..., form=...), or None")
        name = getattr(decision, "decision_id", "") or self.new_id()  # `post` refuses a value of another type
        return await self.post(run_id, Command(command_id=name, kind="decide", decision=decision), always=remember)

    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask a run to end; see `Run.cancel`.

        Raises:
            UsageError: the mode is unknown.
            UnknownRun: no run has this id.
        """
        command = Command(command_id=command_id or self.new_id(), kind="cancel", mode=mode, reason=reason, by=by)
        return await self.post(run_id, command)

    async def pause(
        self, run_id: str, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> CommandResult:
        """Hold a run before its next step; see `Run.pause`.

        Raises:
            UnknownRun: no run has this id.
        """
        command = Command(command_id=command_id or self.new_id(), kind="pause", reason=reason, by=by)
        return await self.post(run_id, command)

    async def send(
        self,
        run_id: str,
        text: str,
        *,
        attachments: Sequence[Image | File] = (),
        by: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Give a run more input; see `Run.send`.

        Raises:
            UsageError: the text is not a str, or blank without attachments.
            InvalidAttachment: the attachments are invalid.
            UnknownRun: no run has this id.
        """
        parts = parts_of(attachments)
        command = Command(command_id=command_id or self.new_id(), kind="send", text=text, by=by, parts=parts)
        return await self.post(run_id, command)

    async def post(self, run_id: str, command: Command, *, always: Always | None = None) -> CommandResult:
        """Judge and journal a command; with `always`, also keep the rule that an approval makes.

        Every command goes through this method, including those of the run's own process.

        Raises:
            UsageError: the run id or a part of the command is invalid; the message names it.
            UnknownRun: no run has this id.
        """
        services, run_id = self._services, run_id_of(run_id)
        try:
            command = command_of(command, local=LOCAL, now=services.clock.now())
        except InvalidDecision as error:
            # refusals have a checkpoint, too: a caller that repeats a command in a loop must let other tasks run
            await trio.lowlevel.checkpoint()
            return reject(command, error.code, str(error))
        if self._registry.closing:
            await trio.lowlevel.checkpoint()
            return reject(command, "store_unavailable", "the runtime is closing; try again when it is open")
        try:
            decision = command.decision
            if command.kind == "decide" and decision is not None and decision.edited_arguments is not None:
                decision = await self._unmasked(run_id, decision, decision.edited_arguments)
                command = attrs.evolve(command, decision=decision)
            if always is None:
                result = await self._judged(run_id, command)
            else:
                result = await Remembering(services).decide(run_id, command, always, self._judged)
        except (StoreUnavailable, StoreDown) as error:
            result = reject(command, "store_unavailable", f"{error}; repeat the command with the same id")
            # a checkpoint: a caller that retries in a loop lets the store recover
            await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    async def _judged(self, run_id: str, command: Command) -> CommandResult:
        """Judge and journal a command that is complete.

        Raises:
            UnknownRun: no run has this id.
            StoreUnavailable, StoreDown: the store does not answer.
        """
        services, elsewhere = self._services, self._elsewhere.fresh
        if command.kind == "decide" and not self._agents.by_key and elsewhere is None:
            elsewhere = await self._elsewhere.read()  # no agent of this process can be the run's
        actor = self._registry.get(run_id)
        rules = RuntimeJudge(
            self._agents,
            services.clock.now(),
            own=None if actor is None else actor.agent,
            elsewhere=elsewhere,
        )
        # the store shields itself between submit and receipt, and its patience bounds the wait
        result = await services.store.post(run_id, command, rules)
        if (
            rules.asks_elsewhere and not result.ok
        ):  # the publications of other processes may be missing, or have changed
            before, rules.elsewhere = rules.elsewhere, await self._elsewhere.read()
            if rules.elsewhere != before:
                result = await services.store.post(run_id, command, rules)
        if result.code == "fingerprint_mismatch":
            await self._wake(run_id, command, rules)
        return result

    async def supersedes(self, agent: str) -> bool:
        """Return True if new input closes the open tickets of an agent's runs (`on_new_input="supersede"`).

        The agent may be one that only other processes have. Afterwards `check` knows their agents.

        Raises:
            StoreUnavailable, StoreDown: the store does not answer.
        """
        here = self._agents.get(agent)
        if here is not None:
            await trio.lowlevel.checkpoint()
            return here.spec.on_new_input == "supersede"
        others = (await self._elsewhere.read()).get(agent, ())
        return any(other.on_new_input == "supersede" for other in others)

    async def _wake(self, run_id: str, command: Command, rules: RuntimeJudge) -> None:
        """Wake the owners of a ticket whose tool has changed: they ask again. A mirror is of a run below.

        A process without the agent or the place cannot own the run: a command of the kind wake gets the run an owner
        elsewhere.
        """
        target, store = "" if command.decision is None else command.decision.target, self._services.store
        with suppress(StoreUnavailable, StoreDown):  # the refusal is true; the next one wakes the run
            while True:
                self._registry.wake(run_id)
                ticket = await store.ticket(run_id, target)
                if ticket is None or ticket.child_run_id is None:
                    break
                run_id, target = ticket.child_run_id, ticket.child_ticket_id or ""
            outline = await store.outline(run_id)
            is_away = outline is not None and not self._agents.has_place(outline.info)
            if (rules.absent or is_away) and (self._elsewhere.known or await self._elsewhere.read()):
                wake = Command(command_id=self.new_id(), kind="wake", by=LOCAL, posted_at=self._services.clock.now())
                await store.post(run_id, wake, rules)

    def check(self, record: RunRecord, decision: Decision) -> CommandResult:
        """Return the result that `decide` would give now.

        Nothing is journaled, and the run may change before the decision.

        A changed tool definition is not looked for: `decide` detects it and makes the run ask again. Of an agent that
        only other processes have, the tools are those that the newest command or `supersedes` has read.

        Args:
            record: the run, loaded with `calls="all"`.
            decision: The decision, with its id.
        """
        target, by = decision.target, decision.decided_by
        by_call = (
            candidate for candidate in reversed(record.tickets) if candidate.call_id == target
        )  # the call's newest ticket
        ticket = next((candidate for candidate in record.tickets if candidate.ticket_id == target), None) or next(
            by_call, None
        )
        name = target if ticket is None else ticket.call_id
        facts = CommandContext(
            stage=record.row.stage,
            pending=len(record.inbox),
            ticket=ticket,
            call=next((candidate for candidate in record.calls if candidate.call_id == name), None),
            agent=record.info.agent,
            active_agent=record.row.agent,
        )
        elsewhere = self._elsewhere.known
        judge = RuntimeJudge(self._agents, self._services.clock.now(), definitions=False, elsewhere=elsewhere)
        command_id = decision.decision_id or self.new_id()
        return judge(facts, Command(command_id=command_id, kind="decide", decision=decision, by=by))

    async def _unmasked(self, run_id: str, decision: Decision, arguments: JSONObject) -> Decision:
        """Return a decision whose edited arguments have no masks.

        People were shown masks and sent them back: the call's own values take their place.
        """
        store = self._services.store
        outline, ticket = await store.outline(run_id), await store.ticket(run_id, decision.target)
        if outline is None or ticket is None:
            return decision
        redactor = self._services.redactor.within(outline.info.workspace)
        raw_arguments = await in_steps(redactor.restored_steps(arguments, ticket.arguments))
        return attrs.evolve(decision, edited_arguments=raw_arguments)
