"""Lists of runs as the facade gives them: titles, what is asked, filters; and nothing secret in any of it."""

import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.runs import agent, home

TOKEN = "sk-" + "a1" * 40


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    return order


@gr.tool
async def ask(question: str) -> gr.Suspend:
    return gr.Suspend(message=question, reviewers=("ann", "bob"), expires_after=60)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({"text": "Refund order 7, please.\nThanks"}, "Refund order 7, please."),
        ({"text": "\n \t\n  second line  of it\n"}, "second line of it"),
        ({"text": "x" * 81}, "x" * 79 + "…"),
        ({"text": f"use {TOKEN}"}, "use [redacted]"),
        ({"text": "y" * 60 + f" {TOKEN}"}, "y" * 60 + " [redacted]"),
        ({"text": "red \x1b[31m\u202ealert\x07"}, "red [31m alert"),
        ({"text": "hello", "title": "The first\nof two"}, "The first"),
        ({"text": "hello", "title": f"key {TOKEN}"}, "key [redacted]"),
    ],
)
async def test_a_run_has_a_title_without_secrets(shelf, given, title, autojump_clock):
    async with home(shelf, agents=[agent("done")]) as runtime:
        options = {name: value for name, value in given.items() if name != "text"}
        run = await runtime.start("helper", given["text"], **options)
        (line,) = (await runtime.runs()).runs
        async with run.events(until="rest") as events:
            created = await anext(aiter(events))
        assert (line.title, (await run.view()).title, created.payload["title"]) == (title, title, title)


async def test_a_title_is_a_label_and_makes_no_other_run(shelf, autojump_clock):
    async with home(shelf, agents=[agent("done")]) as runtime:
        run = await runtime.start("helper", "hi", run_id="r1", title="one")
        assert await runtime.start("helper", "hi", run_id="r1", title="two") == run
        await run.result()
        child = await runtime.fork("r1", step=1)
        assert [line.title for line in (await runtime.runs()).runs] == ["one", "one"]
        await child.result()
        for wrong in ("", " \n", 7):
            with pytest.raises(gr.UsageError, match="title"):
                await runtime.start("helper", "hi", title=wrong)


async def test_a_list_says_what_is_asked_of_whom_and_until_when(shelf, autojump_clock):
    steps = [call("refund", order=TOKEN, id="c1"), call("ask", question=f"Which?\n{TOKEN} or {'z' * 400}", id="c2")]
    helper = agent(steps, "done", tools=[refund, ask])
    async with home(shelf, agents=[helper], secrets=["hunter2-hunter2"]) as runtime:
        run = await runtime.start(helper, "hunter2-hunter2 and more")
        waiting = await run.wait()
        page = await runtime.runs(order="waiting_longest", text="AND MORE", counts=True)
        (line,) = page.runs
        assert (page.counts, line.title) == (gr.RunCounts(waiting=1), "[redacted] and more")
        assert [(request.tool, request.reason) for request in line.asked] == [
            ("refund", "tool_permission"),
            ("ask", "user_input"),
        ]
        question = line.asked[1]
        assert (question.message, question.reviewers, question.on_expiry) == ("Which?", ("ann", "bob"), "deny")
        assert question.expires_at == waiting.tickets[1].expires_at
        assert line.waiting_since == waiting.tickets[0].requested_at
        assert TOKEN[:10] not in repr([line.title, line.asked])
        await run.cancel()
        await run.result()
        (line,) = (await runtime.runs()).runs
        assert (line.asked, line.waiting_since, line.ended_at is None) == ((), None, False)


async def test_a_search_finds_what_was_said_and_nothing_that_redaction_hides(shelf, autojump_clock):
    """Neither what the writer of the events hides, nor what only the reader knows to be a secret."""
    steps = [call("ask", question="?", id="c1")]
    talker = agent("The parcel of Ada is at gate seventeen", f"It is {TOKEN}")
    async with home(shelf, agents=[talker, gr.Agent("asker", model=ScriptedModel(steps), tools=[ask])]) as runtime:
        first = await runtime.start("helper", "Where is it?\n\nMy order is LAMP-42.", run_id="first")
        await first.result()
        await (await runtime.start("asker", "And where is the lamp-42?", run_id="second")).wait()
        finds = {
            "lamp-42": ["second", "first"],
            "gate SEVENTEEN": ["first"],
            "gate eighteen": [],
            TOKEN[:10]: [],
        }
        for text, expected in finds.items():
            assert [line.run_id for line in (await runtime.runs(text=text)).runs] == expected
        assert [line.run_id for line in (await runtime.runs(tool="ask", text="lamp")).runs] == ["second"]
        assert [line.run_id for line in (await runtime.runs(outcome="completed")).runs] == ["first"]
        await runtime.cancel("second")
    async with home(shelf, agents=[talker], secrets=["gate seventeen"]) as knowing:
        assert [line.run_id for line in (await knowing.runs(text="parcel")).runs] == ["first"]
        assert (await knowing.runs(text="gate s")).runs == ()


@pytest.mark.parametrize(
    "query",
    [
        {"by": 7},
        {"outcome": "waiting"},
        {"tool": 7},
        {"text": ""},
        {"text": "x" * 201},
        {"since": "2026-01-01"},
        {"order": "oldest"},
        {"order": "waiting_longest", "status": "done"},
    ],
)
async def test_a_query_that_cannot_be_is_refused_by_name(shelf, query, autojump_clock):
    async with home(shelf, agents=[agent("done")]) as runtime:
        with pytest.raises(gr.UsageError, match=next(iter(query))):
            await runtime.runs(**query)
