"""Runs whose work a program does: a real process that speaks a real protocol, and asks before it acts."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.agents.graph import secrets_of
from greenroom.actors.backends import process
from greenroom.testing import ScriptedModel, call

pytestmark = pytest.mark.slow
PROGRAM = str(Path(__file__).parents[2] / "support" / "scripted_program.py")
FORMS = ("acp", "claude")
MARK = f"{process.MARK}=".encode()


async def settled(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether a condition about another process becomes true in time."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return True
        await trio.sleep(0.01)
    return condition()


class Bench:
    """An agent whose program writes what it does to a file."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form, self.file = folder, form, folder / "effects.txt"

    def backend(self, **options: Any) -> gr.backends.Program:
        command = (sys.executable, "-SE", PROGRAM, self.form, str(self.file))
        make: Any = gr.backends.Acp if self.form == "acp" else gr.backends.Claude
        return make(command=command, folder=self.folder, **options)

    def agent(self, rules: list[gr.ext.Rule] | None = None, **options: Any) -> gr.Agent[Any]:
        return gr.backends.agent("coder", self.backend(), rules=rules, **options)

    @property
    def effects(self) -> list[str]:
        return self.file.read_text().split("\n")[:-1] if self.file.exists() else []


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has tenths of a second to stop."""
    for name in ("INTERRUPT_GRACE", "TERM_GRACE"):
        monkeypatch.setattr(process, name, 0.3)


@pytest.fixture(params=FORMS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, request.param)


def steps(*given: list[Any]) -> str:
    return json.dumps(given)


async def played(bench: Bench, *script: list[Any], decide: Callable[[gr.Ticket], gr.Decision], **options: Any) -> Any:
    """The outcome of a run whose tickets are decided by a function, and the events."""
    async with gr.open_runtime(agents=[bench.agent(**options)]) as runtime:
        run = await runtime.start("coder", steps(*script), run_id="r")
        outcome = await run.wait()
        while isinstance(outcome, gr.Waiting):
            for ticket in outcome.tickets:
                await run.decide(decide(ticket))
            outcome = await run.wait()
        async with run.events() as events:
            log = [event async for event in events]
        assert (await runtime.replay("r")).equal
        return outcome, log


async def tickets_of(run: gr.Run[Any], count: int) -> tuple[gr.Ticket, ...]:
    """The open tickets, as soon as there are so many."""
    with trio.fail_after(20):
        async with run.events() as events:
            async for event in events:
                count -= event.type == "run.approval.requested"
                if not count:
                    break
    return (await run.view()).tickets


def command_of(ticket: gr.Ticket) -> Any:
    """The command that a ticket is about."""
    arguments: Any = ticket.arguments
    return arguments.get("command") or arguments["rawInput"]["command"]


def approved(ticket: gr.Ticket) -> gr.Decision:
    return ticket.approve(by="ada")


async def test_a_call_of_a_program_waits_for_a_person_and_runs_when_it_is_approved(bench):
    outcome, log = await played(bench, ["ask", "make"], ["say", "I made it."], decide=approved)
    assert outcome.output == "I made it."
    assert bench.effects == ["make"]
    nested = [event.payload for event in log if event.payload.get("parentCallId")]
    assert len(nested) == 1
    ended = [event.payload for event in log if event.type == "run.tool.result"]
    assert [(one["tool"], one["status"]) for one in ended if one["callId"] == nested[0]["callId"]] == [
        (nested[0]["tool"], "succeeded")
    ]


async def test_a_denial_with_a_text_is_read_by_the_program_which_goes_on(bench):
    outcome, _ = await played(
        bench, ["ask", "make"], ["say", "I did not."], decide=lambda ticket: ticket.deny(text="Use ninja.", by="ada")
    )
    assert (outcome.output, bench.effects) == ("I did not.", [])


async def test_a_denial_without_a_text_ends_the_run_and_the_program(bench):
    outcome, _ = await played(
        bench, ["ask", "make"], ["say", "I did not."], decide=lambda ticket: ticket.deny("no", by="ada")
    )
    assert isinstance(outcome, gr.Cancelled)
    assert outcome.code == "approval_rejected"
    assert bench.effects == []


async def test_a_rule_that_allows_asks_nobody_and_one_that_denies_answers_the_program(bench):
    rules = [
        gr.ext.Rule("allow", effect="shell", where={"argv": ["make"]}),
        gr.ext.Rule("deny", where={"argv": ["git", "push"]}, reason="a person pushes"),
    ]
    outcome, _ = await played(
        bench, ["ask", "make"], ["ask", "git push"], ["say", "Done."], decide=approved, rules=rules
    )
    assert (outcome.output, bench.effects) == ("Done.", ["make"])


async def test_questions_that_are_open_together_are_answered_in_any_order(bench):
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        run = await runtime.start("coder", steps(["ask_all", "a", "b", "c"], ["say", "Done."]))
        tickets = await tickets_of(run, 3)
        assert "".join(map(command_of, tickets)) == "abc"
        for count, ticket in enumerate(reversed(tickets), 1):
            await run.decide(ticket.approve(by="ada"))
            assert await settled(lambda done=count: len(bench.effects) >= done)
        assert (await run.result()).output == "Done."
    assert bench.effects == ["c", "b", "a"]


# --- ends ------------------------------------------------------------------------------------------------------------


def living(folder: Path) -> list[int]:
    """The programs that work in a folder."""
    pids = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                entry.name.isdigit()
                and (entry / "cwd").readlink() == folder
                and MARK in (entry / "environ").read_bytes()
            ):
                pids.append(int(entry.name))
    return pids


async def began(bench: Bench, run: gr.Run[Any], *, asks: bool) -> None:
    """Wait until the program asks, or has begun to work."""
    if asks:
        await tickets_of(run, 1)
    else:
        assert await settled(lambda: bool(bench.effects))


@pytest.mark.parametrize("asks", [True, False])
async def test_a_cancel_ends_the_program_while_it_asks_and_while_it_works(bench, asks):
    script = [["ask", "make"]] if asks else [["run", "start"], ["hang"]]
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        run = await runtime.start("coder", json.dumps(script))
        await began(bench, run, asks=asks)
        assert len(living(bench.folder)) == 1
        await run.cancel(reason="enough")
        assert isinstance(await run.result(), gr.Cancelled)
        assert living(bench.folder) == []


@pytest.mark.parametrize("asks", [True, False])
async def test_the_deadline_of_a_run_ends_the_program(bench, asks):
    script = [["ask", "make"]] if asks else [["run", "start"], ["hang"]]
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        deadline = datetime.now(UTC) + timedelta(seconds=2)
        run = await runtime.start("coder", json.dumps(script), deadline=deadline)
        outcome = await run.result()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"
        assert living(bench.folder) == []


async def test_a_program_that_ignores_every_request_to_stop_is_killed(bench):
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        run = await runtime.start("coder", steps(["run", "start"], ["deaf"]))
        await began(bench, run, asks=False)
        await run.cancel(reason="enough")
        assert isinstance(await run.result(), gr.Cancelled)
        assert living(bench.folder) == []


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ([["errors", "boom"], ["exit", 3]], "runtime_failed", "exit 3: boom"),
        ([["errors", "Please log in"], ["exit", 1]], "runtime_unavailable", "Please log in"),
        ([["exit", 41]], "runtime_unavailable", "exit 41"),
        ([["say", "half"], ["exit", 0]], "schema_validation_failed", "without the line that ends its work"),
        ([["noise", "oops"]] * 6, "schema_validation_failed", "the line is not JSON"),
    ],
)
async def test_a_program_that_fails_fails_the_run_with_a_code_and_a_sentence(bench, script, code, words):
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        outcome = await (await runtime.start("coder", json.dumps(script))).result()
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, words in outcome.message) == (code, True)


async def test_a_folder_that_is_gone_when_the_work_begins_fails_the_run(bench):
    folder = bench.folder / "shop"
    folder.mkdir()

    class Removes(gr.Plugin):
        async def before_inference(self, ctx: gr.PhaseContext[Any]) -> None:
            if folder.exists():
                folder.rmdir()

    backend = attrs.evolve(bench.backend(), folder=folder)
    agent = gr.backends.agent("coder", backend, plugins=[Removes()])
    async with gr.open_runtime(agents=[agent]) as runtime:
        outcome = await (await runtime.start("coder", steps(["say", "x"]))).result()
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, "there is no folder to work in" in outcome.message) == ("workspace_outside_allowlist", True)


async def test_a_program_that_falls_silent_is_stopped_and_the_clock_is_named(bench):
    agent = gr.backends.agent("coder", bench.backend(idle=1.0))
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("coder", steps(["say", "I think."], ["hang"]))
        outcome = await run.result()
        async with run.events() as events:
            notes = [event.payload async for event in events if event.type == "runtime.timeout"]
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, "it said nothing for 1 s" in outcome.message) == ("run_timeout", True)
    assert [(note["which"], note["seconds"]) for note in notes] == [("idle", 1.0)]


async def test_a_program_that_reads_and_writes_text_does_its_work_in_a_degraded_run(tmp_path):
    backend = gr.backends.Plain(["cat"], unattended=True, folder=tmp_path)
    agent = gr.backends.agent("coder", backend, instructions="Be brief.")
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("coder", "Say this.")
        assert (await run.result()).output == "Be brief.\n\nSay this."
        async with run.events() as events:
            reasons = [event.payload["reason"] async for event in events if event.type == "run.degraded"]
    assert reasons == ["not_asked", "little_evidence"]


async def test_an_answer_of_a_form_is_asked_for_again(bench):
    async with gr.open_runtime(agents=[bench.agent(output_type=dict, output_retries=2)]) as runtime:
        run = await runtime.start("coder", steps(["say", "no JSON"]))
        outcome = await run.result()
    assert isinstance(outcome, gr.Failed)  # the program repeats what it is told, which is no JSON either
    assert outcome.code == "model_behavior_error"


async def test_what_a_program_says_is_in_the_log_once(bench):
    outcome, log = await played(bench, ["say", "I look."], ["ask", "make"], ["say", "Done."], decide=approved)
    said = [event.payload["text"] for event in log if event.type == "run.message.completed"]
    assert (outcome.output, said) == ("Done.", ["I look.", "Done."])


async def test_a_question_of_a_program_is_answered_by_a_person(tmp_path):
    bench = Bench(tmp_path, "acp")
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        run = await runtime.start("coder", steps(["question", "Which colour?"]))
        (ticket,) = await tickets_of(run, 1)
        assert (ticket.reason, ticket.message, ticket.live) == ("user_input", "Which colour?", True)
        result = await run.decide(ticket.approve({"colour": "blue"}, by="ada"))
        assert (result.status, result.code) == ("rejected", "invalid_result")
        await run.decide(ticket.approve({"answer": "blue"}, by="ada"))
        assert (await run.result()).output == "blue"


CANARY = "canary-7f3a91"


async def test_what_a_program_gets_in_its_environment_is_in_nothing_that_people_see(bench, monkeypatch, caplog):
    monkeypatch.setenv("BENCH_TOKEN", CANARY)
    backend = bench.backend(pass_env=["BENCH_TOKEN"], env={"OTHER_API_KEY": f"{CANARY}-other"})
    script = [
        ["say", f"I have {CANARY}."],
        ["ask", f"curl {CANARY}"],
        ["errors", f"{CANARY} {CANARY}-other"],
        ["exit", 3],
    ]
    boss = gr.Agent("boss", tools=[gr.backends.agent("coder", backend).as_tool()])
    async with gr.open_runtime(agents=[boss, gr.backends.agent("coder", backend)]) as runtime:
        run = await runtime.start("coder", json.dumps(script))
        (ticket,) = await tickets_of(run, 1)
        view = repr(ticket)
        await run.decide(ticket.approve(by="ada"))
        outcome = await run.result()
        async with run.events() as events:
            log = [str(event.payload) async for event in events]
    assert isinstance(outcome, gr.Failed)
    assert bench.effects == [f"curl {CANARY}"]
    for text in (*log, view, outcome.message, caplog.text):
        assert CANARY not in text


def test_a_runtime_learns_the_secrets_of_agents_behind_tools_and_handoffs(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_TOKEN", CANARY)
    coder = gr.backends.agent("coder", gr.backends.Claude(folder=tmp_path, pass_env=["BENCH_TOKEN", "ABSENT"]))
    boss = gr.Agent("boss", tools=[coder.as_tool()])
    lead = gr.Agent("lead", handoffs=[boss, coder])
    assert set(secrets_of([lead])) == {CANARY}
    assert list(secrets_of([gr.Agent("other")])) == []
    assert CANARY not in repr(coder.tools)


async def test_claude_gets_the_instructions_of_the_agent_and_of_the_folder(tmp_path):
    bench = Bench(tmp_path, "claude")
    (tmp_path / "CLAUDE.md").write_text("Be kind.\n")
    (tmp_path / "AGENTS.md").write_text("x" * 70_000)
    outcome, log = await played(bench, ["instructions"], decide=approved, instructions="Be brief.")
    assert outcome.output == "Be brief.\n\nFrom CLAUDE.md in the folder:\n\nBe kind.\n"
    printed = "".join(event.payload["text"] for event in log if event.type.startswith("run.tool.output"))
    assert "AGENTS.md has more than 65,536 bytes" in printed


# --- what a program chooses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "output"),
    [
        (["plan", 500, "\x01" * 5_000], "Done."),
        (["reads", "x" * 200_000], "Done."),
        (["say", "é" * 300_000], "Done."),
        (["question", "Which?", {"type": 5}], "decline"),
        (["question", "Which?", {"type": "object", "$ref": "https://example.org/schema"}], "decline"),
        (["asks_for", {"size": 5_000_000}], "0 of 1"),
        (["asks_for", {"title": "y", "rawInput": {"command": "true"}}, 200], "128 of 200"),
    ],
)
async def test_whatever_a_program_writes_ends_no_run(tmp_path, step, output):
    rules = [gr.ext.Rule("allow", where={"argv": ["true"]})]
    bench = Bench(tmp_path, "acp")
    script = [step] if output != "Done." else [step, ["say", "Done."]]
    async with gr.open_runtime(agents=[bench.agent(rules=rules)]) as runtime:
        run = await runtime.start("coder", "play " + json.dumps(script))
        assert (await run.result()).output == output


async def test_the_question_of_a_program_is_decided_at_the_parent_run(tmp_path):
    bench = Bench(tmp_path, "acp")
    model = ScriptedModel([call("coder", input=steps(["ask", "make"], ["say", "Done."])), "Told the team."])
    boss = gr.Agent("boss", model=model, tools=[bench.agent().as_tool()])
    async with gr.open_runtime(agents=[boss]) as runtime:
        run = await runtime.start("boss", "go")
        (ticket,) = await tickets_of(run, 1)
        assert (ticket.reason, ticket.tool, ticket.live) == ("child_approval", "execute", True)
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "Told the team."
    assert bench.effects == ["make"]


@pytest.mark.parametrize("bench", ["claude"], indirect=True)
async def test_an_attachment_that_a_program_does_not_take_fails_the_call_before_the_program_starts(bench):
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        archive = gr.File(b"PK", media_type="application/zip", name="menu.zip")
        run = await runtime.start("coder", steps(["run", "make"]), attachments=[archive])
        outcome = await run.wait()
    assert outcome.code == "tool_error"
    assert "claude does not take this file (file application/zip, 2 bytes, menu.zip)" in outcome.message
    assert bench.effects == []
