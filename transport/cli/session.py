"""One run from the command line: started or resumed, followed live, its tickets prompted for, interrupted in order.

The run belongs to a runtime of this process. The screen follows the run by a cursor in the event log, so an open prompt
does not block the run: the run continues, and the screen catches up afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store, Surroundings
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.run.view import RunView
from greenroom.actors.runtime.remembering import NOT_REMEMBERED
from greenroom.actors.stores.sqlite.store import owner_of
from greenroom.supervision.nursery import open_collapsing_nursery

from ..server.one_run import OneRunClaims, OneRunStore
from ..terminal import text_format
from ..terminal.approval_prompt import PromptAnswer, ask
from ..terminal.difference import ArtifactAccess, difference_of
from ..terminal.interrupts import Interrupts
from ..terminal.keyboard import Keyboard
from ..terminal.screen import Screen
from ..terminal.ticket_text import FileChange, answerable_by_yes, barred
from ..terminal.timeline import Timeline
from . import exits, outcome_output, paths, tokens
from .inspect import whole_id
from .outcome_output import plain_ticket
from .places import Place, options

FRAME: Final = 0.1
"""Seconds between two updates of the status line."""

DRAIN: Final = 2.0
"""Seconds for an interrupted run to reach a durable point: users who press Ctrl-C do not wait longer."""


@attrs.frozen(kw_only=True)
class RunJob:
    """The options of a session.

    Attributes:
        agent, deps, secrets: The options of the runtime; deps may be a provider.
        text, attachments, run_id, thread, title, workspace: The options of a new run.
        resume: Id (or its beginning) of a run to resume instead.
        database: A file or a shared store; None for memory.
        approve: How tickets are answered: "ask" in the terminal, "yes" to all that a yes answers, "leave" them open.
        by: The deciding user.
        serve: Serve a gateway, for browsers and other terminals.
        shown: The gateway's token may be printed.
        again: Run id -> the command that resumes the run.
        change: Ticket -> its effect on a file, if any.
        workspaces: Opens the folders in which runs may work; None: `workspace` is any text.
    """

    agent: gr.Agent[object]
    text: str = ""
    run_id: str | None = None
    thread: str | None = None
    resume: str | None = None
    database: Place | None = None
    approve: Literal["ask", "yes", "leave"] = "ask"
    by: str = "local"
    workspace: str | None = None
    deps: Any = None
    serve: bool = False
    shown: bool = False
    title: str | None = None
    attachments: tuple[Any, ...] = ()
    secrets: tuple[str, ...] = ()
    again: Callable[[str], str]
    change: Callable[[gr.Ticket], FileChange | None] = attrs.field(default=lambda _: None)
    workspaces: Callable[[], Awaitable[Surroundings]] | None = None


async def work(job: RunJob, screen: Screen) -> int:
    """Run a session and return its exit code.

    Raises:
        GreenroomError: The run could not be started or resumed, or the database has failed.
    """
    stop = Interrupts()
    session = Session(job, screen)
    database = job.database
    store: Store | None = None
    if isinstance(database, Path):
        store = OneRunStore(database)
    elif database is not None:
        store = database.opened(patience=None)
        session.claims = OneRunClaims(store)
    try:
        async with (
            stop.listening(screen),
            gr.open_runtime(
                store,
                agents=[job.agent],
                deps=job.deps,
                drain=DRAIN,
                passivate_after=None,  # no process but this one wakes the run, so it keeps its timers in memory
                secrets=job.secrets,
                workspaces=None if job.workspaces is None else await job.workspaces(),
            ) as runtime,
        ):
            with stop.in_order():
                async with AsyncExitStack() as stack:
                    session.console = await _console(job, runtime, screen, stack)
                    return await session.run(runtime)
    except gr.StoreOpenError as error:
        if not isinstance(database, Path) or not _owned(database):
            raise
        raise gr.StoreOpenError(f"{error} ({paths.typed('runs', '--db', database)})") from error
    finally:
        screen.close()
    return session.interrupted()


async def _console(job: RunJob, runtime: gr.Runtime, screen: Screen, stack: AsyncExitStack) -> str:
    """Start the gateway and return the line about the console; a failure does not affect the run."""
    if not job.serve:
        return ""
    from ..server.hosting import GatewayOptions, hosting  # noqa: PLC0415 - only a console needs its import time
    from .serve import address_facts, naming_options  # noqa: PLC0415 - the same

    try:
        database = job.database if isinstance(job.database, Path) else None
        file = tokens.file_for(database, None, stack, printed=job.shown)
        with naming_options():
            address = await stack.enter_async_context(
                hosting(runtime, GatewayOptions(token=tokens.of(file), token_file=file))
            )
    except (gr.GreenroomError, OSError) as error:
        return f"no console: {text_format.one_line(str(error), 300)}"
    facts = address_facts(address, file, shown=job.shown)
    screen.outcome(facts)
    console = f"console {facts['console']}"
    return console if job.shown else f"{console} (token in {text_format.clean(str(file))})"


def _owned(database: Path) -> bool:
    try:
        return owner_of(database) is not None
    except gr.StoreOpenError:
        return False


class Session:
    """The session with one run.

    Attributes:
        console: The line about the console; empty for none.
        claims: The limit of a shared store to the session's run; None if the store is not shared.
    """

    claims: OneRunClaims | None = None
    _access: ArtifactAccess

    def __init__(self, job: RunJob, screen: Screen) -> None:
        self._job, self._screen, self._say = job, screen, screen.row
        self._timeline = Timeline()
        self._keyboard = Keyboard()
        self._run_id: str | None = None
        self._asking = False
        self.console = ""

    def __repr__(self) -> str:
        return f"<Session about {self._run_id or 'no run yet'}>"

    async def run(self, runtime: gr.Runtime) -> int:
        """Start or resume the run, and follow it until it is done, or waits without an answer."""
        job, self._access = self._job, runtime
        run = await (self._start(runtime) if job.resume is None else self._resume(runtime, job.resume))
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._tick)
            code = await self._stay(run)
            nursery.cancel_scope.cancel()
        return code

    def interrupted(self) -> int:
        """Show how to resume after an interrupt."""
        run_id, job = self._run_id, self._job
        if run_id is None:
            self._say("Interrupted before the run began.", "warn")
        elif job.database is None:
            self._say(f"Interrupted. Run {run_id} was kept in memory only; --db FILE makes runs resumable.", "warn")
        else:
            self._say("Interrupted; nothing is lost.", "warn")
            self._how_to_go_on(run_id, job.database)
        return self._told("interrupted", exits.INTERRUPTED)

    # --- beginning ---------------------------------------------------------------------------------------------------

    async def _start(self, runtime: gr.Runtime) -> gr.Run[object]:
        job, store = self._job, runtime.store
        others = await store.open_runs() if isinstance(store, OneRunStore) else ()
        run = await runtime.start(
            job.agent,
            job.text,
            run_id=job.run_id,
            thread_id=job.thread,
            by=job.by,
            workspace=job.workspace,
            title=job.title,
            attachments=job.attachments,
        )
        self._run_id = run.id
        await runtime.resume(run.id)  # a run with this id may have existed already
        earlier = [run_id for run_id, _ in others if run_id != run.id]
        many = f"{text_format.plural(len(earlier), 'earlier run')} not finished; the newest continues with:"
        note = f"{many} {job.again(earlier[-1])}" if earlier else ""
        attachments = [f"[{text_format.attached(one.part.facts())}]" for one in job.attachments]
        input_words = filter(None, (text_format.one_line(job.text, 200), *attachments))
        self._head(f"{job.agent.key}: {' '.join(input_words)}", run.id, note)
        return run

    async def _resume(self, runtime: gr.Runtime, prefix: str) -> gr.Run[object]:
        run = await runtime.get(await whole_id(runtime.store, prefix))
        view = await run.view()
        if view.agent != self._job.agent.key:
            raise gr.UsageError(f"run {run.id} is one of agent {view.agent!r}, not of {self._job.agent.key!r}")
        self._run_id = run.id
        await self._catch_up(runtime, view)
        self._head(f"{view.agent}: continues at event {view.last_sequence} ({view.stage.value})", run.id)
        if self.claims is not None:
            self.claims.mine.add(run.id)
        await runtime.resume(run.id)
        return run

    async def _catch_up(self, runtime: gr.Runtime, view: RunView) -> None:
        """Fold earlier events without showing them; programs receive all of them."""
        while self._timeline.last < view.last_sequence:
            for frame in await runtime.store.events(view.run_id, after=self._timeline.last):
                event = decode_event(frame)
                self._timeline.tell(event)
                self._screen.event(event)
        self._timeline.begin_again()

    def _head(self, title: str, run_id: str, note: str = "") -> None:
        where = "in memory" if self._job.database is None else f"in {text_format.clean(str(self._job.database))}"
        self._say(title, "strong")
        self._say(f"run {run_id} {where}", "dim")
        for text in filter(None, (self.console, note)):
            self._say(text, "dim")
        self._say()

    # --- staying with it ---------------------------------------------------------------------------------------------

    async def _stay(self, run: gr.Run[object]) -> int:
        while True:
            async with run.events(after=self._timeline.last, until="rest") as events:
                async for event in events:
                    if event.sequence > self._timeline.last:  # otherwise the event was shown above an open prompt
                        self._show(event)
                    is_request = event.type == "run.approval.requested"
                    if is_request and await self._answer(run, event.payload["ticketId"]) == "quit":
                        return self._left(await run.view())
            outcome = await run.wait()
            if not isinstance(outcome, gr.Waiting):
                return self._ended(outcome)
            answers = set[str]()
            for ticket in outcome.tickets:
                answers.add(await self._answer(run, ticket.ticket_id))
                if "quit" in answers:
                    break
            if "quit" in answers or "settled" not in answers:
                return self._left(await run.view())

    def _show(self, event: gr.Event) -> None:
        self._screen.event(event)
        for line in self._timeline.tell(event):
            self._screen.line(line)

    async def _tick(self) -> None:
        """Update the status line periodically."""
        while True:
            if not self._asking:
                self._screen.status(self._timeline.now(datetime.now(UTC)))
            await trio.sleep(FRAME)

    async def _answer(self, run: gr.Run[object], ticket_id: str) -> Literal["settled", "open", "quit"]:
        """Handle one ticket: decide it, leave it open, or stop because the user quit."""
        ask_people = self._job.approve == "ask"
        while True:
            ticket = next((one for one in (await run.view()).tickets if one.ticket_id == ticket_id), None)
            if ticket is None:
                return "settled"  # decided, expired or withdrawn meanwhile
            report = barred(ticket, self._job.by)
            if report and self._job.approve != "leave":
                self._say(report, "warn")
                return "open"
            answer = await self._ask(run, ticket) if ask_people else self._unasked(ticket)
            if answer == "elsewhere":
                return "settled"
            if answer is None:
                return "quit" if ask_people else "open"
            decision = attrs.evolve(answer.decision, decided_by=self._job.by)
            result = await run.decide(decision, remember=answer.remember)
            if result.ok:
                self._say_kept(answer, result)
                return "settled"
            self._say(f"not accepted ({result.code}): {text_format.one_line(result.detail or '', 400)}", "bad")
            if not ask_people:
                return "open"

    def _say_kept(self, answer: PromptAnswer, result: gr.CommandResult) -> None:
        """Say what becomes of an "always"."""
        if answer.remember is not None and result.code == NOT_REMEMBERED:
            self._say(text_format.one_line(result.detail or "", 400), "bad")
        elif answer.remember is not None:
            place = self._job.database
            look = "" if place is None else f"; the rules: {paths.typed('rules', 'list', *options(place))}"
            self._say(f"Remembered for the {answer.remember.scope}{look}", "dim")

    def _unasked(self, ticket: gr.Ticket) -> PromptAnswer | None:
        """Return the answer without a prompt. A paused run is left to the person who paused it."""
        if self._job.approve == "yes" and answerable_by_yes(ticket) and ticket.call_id is not None:
            return PromptAnswer(ticket.approve(reason="--yes"))
        return None

    async def _ask(self, run: gr.Run[object], ticket: gr.Ticket) -> PromptAnswer | Literal["elsewhere"] | None:
        """Prompt for an answer; None leaves the ticket open.

        The prompt is withdrawn if the ticket is decided elsewhere.
        """
        change = await trio.to_thread.run_sync(self._job.change, ticket) or await difference_of(self._access, ticket)
        question, answer = trio.CancelScope(), None
        self._asking = True
        self._screen.status("")
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._watch, run, ticket.ticket_id, question)
                with question:
                    answer = await ask(ticket, keyboard=self._keyboard, screen=self._screen, change=change)
                nursery.cancel_scope.cancel()
        finally:
            self._asking = False
        if not question.cancelled_caught:
            return answer
        self._keyboard.forget()
        self._say()
        self._say("It was decided elsewhere.", "dim")
        return "elsewhere"

    async def _watch(self, run: gr.Run[object], ticket_id: str, question: trio.CancelScope) -> None:
        """Show events during a prompt; withdraw the prompt of a ticket that is decided elsewhere or expires."""
        try:
            async with run.events(after=self._timeline.last) as events:
                async for event in events:
                    self._screen.event(event)
                    for line in self._timeline.tell(event):
                        self._screen.above(line)
                    if event.type == "run.approval.resolved" and event.payload["ticketId"] == ticket_id:
                        break
        except gr.RunDegradedError:
            return  # the run has no owner: a decision is stored for later
        question.cancel()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _left(self, view: RunView) -> int:
        """End the session with a waiting run."""
        job = self._job
        self._say()
        self._say(f"Waiting for {text_format.plural(len(view.tickets), 'decision')}.", "warn")
        for ticket in view.tickets:
            self._say(f"  {text_format.subject(ticket.tool, 40)} {text_format.arguments(ticket.arguments, 100)}")
        if job.approve == "yes":
            self._say("--yes approves calls; these need the answer of a person, in a terminal.", "warn")
        if job.database is None:
            self._say("The run was kept in memory only: use --db FILE to answer later, or --yes.", "warn")
        else:
            self._how_to_go_on(view.run_id, job.database)
            self._say(f"decide it:   {paths.typed('approve', view.run_id, *options(job.database))}", "dim")
        return self._told("waiting", exits.WAITING, tickets=[plain_ticket(ticket) for ticket in view.tickets])

    def _ended(self, outcome: outcome_output.End) -> int:
        report = outcome_output.print_outcome(outcome, self._screen)
        return self._told(report.status, report.exit, **report.more)

    def _how_to_go_on(self, run_id: str, database: Place) -> None:
        self._say(f"resume with: {self._job.again(run_id)}")
        self._say(f"look at it:  {paths.typed('show', run_id, *options(database))}", "dim")

    def _told(self, status: str, code: int, /, **more: object) -> int:
        report: dict[str, Any] = {"type": "outcome", "runId": self._run_id, "status": status, "exit": code, **more}
        if self._run_id is not None and self._job.database is not None and status in ("waiting", "interrupted"):
            report["resume"] = self._job.again(self._run_id)
        self._screen.outcome(report)
        return code
