"""Read threads for people: lists with redacted titles, pages of redacted messages, and the bytes of their parts.

Theory of operation. The messages of a page and the question whether a caller may read them belong together: the page is
read first, and the runs of the thread are asked afterwards, so that a run that joins the thread in between counts. A
page of a fork's thread asks, beside the thread's runs, those of other threads that wrote messages of this page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from msgspec.structs import replace

from ..contract.casing import from_wire
from ..contract.codec import parse
from ..contract.envelope import decode_event
from ..contract.messages import Message
from ..contract.parts import Part
from ..contract.rows import ThreadInfo
from ..contract.secrets.redaction import Redactor
from ..contract.threads.lists import HistoryPage, HistoryQuery, OpenRun, ThreadPage, ThreadQuery, producers
from ..contract.threads.messages import ThreadMessage, ThreadMessages, ThreadRun, facts_steps, message_steps
from ..errors import UnknownPart, UnknownRun, UnknownThread
from ..services.sanitize import name_of, run_id_of
from ..services.services import Services
from ..services.stepping import in_steps
from .listing import shown_summary
from .thread_access import MayJoin, open_to

ROOTS: Final = 8
"""Directories of a thread's runs that are masked in a message whose run is not known any more."""


@attrs.frozen
class ThreadReading:
    """The reads of one runtime."""

    _services: Services

    async def page(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads with redacted titles and questions.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """
        with self._services.signals.looking():
            page = await self._services.store.threads(query)
        redactor = self._services.redactor
        lines = [
            attrs.evolve(line, title=redactor.text(line.title), run=shown_summary(line.run, redactor))
            for line in page.threads
        ]
        return attrs.evolve(page, threads=tuple(lines))

    async def may_read(self, thread_id: str, by: str, may_join: MayJoin) -> bool:
        """Return True if a principal may see each run of a thread. Messages that a fork has copied do not count."""
        store = self._services.store
        with self._services.signals.looking():
            thread = await store.thread(thread_id)
            return thread is not None and await open_to(store, thread, by, may_join, copied=())

    async def messages(
        self, thread_id: str, query: HistoryQuery, *, by: str = "", may_join: MayJoin | None = None
    ) -> ThreadMessages:
        """Return a page of a thread's messages.

        Raises:
            UnknownThread: no thread has this id, or `may_join` refuses a run that wrote there.
            UsageError: a value is invalid.
        """
        page, thread = await self._read(thread_id, query, by, may_join)
        runs = [await self._followed(run, page, thread) for run in page.open_runs]
        messages = [await self._shown(position, message, page, thread) for position, message in page.messages]
        first = messages[0].position if messages else None
        last = messages[-1].position if messages else None
        return ThreadMessages(
            thread_id=thread_id,
            epoch=self._services.store.epoch,
            messages=tuple(messages),
            before=None if first in (None, 1) else first,
            after=last or query.after or 0,
            newest=page.newest,
            newest_run=page.newest_run,
            runs=tuple(runs),
        )

    async def part(
        self, thread_id: str, position: int, place: int, *, by: str = "", may_join: MayJoin | None = None
    ) -> Part:
        """Return an image or a file of a message, with its bytes.

        Args:
            thread_id: The thread.
            position: The position of the message.
            place: The place of the part in the message, from 0.
            by: The principal that reads.
            may_join: Says whether the principal may see a run.

        Raises:
            UnknownThread: no thread has this id, or `may_join` refuses a run that wrote there.
            UnknownPart: the message has no such part, or it is an address.
            UsageError: a value is invalid.
        """
        query = HistoryQuery(after=max(position, 1) - 1, limit=1)
        page, thread = await self._read(thread_id, query, by, may_join)
        parts = [part for at, message in page.messages if at == position for part in message.parts]
        part = parts[place] if 0 <= place < len(parts) else None
        if part is None or not part.sha256:
            why = "is not there" if part is None else "is an address, and Greenroom fetches nothing"
            raise UnknownPart(f"part {place} of message {position} in thread {thread_id!r:.200} {why}")
        with self._services.signals.looking():
            bodies = await self._services.store.parts(thread_id, (part.sha256,))
        if part.sha256 not in bodies:
            raise UnknownPart(f"part {place} of message {position} in thread {thread_id!r:.200} was pruned meanwhile")
        facts = await in_steps(facts_steps(part, self._redactors(page.messages[0][1], page, thread)))
        return replace(part, name=facts.name, data=bodies[part.sha256])

    async def part_of_run(self, run_id: str, sha256: str) -> Part:
        """Return an image or a file of a run's own input or results, with its bytes; not of the thread before it.

        Raises:
            UnknownRun: no run has this id.
            UnknownPart: neither the input of the run nor a result of its calls has this part.
        """
        store, run_id = self._services.store, run_id_of(run_id)
        with self._services.signals.looking():
            record = await store.load(run_id, calls="all")
            if record is None:
                raise UnknownRun(run_id)
            sent_parts = [part for item in await store.commands(run_id) for part in item.command.parts]
            first_events = await store.events(run_id, limit=1)
            own_parts = [*_input_of(first_events), *sent_parts, *(part for call in record.calls for part in call.parts)]
            part = next((part for part in own_parts if part.sha256 and part.sha256 == sha256), None)
            bodies = {} if part is None else await store.parts(record.info.thread_id, (part.sha256,))
        if part is None or sha256 not in bodies:
            raise UnknownPart(f"no input and no result of run {run_id!r} has an image or file {sha256!r:.100}")
        facts = await in_steps(facts_steps(part, [self._services.redactor.within(record.info.workspace)]))
        return replace(part, name=facts.name, data=bodies[sha256])

    async def _read(
        self, thread_id: str, query: HistoryQuery, by: str, may_join: MayJoin | None
    ) -> tuple[HistoryPage, ThreadInfo | None]:
        """Return a page, and the facts of the thread if they are needed."""
        store, name = self._services.store, name_of(thread_id, "thread_id")
        with self._services.signals.looking():
            page = await store.history(name, query)
            messages = [message for _, message in page.messages] if page is not None else []
            is_open = may_join is None
            thread = None
            if page is not None and (may_join is not None or page.infos.keys() < {*producers(page.messages)}):
                thread = await store.thread(name)
            if may_join is not None and thread is not None:
                is_open = await open_to(store, thread, by, may_join, copied=messages)
        if page is None or not is_open:
            raise UnknownThread(thread_id)
        return page, thread

    async def _followed(self, run: OpenRun, page: HistoryPage, thread: ThreadInfo | None) -> ThreadRun:
        pending = [await self._shown(None, message, page, thread) for message in run.pending]
        return ThreadRun(run_id=run.run_id, agent=run.agent, after=run.after, pending=tuple(pending))

    async def _shown(
        self, position: int | None, message: Message, page: HistoryPage, thread: ThreadInfo | None
    ) -> ThreadMessage:
        return await in_steps(message_steps(position, message, self._redactors(message, page, thread)))

    def _redactors(self, message: Message, page: HistoryPage, thread: ThreadInfo | None) -> Sequence[Redactor]:
        """Return what masks a message: also the directory of its run. If that is not known, those of the thread."""
        redactor, producer = self._services.redactor, message.producer
        run_id = "" if producer is None else producer.run_id
        infos = [page.infos[run_id]] if run_id in page.infos else () if thread is None else thread.members
        roots = [*dict.fromkeys(info.workspace for info in infos if info.workspace is not None)]
        return [redactor.within(root) for root in roots[-ROOTS:]] or [redactor]


def _input_of(first_events: Sequence[bytes]) -> list[Part]:
    """Return the facts of the parts of a run's input, from its first event."""
    facts = decode_event(first_events[0]).payload.get("attachments", ()) if first_events else ()
    return [parse(Part, from_wire(Part, part)) for part in facts]
