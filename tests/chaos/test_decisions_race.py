"""Decisions that race: with siblings, with waiters, with each other, with the clock, with a cancel."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.supervision import chaos, open_collapsing_nursery
from greenroom.testing import FunctionModel, ScriptedModel, call


class Hand:
    """How often bodies ran, and what holds them up."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.started = trio.Event()
        self.go = trio.Event()
        self.order: list[str] = []


@gr.tool(needs_approval=True, effect="write")
async def pay(ctx: gr.ToolContext[Hand], cents: int = 1) -> str:
    """Needs an approval."""
    ctx.deps.ran[ctx.idempotency_key] += 1
    ctx.deps.order.append(f"{ctx.call_id} paid")
    await trio.lowlevel.checkpoint()
    return f"paid {cents}"


@gr.tool
async def sibling(ctx: gr.ToolContext[Hand]) -> str:
    """Runs until the test lets it end."""
    ctx.deps.started.set()
    await ctx.deps.go.wait()
    ctx.deps.order.append("sibling ended")
    return "ended"


@gr.tool
async def question(ctx: gr.ToolContext[Hand]) -> str:
    """Asks for itself; no reviewer comes for ten seconds."""
    if ctx.decision is not None:
        ctx.deps.ran[ctx.idempotency_key] += 1
        return "answered"
    await trio.sleep(1)
    raise gr.Suspend(message="well?", expires_after=10)


TOOLS = [pay, sibling, question]


def agent(*steps: Any, **options: Any) -> gr.Agent:
    """An agent that plays these steps."""
    options.setdefault("execution", "parallel_streaming")
    return gr.Agent("a", tools=TOOLS, model=ScriptedModel([*steps, "done"]), **options)


@pytest.fixture(params=["memory", "inline", "threaded"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """A store of each kind."""
    kind = request.param
    if kind == "memory":
        return gr.MemoryStore
    return lambda: gr.SQLiteStore(tmp_path / "r.db", writer="thread" if kind == "threaded" else "inline")


async def events_of(run: gr.Run[Any]) -> list[gr.Event]:
    """All events of a run that has ended."""
    async with run.events() as following:
        return [event async for event in following]


def count(events: list[gr.Event], kind: str) -> int:
    """How many events of a type there are."""
    return sum(event.type == kind for event in events)


# --- a decision acts at once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("_", range(3))
async def test_a_decision_acts_while_its_sibling_still_runs(make_store, _):
    hand = Hand()
    steps = [call("pay", id="p"), call("sibling", id="s")]
    with trio.fail_after(120):
        async with gr.open_runtime(make_store(), agents=[agent(steps)], deps=hand) as runtime:
            run = await runtime.start("a", "x")
            await hand.started.wait()
            answer = await run.decide("p", "resume")
            assert answer.status == "accepted"
            async with run.events() as following:
                async for event in following:
                    if event.type == "run.tool.result":
                        break
            assert (event.payload["callId"], hand.order) == ("p", ["p paid"])
            hand.go.set()
            assert isinstance(await run.result(), gr.Completed)
            assert hand.order == ["p paid", "sibling ended"]
            types = [(event.type, event.payload.get("callId")) for event in await events_of(run)]
            assert types.index(("run.tool.result", "p")) < types.index(("run.tool.result", "s"))


@pytest.mark.slow
async def test_decide_then_wait_never_shows_the_old_ticket(make_store):
    """Sixty approvals, one after the other: after each decision, wait() and view() know nothing of its ticket."""
    rounds, hand = 60, Hand()
    model = FunctionModel(
        lambda request: "done" if request.model_attempts >= rounds else call("pay", cents=request.model_attempts)
    )
    one = gr.Agent("a", tools=TOOLS, model=model, stop=[gr.stop.MaxRounds(None)])
    old: set[str] = set()
    with trio.fail_after(120):
        async with gr.open_runtime(make_store(), agents=[one], deps=hand) as runtime:
            run = await runtime.start(one, "x")
            for number in range(rounds):
                outcome = await run.wait()
                assert isinstance(outcome, gr.Waiting), (number, outcome)
                (ticket,) = outcome.tickets
                assert ticket.ticket_id not in old
                old.add(ticket.ticket_id)
                assert (await run.decide(ticket.approve())).status == "accepted"
                view = await run.view()
                assert view.pending or ticket.ticket_id not in {shown.ticket_id for shown in view.tickets}
            assert isinstance(await run.wait(), gr.Completed)
            assert sum(hand.ran.values()) == rounds == len(hand.ran)


# --- the same decision, and another one ------------------------------------------------------------------------------


async def test_the_same_decision_twice_has_one_effect_and_one_answer(make_store):
    hand = Hand()
    with trio.fail_after(120):
        async with gr.open_runtime(make_store(), agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
            run = await runtime.start("a", "x")
            (ticket,) = (await run.wait()).tickets
            first = await run.decide(ticket.ticket_id, "resume", decision_id="d", by="ann")
            again = await run.decide(ticket.ticket_id, "resume", decision_id="d", by="ann")
            assert (first.status, again.status) == ("accepted", "duplicate")
            assert isinstance(await run.result(), gr.Completed)
            late = await run.decide(ticket.ticket_id, "resume", decision_id="d", by="ann")
            assert late.status == "duplicate"
            other = await run.decide(ticket.ticket_id, "cancel", decision_id="d", by="ann")
            assert (other.status, other.code) == ("rejected", "decision_id_conflict")
            assert list(hand.ran.values()) == [1]
            assert count(await events_of(run), "run.approval.resolved") == 1


async def test_of_two_deciders_one_wins_and_the_other_learns_who_and_when(make_store):
    hand = Hand()
    with trio.fail_after(120):
        async with gr.open_runtime(make_store(), agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
            run = await runtime.start("a", "x")
            (ticket,) = (await run.wait()).tickets
            answers: dict[str, gr.CommandResult] = {}

            async def decide(who: str, action: Any) -> None:
                answers[who] = await run.decide(ticket.ticket_id, action, by=who)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(decide, "ann", "resume")
                nursery.start_soon(decide, "bob", "cancel")
            (winner,) = [who for who, answer in answers.items() if answer.status == "accepted"]
            (loser,) = {"ann", "bob"} - {winner}
            assert answers[loser].code == "already_decided"
            assert winner in answers[loser].detail
            year = str(runtime.clock.now().year)
            assert year in answers[loser].detail
            assert isinstance(await run.result(), gr.Completed)
            later = await run.decide(ticket.ticket_id, "resume", by="eve")
            assert later.code == "already_decided"
            assert winner in later.detail
            assert year in later.detail
            assert sum(hand.ran.values()) == (winner == "ann")


async def test_two_hundred_concurrent_duplicates_are_one_decision(make_store):
    hand = Hand()
    with trio.fail_after(120):
        async with gr.open_runtime(make_store(), agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
            run = await runtime.start("a", "x")
            (ticket,) = (await run.wait()).tickets
            statuses: Counter[str] = Counter()

            async def decide() -> None:
                statuses[(await run.decide(ticket.ticket_id, "resume", decision_id="d")).status] += 1

            async with trio.open_nursery() as nursery:
                for _ in range(200):
                    nursery.start_soon(decide)
            assert statuses == {"accepted": 1, "duplicate": 199}
            assert isinstance(await run.result(), gr.Completed)
            assert list(hand.ran.values()) == [1]
            assert count(await events_of(run), "run.approval.resolved") == 1


# --- the clock -------------------------------------------------------------------------------------------------------


def test_around_the_expiry_a_decision_acts_or_is_refused_as_late_and_the_run_continues():
    seen = set()
    for step in range(-6, 7):
        for seed in (1, 2, 3):

            async def scenario(at: float = 11 + step / 2000):
                hand = Hand()
                async with gr.open_runtime(agents=[agent(call("question", id="q"))], deps=hand) as runtime:
                    run = await runtime.start("a", "x")
                    await trio.sleep_until(at)
                    answer = await run.decide("q", "resume")
                    with trio.fail_after(30):
                        outcome = await run.result()
                    assert isinstance(outcome, gr.Completed), outcome
                    events = await events_of(run)
                    resolved = [
                        event.payload["resolution"] for event in events if event.type == "run.approval.resolved"
                    ]
                    assert resolved == ["approved" if answer.status == "accepted" else "expired"]
                    assert sum(hand.ran.values()) == (answer.status == "accepted")
                    assert answer.code in (None, "expired", "run_done"), answer
                    return answer.status

            seen.add(chaos.run(scenario, seed=seed))
    assert seen == {"accepted", "rejected"}


async def test_a_decision_that_comes_before_its_ticket_acts_when_the_ticket_is_made(autojump_clock):
    hand = Hand()
    async with gr.open_runtime(agents=[agent(call("question", id="q"))], deps=hand) as runtime:
        run = await runtime.start("a", "x")
        async with run.events() as following:
            async for event in following:
                if event.type == "run.tool.started":
                    break
        answer = await run.decide("q", "resume")
        assert (answer.status, answer.code) == ("accepted", "early")
        with trio.fail_after(30):
            assert isinstance(await run.result(), gr.Completed)
        assert trio.current_time() < 5
        assert list(hand.ran.values()) == [1]


# --- with a cancel ---------------------------------------------------------------------------------------------------


def test_a_decider_that_is_cancelled_at_any_step_has_decided_or_has_not():
    outcomes = set()
    for k in range(12):

        async def scenario(k: int = k):
            hand = Hand()
            async with gr.open_runtime(agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
                run = await runtime.start("a", "x")
                (ticket,) = (await run.wait()).tickets
                scope = trio.CancelScope()

                async def decide() -> None:
                    with scope:
                        await run.decide(ticket.ticket_id, "resume", decision_id="d")

                async with open_collapsing_nursery() as nursery:
                    nursery.start_soon(decide)
                    for _ in range(k):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
                again = await run.decide(ticket.ticket_id, "resume", decision_id="d")
                with trio.fail_after(10):
                    assert isinstance(await run.result(), gr.Completed)
                assert list(hand.ran.values()) == [1]
                assert count(await events_of(run), "run.approval.resolved") == 1
                return again.status

        outcomes.add(chaos.run(scenario, seed=k))
    assert outcomes == {"accepted", "duplicate"}


def test_a_decision_that_races_a_cancel_of_the_run_acts_or_is_refused_aloud():
    seen = set()
    for k in range(12):
        for first in ("decide", "cancel"):

            async def scenario(k: int = k, first: str = first):
                hand = Hand()
                async with gr.open_runtime(agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
                    run = await runtime.start("a", "x")
                    (ticket,) = (await run.wait()).tickets
                    answers = {}

                    async def decide() -> None:
                        answers["decide"] = await run.decide(ticket.ticket_id, "resume", decision_id="d", by="ann")

                    async def cancel() -> None:
                        answers["cancel"] = await run.cancel()

                    both = [decide, cancel] if first == "decide" else [cancel, decide]
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(both[0])
                        for _ in range(k):
                            await trio.lowlevel.checkpoint()
                        nursery.start_soon(both[1])
                    with trio.fail_after(10):
                        outcome = await run.result()
                    events = await events_of(run)
                    acted = sum(
                        event.type == "run.approval.resolved" and event.payload["resolution"] == "approved"
                        for event in events
                    )
                    accepted = answers["decide"].status == "accepted"
                    assert acted + count(events, "run.decision.refused") == accepted
                    assert isinstance(outcome, gr.Cancelled) == (answers["cancel"].status == "accepted")
                    assert sum(hand.ran.values()) <= acted
                    return accepted, acted, type(outcome).__name__

            seen.add(chaos.run(scenario, seed=k))
    assert len(seen) >= 3, seen


async def test_the_outer_scope_is_cancelled_while_another_task_decides_and_the_decision_is_there_afterwards():
    """The runtime is left while decisions are on their way: what was accepted acts in the next one."""
    for pause in range(8):
        hand, store, answers = Hand(), gr.MemoryStore(), []
        with trio.CancelScope() as scope:
            async with gr.open_runtime(store, agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
                run = await runtime.start("a", "x", run_id="r")
                (ticket,) = (await run.wait()).tickets

                async def decide(run=run, ticket=ticket, answers=answers) -> None:
                    answers.append(await run.decide(ticket.ticket_id, "resume", decision_id="d"))

                async with open_collapsing_nursery() as nursery:
                    nursery.start_soon(decide)
                    for _ in range(pause):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        with trio.fail_after(60):
            async with gr.open_runtime(store, agents=[agent(call("pay", id="p"))], deps=hand) as runtime:
                run = await runtime.get("r")
                outcome = await run.wait()
                while isinstance(outcome, gr.Waiting):  # never decided, or it is unknown whether the body ran
                    assert not answers or outcome.tickets[0].reason == "outcome_unknown"
                    await run.decide(outcome.tickets[0].deny())
                    outcome = await run.wait()
                assert sum(hand.ran.values()) <= 1
                if answers:
                    assert answers[0].status == "accepted"
                    assert count(await events_of(run), "run.approval.resolved") >= 1
        await wait_all_tasks_blocked()
