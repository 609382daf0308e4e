"""A person's "always" beside an approval: kept in the store of the runtime, for every process, until it is revoked."""

from functools import partial
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract import codec
from greenroom.actors.permission.stored_rules import HOLDER_LIMIT, SPACE, StoredRules
from greenroom.actors.runtime.remembering import stored_rules
from greenroom.testing import call

from ..support.runs import SERVED, Shelf, agent, events_of, home, payloads
from ..support.shared import cluster
from ..support.workspaces import Shop
from .conftest import placed

Always, Rule = gr.ext.Always, gr.ext.Rule


@pytest.fixture(params=["memory", "sqlite", "peers", SERVED])
def shelf(request: pytest.FixtureRequest, tmp_path: Any) -> Shelf:
    return placed(Shelf(request.param, tmp_path), request)


ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@gr.tool(effect="shell")
async def shell(command: str) -> str:
    """Run a command."""
    ran.append(command)
    return "done"


@gr.tool(effect="network")
async def fetch(url: str) -> str:
    """Read a page."""
    ran.append(url)
    return "a page"


def coder(*commands: str, key: str = "coder", rules: Any = None, **options: Any) -> gr.Agent[Any]:
    """An agent that runs one command in each step."""
    steps = [call("fetch", url=command) if "://" in command else call("shell", command=command) for command in commands]
    plugin = gr.ext.Permission(rules)
    return agent(*steps, "done", key=key, tools=[shell, fetch], plugins=[plugin], **options)


async def asked(run: gr.Run[Any]) -> gr.Ticket:
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting), outcome
    return outcome.tickets[0]


async def always(run: gr.Run[Any], by: str = "ada", **options: Any) -> gr.CommandResult:
    """Approve what the run asks, for ever."""
    return await run.decide((await asked(run)).approve(by=by), remember=Always(**options))


@pytest.mark.parametrize(
    ("form", "passes"),
    [("call", ["make a"]), ("argv", ["make a", "make  'a'"]), ("tool", ["make a", "make  'a'", "make b"])],
)
async def test_the_answer_counts_for_later_calls_of_the_thread(shelf, autojump_clock, form, passes):
    commands = ["make a", "make  'a'", "make b", "make c; ls"]
    agents = [coder("make a"), coder(*passes, key="second")]
    agents += [coder(command, key=f"k{n}") for n, command in enumerate(commands)]
    async with home(shelf, agents=agents[:1]) as runtime:
        first = await runtime.start("coder", "go", thread_id="t")
        assert (await always(first, form=form)).status == "accepted"
        await first.result()
    async with home(shelf, agents=agents) as runtime:
        second = await runtime.start("second", "go", thread_id="t")
        await second.result()
        notes = [event["note"] for event in payloads(await events_of(second), "gate.allowed")]
        assert len(notes) == len(passes)
        assert all(note.startswith(f"remembered: {form} of shell for the thread, by ada at ") for note in notes)
        for number, command in enumerate(commands):
            if command not in passes:
                run = await runtime.start(f"k{number}", "go", thread_id="t")
                await run.decide((await asked(run)).deny())
                await run.result()
        other = await runtime.start("coder", "go", thread_id="u")
        assert (await asked(other)).arguments == {"command": "make a"}
        (rule,) = await runtime.rules()
        assert (rule.scope, rule.holder, rule.form, rule.tool, rule.about) == ("thread", "t", form, "shell", "make a")
        assert (rule.by, rule.run_id, rule.revoked_at) == ("ada", first.id, None)
    assert ran == ["make a", *passes]


async def test_a_revoked_rule_counts_no_more(shelf, autojump_clock):
    async with home(shelf, agents=[coder("make a", "make a", "make a", rules=None)]) as runtime:
        run = await runtime.start("coder", "go")
        ticket = await asked(run)
        decision = ticket.approve(by="ada")
        assert (await run.decide(decision, remember=Always(scope="run"))).ok
        (rule,) = await runtime.rules(run.id)
        await run.result()
        revoked = await runtime.as_principal("bob").revoke_rule(rule.rule_id)
        assert revoked is not None
        assert (revoked.revoked_by, revoked.rule_id) == ("bob", rule.rule_id)
        again = await runtime.as_principal("eve").revoke_rule(rule.rule_id)
        assert again == revoked
        assert await runtime.rules() == await runtime.rules(run.id) == [revoked]
        assert await runtime.revoke_rule("f" * 32) is await runtime.revoke_rule("") is None
        run = await runtime.start("coder", "go", thread_id=run.thread_id)
        await asked(run)
    assert ran == ["make a"] * 3


async def test_rules_of_the_run_end_with_the_run_and_those_of_a_tool_do_not_reach_another(shelf, autojump_clock):
    agents = [coder("make a", "make b"), coder("https://a.example/", key="reader")]
    async with home(shelf, agents=agents) as runtime:
        run = await runtime.start("coder", "go", thread_id="t")
        assert (await always(run, scope="run", form="tool")).ok
        await run.result()
        assert ran == ["make a", "make b"]
        for key in ("coder", "reader"):
            run = await runtime.start(key, "go", thread_id="t")
            await run.decide((await asked(run)).deny())
            await run.cancel()
            await run.wait()


async def test_a_rule_of_a_workspace_counts_in_each_of_its_threads(tmp_path):
    shop = Shop(tmp_path)
    async with gr.open_runtime(agents=[coder("make a")], workspaces=await shop.open()) as runtime:
        elsewhere = await runtime.start("coder", "go")
        refused = await always(elsewhere, scope="workspace")
        assert (refused.code, refused.detail.partition("; ")[2]) == ("not_allowed", "use scope 'run' or 'thread'")
        first = await runtime.start("coder", "go", workspace="shop")
        assert (await always(first, scope="workspace", form="argv")).ok
        await first.result()
        second = await runtime.start("coder", "go", workspace="shop")
        await second.result()
        (rule,) = await runtime.rules(second.id)
        assert (rule.scope, rule.holder) == ("workspace", "shop")
        assert not await runtime.rules(elsewhere.id)


@pytest.mark.parametrize(
    ("command", "rules", "options", "why"),
    [
        ("make a; ls", None, {}, "is not remembered"),
        ("git push", None, {}, "is not remembered"),
        ("kubectl apply -f x", None, {}, "is not remembered"),
        ("make a", [Rule("ask", remember=False)], {}, "is not remembered"),
        ("https://a.example/", None, {"form": "argv"}, "runs no command"),
        ("make a", None, {"scope": "workspace"}, "works in no workspace"),
    ],
)
async def test_what_is_never_remembered_is_refused_before_anything_is_decided(
    shelf, autojump_clock, command, rules, options, why
):
    async with home(shelf, agents=[coder(command, rules=rules)]) as runtime:
        run = await runtime.start("coder", "go")
        result = await always(run, **options)
        assert (result.status, result.code) == ("rejected", "not_allowed")
        assert why in result.detail
        with pytest.raises(gr.UsageError, match="only an approval"):
            await run.decide((await asked(run)).deny(), remember=Always())
        with pytest.raises(gr.UsageError, match=r"give gr\.ext\.Always"):
            await run.decide((await asked(run)).approve(), remember={"scope": "run"})
        unknown = await run.decide("nothing", "approve", remember=Always())
        assert (unknown.status, unknown.code) == ("rejected", "unknown_target")
        await asked(run)
        assert await runtime.rules() == []
        assert ran == []


async def test_a_ticket_of_another_gate_is_not_remembered(autojump_clock):
    @gr.tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async with home(agents=[agent(call("pay"), "done", tools=[pay])]) as runtime:
        result = await always(await runtime.start("helper", "go"))
        assert (result.code, "is not of gr.ext.Permission" in result.detail) == ("not_allowed", True)


async def test_a_decision_that_loses_a_race_leaves_no_rule(shelf, autojump_clock):
    people = [("ada", "call"), ("bob", "tool"), ("cid", None), ("dan", "argv")]
    async with home(shelf, agents=[coder("make a")]) as runtime:
        run = await runtime.start("coder", "go")
        ticket = await asked(run)
        results: dict[str, gr.CommandResult] = {}

        async def decide(by: str, form: Any) -> None:
            remember = None if form is None else Always(scope="run", form=form)
            results[by] = await run.decide(ticket.approve(by=by), remember=remember)

        async with trio.open_nursery() as nursery:
            for by, form in people:
                nursery.start_soon(decide, by, form)
        (winner,) = [by for by, result in results.items() if result.status == "accepted"]
        assert all(result.code in (None, "already_decided") for result in results.values())
        assert [(rule.by, rule.form) for rule in await runtime.rules()] == [
            one for one in people if one[0] == winner and one[1] is not None
        ]
        await run.result()
        late = await run.decide(ticket.approve(by="eve"), remember=Always())
        assert (late.code, len(await runtime.rules())) == ("already_decided", winner != "cid")
    assert ran == ["make a"]


async def test_only_a_reviewer_makes_a_rule_and_it_covers_no_question_for_others(shelf, autojump_clock):
    rules = [
        Rule("ask", where={"argv": ["make", "*"]}, reviewers=["ada", "bob"]),
        Rule("ask", where={"argv": ["sh", "*"]}, reviewers=["bob"]),
    ]
    async with home(shelf, agents=[coder("make a", "make b", "sh x", rules=rules)]) as runtime:
        run = await runtime.start("coder", "go")
        assert (await always(run, by="eve", form="tool")).code == "not_allowed"
        assert await runtime.rules() == []
        assert (await always(run, by="ada", form="tool")).ok
        assert (await asked(run)).arguments == {"command": "sh x"}
    assert ran == ["make a", "make b"]


async def test_edited_arguments_are_remembered(shelf, autojump_clock):
    async with home(shelf, agents=[coder("make a", "make b", "make a")]) as runtime:
        run = await runtime.start("coder", "go")
        approval = (await asked(run)).approve(edited_arguments={"command": "make b"}, by="ada")
        assert (await run.decide(approval, remember=Always(form="argv"))).ok
        assert (await asked(run)).arguments == {"command": "make a"}
        assert [rule.about for rule in await runtime.rules()] == ["make b"]
    assert ran == ["make b", "make b"]


async def test_a_secret_in_a_command_is_in_no_list_of_rules(autojump_clock):
    async with home(agents=[coder("make hush-hush")], secrets=["hush-hush"]) as runtime:
        run = await runtime.start("coder", "go")
        assert (await always(run, form="argv")).ok
        (rule,) = await runtime.rules()
        assert rule.about == "make [redacted]"
        (value,) = await runtime.store.values(SPACE)
        assert b"hush" not in value.value


# --- failures --------------------------------------------------------------------------------------------------------


class Full(gr.MemoryStore):
    """A store that takes no values while `full`."""

    full = True

    async def set_values(self, writes: Any) -> bool:
        if self.full:
            raise gr.StoreUnavailable("the disk is full")
        return await super().set_values(writes)


async def test_a_rule_that_cannot_be_kept_is_kept_by_the_same_decision_again(autojump_clock):
    store = Full()
    async with home(store, agents=[coder("make a", "make a")]) as runtime:
        run = await runtime.start("coder", "go")
        decide = partial(run.decide, (await asked(run)).approve(by="ada"), remember=Always())
        ticket = await asked(run)
        decision = gr.Decision(target=ticket.ticket_id, action="resume", decision_id="d1", decided_by="ada")
        first = await run.decide(decision, remember=Always(scope="run"))
        assert (first.status, first.code) == ("accepted", "not_remembered")
        assert "repeat it with the same id" in first.detail
        store.full = False
        await asked(run)
        again = await run.decide(decision, remember=Always(scope="run"))
        assert (again.status, again.code) == ("duplicate", None)
        third = await run.decide(decision, remember=Always(scope="run"))
        assert (third.status, len(await runtime.rules())) == ("duplicate", 1)
        assert (await decide()).code == "already_decided"
        await run.decide((await asked(run)).approve())
        await run.result()


async def test_a_rule_that_was_revoked_is_not_made_again_by_a_repeated_decision(autojump_clock):
    async with home(agents=[coder("make a", "make a")]) as runtime:
        run = await runtime.start("coder", "go")
        ticket = await asked(run)
        decision = gr.Decision(target=ticket.ticket_id, action="resume", decision_id="d1", decided_by="ada")
        assert (await run.decide(decision, remember=Always(form="call"))).ok
        (rule,) = await runtime.rules()
        revoked = await runtime.revoke_rule(rule.rule_id)
        assert (await run.decide(decision, remember=Always(form="call"))).status == "duplicate"
        assert await runtime.rules() == [revoked]


async def test_a_holder_has_room_for_so_many_rules(shelf, autojump_clock):
    async with home(shelf, agents=[coder("make a", "make b")]) as runtime:
        run = await runtime.start("coder", "go")
        assert (await always(run, scope="run")).ok
        (rule,) = await runtime.rules()
        store = runtime.store
        for start in range(1, HOLDER_LIMIT, 50):
            names = [f"{rule.rule_id[:16]}{number:016x}" for number in range(start, min(start + 50, HOLDER_LIMIT))]
            assert await store.set_values([(SPACE, name, codec.dump(rule), 0) for name in names])
        full = await always(run, scope="run")
        assert (full.status, full.code) == ("rejected", "not_allowed")
        assert f"has {HOLDER_LIMIT} remembered rules" in full.detail
        assert len(await runtime.rules(run.id)) == len(await runtime.rules()) == HOLDER_LIMIT
        assert (await always(run, scope="thread")).ok
        await run.result()


async def test_a_rule_that_cannot_be_read_lets_no_call_pass(shelf, autojump_clock):
    async with home(shelf, agents=[coder("make a", "make a", "make a")]) as runtime:
        run = await runtime.start("coder", "go")
        assert (await always(run, scope="run")).ok
        await run.result()
        (value,) = await runtime.store.values(SPACE)
        for damaged in (b"", b"{", value.value[:-9], b'{"v":99,"d":{}}', value.value.replace(b'"tool"', b'"toll"')):
            (value,) = await runtime.store.values(SPACE)
            assert await runtime.store.set_values([(SPACE, value.name, damaged, value.revision)])
            assert await runtime.rules(run.id) == []
            with pytest.raises(gr.StoreError, match=f"rule {value.name} cannot be read"):
                await runtime.rules()
            with pytest.raises(gr.StoreError, match="cannot be read"):
                await runtime.revoke_rule(value.name)


async def test_a_store_without_values_remembers_nothing():
    with pytest.raises(gr.UsageError, match="object keeps no values, and so no rules"):
        stored_rules(object())  # type: ignore[arg-type]


# --- other processes, and runs below ---------------------------------------------------------------------------------


async def test_a_rule_that_one_process_makes_counts_in_all(autojump_clock):
    async with cluster() as shared:
        here, edge = await shared.open(coder("make a", "make b", "make a")), await shared.open()
        run = await here.start("coder", "go")
        other = await edge.get(run.id)
        assert (await always(other, form="argv")).ok
        assert (await asked(other)).arguments == {"command": "make b"}
        (rule,) = await edge.rules()
        assert await here.rules() == [rule]
        await edge.revoke_rule(rule.rule_id)
        await other.decide((await asked(other)).approve())
        assert (await asked(run)).arguments == {"command": "make a"}


async def test_of_two_processes_that_decide_one_makes_its_rule(autojump_clock):
    async with cluster() as shared:
        here, edge = await shared.open(coder("make a")), await shared.open()
        for number in range(4):
            run = await here.start("coder", "go", thread_id=f"t{number}")
            ticket = await asked(run)
            results: dict[str, gr.CommandResult] = {}

            async def decide(
                process: gr.Runtime, by: str, run: Any = run, ticket: Any = ticket, to: Any = results
            ) -> None:
                address = await process.get(run.id)
                to[by] = await address.decide(ticket.approve(by=by), remember=Always())

            async with trio.open_nursery() as nursery:
                for by, process in [("ada", here), ("bob", edge)][:: -1 if number % 2 else 1]:
                    nursery.start_soon(decide, process, by)
            (winner,) = [by for by, result in results.items() if result.ok]
            assert sorted(str(result.code) for result in results.values()) == ["None", "already_decided"]
            assert [rule.by for rule in await edge.rules(run.id)] == [winner]
            await run.result()


async def test_an_answer_at_the_parent_counts_for_the_run_that_asks(shelf, autojump_clock):
    below = coder("make a", "make a", "make b", key="below")
    boss = agent(call("below", input="go"), "done", key="boss", tools=[below.as_tool()])
    async with home(shelf, agents=[boss]) as runtime:
        run = await runtime.start("boss", "go")
        mirror = await asked(run)
        assert mirror.reason == "child_approval"
        decision = gr.Decision(
            target=mirror.ticket_id,
            action="resume",
            decision_id="d1",
            decided_by="ada",
            fingerprint=mirror.fingerprint,
        )
        assert (await run.decide(decision, remember=Always(form="argv"))).status == "accepted"
        await trio.sleep(1)
        next_mirror = await asked(run)
        assert next_mirror.arguments == {"command": "make b"}
        assert (await run.decide(decision, remember=Always(form="argv"))).status == "duplicate"
        (rule,) = await runtime.rules()
        child = next_mirror.child_run_id
        assert (rule.run_id, rule.scope) == (child, "thread")
        assert await runtime.rules(child) == [rule]
        assert await runtime.rules(run.id) == []
        await run.decide(next_mirror.approve())
        await run.result()
    assert ran == ["make a", "make a", "make b"]


async def test_pages_of_rules_are_complete(autojump_clock):
    store = gr.MemoryStore()
    async with home(store, agents=[coder("make a")]) as runtime:
        for number in range(5):
            run = await runtime.start("coder", "go", thread_id=f"t{number}")
            assert (await always(run)).ok
            await run.result()
            await trio.sleep(1)
        rules, pages = StoredRules(store), []
        after = ""
        while page := await rules.page(after, limit=2):
            pages.append([rule.holder for rule in page])
            after = page[-1].rule_id
        assert [len(page) for page in pages] == [2, 2, 1]
        assert sorted(holder for page in pages for holder in page) == [f"t{number}" for number in range(5)]
        assert [rule.holder for rule in await runtime.rules()] == [f"t{number}" for number in (4, 3, 2, 1, 0)]
