"""Rules of child runs that wait for people: mirrors, decisions about either ticket, restarts, depth."""

import pytest
import trio
from tests.support.runs import home

import greenroom as gr
from greenroom.actors.contract.ids import child_run_id
from greenroom.testing import ScriptedModel, call

from ..support.child_scenes import CHILD, ChildLife, K, Spy, expert, in_child, with_expert
from ..support.scene_tools import TOOLS, Outside
from ..support.scenes import RUN, after, approve, cancel, decide, deny, pause, restart, send

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
PAID = [call("pay", cents=5, id="P"), "paid all"]


async def tickets(scene):
    """The open tickets of the parent run."""
    return {ticket.ticket_id: ticket for ticket in (await scene.run.view()).tickets}


async def commands(scene):
    """What was journaled for the child run."""
    return await scene.runtime.store.commands(CHILD)


@pytest.mark.rule("CR-12", "CR-13")
async def test_a_ticket_of_a_child_run_is_mirrored_and_can_be_decided_in_the_parent(play, autojump_clock):
    spy, child = Spy(), ChildLife()
    acts = [spy.see(tickets), decide("r.t1", decision_id="d"), child.look(), spy.see(commands)]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert life.path == "running waiting running completed"
    assert life.calls == {"K": "new running suspended resuming running succeeded"}
    mirror, theirs = spy.found[0]["r.t1"], child.payloads("approval.requested")[0]
    assert (mirror.reason, mirror.call_id, mirror.tool, dict(mirror.arguments)) == (
        "child_approval", "K", "pay", {"cents": 5},
    )  # fmt: skip
    assert (mirror.child_run_id, mirror.child_ticket_id) == (CHILD, f"{CHILD}.t1")
    assert mirror.fingerprint == theirs["fingerprint"]
    (asked,) = life.payloads("approval.requested")
    assert (asked["childRunId"], asked["childTicketId"]) == (CHILD, f"{CHILD}.t1")
    assert life.tickets == {"r.t1": ("child_approval", "approved")}
    (resolved,) = child.payloads("approval.resolved")
    assert (resolved["resolution"], resolved["by"]) == ("approved", "ada")
    assert [item.command.command_id for item in spy.found[1]] == ["d"]
    assert life.effects == ["P"]


@pytest.mark.rule("CR-22")
@pytest.mark.parametrize("mode", ["parallel_streaming"])
@pytest.mark.parametrize("seconds", [0.0, 5.0, 20.0], ids=["at once", "beside the body", "at rest"])
@pytest.mark.parametrize("body", [None, call("look", id="L"), call("note", id="N")], ids=["alone", "look", "note"])
@pytest.mark.parametrize("target", ["r.t1", "P"])
async def test_a_child_run_is_watched_after_a_restart_beside_another_body(play, autojump_clock, body, seconds, target):
    """What the restart writes about the other body delays the watch: meanwhile the child's ticket may be decided."""
    approves = in_child("P") if target == "P" else decide(target)
    acts = [after(3.0, restart), after(seconds, approves)]
    if body is not None and body.tool == "note":
        acts.append(decide("N", result="noted"))
    calls = [K] if body is None else [K, body]
    life = await play(calls, "done", tools=with_expert(*PAID), do=acts)
    assert (life.path.split()[-1], life.calls["K"].split()[-1]) == ("completed", "succeeded")
    assert life.effects.count("P") == 1


@pytest.mark.rule("CR-14")
@pytest.mark.parametrize("action", ["resume", "cancel"])
async def test_a_decision_about_the_childs_ticket_closes_the_mirror_as_it_did(play, autojump_clock, action):
    life = await play(K, "done", tools=with_expert(*PAID), do=[in_child("P", action, reason="because")])
    (resolved,) = life.payloads("approval.resolved")
    expected = "approved" if action == "resume" else "denied"
    assert (resolved["ticketId"], resolved["resolution"]) == ("r.t1", expected)
    assert (resolved["by"], resolved["reason"]) == ("eve", "because")
    assert life.view.stage == "completed"
    assert life.effects == (["P"] if action == "resume" else [])


@pytest.mark.rule("CR-12", "CR-15")
@pytest.mark.parametrize("execution", ["parallel_streaming", "parallel_batch_approval"])
async def test_several_tickets_of_a_child_run_have_a_mirror_each(play, autojump_clock, execution):
    spy = Spy()
    calls = [call("pay", cents=1, id="A"), call("pay", cents=2, id="B")]
    acts = [spy.see(tickets), decide("K"), decide("r.t1")]
    life = await play(K, "done", tools=with_expert(calls, "both", execution=execution), do=acts)
    mirrors = spy.found[0]
    assert {name: (ticket.call_id, dict(ticket.arguments)) for name, ticket in mirrors.items()} == {
        "r.t1": ("K", {"cents": 1}),
        "r.t2": ("K", {"cents": 2}),
    }
    closed = [payload["ticketId"] for payload in life.payloads("approval.resolved")]
    assert closed == ["r.t2", "r.t1"], "by the call's id the newest one"
    assert life.view.stage == "completed"
    assert sorted(life.effects) == ["A", "B"]


@pytest.mark.rule("CR-30")
@pytest.mark.parametrize("body", [call("look", seconds=200.0, id="L"), call("note", seconds=200.0, id="L")])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_question_is_mirrored_and_decided_while_another_call_works(play, autojump_clock, body, times):
    """Each answer is read before the other call ends; the answer to the first question may lead to a second one."""
    spy = Spy()
    tools = with_expert([body, call("ask", times=times, id="Q")], "told", execution="parallel_streaming")
    asked = [
        act for n in range(times) for act in (after(20, spy.see(tickets)), after(1, decide(f"r.t{n + 1}", result="so")))
    ]
    life = await play(K, "done", tools=tools, do=[*asked, after(30, spy.see(decided))])
    assert [list(found) for found in spy.found[:-1]] == [[f"r.t{n + 1}"] for n in range(times)]
    assert spy.found[-1] == ({"Q": "so"}, ["L"]), "the other call works"
    assert (life.view.stage, life.calls["K"]) == ("completed", "new running succeeded")


async def decided(scene):
    """What bodies have continued with, and the bodies that are executed."""
    return dict(scene.outside.decided), list(scene.outside.running)


@pytest.mark.rule("CR-16")
@SEQUENTIAL
async def test_a_mirror_is_judged_by_the_tools_of_the_child_run(play, autojump_clock):
    acts = [
        decide("r.t1", edited_arguments={"cents": "many"}),
        decide("r.t1", edited_arguments={"cents": 9}),
    ]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert "Expected `int`" in life.scene.details[0]
    assert life.scene.outside.started[-1][2] == {"cents": 9}


@pytest.mark.rule("CR-16")
@SEQUENTIAL
async def test_schema_and_reviewers_of_a_ticket_bind_its_mirror(play, autojump_clock):
    asking = call("ask", schema={"type": "integer"}, reviewers=["boss"], id="Q")
    acts = [decide("r.t1", result=3), decide("r.t1", result="x", by="boss"), decide("r.t1", result=3, by="boss")]
    life = await play(K, "done", tools=with_expert(asking, "told"), do=acts)
    assert life.replies == ["rejected not_allowed", "rejected invalid_result", "accepted"]
    assert life.scene.outside.decided == {"Q": 3}


@pytest.mark.rule("CR-13")
@SEQUENTIAL
async def test_the_same_decision_twice_is_one(play, autojump_clock):
    acts = [decide("r.t1", decision_id="d"), decide("r.t1", decision_id="d"), decide("r.t1")]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert life.replies == ["accepted", "duplicate", "rejected already_decided"]
    assert life.effects == ["P"]


@pytest.mark.rule("CR-17")
@SEQUENTIAL
async def test_of_two_deciders_the_child_runs_first_counts(play, autojump_clock):
    def both(scene):
        async def decide_both():
            child = await scene.runtime.get(CHILD)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: child.decide("P", "cancel", by="eve", reason="no"))
                nursery.start_soon(lambda: scene.run.decide("r.t1", "approve", by="ada"))

        return decide_both()

    life = await play(K, "done", tools=with_expert(*PAID), do=[both])
    assert life.view.stage == "completed"
    decided = life.payloads("approval.resolved")[0]["resolution"]
    refused = [payload["code"] for payload in life.payloads("decision.refused")]
    assert (decided, refused, life.effects) in [
        ("approved", ["already_decided"], []),  # eve was first in the child run
        ("approved", [], ["P"]),
        ("denied", ["already_decided"], []),
    ]


@pytest.mark.rule("CR-18")
@pytest.mark.parametrize(("on_deny", "code"), [("continue", None), ("cancel_run", "cancelled")])
async def test_a_denial_is_read_by_the_childs_model_and_acts_as_its_agent_says(play, autojump_clock, on_deny, code):
    child = ChildLife()
    tools = with_expert(*PAID, on_deny=on_deny, denial=lambda ticket, decision: f"no {ticket.tool}")
    life = await play(K, "done", tools=tools, do=[deny("K", "too dear"), child.look()])
    assert (life.codes["K"], life.view.stage, life.effects) == (code, "completed", [])
    if on_deny == "continue":
        assert "no pay" in [message.content for message in child.view.messages]


@pytest.mark.rule("CR-19")
async def test_only_the_clock_of_the_child_run_expires_its_ticket(play, autojump_clock):
    asking = call("ask", expires=100.0, on_expiry="deny", id="Q")
    child = ChildLife()
    life = await play(K, "done", tools=with_expert(asking, "late"), do=[pause(200), child.look()])
    assert life.tickets == {"r.t1": ("child_approval", "expired")}
    assert life.view.stage == "completed"
    assert life.seconds("approval.resolved") == pytest.approx(100.0, abs=1.5)
    assert child.payloads("approval.resolved")[0]["by"] == "clock"


@pytest.mark.rule("CR-20")
async def test_new_input_may_supersede_the_questions_of_a_child_run(play, autojump_clock):
    child = ChildLife()
    acts = [send("never mind"), child.look()]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts, on_new_input="supersede")
    assert life.tickets == {"r.t1": ("child_approval", "withdrawn")}
    assert (life.codes["K"], child.stage, life.view.stage) == ("cancelled", "cancelled", "completed")
    assert life.history[-2:] == ["user: never mind", "assistant: done"]


@SEQUENTIAL
async def test_new_input_that_is_queued_waits_for_the_child_run(play, autojump_clock):
    life = await play(K, "done", tools=with_expert(*PAID), do=[send("and tea"), decide("r.t1")])
    assert life.history[-3:] == ["K: paid all", "user: and tea", "assistant: done"]


@pytest.mark.rule("CR-15")
@SEQUENTIAL
async def test_an_early_decision_does_not_block_the_mirrors(play, autojump_clock):
    slow = [call("look", id="C"), *PAID]
    life = await play(K, "done", tools=with_expert(*slow), do=[after(3, decide("K")), decide("r.t1")])
    assert life.replies == ["accepted early", "accepted"]
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["unused"]
    assert life.effects == ["C", "P"]


@pytest.mark.rule("CR-22")
@pytest.mark.parametrize("by_mirror", [True, False])
@pytest.mark.parametrize("restarts", [1, 2])
async def test_a_restart_keeps_the_mirror_and_either_id_continues_both_runs(play, autojump_clock, by_mirror, restarts):
    spy = Spy()
    act = decide("r.t1") if by_mirror else in_child(f"{CHILD}.t1")
    life = await play(
        K, "done", tools=with_expert(*PAID), do=[spy.see(tickets), *[restart] * restarts, spy.see(tickets), act]
    )
    assert spy.found[0] == spy.found[1]
    assert life.path == "running waiting running completed"
    assert life.effects == ["P"]
    assert life.types.count("approval.requested") == 1


@pytest.mark.rule("CR-22")
@pytest.mark.parametrize("by_mirror", [True, False])
async def test_a_process_that_ends_after_the_decision_asks_again_through_the_mirror(play, autojump_clock, by_mirror):
    act = decide("r.t1") if by_mirror else in_child("P")
    spy = Spy()
    acts = [act, after(1, restart), after(5, spy.see(tickets)), decide("K")]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert [(ticket.ticket_id, ticket.action) for ticket in spy.found[0].values()] == [("r.t2", "outcome_unknown")]
    assert (life.view.stage, life.effects) == ("completed", ["P"])


@pytest.mark.rule("CR-23")
@pytest.mark.parametrize("by_mirror", [True, False])
async def test_a_waiting_parent_leaves_memory_and_is_woken(play, autojump_clock, by_mirror):
    play.runtime["passivate_after"] = 20.0
    spy = Spy()

    async def live(scene):
        await trio.sleep(100)
        return len(scene.runtime._parts.registry)

    acts = [spy.see(live), decide("r.t1") if by_mirror else in_child("P")]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert spy.found == [0]
    assert (life.view.stage, life.effects) == ("completed", ["P"])


@pytest.mark.rule("CR-23")
async def test_a_parent_that_leaves_memory_at_once_has_looked_at_the_child_run_that_woke_it(play, autojump_clock):
    play.runtime["passivate_after"] = 0.0
    script = [call("sign", id="P")], [call("ask", id="Q", mode="use_decision_as_tool_result")], "signed"
    acts = [after(5, in_child("P")), after(20, in_child("Q", result="yes")), after(20, in_child("Q"))]
    life = await play(K, "done", tools=with_expert(*script), do=acts)
    assert (life.view.stage, life.tool_texts) == ("completed", {"K": "signed"})


@pytest.mark.rule("CR-23")
async def test_a_parent_is_looked_at_after_opening_and_leaves_memory_again(play, autojump_clock):
    play.runtime["passivate_after"] = 20.0
    spy = Spy()

    async def live(scene):
        before = len(scene.runtime._parts.registry)
        await trio.sleep(100)
        return before, len(scene.runtime._parts.registry)

    life = await play(K, "done", tools=with_expert(*PAID), do=[restart, spy.see(live), decide("r.t1")])
    assert spy.found == [(1, 0)]
    assert life.view.stage == "completed"


@pytest.mark.rule("CR-24")
@pytest.mark.parametrize("down", [False, True])
async def test_cancelling_a_parent_that_waits_ends_the_child_run(play, autojump_clock, down):
    child = ChildLife()
    acts = [*([restart] if down else []), cancel(reason="enough"), child.look()]
    life = await play(K, "done", tools=with_expert(*PAID), do=acts)
    assert (life.view.stage, child.stage, life.effects) == ("cancelled", "cancelled", [])
    assert life.tickets == {"r.t1": ("child_approval", "withdrawn")}
    assert life.events[-1].timestamp >= child.events[-1].timestamp


@pytest.mark.rule("CR-21", "CR-6")
@pytest.mark.parametrize("level", ["parent", "child", "grandchild"])
@pytest.mark.parametrize("down", [False, True])
async def test_a_mirror_of_a_mirror_is_decided_at_each_level(play, autojump_clock, level, down):
    inner = expert(*PAID, key="inner")
    middle = expert(call("inner", input="deeper", id="M"), "from below", tools=[*TOOLS, inner.as_tool()])
    below = child_run_id(CHILD, "M")
    act = {"parent": decide("r.t1"), "child": in_child(f"{CHILD}.t1"), "grandchild": in_child("P", run_id=below)}
    lives = ChildLife(), ChildLife()
    acts = [*([restart] if down else []), act[level], pause(60), lives[0].look(), lives[1].look(below)]
    life = await play(K, "done", tools=[*TOOLS, middle.as_tool()], do=acts)
    assert (life.view.stage, life.tool_texts["K"], life.effects) == ("completed", "from below", ["P"])
    assert [one.record.info.depth for one in lives] == [1, 2]
    assert lives[1].record.info.parent_run == CHILD
    assert life.view.usage.requests == 6, "those of all three, once"


@pytest.mark.rule("CR-12", "CR-23")
@pytest.mark.parametrize("depth", [1, 2])
async def test_a_ticket_that_a_waiting_child_run_opens_or_closes_is_seen_by_its_parent(shelf, autojump_clock, depth):
    """The parent has left memory, and the child run waits before and after; also through a run between them."""
    options = {"execution": "parallel_batch_approval"}
    clerk = expert([call("sign", id="P"), call("sign", id="Q")], "signed", **options)
    chain = [clerk]
    for level in range(depth):
        tools = [*TOOLS, chain[-1].as_tool(name="expert")]
        chain.append(gr.Agent(f"level{level}", tools=tools, model=ScriptedModel([K, "done"])))
    async with home(shelf, agents=[chain[-1]], deps=Outside(), passivate_after=5.0, drain=0) as runtime:
        run = await runtime.start(chain[-1], "go", run_id=RUN)
        names = [RUN]
        for _ in range(depth):
            names.append(child_run_id(names[-1], "K"))
        await trio.sleep(20)
        child = await runtime.get(names[-1])
        assert (await child.pause(by="eve")).ok
        await trio.sleep(20)
        assert [ticket.tool for ticket in (await run.view()).tickets] == ["sign", "sign", ""]
        assert (await child.decide("P", "resume", by="eve")).ok
        await trio.sleep(20)
        assert [ticket.tool for ticket in (await run.view()).tickets] == ["sign", ""]
        assert (await child.view()).status == (await run.view()).status == "waiting"


@pytest.mark.rule("CR-26")
@SEQUENTIAL
async def test_forks_have_no_part_in_child_runs(play, autojump_clock):
    seen = Spy()

    async def forks(scene):
        of_parent = await scene.runtime.fork(RUN, step=1, new_run_id="f")
        of_child = await scene.runtime.fork(CHILD, step=0, new_run_id="g")
        await of_parent.wait()
        await of_child.wait()
        infos = [await scene.runtime.reader.info(name) for name in ("f", "g")]
        return [(info.parent_run, info.parent_call, info.depth) for info in infos], (await of_child.view()).stage

    await play(K, "done", tools=with_expert("I know."), do=[seen.see(forks)])
    assert seen.found == [([(None, None, 0)] * 2, "completed")]


@pytest.mark.rule("CR-27")
async def test_a_replay_needs_no_child_run(play, autojump_clock):
    spy = Spy()

    async def prune(scene):
        await trio.sleep(1)
        await scene.runtime.store.prune(scene.runtime.clock.now())
        return await scene.runtime.reader.outline(CHILD)

    acts = [spy.see(prune), approve("S"), spy.see(lambda scene: scene.runtime.replay(RUN))]
    life = await play(K, call("sign", id="S"), "done", tools=with_expert("I know."), do=acts)
    assert (spy.found[0], life.view.stage) == (None, "completed")
    assert spy.found[1].equal


@pytest.mark.rule("CR-28")
async def test_lists_show_both_runs(shelf, autojump_clock):
    boss = gr.Agent("boss", tools=with_expert(*PAID), model=ScriptedModel([K, "done"]))
    async with home(shelf, agents=[boss], deps=Outside()) as runtime:
        run = await runtime.start(boss, "go", run_id=RUN, by="ada")
        await run.wait()
        lines = {line.info.run_id: line for line in (await runtime.runs(by="ada")).runs}
        assert set(lines) == {RUN, CHILD}
        assert (lines[CHILD].info.parent_run, lines[CHILD].info.depth) == (RUN, 1)
        assert [(asked.ticket_id, asked.reason) for asked in lines[RUN].asked] == [("r.t1", "child_approval")]


MANY = 100


@pytest.mark.slow
@pytest.mark.rule("CR-22", "CR-23")
@pytest.mark.parametrize("by_mirror", [True, False])
@pytest.mark.parametrize("chosen", [0, 57, 99])
async def test_a_hundred_waiting_child_runs_are_rows_and_any_ticket_continues_both_runs(
    shelf, autojump_clock, by_mirror, chosen
):
    def boss():
        asked = [call("expert", input=f"do {n}", id=f"K{n}") for n in range(MANY)]
        model = ScriptedModel([asked, "done"])
        return gr.Agent("boss", tools=with_expert(*PAID), model=model, execution="parallel_streaming")

    outside = Outside()
    async with home(shelf, agents=[boss()], deps=outside, passivate_after=5.0, drain=0) as runtime:
        run = await runtime.start(runtime.agents["boss"], "go", run_id=RUN)
        while len((await run.view()).tickets) < MANY:  # noqa: ASYNC110 - a view has no event
            await trio.sleep(1)
        await trio.sleep(20)
        assert len(runtime._parts.registry) == 0, "the waiting runs are rows"
    async with home(shelf, agents=[boss()], deps=outside, passivate_after=5.0, drain=0) as runtime:
        run = await runtime.get(RUN)
        await trio.sleep(20)
        assert len(runtime._parts.registry) == 0, "looked at, and left alone again"
        tickets = {ticket.call_id: ticket for ticket in (await run.view()).tickets}
        assert len(tickets) == MANY
        mirror = tickets[f"K{chosen}"]
        child = await runtime.get(mirror.child_run_id)
        if by_mirror:
            assert (await run.decide(mirror.approve(by="ada"))).ok
        else:
            assert (await child.decide(mirror.child_ticket_id, "approve", by="eve")).ok
        assert (await child.result()).output == "paid all"
        await trio.sleep(20)
        view = await run.view()
        assert view.calls[mirror.call_id] == "succeeded"
        assert {ticket.call_id for ticket in view.tickets} == set(tickets) - {mirror.call_id}
        for ticket in view.tickets:
            assert (await run.decide(ticket.approve())).ok
        assert (await run.result()).output == "done"
    assert len(outside.effects) == MANY
