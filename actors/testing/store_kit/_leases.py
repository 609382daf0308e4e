"""Scenarios of the store kit for shared stores: processes that die, that come back, and that leave."""

from __future__ import annotations

from datetime import timedelta

import trio
from msgspec.structs import replace

from ...contract.decisions import Command
from ...errors import UnknownRun
from ...processes import Ability, ProcessInfo, Taken
from ._shared import LATER, rest
from ._tools import (
    NOW,
    Author,
    Pair,
    claimed,
    create,
    expect,
    frame,
    judge,
    loaded,
    message,
    name_of,
    new_run,
    opened,
    owner_of,
    refused,
    say,
    shared,
)


async def process(pair: Pair, name: str) -> ProcessInfo | None:
    """Return a process, as b sees it."""
    return next((info for info in await pair.b.processes() if info.name == name), None)


@shared("freeze")
async def the_runs_of_a_dead_process_are_freed(pair: Pair) -> None:
    """After a lease without a beat a process is declared dead, and others claim its runs; its claims are void."""
    third = pair.open_store()
    async with opened(third):
        working = await create(third, new_run(f"{pair.me}.works", f"{pair.me}.works", agent=pair.me))
        waiting = await create(third, new_run(f"{pair.me}.waits", f"{pair.me}.waits", agent=pair.me))
        await rest(waiting)
        name = await owner_of(pair.b, working.run_id)
        expect(await pair.b.claim(working.run_id), Taken(process=name or ""), "it lives")
        pair.steering.freeze(third)
    expect(await pair.ready(pair.b, now=LATER), [], "a process that is silent is not dead immediately")
    since = trio.current_time()

    async def freed() -> bool:
        return await pair.owner(working.run_id) is None and await pair.owner(waiting.run_id) is None

    await pair.eventually(freed, "its runs are free within a lease and two turns", leases=1, turns=3)
    if not pair.steering.patience:  # in real time the newest beat may be older than a turn
        early = trio.current_time() - since < pair.steering.lease - pair.steering.turn
        expect(early, False, "and not before the lease")
    expect(await pair.ready(pair.b, now=LATER), [working.run_id], "what it worked on is ready, after a pause")
    late = Author(pair.b, working.claim, working.row)
    expect((await late.send(late.make()).receipt()).kind, "lease_lost", "the claims of the dead write nothing")
    await claimed(pair.a, waiting.run_id)


@shared("freeze")
async def a_late_process_gives_up_before_it_is_declared_dead(pair: Pair) -> None:
    """A process without a confirmed beat voids its claims while they still are its own, and begins again."""
    author = await pair.create(pair.a, pair.me)
    good_until = pair.a.good_until
    expect(good_until > trio.current_time(), True, "claims are good for a while")
    pair.steering.freeze(pair.a)
    await pair.eventually(lambda: pair.log_a.voids > 0, "its claims are voided", leases=1, turns=0)
    expect(await pair.ready(pair.b, now=LATER), [], "while no other process can have the run")
    expect(pair.a.good_until <= trio.current_time(), True, "and claims are good no longer")
    info = await process(pair, pair.name_a)
    if info is not None and info.beat_age is not None:  # a storage may not say
        expect(info.beat_age > 2 * pair.steering.turn, True, "others see how old its newest beat is")

    async def freed() -> bool:
        return await pair.owner(pair.me) is None

    await pair.eventually(freed, "then the others declare it dead", leases=1, turns=3)
    claim = await claimed(pair.b, pair.me)
    sent = author.send(author.make(0, messages=(message(f"{pair.me}.zombie"),)))
    pair.steering.thaw(pair.a)
    await pair.eventually(lambda: pair.a.good_until > trio.current_time(), "it continues, as another process")
    expect((await sent.receipt()).kind, "lease_lost", "what it sent late is refused")
    name = await name_of(pair.a, f"{pair.me}.probe")
    expect(name == pair.name_a, False, "with a row of its own")
    expect(await pair.a.claim(pair.me), Taken(process=pair.name_b), "and the run stays where it is")
    await Author(pair.b, claim, (await loaded(pair.b, pair.me)).row).write()
    expect([one.id for one in await pair.b.messages(pair.me)], [], "nothing of the zombie is there")
    expect(pair.log_b.voids, 0, "the others never noticed")


@shared("freeze")
async def a_process_that_was_silent_for_less_than_a_lease_gives_its_runs_back(pair: Pair) -> None:
    """Runs of a process that stopped itself, but was not declared dead, are ready immediately, without a crash."""
    steering = pair.steering
    author = await pair.create(pair.a, pair.me)
    if steering.patience:
        return  # in real time the end of the lease may come first
    for _ in range(6):
        steering.freeze(pair.a)
        await pair.eventually(lambda: pair.a.good_until <= trio.current_time(), "it stops itself", leases=1)
        steering.thaw(pair.a)
        await pair.eventually(lambda: pair.a.good_until > trio.current_time(), "it continues")
        expect((await author.send(author.make(0)).receipt()).kind, "lease_lost", "the old claim is void")
        expect(await pair.ready(pair.b), [pair.me], "the run is ready, without a pause")
        await pair.b.give_back([await claimed(pair.b, pair.me)])
        author.claim = await claimed(pair.a, pair.me)
    expect(await dead(pair, pair.me), None, "no crash is counted")


@shared()
async def a_process_that_leaves_gives_its_runs_back(pair: Pair) -> None:
    """Closing a store frees its runs immediately, without a crash; other processes learn that there is work."""
    pair.b.publish({pair.me: "d1"}, room=None)
    run_id = f"{pair.me}.r"
    await pair.queue(pair.a, run_id)
    for _ in range(6):
        third = pair.open_store()
        async with opened(third):
            author = Author(third, await claimed(third, run_id), (await loaded(third, run_id)).row)
            works = pair.log_b.works
        expect(await owner_of(pair.b, run_id), None, "it has no owner any more")
        await pair.eventually(lambda works=works: pair.log_b.works > works, "others learn of it", turns=0.5)  # type: ignore[misc]
        late = Author(pair.b, author.claim, author.row)
        expect((await late.send(late.make(0)).receipt()).kind, "lease_lost", "and its claim is void")
    expect(await dead(pair, run_id), None, "no crash is counted")
    expect(await pair.ready(pair.b), [run_id], "the run is ready immediately")


@shared()
async def a_buried_process_loses_its_runs_immediately(pair: Pair) -> None:
    """Bury declares a process dead for its supervisor, without the wait for its lease."""
    working = await pair.create(pair.a, f"{pair.me}.works")
    waiting = await pair.create(pair.a, f"{pair.me}.waits")
    await rest(waiting)
    expect(await pair.b.bury(f"{pair.me}.nobody"), False, "an unknown process is not buried")
    expect(await pair.b.bury(pair.name_a), True, "a live one is")
    expect(await pair.b.bury(pair.name_a), False, "once")
    expect((await pair.owner(working.run_id), await pair.owner(waiting.run_id)), (None, None), "its runs are free")
    expect((await working.send(working.make(0)).receipt()).kind, "lease_lost", "its claims are void")
    await pair.eventually(lambda: pair.log_a.voids > 0, "a process that was buried alive learns of it")
    name = await name_of(pair.a, f"{pair.me}.probe")
    expect(name == pair.name_a, False, "and continues as another process")


async def dead(pair: Pair, run_id: str) -> str | None:
    """Return why a run is a dead letter."""
    return (await pair.b.summaries([run_id])).runs[0].dead


async def crash(pair: Pair, run_id: str, *, step: int | None = None) -> None:
    """Let a process die while it works on a run; `step`: it begins this step first."""
    third = pair.open_store()
    async with opened(third):
        author = Author(third, await claimed(third, run_id), (await loaded(third, run_id)).row)
        if step is not None:
            await author.write(row=replace(author.row, step=step))
        name = await owner_of(pair.b, run_id)
        expect(await pair.b.bury(name or ""), True, "its process dies")


@shared()
async def a_run_that_kills_its_owners_becomes_a_dead_letter(pair: Pair) -> None:
    """After five crashes without a finished step no process claims the run; revived or cancelled, it is ready."""
    run_id = f"{pair.me}.r"
    await pair.queue(pair.a, run_id)
    await crash(pair, run_id)
    expect(await pair.ready(pair.a), [], "after a crash there is a pause")
    for _ in range(3):
        await crash(pair, run_id)
    expect(await dead(pair, run_id), None, "four crashes are not enough")
    expect(await pair.ready(pair.a, now=LATER), [run_id], "it is claimed again")
    await pair.a.give_back([await claimed(pair.a, run_id)])
    await crash(pair, run_id)
    expect(bool(await dead(pair, run_id)), True, "the fifth makes it a dead letter, with a reason")
    expect(await pair.ready(pair.a, now=LATER), [], "that no process claims")
    expect(await pair.a.revive_run(run_id), True, "it is revived")
    expect((await dead(pair, run_id), await pair.b.revive_run(run_id)), (None, False), "once")
    expect(await pair.ready(pair.b, now=LATER), [run_id], "and is claimed")
    await pair.b.give_back([await claimed(pair.b, run_id)])
    for _ in range(5):
        await crash(pair, run_id)
    await pair.b.post(run_id, Command(command_id="c", kind="cancel", posted_at=NOW), judge)
    expect(await pair.ready(pair.a, now=LATER), [run_id], "a cancel gives a dead letter an owner")
    await refused(UnknownRun, pair.a.revive_run(f"{pair.me}.none"), "an unknown run is not revived")


@shared()
async def a_finished_step_forgives_the_crashes_before(pair: Pair) -> None:
    """Crashes count only until a step is finished."""
    run_id = f"{pair.me}.r"
    await pair.queue(pair.a, run_id)
    for step in range(1, 9):
        await crash(pair, run_id, step=step)
    expect(await dead(pair, run_id), None, "each crash is the first of its step")


@shared()
async def processes_show_their_agents(pair: Pair) -> None:
    """The agents of all live processes are known in each of them, and those of one that left are not."""
    pair.a.publish({pair.me: "d1"}, room=3)
    pair.b.publish({pair.me: "d2", f"{pair.me}.b": "d1"}, room=None)

    async def known() -> bool:
        agents = await pair.a.agents()
        digests = agents.get(pair.me), agents.get(f"{pair.me}.b")
        return digests == (frozenset({"d1", "d2"}), frozenset({"d1"}))

    await pair.eventually(known, "both have published")
    await pair.create(pair.a, pair.me)
    info = await process(pair, pair.name_a)
    expect(info and (info.room, dict(info.agents), info.runs, info.dead), (3, {pair.me: "d1"}, 1, False), "its row")
    beat = -1 if info is None else info.beat

    async def beats() -> bool:
        later = await process(pair, pair.name_a)
        return later is not None and later.beat > beat

    await pair.eventually(beats, "its beat advances")
    if info is not None and info.beat_age is not None:
        grown = (await process(pair, pair.name_a) or info).beat_age or 0.0
        early = 0.0 <= grown <= pair.steering.lease + pair.steering.patience
        expect(early, True, "and its age is that of a live process")
    third = pair.open_store()
    async with opened(third):
        name = await name_of(third, f"{pair.me}.probe")
    expect(await process(pair, name), None, "a process that has left is gone")


@shared()
async def a_timer_of_a_run_that_no_process_serves_is_left_to_any(pair: Pair) -> None:
    """A run whose agent no live process has is claimed when its timer fires, by a process that asks for such runs."""
    served = f"{pair.me}.served"
    pair.a.publish({served: "d1"}, room=0)
    for name, agent in (("alone", pair.me), ("served", served), ("queued", pair.me)):
        new = new_run(f"{pair.me}.{name}", f"{pair.me}.{name}", agent=agent, next_due=NOW)
        created = await pair.a.create_run(new, frame(new.info.run_id, 1), claim=name != "queued")
        if created.claim is not None:
            author = Author(pair.a, created.claim, new.row)
            await rest(author, next_due=NOW)
            await pair.a.release([created.claim])

    async def known() -> bool:
        return served in await pair.b.agents()

    await pair.eventually(known, "the agents are known")
    later, mine = NOW + timedelta(seconds=1), f"{pair.me}."

    async def due(unserved: bool) -> list[str]:
        able = Ability(agents=frozenset({f"{pair.me}.other"}), unserved=unserved)
        runs = [run.claim.run_id for run in await pair.b.claim_due(later, able)]
        return sorted(name.removeprefix(mine) for name in runs if name.startswith(mine))

    expect(await due(False), [], "a process that does not ask for them gets none")
    expect(await due(True), ["alone", "queued"], "the one whose agent lives is left to that process")


@shared()
async def a_timer_of_a_run_whose_place_is_offline_is_left_to_any(pair: Pair) -> None:
    """A deadline needs no place, but a live process that has the place comes first."""
    here, away = f"{pair.me}.here", f"{pair.me}.away"
    pair.a.publish({pair.me: "d1"}, places={"shop": here}, room=0)
    for name, place in (("online", here), ("offline", away)):
        new = new_run(f"{pair.me}.{name}", f"{pair.me}.{name}", agent=pair.me, next_due=NOW, place=place)
        await pair.a.create_run(new, frame(new.info.run_id, 1), claim=False)

    async def known() -> bool:
        info = await process(pair, pair.name_a)
        return info is not None and dict(info.places) == {"shop": here}

    await pair.eventually(known, "the workspaces of a process are known")
    later = NOW + timedelta(seconds=1)
    able = Ability(agents=frozenset({pair.me}), places=frozenset(), unserved=True)
    run_ids = [run.claim.run_id for run in await pair.b.claim_due(later, able)]
    expect([name for name in run_ids if name.startswith(pair.me)], [f"{pair.me}.offline"], "of no live process's place")
    able = Ability(agents=frozenset({pair.me}), places=frozenset({here}))
    run_ids = [run.claim.run_id for run in await pair.a.claim_due(later, able)]
    expect(run_ids, [f"{pair.me}.online"], "the process with the place")
    pair.a.publish({pair.me: "d1"}, places={}, room=0)

    async def forgotten() -> bool:
        info = await process(pair, pair.name_a)
        return info is not None and not info.places

    await pair.eventually(forgotten, "a place that a process lacks now is not listed")


@shared()
async def work_is_offered_to_a_process_with_room(pair: Pair) -> None:
    """A run that waits for an owner is hinted to a process that has the agent, and room for it."""
    pair.a.publish({pair.me: "d1"}, room=0)
    pair.b.publish({pair.me: "d1"}, room=2)

    async def known() -> bool:
        infos = [await process(pair, name) for name in (pair.name_a, pair.name_b)]
        return [info and info.room for info in infos] == [0, 2]

    await pair.eventually(known, "both have published")
    before = pair.log_a.works
    works = pair.log_b.works
    await pair.queue(pair.a, f"{pair.me}.1")
    await pair.eventually(lambda: pair.log_b.works > works, "the process with room learns of it", turns=0.5)
    expect(pair.log_a.works, before, "the one without does not")


@shared()
async def unread_commands_survive_their_owner(pair: Pair) -> None:
    """A command that the owner did not read before it died makes the run ready, without a crash."""
    author = await pair.create(pair.a, pair.me)
    await rest(author)
    await pair.b.post(pair.me, say("c1"), judge)
    await pair.b.bury(pair.name_a)
    expect(await pair.ready(pair.b), [pair.me], "the run is ready immediately")
    expect(len((await loaded(pair.b, pair.me)).inbox), 1, "with the command")
