"""A run whose events the test writes itself: any number, of any size, as fast as the store takes them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import trio
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, EventDraft, Receipt
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.events import MessageDelta
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.rows import RunRow
from greenroom.actors.runtime.start_request import StartRequest, new_run


@attrs.define(eq=False)
class Author:
    """Owns a run in the middle of a model's answer, in the place of the runtime's own actor."""

    runtime: gr.Runtime
    run: str
    claim: Claim
    row: RunRow
    encoder: EventEncoder

    @classmethod
    async def create(cls, runtime: gr.Runtime, agent: gr.Agent[Any], run: str, by: str | None = None) -> "Author":
        """A new run; its first event is durable."""
        new = new_run(
            StartRequest(agent=agent, text="hi", run_id=run, by=by), datetime.now(UTC), runtime.reader.redactor
        )
        encoder = EventEncoder(new.info, runtime.reader.redactor)
        (frame,) = encoder.frames(0, new.info.created_at, (new.created,))
        created = await runtime.store.create_run(new, frame)
        assert created.claim is not None
        row = replace(new.row, stage=Stage.RUNNING, position=RunPosition.INFERENCE, step=1)
        return cls(runtime, run, created.claim, row, encoder)

    @property
    def head(self) -> int:
        """The sequence of the newest event that was written."""
        return self.row.last_sequence

    async def write(self, texts: Sequence[str]) -> None:
        """One commit with an event for each text; returns when it is durable."""
        before, durable = self.row.last_sequence, trio.Event()
        events = tuple(
            EventDraft("run.message.delta", MessageDelta(message_id=f"{self.run}-m1", index=before + i, text=text))
            for i, text in enumerate(texts)
        )
        self.row = replace(self.row, last_sequence=before + len(events))
        at = self.runtime.clock.now()
        commit = Commit(run_id=self.run, expected_last=before, at=at, events=events, row=self.row)

        def deliver(receipt: Receipt) -> None:
            assert receipt.kind == "committed", receipt
            durable.set()

        self.runtime.store.submit(self.claim, commit, self.encoder.frames(before, at, events), deliver)
        await durable.wait()
