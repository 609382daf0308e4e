"""Scenes of two stores on one database, each about one rule of the statements; AssertionError: the rule is broken."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import trio
from msgspec.structs import replace

from greenroom.actors.contract.calls import CallPosition
from greenroom.actors.contract.commits import Receipt
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.processes import Ability
from greenroom.actors.stores.common._encoding import encode_commit
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._sql import BatchEntry, Piece, commit_statement
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import (
    Author,
    call_row,
    claimed,
    create,
    decide,
    expect,
    frame,
    judge,
    message,
    new_run,
    opened,
    say,
    ticket_row,
)
from greenroom.supervision import open_collapsing_nursery

from ...support.cutting_proxy import CuttingProxy
from .scenes import eventually

LONG: dict[str, Any] = {"lease": 60.0, "turn": 20.0, "margin": 8.0, "answer": 1.0}
"""No turn of a store falls into a scene."""


@asynccontextmanager
async def two_stores(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes, as far as the database knows.

    The first one takes a turn at once when the second one joins: that one must not fall into a scene, either.
    """
    one, two = PostgresStore(url, name="one", **LONG), PostgresStore(url, name="two", **LONG)

    async with opened(one):
        (alone,) = await one.processes()

        async def has_turned() -> bool:
            return any(info.name == alone.name and info.beat > alone.beat for info in await two.processes())

        async with opened(two):
            await eventually(has_turned)
            yield one, two


async def waits(author: Author) -> None:
    """The run comes to rest with an open ticket."""
    call = replace(call_row("c1"), at=CallPosition.BODY)
    await author.write(
        row=replace(author.row, stage=Stage.NEEDS_APPROVAL),
        calls=(call,),
        tickets=(ticket_row(author.run_id, 1, "c1"),),
    )


async def a_run_with_an_unread_command_is_kept_or_claimed(url: str) -> None:
    """A release is refused while a command is unread, and a command makes a released run ready."""
    async with two_stores(url) as (one, two):
        kept, given = await create(one, new_run("kept", "t1")), await create(one, new_run("given", "t2"))
        for author in (kept, given):
            await waits(author)
        expect(list(await one.release([given.claim])), [], "a run at rest is released")
        for author in (kept, given):
            answer = await two.post(author.run_id, decide(f"d-{author.run_id}", f"{author.run_id}.t1"), judge)
            expect(answer.status, "accepted", "the decision is in order")
        expect(list(await one.release([kept.claim])), ["kept"], "a run with an unread command is not released")
        ready = await two.claim_ready(10, Ability(), datetime.now(UTC))
        expect([run.claim.run_id for run in ready], ["given"], "a run without owner and with a command is claimed")


async def a_stale_commit_rides_on_no_other(url: str) -> None:
    """A commit of a voided claim writes nothing, also in one batch with a valid commit of the same run."""
    async with two_stores(url) as (one, _):
        author = await create(one, new_run("r", "t"))
        row = author.row
        stale = author.make(0, messages=(message("stale"),))
        author.row = row
        good = author.make(0, messages=(message("good"),))
        link = Link(PgTarget.parse(url), "scene")
        try:
            ((number, token),) = link.execute("SELECT number, token FROM {s}.runs")
            pieces = [[Piece(commit, (), encode_commit(commit, ()))] for commit in (stale, good)]
            entries = [BatchEntry(number, token - 1, 1, pieces[0]), BatchEntry(number, token, 1, pieces[1])]
            answers = link.execute(*commit_statement(entries))
        finally:
            link.close()
        expect([row[0] for row in answers], [2], "the fence admits the second commit only")
        expect([found.id for found in await one.messages("t")], ["good"], "nothing of the stale commit is written")


async def a_commit_whose_answer_was_lost_is_written_once(url: str) -> None:
    """Its number under the claim tells it, though it has no events."""
    port = PgTarget.parse(url).connection_fields("scene")["port"]
    with CuttingProxy(int(port)) as proxy:
        store = PostgresStore(url.replace(f":{port}/", f":{proxy.port}/"), **LONG)
        async with opened(store):
            author = await create(store, new_run("r", "t"))
            for number in range(3):
                name = f"needle-{number}"
                proxy.arm("after", containing=name.encode())
                with trio.fail_after(20):
                    receipt: Receipt = await author.send(author.make(0, messages=(message(name),))).receipt()
                expect(
                    (receipt.kind, receipt.error), ("committed", None), "a commit whose answer was lost is committed"
                )
            expect(proxy.cuts["after"], 3, "the answers were lost")
            names = [found.id for found in await store.messages("t")]
            expect(names, ["needle-0", "needle-1", "needle-2"], "each message is there once")


async def a_command_is_judged_on_facts_that_stand(url: str) -> None:
    """A command is judged again if its run has changed since it was read."""
    async with two_stores(url) as (one, two), open_collapsing_nursery() as nursery:
        author = await create(one, new_run("r", "t"))
        await waits(author)
        reading, changed, seen = threading.Event(), threading.Event(), []

        def slowly(facts: Any, command: Any) -> Any:
            seen.append(facts.ticket.status)
            reading.set()
            assert changed.wait(20)
            return judge(facts, command)

        answers: list[Any] = []
        answered = trio.Event()

        async def post() -> None:
            answers.append(await two.post("r", decide("d", "r.t1"), slowly))
            answered.set()

        nursery.start_soon(post)
        await trio.to_thread.run_sync(reading.wait)
        closed = replace(ticket_row("r", 1, "c1"), status="withdrawn")
        await author.write(calls=(call_row("c1"),), tickets=(closed,))
        changed.set()
        await answered.wait()
        expect(seen, ["open", "withdrawn"], "the command is judged again, on the facts as they are")
        expect(answers[0].status, "rejected", "the ticket was closed before the decision")


async def a_commit_of_a_voided_claim_is_refused_though_it_would_fit(url: str) -> None:
    """A process whose runs were freed and claimed elsewhere writes nothing more, whatever the numbers say."""
    async with two_stores(url) as (one, two):
        author = await create(one, new_run("r", "t"))
        expect(await two.bury("one"), True, "a live process is declared dead")
        await claimed(two, "r")
        receipt = await author.send(author.make()).receipt()
        expect(receipt.kind, "lease_lost", "a voided claim writes nothing")
        expect(list(await two.events("r")), [frame("r", 1)], "no event was added")
        answer = await two.post("r", say("s"), judge)
        expect(answer.status, "accepted", "the run takes commands")
