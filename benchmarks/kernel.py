"""The kernel alone: mailboxes, asks, lives of supervised actors, restarts, cancels."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable

import trio
import trio.testing

from greenroom.supervision import ActorContext, ChildSpec, Mailbox, Reply, ask, open_collapsing_nursery, open_supervisor

from .harness import Benchmark, Case, Figure, resident

now = time.process_time
Measured = Callable[[int], Awaitable[float]]


def _case(key: str, main: Measured, full: int, quick_n: int) -> Case:
    """A case of one number: `main` gets how many and returns the figure."""

    async def measured(quick: bool) -> float:
        gc.collect()
        return await main(quick_n if quick else full)

    return lambda quick: {key: trio.run(measured, quick)}


async def tell_burst(n: int) -> float:
    """Messages per second: bursts of 100, peeked and popped."""
    box: Mailbox[int] = Mailbox("bench")

    async def consume() -> None:
        count = 0
        while count < n:
            await box.wait()
            while len(box):
                box.peek()
                box.pop()
                count += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        began = now()
        for i in range(n):
            box.tell(i)
            if i % 100 == 99:
                await trio.lowlevel.checkpoint()
    return n / (now() - began)


async def _answer(ctx: ActorContext[Reply[int]]) -> None:
    box = ctx.mailbox
    while True:
        await box.wait()
        while len(box):
            box.peek().send(1)
            box.pop()


def asks(clients: int, *, deadline: bool) -> Measured:
    """Asks per second of so many clients."""

    async def main(n: int) -> float:
        async with open_supervisor(name="bench") as sup:
            ref = sup.start_child(ChildSpec(id="server", start=_answer))

            async def client() -> None:
                for _ in range(n // clients):
                    if deadline:
                        with trio.CancelScope(deadline=trio.current_time() + 5):
                            await ask(ref, lambda reply: reply)
                    else:
                        await ask(ref, lambda reply: reply)

            began = now()
            async with trio.open_nursery() as nursery:
                for _ in range(clients):
                    nursery.start_soon(client)
            seconds = now() - began
        return n / seconds

    return main


async def _park(ctx: ActorContext[None]) -> None:
    await ctx.mailbox.wait()


async def life(n: int) -> float:
    """Lives per second (start, one message, exit), 100 at a time."""
    async with open_supervisor(name="bench") as sup:
        began = now()
        for i in range(n):
            sup.start_child(ChildSpec(id=str(i), start=_park, restart="temporary")).tell(None)
            if i % 100 == 99:
                await trio.lowlevel.checkpoint()
        await sup.join()
        return n / (now() - began)


async def life_parked(n: int) -> float:
    """Lives per second, all of them parked at once."""
    async with open_supervisor(name="bench") as sup:
        began = now()
        refs = [sup.start_child(ChildSpec(id=str(i), start=_park, restart="temporary")) for i in range(n)]
        await trio.testing.wait_all_tasks_blocked()
        for ref in refs:
            ref.tell(None)
        await sup.join()
        return n / (now() - began)


async def restarts(n: int) -> float:
    """Microseconds from crash to restarted."""

    async def crash(ctx: ActorContext[None]) -> None:
        if ctx.attempt == n:
            return
        raise ValueError

    async with open_supervisor(name="bench", max_restarts=n + 1, within=0.001) as sup:
        began = now()
        sup.start_child(ChildSpec(id="a", start=crash, restart="transient"))
        await sup.join()
        return (now() - began) / n * 1e6


async def cancel_one(n: int) -> float:
    """Microseconds to cancel one of n actors and see its exit."""
    cancels = max(1, n // 50)
    async with open_supervisor(name="bench") as sup:
        refs = [sup.start_child(ChildSpec(id=str(i), start=_park)) for i in range(n)]
        await trio.testing.wait_all_tasks_blocked()
        began = now()
        for i in range(cancels):
            sup.cancel_child(str(i), reason="bench", by="bench")
            await refs[i].exited.wait()
        return (now() - began) / cancels * 1e6


async def _watch(pauses: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await trio.lowlevel.checkpoint()
        here = time.perf_counter()
        pauses.append(here - last)
        last = here


def stop_all(*, watched: bool) -> Measured:
    """CPU milliseconds to stop n actors in slices; or the longest wall pause of another principal meanwhile."""

    async def main(n: int) -> float:
        pauses: list[float] = []
        async with trio.open_nursery() as nursery:
            async with open_supervisor(name="bench", stop_budget=60) as sup:
                for i in range(n):
                    sup.start_child(ChildSpec(id=str(i), start=_park))
                await trio.testing.wait_all_tasks_blocked()
                if watched:
                    nursery.start_soon(_watch, pauses)
                    await trio.lowlevel.checkpoint()
                    pauses.clear()
                began = now()
            seconds = now() - began
            nursery.cancel_scope.cancel()
        return (max(pauses) if watched else seconds) * 1e3

    return main


async def parked_actor(n: int) -> float:
    """Bytes of a parked actor."""
    async with open_supervisor(name="bench") as sup:
        gc.collect()
        before = resident()
        for i in range(n):
            sup.start_child(ChildSpec(id=str(i), start=_park))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        return (resident() - before) / n


async def cancel_deep(levels: int) -> float:
    """Milliseconds to cancel so many nested levels."""
    deepest = trio.Event()

    async def level(k: int) -> None:
        if k == 0:
            deepest.set()
            await trio.sleep_forever()
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(level, k - 1)

    with trio.CancelScope() as scope:
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(level, levels)
            await deepest.wait()
            began = now()
            scope.cancel()
    return (now() - began) * 1e3


BENCHMARK = Benchmark(
    name="kernel",
    about="mailboxes and supervised actors without runs; CPU time",
    cases={
        "tell": _case("tell", tell_burst, 200_000, 2_000),
        "ask": _case("ask", asks(1, deadline=False), 20_000, 500),
        "ask, deadline": _case("ask_deadline", asks(1, deadline=True), 20_000, 500),
        "ask, 100 clients": _case("ask_100", asks(100, deadline=False), 20_000, 500),
        "ask, 100 clients, deadline": _case("ask_100_deadline", asks(100, deadline=True), 20_000, 500),
        "life": _case("life", life, 10_000, 200),
        "life, parked": _case("life_parked", life_parked, 10_000, 200),
        "restarts": _case("restart", restarts, 5_000, 100),
        "cancel one": _case("cancel_one", cancel_one, 10_000, 100),
        "stop all": _case("stop_all", stop_all(watched=False), 10_000, 100),
        "stop all, watched": _case("pause", stop_all(watched=True), 10_000, 100),
        "cancel deep": _case("deep", cancel_deep, 5_000, 100),
        "parked actor": _case("parked", parked_actor, 50_000, 500),
    },
    figures=(
        Figure(key="tell", what="tell, bursts of 100, peeked and popped", unit="/s", at_least=500_000, digits=0),
        Figure(key="ask", what="ask, one client", unit="/s", at_least=45_000, digits=0),
        Figure(key="ask_deadline", what="ask, one client, with deadline", unit="/s", at_least=20_000, digits=0),
        Figure(key="ask_100", what="ask, 100 clients", unit="/s", digits=0),
        Figure(key="ask_100_deadline", what="ask, 100 clients, with deadline", unit="/s", digits=0),
        Figure(key="life", what="supervised actor life, 100 at a time", unit="/s", at_least=10_000, digits=0),
        Figure(key="life_parked", what="supervised actor life, 10,000 parked at once", unit="/s", digits=0),
        Figure(key="restart", what="crash to restarted", unit="us", at_most=50, digits=1),
        Figure(key="cancel_one", what="cancel one of 10,000 and see its exit", unit="us", at_most=100, digits=1),
        Figure(key="stop_all", what="stop 10,000 in slices", unit="ms", at_most=800, digits=0),
        Figure(key="pause", what="longest pause of a bystander meanwhile, wall", unit="ms", at_most=100, digits=1),
        Figure(key="deep", what="cancel 5,000 nested levels", unit="ms", digits=0),
        Figure(key="parked", what="memory of a parked actor", unit="B", digits=0),
    ),
)
