"""The kernel's figures: medians of 5, process CPU time, range behind. `python benchmarks/bench_kernel.py`."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time

import trio
import trio.testing

from greenroom.supervision import ActorContext, ChildSpec, Mailbox, Reply, ask, open_collapsing_nursery, open_supervisor

now = time.process_time
REPS = 5


def report(name, values, unit, digits=0):
    low, high, mid = min(values), max(values), statistics.median(values)
    print(f"{name:52} {mid:>12,.{digits}f} {unit:8} [{low:,.{digits}f} .. {high:,.{digits}f}]", flush=True)


def measure(name, main, unit, digits=0):
    values = []
    for _ in range(REPS):
        gc.collect()
        values.append(trio.run(main))
    report(name, values, unit, digits)


async def tell_burst(n=200_000, burst=100):
    box = Mailbox("bench")

    async def consume():
        seen = 0
        while seen < n:
            await box.wait()
            while len(box):
                box.peek()
                box.pop()
                seen += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        began = now()
        for i in range(n):
            box.tell(i)
            if i % burst == burst - 1:
                await trio.lowlevel.checkpoint()
    return n / (now() - began)


async def answer(ctx: ActorContext[Reply[int]]):
    box = ctx.mailbox
    while True:
        await box.wait()
        while len(box):
            box.peek().send(1)
            box.pop()


def asks(clients, deadline, n=20_000):
    async def main():
        async with open_supervisor(name="bench") as sup:
            ref = sup.start_child(ChildSpec(id="server", start=answer))

            async def client():
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
            spent = now() - began
        return n / spent

    return main


async def park(ctx):
    await ctx.mailbox.wait()


async def actor_life(n=10_000):
    async with open_supervisor(name="bench") as sup:
        began = now()
        for i in range(n):
            sup.start_child(ChildSpec(id=str(i), start=park, restart="temporary")).tell(None)
            if i % 100 == 99:
                await trio.lowlevel.checkpoint()
        await sup.join()
        return n / (now() - began)


async def actor_life_parked(n=10_000):
    async with open_supervisor(name="bench") as sup:
        began = now()
        refs = [sup.start_child(ChildSpec(id=str(i), start=park, restart="temporary")) for i in range(n)]
        await trio.testing.wait_all_tasks_blocked()
        for ref in refs:
            ref.tell(None)
        await sup.join()
        return n / (now() - began)


async def restarts(n=5_000):
    async def crash(ctx):
        if ctx.attempt == n:
            return
        raise ValueError

    async with open_supervisor(name="bench", max_restarts=n + 1, within=0.001) as sup:
        began = now()
        sup.start_child(ChildSpec(id="a", start=crash, restart="transient"))
        await sup.join()
        return (now() - began) / n * 1e6


async def cancel_one(n=10_000, cancels=200):
    async with open_supervisor(name="bench") as sup:
        refs = [sup.start_child(ChildSpec(id=str(i), start=park)) for i in range(n)]
        await trio.testing.wait_all_tasks_blocked()
        began = now()
        for i in range(cancels):
            sup.cancel_child(str(i), reason="bench", by="bench")
            await refs[i].exited.wait()
        return (now() - began) / cancels * 1e6


def stop_all(what, n=10_000):
    async def main():
        pauses = []

        async def bystander():
            last = time.perf_counter()
            while True:
                await trio.lowlevel.checkpoint()
                here = time.perf_counter()
                pauses.append(here - last)
                last = here

        async with trio.open_nursery() as nursery:
            async with open_supervisor(name="bench", stop_budget=60) as sup:
                for i in range(n):
                    sup.start_child(ChildSpec(id=str(i), start=park))
                await trio.testing.wait_all_tasks_blocked()
                if what == "pause":
                    nursery.start_soon(bystander)
                    await trio.lowlevel.checkpoint()
                    pauses.clear()
                began = now()
            spent = now() - began
            nursery.cancel_scope.cancel()
        return spent * 1e3 if what == "cpu" else max(pauses) * 1e3

    return main


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory(n=50_000):
    async with open_supervisor(name="bench") as sup:
        gc.collect()
        before = rss()
        for i in range(n):
            sup.start_child(ChildSpec(id=str(i), start=park))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        print((rss() - before) / n)
        sys.stdout.flush()
        os._exit(0)


async def cancel_deep(levels=5_000):
    deepest = trio.Event()

    async def level(k):
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


def main():
    if sys.argv[1:] == ["memory"]:
        trio.run(memory)
    measure("tell, bursts of 100, peeked and popped", tell_burst, "msg/s")
    measure("ask, 1 client", asks(1, deadline=False), "asks/s")
    measure("ask, 1 client, deadline", asks(1, deadline=True), "asks/s")
    measure("ask, 100 clients", asks(100, deadline=False), "asks/s")
    measure("ask, 100 clients, deadline", asks(100, deadline=True), "asks/s")
    measure("actor life (start, 1 message, exit), 100 at a time", actor_life, "lives/s")
    measure("actor life, 10,000 parked at once", actor_life_parked, "lives/s")
    measure("crash to restarted", restarts, "us", 1)
    measure("cancel one of 10,000 and see its exit", cancel_one, "us", 1)
    measure("stop 10,000 in slices, CPU", stop_all("cpu"), "ms")
    measure("longest pause of a bystander meanwhile, wall", stop_all("pause"), "ms", 1)
    measure("cancel 5,000 nested levels", cancel_deep, "ms")
    own = [sys.executable, __file__, "memory"]
    sizes = [float(subprocess.run(own, capture_output=True, text=True, check=True).stdout) for _ in range(REPS)]  # noqa: S603
    report("parked actor", sizes, "bytes")


if __name__ == "__main__":
    main()
