"""The kernel under a cancel at every step, a crash at every step, and pairs of them."""

from __future__ import annotations

import math
import os

import pytest
import trio
from attrs import define, field

from greenroom.supervision import (
    ActorExited,
    ChildSpec,
    Crashed,
    GaveUp,
    Mailbox,
    Registry,
    Shutdown,
    StartFailed,
    SupervisorGaveUp,
    ask,
    chaos,
    cleanup,
    open_collapsing_nursery,
    open_supervisor,
)

FULL = os.environ.get("GREENROOM_CHAOS") == "full"


@define(eq=False)
class Tree:
    """Static children with clean-up time, dynamic ones beside; who went up and down, when, and how."""

    scope: trio.CancelScope | None = None
    injected: BaseException | None = None
    registry: Registry = field(factory=Registry)
    refs: list = field(factory=list)
    up: list = field(factory=list)
    down: list = field(factory=list)
    exits: dict = field(factory=dict)
    crashes: list = field(factory=list)
    doubled: list = field(factory=list)
    stubborn: list = field(factory=list)
    beats: int = 0
    escaped: BaseException | None = None

    def on_exit(self, ref, exit_):
        if ref.id in self.exits:
            self.doubled.append(ref.id)
        self.exits[ref.id] = exit_
        if isinstance(exit_, Crashed | GaveUp):
            self.crashes.append(exit_.error)

    def on_restart(self, ref, exit_, attempt):
        self.crashes.append(exit_.error)


def static(tree, name, stop_time=0.3, beat=math.inf):
    async def body(ctx):
        tree.up.append(name)
        try:
            ctx.ready()
            while True:
                await trio.sleep(beat)
                tree.beats += 1
        finally:
            with cleanup(1.0, what=name):
                await trio.sleep(stop_time)  # noqa: ASYNC102 - a clean-up that takes time is what is tested
            tree.down.append((name, trio.current_time()))

    return ChildSpec(id=name, start=body, shutdown=2.0)


def dynamic(tree, name):
    async def body(ctx):
        tree.up.append(name)
        try:
            for _ in range(3):
                await trio.sleep(0.5)
        finally:
            tree.down.append((name, trio.current_time()))

    return ChildSpec(id=name, start=body, restart="transient")


async def tree_scenario(tree):
    with trio.CancelScope() as tree.scope:
        async with open_supervisor(
            name="t", registry=tree.registry, on_exit=tree.on_exit, on_restart=tree.on_restart, slice_size=2
        ) as sup:
            tree.refs.append(await sup.start_child_ready(static(tree, "writer")))
            tree.refs.append(await sup.start_child_ready(static(tree, "index")))
            tree.refs += [sup.start_child(dynamic(tree, f"run-{i}")) for i in range(5)]
            await trio.sleep(1.0)
            sup.cancel_child("run-0", reason="enough", by="test")
            await sup.stop_child("run-1")
            await sup.join()
            await trio.sleep(1.0)


def check_tree(tree):
    yield from chaos.find_leaks(registries=[tree.registry], refs=tree.refs)
    names = [name for name, _ in tree.down]
    if sorted(names) != sorted(tree.up):
        yield f"up {tree.up}, down {names}"
    statics = [name for name in names if not name.startswith("run")]
    if statics not in (["index", "writer"], ["writer"], []):
        yield f"stopped in the order {statics}"
    times = dict(tree.down)
    if any(times[name] > times.get("index", times["writer"]) for name in times if name.startswith("run")):
        yield "a static child ended before a dynamic one"
    if "index" in times and "writer" in times and times["writer"] - times["index"] < 0.29:
        yield "static children were stopped at the same time"
    if tree.doubled or tree.stubborn:
        yield f"exited twice: {tree.doubled}, stubborn: {tree.stubborn}"
    if tree.injected is not None and tree.injected not in tree.crashes:
        yield "the injected crash was masked"


@pytest.mark.slow
def test_a_cancel_at_any_step_of_start_and_stop_leaves_order_and_no_leak():
    chaos.sweep_cancel(Tree, tree_scenario, check_tree, seeds=(1, 2, 3), settle_within=2.0).require()


@pytest.mark.slow
def test_leaving_the_tree_while_the_scope_inside_the_body_is_cancelled_keeps_the_order_too():
    async def scenario(tree):
        async with open_supervisor(name="t", registry=tree.registry, on_exit=tree.on_exit) as sup:
            with trio.CancelScope() as tree.scope:
                await sup.start_children([static(tree, "writer"), static(tree, "index")])
                tree.refs += [sup.start_child(dynamic(tree, f"run-{i}")) for i in range(3)]
                await trio.sleep(5)

    chaos.sweep_cancel(Tree, scenario, check_tree, seeds=(1, 2), settle_within=3.0).require()


def is_run(task):
    return task.name.startswith("t/run")


@pytest.mark.slow
def test_a_crash_of_any_run_at_any_step_is_reported_and_harms_no_other_run():
    chaos.sweep_crash(Tree, tree_scenario, check_tree, contained=True, match_task=is_run, seeds=(1, 2)).require()


@pytest.mark.slow
def test_no_crash_is_masked_by_a_cancel_at_any_pair_of_steps():
    chaos.sweep_crash(
        Tree,
        tree_scenario,
        check_tree,
        contained=True,
        match_task=is_run,
        and_cancel=True,
        sample=None if FULL else (200, 7),
    ).require()


async def static_crash_scenario(tree):
    with trio.CancelScope() as tree.scope:
        try:
            async with open_supervisor(
                name="t", max_restarts=1, registry=tree.registry, on_exit=tree.on_exit, on_restart=tree.on_restart
            ) as sup:
                tree.refs += await sup.start_children([static(tree, name, beat=1.4) for name in ("writer", "index")])
                await trio.sleep(3)
        except (SupervisorGaveUp, StartFailed) as error:
            tree.escaped = error


def check_static_crash(tree):
    yield from chaos.find_leaks(registries=[tree.registry], refs=tree.refs)
    if tree.injected is not None and tree.injected not in tree.crashes:
        yield "the injected crash was masked"


@pytest.mark.slow
def test_a_crash_of_a_static_child_at_any_step_with_a_cancel_at_any_other_is_never_masked():
    chaos.sweep_crash(
        Tree,
        static_crash_scenario,
        check_static_crash,
        contained=True,
        match_task=lambda task: task.name in ("t/writer", "t/index"),
        and_cancel=True,
        seeds=(1, 2),
    ).require()


@define(eq=False)
class Post:
    """Messages sent to an actor that is cancelled or crashes and is restarted."""

    total: int = 12
    work: int = 1
    scope: trio.CancelScope | None = None
    injected: BaseException | None = None
    mailbox: Mailbox | None = None
    seen: list = field(factory=list)
    sent: int = 0


async def post_scenario(post):
    """The consumer's incarnations are cancelled from outside, one after the other, without a supervisor."""
    post.mailbox = box = Mailbox("post", 32)
    done = trio.Event()

    async def consume():
        while len(post.seen) < post.total:
            await box.wait()
            while len(box):
                message = box.peek()
                for _ in range(post.work):
                    await trio.lowlevel.checkpoint()
                post.seen.append(message)
                box.pop()
        done.set()

    async def produce():
        for i in range(post.total):
            box.tell(i)
            post.sent += 1
            box.nudge()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        while not done.is_set():
            with trio.CancelScope() as scope:
                post.scope = scope
                await consume()


def check_post(post):
    if sorted(set(post.seen)) != list(range(post.sent)):
        yield f"lost: {set(range(post.sent)) - set(post.seen)}"
    if post.seen != sorted(post.seen):
        yield f"out of order: {post.seen}"
    if len(post.mailbox):
        yield f"{len(post.mailbox)} left although all are handled"


@pytest.mark.slow
@pytest.mark.parametrize("work", [0, 1, 2])
def test_no_message_is_lost_duplicated_or_overtaken_by_a_cancel_at_any_step(work):
    def check(post):
        yield from check_post(post)
        if len(post.seen) != post.sent:
            yield f"handled twice: {post.seen}"

    chaos.sweep_cancel(lambda: Post(work=work), post_scenario, check, seeds=range(5)).require()


@pytest.mark.slow
def test_no_message_is_lost_when_the_consumer_crashes_at_any_step():
    async def scenario(post):
        async def consume(ctx):
            post.mailbox = ctx.mailbox
            while len(post.seen) < post.total:
                await ctx.mailbox.wait()
                while len(ctx.mailbox):
                    message = ctx.mailbox.peek()
                    await trio.lowlevel.checkpoint()
                    post.seen.append(message)
                    ctx.mailbox.pop()

        async with open_supervisor(name="p") as sup:
            ref = sup.start_child(ChildSpec(id="c", start=consume, restart="transient"))
            for i in range(post.total):
                ref.tell(i)
                post.sent += 1
                await trio.lowlevel.checkpoint()
            await sup.join()

    chaos.sweep_crash(
        Post, scenario, check_post, contained=True, match_task=lambda task: task.name == "p/c", seeds=range(5)
    ).require()


@define(eq=False)
class Questions:
    """Askers of one server; each must get an answer, an ActorExited, or its own cancellation."""

    scope: trio.CancelScope | None = None
    injected: BaseException | None = None
    answers: list = field(factory=list)
    done: int = 0


@pytest.mark.slow
def test_every_asker_is_shown_wherever_the_server_is_crashed():
    async def scenario(world):
        async def serve(ctx):
            while True:
                await ctx.mailbox.wait()
                while len(ctx.mailbox):
                    await trio.sleep(0.1)
                    ctx.mailbox.peek().send("yes")
                    ctx.mailbox.pop()

        async def client(ref):
            try:
                world.answers.append(await ask(ref, lambda reply: reply))
            except ActorExited:
                world.answers.append("exited")

        async with open_supervisor(name="q") as sup:
            ref = sup.start_child(ChildSpec(id="server", start=serve, restart="temporary"))
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(client, ref)

    def check(world):
        if len(world.answers) != 4:
            yield f"answers: {world.answers}"

    chaos.sweep_crash(
        Questions, scenario, check, contained=True, match_task=lambda task: task.name == "q/server", seeds=(1, 2)
    ).require()


@define(eq=False)
class Nested:
    """A supervisor as a child of a supervisor."""

    scope: trio.CancelScope | None = None
    order: list = field(factory=list)
    started: list = field(factory=list)
    registry: Registry = field(factory=Registry)


@pytest.mark.slow
def test_runs_end_before_the_writer_in_nested_supervisors_wherever_it_is_cancelled():
    async def scenario(world):
        async def leaf(ctx):
            world.started.append(ctx.ref.name)
            try:
                ctx.ready()
                await trio.sleep_forever()
            finally:
                with cleanup(1):
                    await trio.sleep(0.1)  # noqa: ASYNC102 - a clean-up that takes time is what is tested
                world.order.append(ctx.ref.name)

        async def runs(ctx):
            async with open_supervisor(name="runs", registry=world.registry) as sup:
                for i in range(3):
                    sup.start_child(ChildSpec(id=f"r{i}", start=leaf))
                ctx.ready()
                await trio.sleep_forever()

        with trio.CancelScope() as world.scope:
            async with open_supervisor(name="root", registry=world.registry) as sup:
                await sup.start_child_ready(ChildSpec(id="writer", start=leaf))
                await sup.start_child_ready(ChildSpec(id="runs", start=runs, shutdown=float("inf")))
                await trio.sleep(2)

    def check(world):
        yield from chaos.find_leaks(registries=[world.registry])
        if sorted(world.order) != sorted(world.started):
            yield f"started {world.started}, ended {world.order}"
        if "root/writer" in world.order and world.order[-1] != "root/writer":
            yield f"ended in the order {world.order}"

    chaos.sweep_cancel(Nested, scenario, check, seeds=(1, 2, 3), settle_within=3.0).require()


@pytest.mark.slow
def test_five_thousand_nested_levels_are_cancelled_without_error():
    async def main():
        deepest = trio.Event()

        async def level(k):
            if k == 0:
                deepest.set()
                await trio.sleep_forever()
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(level, k - 1)

        with trio.CancelScope() as scope:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(level, 5_000)
                await deepest.wait()
                scope.cancel()
        assert scope.cancelled_caught

    trio.run(main)


@pytest.mark.slow
def test_a_thousand_nested_supervisors_are_cancelled_without_error():
    async def main():
        deepest = trio.Event()
        exits = []

        def level(k):
            async def body(ctx):
                if k == 0:
                    deepest.set()
                    await trio.sleep_forever()
                async with open_supervisor(
                    name=str(k), stop_budget=3600, on_exit=lambda _, exit_: exits.append(exit_)
                ) as sup:
                    sup.start_child(ChildSpec(id="next", start=level(k - 1)))
                    await trio.sleep_forever()

            return body

        with trio.CancelScope() as scope:
            async with open_supervisor(name="root", stop_budget=3600) as sup:
                sup.start_child(ChildSpec(id="next", start=level(1_000)))
                await deepest.wait()
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert exits == [Shutdown()] * 1_000

    trio.run(main)
