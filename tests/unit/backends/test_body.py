"""The body of a backend's call, with a program that a test plays and people that it plays, on virtual time."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.backends.body import LINGER, NOT_AWAITED, STOPPED, Conversation, Job
from greenroom.actors.backends.clocks import ProgramLimits
from greenroom.actors.backends.dialect import Declined, Prompt
from greenroom.actors.backends.dialects.claude import ClaudeDialect
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.facts import NestedAnswer

from ...support.dialect_lines import Claude
from ...support.fake_program import FakeProgram

HOOK = Claude.hook("h1", "Bash", "t1", command="make")


@attrs.define(eq=False)
class Asked:
    """A nested call that waits for its answer."""

    call_id: str
    tool: str
    arguments: Any
    options: Any
    answer: NestedAnswer | None = None
    decided: trio.Event = attrs.field(factory=trio.Event)

    def allow(self, **edits: Any) -> None:
        self.answer = NestedAnswer(call_id=self.call_id, arguments={**self.arguments, **edits})
        self.decided.set()

    def deny(self, text: str) -> None:
        self.answer = NestedAnswer(call_id=self.call_id, status=CallStatus.CANCELLED, text=text)
        self.decided.set()


class Scene:
    """A conversation with a program, and what became of it."""

    def __init__(self, limits: ProgramLimits | None = None, stops: float = 0.0) -> None:
        self.program = FakeProgram(stops)
        self.asked: list[Asked] = []
        self.dropped: list[str] = []
        self.ended: list[tuple[str, Any, str | None]] = []
        self.questions: list[gr.Suspend] = []
        self.decision = gr.Decision(target="q", action="cancel", reason="nobody is there")
        self.refusal: str | None = None
        self.verdict: Any = None
        self.told: list[Any] = []
        self.store_delay = 0.0
        self.context = gr.ToolContext(
            call_nested=self._call_nested,
            end_nested=self._end_nested,
            ask_people=self._ask_people,
            reports=self,
            save_memo=self._save,
            count_usage=lambda usage, model: self.told.append(("usage", usage)),
            report_output=self._output,
        )
        job = Job(
            name="claude",
            mark="m",
            dialect=ClaudeDialect(),
            prompt=Prompt(text="Do it.", folder="/srv/shop"),
            command=lambda argv: pytest.fail("no process is started"),
            limits=limits or ProgramLimits(),
        )
        self.job, self.talk = job, Conversation(self.context, job, self.program)  # type: ignore[arg-type]

    @asynccontextmanager
    async def held(self) -> AsyncIterator[trio.CancelScope]:
        """The conversation goes on beside the block, and ends before it is left."""
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def hold() -> None:
                with scope:
                    self.verdict = await self.talk.outcome(self.job.dialect.begin(self.job.prompt))

            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            yield scope

    async def says(self, *messages: Any) -> None:
        self.program.say(*messages)
        await trio.testing.wait_all_tasks_blocked()

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    def hooks(self) -> list[Any]:
        """What the program was told about its hooks: (id, decision, reason, edited input)."""
        told = []
        for message in self.program.answers:
            response = message.get("response", {})
            output = response.get("response", {}).get("hookSpecificOutput")
            if output is not None:
                reason = output["permissionDecisionReason"]
                told.append((response["request_id"], output["permissionDecision"], reason, output.get("updatedInput")))
        return told

    async def _call_nested(self, tool: str, arguments: Any, **options: Any) -> NestedAnswer:
        if self.refusal is not None:
            raise gr.ToolError(self.refusal)
        asked = Asked(f"c.{len(self.asked)}", tool, arguments, options)
        self.asked.append(asked)
        if options.get("seen"):
            asked.allow()
        try:
            await asked.decided.wait()
        except trio.Cancelled:
            self.dropped.append(asked.call_id)
            raise
        assert asked.answer is not None
        return asked.answer

    def _end_nested(self, call_id: str, result: Any = None, *, text: Any = None, code: Any = None) -> None:
        self.ended.append((call_id, result if text is None else text, code))

    async def say(self, text: str = "", *, reasoning: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self.told.append(("say", text or reasoning))

    async def complete(self, text: str) -> None:
        await trio.sleep(self.store_delay)
        self.told.append(("complete", text))

    async def note(self, kind: str, /, **fields: Any) -> None:
        await trio.lowlevel.checkpoint()
        fields.pop("read_at", None)
        self.told.append((kind, *fields.values()))

    async def _save(self, memo: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.told.append(("memo", memo))

    async def _output(self, text: str) -> None:
        self.told.append(("output", text))

    async def _ask_people(self, suspend: gr.Suspend) -> gr.Decision:
        self.questions.append(suspend)
        await trio.lowlevel.checkpoint()
        return self.decision


@pytest.fixture
async def scene(autojump_clock: trio.testing.MockClock) -> Scene:
    return Scene()


async def test_the_prompt_goes_to_the_program_first(scene, autojump_clock):
    async with scene.held():
        first, second = await scene.program.heard(2)
        assert (first["request"]["subtype"], second["message"]["content"]) == ("initialize", "Do it.")
        scene.program.end()


async def test_an_allowed_call_is_answered_and_its_end_is_reported(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.init, HOOK)
        (asked,) = scene.asked
        assert (asked.tool, asked.arguments) == ("Bash", {"command": "make"})
        assert asked.options == {"effect": "shell", "editable": True}
        assert scene.hooks() == []
        asked.allow()
        await scene.settle()
        assert scene.hooks() == [("h1", "allow", "allowed", None)]
        await scene.says(Claude.result_of("t1", "made"), Claude.end("I made it."))
        assert scene.ended == [("c.0", "made", None)]
        assert scene.program.input_closed.is_set()
        scene.program.end()
    assert (scene.verdict.outcome, scene.verdict.text) == ("completed", "I made it.")


async def test_a_failed_call_has_the_code_of_a_failure(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK)
        scene.asked[0].allow()
        await scene.settle()
        await scene.says(Claude.result_of("t1", "no rule to make", error=True))
        assert scene.ended == [("c.0", "no rule to make", "tool_error")]
        scene.program.end()


async def test_edited_arguments_are_what_the_program_runs(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK)
        scene.asked[0].allow(command="make test")
        await scene.settle()
        assert scene.hooks() == [("h1", "allow", "allowed", {"command": "make test"})]
        scene.program.end()


async def test_a_denial_is_the_answer_with_its_text_and_nothing_has_to_end(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK)
        scene.asked[0].deny("Use ninja.")
        await scene.says(Claude.result_of("t1", "Use ninja.", error=True))
        assert scene.hooks() == [("h1", "deny", "Use ninja.", None)]
        assert scene.ended == []
        scene.program.end()


async def test_a_call_that_the_run_refuses_is_denied_with_the_reason(scene, autojump_clock):
    scene.refusal = "This run has 128 open nested calls"
    async with scene.held():
        await scene.says(HOOK)
        assert scene.hooks() == [("h1", "deny", scene.refusal, None)]
        scene.program.end()


async def test_the_reader_goes_on_while_questions_are_open_and_each_gets_its_own_answer(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK, Claude.hook("h2", "Read", "t2", file_path="a"), Claude.delta("busy"))
        first, second = scene.asked
        second.allow()
        await scene.settle()
        first.deny("no")
        await scene.settle()
        assert [one[:2] for one in scene.hooks()] == [("h2", "allow"), ("h1", "deny")]
        scene.program.end()


async def test_a_question_that_the_program_withdraws_is_withdrawn_here_and_not_answered(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK)
        await scene.says({"type": "control_cancel_request", "request_id": "h1"})
        assert (scene.dropped, scene.hooks(), scene.ended) == (["c.0"], [], [])
        scene.program.end()


async def test_a_call_that_is_allowed_while_the_program_withdraws_it_ends_without_work(scene, autojump_clock):
    """The nested call is open by then, and the program reports no end."""
    async with scene.held():
        await scene.says(HOOK)
        scene.job.dialect.answer("h1", Declined())  # as if the program had withdrawn it just now
        scene.asked[0].allow()
        await scene.settle()
        assert scene.ended == [("c.0", NOT_AWAITED, "cancelled")]
        scene.program.end()


async def test_a_question_to_people_has_the_text_and_the_schema_and_the_answer_goes_back(scene, autojump_clock):
    questions = [{"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}]
    scene.decision = gr.Decision(target="q", action="resume", result={"Which colour?": "Blue"})
    async with scene.held():
        await scene.says(Claude.may("q1", "AskUserQuestion", "t3", questions=questions))
        (suspend,) = scene.questions
        assert (suspend.reason, "Which colour?" in suspend.message) == ("user_input", True)
        assert suspend.response_schema is not None
        (told,) = [one["response"]["response"] for one in scene.program.answers if "response" in one]
        assert told["updatedInput"]["answers"] == {"Which colour?": "Blue"}
        scene.program.end()


async def test_a_question_that_a_person_declines_is_declined_with_the_reason(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.may("q1", "AskUserQuestion", "t3", questions=[{"question": "Which?"}]))
        (told,) = [one["response"]["response"] for one in scene.program.answers if "response" in one]
        assert told == {"behavior": "deny", "message": "nobody is there"}
        scene.program.end()


async def test_a_call_that_ran_unasked_is_recorded_and_ended(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.says(Claude.use("Read", "t2", file_path="a")), Claude.result_of("t2", "text"))
        (asked,) = scene.asked
        assert asked.options == {"effect": "read", "seen": True}
        assert scene.ended == [("c.0", "text", None)]
        scene.program.end()


async def test_a_sub_agent_may_ask_after_the_result_line(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.init, Claude.tasks("a"), Claude.end("Not yet."), HOOK)
        assert not scene.program.input_closed.is_set()
        scene.asked[0].allow()
        await scene.settle()
        await scene.says(Claude.result_of("t1", "made"), Claude.tasks(), Claude.init, Claude.end("Now."))
        assert scene.program.input_closed.is_set()
        scene.program.end()
    assert scene.verdict.text == "Now."


# --- what is reported ------------------------------------------------------------------------------------------------


async def test_each_message_but_the_last_is_completed_and_the_last_is_the_result(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.delta("I "), Claude.delta("look."), Claude.says("I look."))
        assert scene.told == [("say", "I "), ("say", "look.")]
        await scene.says(HOOK)
        assert scene.told[-1] == ("complete", "I look.")
        scene.asked[0].allow()
        await scene.settle()
        await scene.says(Claude.delta("Done."), Claude.says("Done."), Claude.end("Done."))
        scene.program.end()
    assert [one for one in scene.told if one[0] == "complete"] == [("complete", "I look.")]
    assert scene.verdict.text == "Done."


async def test_what_a_program_reads_plans_warns_of_and_garbles_is_noted_with_paths_of_the_folder(scene, autojump_clock):
    todos = [{"content": "look", "status": "pending"}]
    async with scene.held():
        await scene.says(
            Claude.init,
            Claude.says(
                Claude.use("Read", "t2", file_path="/srv/shop/src/a.py"), Claude.use("TodoWrite", "t5", todos=todos)
            ),
            Claude.result_of("t2", "text"),
            Claude.says(Claude.use("Read", "t6", file_path="/etc/passwd")),
            Claude.result_of("t6", "text"),
            {"type": "novelty"},
            b"oops\n",
        )
        scene.program.end()
    assert [one for one in scene.told if one[0] not in ("memo", "usage")] == [
        ("run.plan.changed", [{"text": "look", "status": "pending"}]),
        ("run.file.read", "src/a.py"),
        ("run.file.read", "<outside>/passwd"),
        ("output", "[claude: unknown] novelty\n"),
        ("schema.validation_failed", "claude", 7, "the line is not JSON", "oops"),
    ]


async def test_the_memo_has_the_mark_and_the_session_and_the_usage_is_that_of_all_results(scene, autojump_clock):
    async with scene.held():
        await scene.says(Claude.init, Claude.end(), Claude.end())
        scene.program.end()
    assert [one for one in scene.told if one[0] == "memo"] == [("memo", {"mark": "m", "session": "s-1"})]
    (usage,) = [one[1] for one in scene.told if one[0] == "usage"]
    assert (usage.input, usage.output, usage.cached) == (32, 8, 10)


async def test_a_program_that_is_not_logged_in_is_unavailable_with_the_way_out(scene, autojump_clock):
    async with scene.held():
        scene.program.end(1, "Please log in")
    assert scene.verdict.code == "runtime_unavailable"
    assert [one[:3] for one in scene.told] == [("runtime.unavailable", "runtime_unavailable", "claude")]


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_program_that_has_done_its_work_and_does_not_end_is_stopped_without_an_interrupt(scene, autojump_clock):
    async with scene.held():
        began = trio.current_time()
        await scene.says(Claude.init, Claude.end("Done."))
    assert trio.current_time() - began == LINGER
    assert (scene.program.stopped_with, scene.verdict.outcome, scene.verdict.text) == (b"", "completed", "Done.")


async def test_a_cancel_asks_the_program_to_stop_before_it_denies_what_is_open(scene, autojump_clock):
    async with scene.held() as scope:
        await scene.says(HOOK)
        scope.cancel()
    words = [json.loads(line) for line in scene.program.stopped_with.splitlines()]
    assert words[0]["request"]["subtype"] == "interrupt"
    assert words[1]["response"]["response"]["hookSpecificOutput"]["permissionDecisionReason"] == STOPPED
    assert scene.dropped == ["c.0"]


async def test_a_question_that_is_withdrawn_by_the_cancel_is_denied_when_the_program_is_stopped(scene, autojump_clock):
    """The run withdraws what is open and cancels the body in one stretch: the answer would be lost with the writer."""
    async with scene.held() as scope:
        await scene.says(HOOK)
        scene.asked[0].deny("withdrawn")
        scope.cancel()
    interrupt, denial = [json.loads(line) for line in scene.program.stopped_with.splitlines()]
    assert interrupt["request"]["subtype"] == "interrupt"
    assert denial["response"]["response"]["hookSpecificOutput"]["permissionDecisionReason"] == STOPPED


async def test_what_a_program_says_while_it_is_stopped_is_read(autojump_clock):
    scene = Scene(stops=1.0)
    async with scene.held() as scope:
        scope.cancel()
        await trio.sleep(0.5)
        scene.program.say(Claude.delta("bye"), Claude.end("stopped"))
        await trio.sleep(0.1)
        assert scene.program.input_closed.is_set()
    assert scene.asked == []


@pytest.mark.parametrize(
    ("limits", "before", "seconds", "words"),
    [
        (ProgramLimits(start=60), [], 60, "it said nothing for 60 s after its start"),
        (ProgramLimits(idle=300), [Claude.init], 300, "it said nothing for 300 s"),
        (ProgramLimits(idle=300, work=100), [Claude.init], 100, "it worked for 100 s, its limit"),
    ],
)
async def test_a_clock_that_runs_out_stops_the_program(autojump_clock, limits, before, seconds, words):
    scene = Scene(limits)
    began = trio.current_time()
    async with scene.held():
        await scene.says(*before)
    assert trio.current_time() - began == seconds
    assert (scene.verdict.outcome, scene.verdict.code) == ("failed", "run_timeout")
    assert scene.verdict.detail.endswith(words)
    notes = [one for one in scene.told if one[0] == "runtime.timeout"]
    which = "start" if "start" in words else "idle"
    assert notes == ([] if "worked" in words else [("runtime.timeout", "claude", which, seconds)])


async def test_a_silence_may_end_before_the_time_for_the_start_has_passed(autojump_clock):
    scene = Scene(ProgramLimits(start=60, idle=5))
    async with scene.held():
        await trio.sleep(2)
        began = trio.current_time()
        await scene.says(Claude.init)
    assert trio.current_time() - began == 5


async def test_a_report_that_waits_for_the_store_is_no_silence_of_the_program(autojump_clock):
    scene = Scene(ProgramLimits(idle=300, work=100))
    scene.store_delay = 5_000
    async with scene.held():
        await scene.says(Claude.says("I look."), HOOK)
        await trio.sleep(5_001)
        assert [one.tool for one in scene.asked] == ["Bash"]
        scene.program.end()


async def test_no_clock_runs_while_a_person_thinks(autojump_clock):
    scene = Scene(ProgramLimits(idle=300, work=100))
    async with scene.held():
        await scene.says(Claude.init)
        await trio.sleep(40)
        await scene.says(HOOK)
        await trio.sleep(9_000)
        scene.asked[0].allow()
        began = trio.current_time()
    assert trio.current_time() - began == 60


async def test_an_allowed_call_may_be_quiet_for_long_and_the_silence_counts_from_its_end(autojump_clock):
    scene = Scene(ProgramLimits(idle=300))
    async with scene.held():
        await scene.says(HOOK)
        scene.asked[0].allow()
        await trio.sleep(3_000)
        began = trio.current_time()
        await scene.says(Claude.result_of("t1", "made"))
    assert trio.current_time() - began == 300


async def test_a_program_that_ends_while_it_asks_leaves_no_question_open(scene, autojump_clock):
    async with scene.held():
        await scene.says(HOOK)
        scene.program.end(1, "boom")
    assert scene.dropped == ["c.0"]
    assert (scene.verdict.code, "boom" in scene.verdict.detail) == ("runtime_failed", True)


# --- any order -------------------------------------------------------------------------------------------------------

POOL = [
    *(Claude.init, Claude.end(), Claude.tasks("a"), Claude.tasks(), b"oops\n", {"type": "new"}),
    *(HOOK, Claude.hook("h2", "Read", "t2", file_path="a"), Claude.may("q", "AskUserQuestion", "t3", questions=[{}])),
    *(Claude.result_of("t1", "x"), Claude.result_of("t2", "y", error=True), Claude.delta("hm")),
    *(Claude.says(Claude.use("Bash", "t4", command="ls")), Claude.result_of("t4", "z")),
    *({"type": "control_cancel_request", "request_id": name} for name in ("h1", "h2", "q")),
]


async def drawn(rng: Random, scene: Scene) -> None:
    """Let the program and people do what is drawn."""
    for _ in range(rng.randrange(20)):
        if scene.verdict is not None:
            return
        scene.program.say(rng.choice(POOL))
        if rng.random() < 0.7:
            await scene.settle()
        waiting = [one for one in scene.asked if not one.decided.is_set()]
        if waiting and rng.random() < 0.6:
            one = rng.choice(waiting)
            one.allow() if rng.random() < 0.7 else one.deny("no")


@pytest.mark.no_cover
@given(seed=st.integers(0, 2**32), end=st.sampled_from(["cancel", "exit", "silence"]))
def test_in_any_order_there_is_one_end_and_no_call_is_lost(seed: int, end: str) -> None:
    async def main() -> None:
        rng, scene = Random(seed), Scene(ProgramLimits(idle=50, start=50, work=500))
        async with scene.held() as scope:
            await drawn(rng, scene)
            if end == "cancel":
                scope.cancel()
            elif end == "exit":
                scene.program.end(rng.choice([0, 1]))
            for one in scene.asked:
                if not one.decided.is_set():
                    one.deny("too late")
        assert end == "cancel" or scene.verdict.outcome in ("completed", "failed", "cancelled")
        ends = [call_id for call_id, _, _ in scene.ended]
        denied = [one.call_id for one in scene.asked if one.answer is not None and one.answer.arguments is None]
        assert len(ends) == len(set(ends))
        assert not set(ends) & {*denied, *scene.dropped}
        assert len(scene.hooks()) <= sum(not one.options.get("seen") for one in scene.asked)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
