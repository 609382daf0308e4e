"""Scenes of docs/toolsets.md: tools that are known in a step only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio.testing

import greenroom as gr
from greenroom.actors.user_code.toolsets import DESCRIPTION_LIMIT, LIMIT, SCHEMA_LIMIT
from greenroom.testing import FakeToolset, FunctionModel, call, check_toolset

from ..support.child_scenes import K, with_expert
from ..support.handoff_scenes import H, other
from ..support.scene_plugins import scripted
from ..support.scenes import approve, decide
from ..support.toolsets import ANY, MAKE, Github


def offered(life: Any) -> list[list[str]]:
    """The names of the offered tools of each request that are not those of the scene."""
    return [[tool.name for tool in request.tools if "__" in tool.name] for request in life.requests]


# --- asked in each step ----------------------------------------------------------------------------------------------


@pytest.mark.rule("TS-1")
async def test_a_toolset_is_asked_in_each_step_and_its_tools_run_like_others(play, autojump_clock):
    github = Github()
    life = await play([MAKE, call("github__list", id="L")], "done", toolsets=[github])
    assert life.outcome.output == "done"
    assert (github.asked, github.done, offered(life)) == (
        [1, 2],
        [{"title": "a"}],
        [["github__make", "github__list"]] * 2,
    )
    assert life.tool_texts == {"M": '{"made":"a"}', "L": "3"}
    assert (github.opened[0], github.found) == (1, [])


@pytest.mark.rule("TS-1")
async def test_hooks_and_the_choice_of_tools_count_for_offered_tools(play, autojump_clock):
    plugin = scripted("hides", before_inference=lambda ctx: gr.Mutation().exclude_tools("github__make"))
    life = await play([MAKE], "done", toolsets=[Github()], plugins=[plugin], tool_choice="github__list")
    assert offered(life) == [["github__list"]] * 2
    assert life.requests[0].tool_choice == "github__list"
    assert life.codes == {"M": "unknown_tool"}


@pytest.mark.rule("TS-1")
async def test_the_result_of_an_offered_tool_may_be_the_output(play, autojump_clock):
    life = await play([MAKE], toolsets=[Github()], tool_use=gr.stop_at_tools("github__make"))
    assert life.outcome.output == {"made": "a"}


@pytest.mark.rule("TS-2")
async def test_arguments_are_judged_by_the_schema_of_the_answer(play, autojump_clock):
    life = await play([call("github__make", {"title": 3}, id="M")], "done", toolsets=[Github()])
    assert life.codes == {"M": "invalid_arguments"}
    assert "$.title" in life.tool_texts["M"]


@pytest.mark.rule("TS-2")
async def test_an_agent_after_a_handoff_has_its_own_toolsets(play, autojump_clock):
    github, mail = Github(), Github(name="mail")
    helper = other([MAKE], "bye", toolsets=[mail])
    life = await play(H, toolsets=[github], handoffs=[helper])
    assert life.outcome.output == "bye"
    assert (github.done, mail.done) == ([], [{"title": "a"}])


# --- toolsets that fail ----------------------------------------------------------------------------------------------


@pytest.mark.rule("TS-5")
@pytest.mark.parametrize(
    "fault", [OSError("no route"), KeyError("x"), BaseException("odd"), ExceptionGroup("g", [OSError("gone")])]
)
async def test_a_step_goes_on_without_a_toolset_that_fails(play, autojump_clock, fault):
    github = Github(faults=[fault, fault])
    life = await play([call("look", id="C")], [MAKE], "done", toolsets=[github])
    assert offered(life) == [[], [], ["github__make", "github__list"]]
    assert (life.outcome.output, life.codes) == ("done", {"C": None, "M": "unknown_tool"})
    (degraded,) = life.payloads("degraded")
    assert degraded["reason"] == "toolset_unavailable"
    assert "github" in degraded["detail"]


@pytest.mark.rule("TS-5")
async def test_a_toolset_that_does_not_answer_is_left_out_after_its_time(play, autojump_clock):
    life = await play("done", toolsets=[Github(seconds=1000), Github(name="other")])
    assert offered(life) == [["github__make", "github__list"]]
    assert life.seconds("message.completed") == LIMIT
    assert "did not answer within 30 s" in life.payloads("degraded")[0]["detail"]


@pytest.mark.rule("TS-5")
async def test_a_toolset_that_a_run_needs_fails_the_run(play, autojump_clock):
    life = await play("done", toolsets=[Github(faults=[OSError("no route")], on_unavailable="fail")])
    assert (life.outcome.code, life.requests) == ("runtime_unavailable", ())


# --- names, sizes, kinds ---------------------------------------------------------------------------------------------


@pytest.mark.rule("TS-6")
async def test_of_two_tools_with_one_name_the_first_counts(play, autojump_clock):
    async def body(ctx: Any, arguments: Any) -> str:
        return "toolset"

    mine = gr.Tool.from_schema(body, schema=ANY, name="look", description="Mine.")
    first, second = Github(more=[mine]), Github(name="second")
    life = await play([call("look", id="C"), MAKE], [call("look", id="D")], "done", toolsets=[first, second])
    assert (len(first.done), len(second.done)) == (1, 0)
    assert "toolset" not in life.tool_texts["C"]
    reasons = [one["reason"] for one in life.payloads("degraded")]
    assert reasons == ["tool_name_taken"] * 3  # look, make and list; each once in the run


@pytest.mark.rule("TS-6")
async def test_descriptions_and_schemas_have_a_limit(play, autojump_clock, caplog):
    async def body(ctx: Any, arguments: Any) -> str:
        return "x"

    large: Any = {"type": "object", "description": "x" * SCHEMA_LIMIT}
    tools = [
        gr.Tool.from_schema(body, schema=ANY, name="a__long", description="ü" * DESCRIPTION_LIMIT),
        gr.Tool.from_schema(body, schema=large, name="a__large", description="x"),
    ]
    life = await play([call("a__long", id="A")], "done", toolsets=[Github(more=tools)])
    assert offered(life)[0] == ["github__make", "github__list", "a__long"]
    (text,) = [tool.description for tool in life.requests[0].tools if tool.name == "a__long"]
    assert DESCRIPTION_LIMIT - 3 <= len(text.encode()) <= DESCRIPTION_LIMIT
    assert life.tool_texts["A"] == "x"
    assert [record.getMessage().count("bytes") for record in caplog.records if "toolset" in record.getMessage()] == [
        1,
        1,
    ]


@pytest.mark.rule("TS-6")
async def test_a_step_has_at_most_2000_tools_of_a_toolset(play, autojump_clock):
    async def body(ctx: Any, arguments: Any) -> str:
        return "x"

    many = [gr.Tool.from_schema(body, schema=ANY, name=f"a__{n}", description="x") for n in range(2_100)]
    life = await play("done", toolsets=[Github(more=many)])
    assert len(offered(life)[0]) == 2_000


@gr.tool(background=True)
async def later() -> None:
    """Run later."""


@gr.tool(is_enabled=False)
async def hidden() -> None:
    """Hide."""


@pytest.mark.rule("TS-7")
@pytest.mark.parametrize(
    "item", [later, hidden, gr.Agent("x", model="a:b").as_tool(), gr.handoff(gr.Agent("y")), 5, None]
)
async def test_tools_that_must_be_known_at_the_start_are_refused(play, autojump_clock, item):
    life = await play("done", toolsets=[Github(more=[item])])
    assert offered(life) == [[]]
    (degraded,) = life.payloads("degraded")
    assert degraded["reason"] == "toolset_unavailable"


@pytest.mark.rule("TS-7")
@pytest.mark.parametrize("answer", [None, 5, object(), {"a": 1}])
async def test_an_answer_that_is_no_list_is_a_failure(play, autojump_clock, answer):
    class Odd(Github):
        def make(self) -> Any:
            return answer

    life = await play("done", toolsets=[Odd()])
    assert life.payloads("degraded")[0]["reason"] == "toolset_unavailable"


@pytest.mark.parametrize(
    ("toolsets", "words"),
    [
        ([5], "is no toolset"),
        ("github", "give a list"),
        ([Github(), Github()], "two toolsets are named 'github'"),
        ([Github(name="Git Hub")], "toolset name 'Git Hub'"),
        ([Github(on_unavailable="wait")], "use 'skip' or 'fail'"),
    ],
)
def test_invalid_toolsets_are_refused_with_the_agent(toolsets: Any, words: str) -> None:
    with pytest.raises(gr.AgentDefinitionError, match=words):
        gr.Agent("a", toolsets=toolsets)


def test_only_the_names_of_toolsets_are_part_of_the_digest() -> None:
    agents = gr.Agent("a"), gr.Agent("a", toolsets=[Github()]), gr.Agent("a", toolsets=[Github(text="other")])
    without, with_toolset, with_another_text = [agent.spec.digest for agent in agents]
    assert without != with_toolset == with_another_text


# --- child runs, the thread, the kit ---------------------------------------------------------------------------------


@pytest.mark.rule("TS-2")
@pytest.mark.parametrize("argument", [5, "b"])
async def test_a_mirror_of_an_offered_tool_is_judged_by_the_child_run(play, autojump_clock, argument):
    github = Github(options={"needs_approval": True})
    tools = with_expert([MAKE], "made", toolsets=[github])
    acts = [decide("K", edited_arguments={"title": argument}), *([approve("K")] if argument == 5 else [])]
    life = await play(K, "done", do=acts, tools=tools)
    assert github.done == ([{"title": "a"}] if argument == 5 else [{"title": "b"}])
    assert life.outcome.output == "done"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_body_reads_the_thread_of_its_request(kind):
    texts: list[list[str]] = []

    @gr.tool
    async def recall(ctx: gr.ToolContext[Any]) -> None:
        """Recall."""
        texts.append([message.content for message in await ctx.messages()])

    @gr.tool(name="recall")
    def recall_in_thread(ctx: gr.SyncToolContext[Any]) -> None:
        """Recall."""
        texts.append([message.content for message in ctx.messages()])

    requests: list[list[str]] = []

    def answer(request: gr.ModelRequest) -> Any:
        requests.append([message.content for message in request.messages])
        return "done" if len(requests) == 3 else call("recall", id=str(len(requests)))

    tool = recall if kind == "async" else recall_in_thread
    await gr.run(gr.Agent("a", tools=[tool], model=FunctionModel(answer)), "go")
    assert texts == requests[:2]


async def test_the_kit_accepts_a_toolset_that_keeps_its_promises() -> None:
    await check_toolset(Github)
    (tool, _) = Github().make()
    await check_toolset(lambda: FakeToolset("one", [tool]))


def _other(text: str) -> Any:
    numbers = iter(range(10))
    return lambda: Github(text=f"{text} {next(numbers)}")


class _Twice(Github):
    def make(self) -> Any:
        return [*super().make(), *super().make()]


class _Restless(Github):
    def make(self) -> Any:
        self.text += "!"
        return super().make()


class _Generous(Github):
    async def find(self, info: gr.RunInfo, name: str) -> Any:
        return self.make()[0]


@pytest.mark.parametrize(
    ("open_toolset", "words"),
    [
        (lambda: Github(name="A"), "toolset name 'A'"),
        (lambda: Github(forgets=True), "find\\('github__make'\\) is None"),
        (_other("x"), "another definition in another process"),
        (lambda: Github(more=[later]), "is a background tool"),
        (_Twice, "two tools are named 'github__make'"),
        (_Restless, "two answers of one step differ in github__make"),
        (_Generous, "another definition|returned a tool"),
        (lambda: Github(text="x" * 5_000), "would be cut"),
    ],
)
async def test_the_kit_finds_what_a_toolset_breaks(open_toolset: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check_toolset(open_toolset)


async def test_a_toolset_of_the_kit_changes_and_fails_as_a_test_wants(play, autojump_clock) -> None:
    (tool, _) = Github().make()
    fake = FakeToolset("fake", [tool])

    @gr.tool
    async def leave() -> None:
        """Leave."""
        fake.fault = OSError("gone")

    life = await play([call("leave", id="L")], "done", toolsets=[fake], tools=[leave])
    assert offered(life) == [["github__make"], []]


# --- what open() yields ----------------------------------------------------------------------------------------------


class Opened(Github):
    """A toolset that is asked by another object for each opening."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.objects: list[Github] = []

    async def tools(self, ctx: Any) -> Any:
        raise AssertionError("the object that open() yields is asked")

    find = tools

    @asynccontextmanager
    async def open(self) -> AsyncIterator[gr.Toolset | None]:
        self.opened[0] += 1
        self.objects.append(Github())
        try:
            yield self.objects[-1]
        finally:
            self.opened[1] += 1


@pytest.mark.rule("TS-1")
async def test_the_object_that_open_yields_is_asked(play, autojump_clock):
    toolset = Opened()
    life = await play([MAKE], "done", toolsets=[toolset])
    assert life.outcome.output == "done"
    assert toolset.opened == [1, 1]
    assert (toolset.objects[0].asked, toolset.objects[0].done) == ([1, 2], [{"title": "a"}])
    await check_toolset(Opened)


@pytest.mark.rule("TS-1")
async def test_a_toolset_of_the_scope_run_is_open_for_each_run_until_it_leaves(autojump_clock):
    toolset = Opened()
    toolset.scope = "run"
    agent = gr.Agent("a", toolsets=[toolset], model=FunctionModel(lambda request: "done"))
    async with gr.open_runtime(agents=[agent]) as runtime:
        for number in (1, 2):
            await (await runtime.start(agent, "go")).result()
            await trio.testing.wait_all_tasks_blocked()
            assert toolset.opened == [number, number]


def test_another_scope_is_refused():
    toolset = Github()
    toolset.scope = "thread"
    with pytest.raises(gr.AgentDefinitionError, match="use 'runtime' or 'run'"):
        gr.Agent("a", toolsets=[toolset])
