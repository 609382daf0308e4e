"""Rules of the stage preparing: a run works when its workspace and its tools say that it can, and not before."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.testing import ScriptedModel, call, delay

from ..support.runs import home
from ..support.scene_surroundings import MISSING, PREPARING, Shop, probe, raising
from ..support.scene_tools import FAR, TOOLS
from ..support.scenes import BIRTHDAY, Down, Play, Scene, after, another, cancel, pause_run, send

pytestmark = pytest.mark.pace(5)
HALF = PREPARING / 2
IN_SHOP = {"workspace": "shop/web"}
PREPARED = "accepted preparing running completed"


def path(life: Any) -> str:
    """The stages from accepted on."""
    return " ".join(life.stages[2:])


async def shop_life(play: Play, shop: Shop, *script: Any, **options: Any) -> Any:
    """The life of a run in the workspace `shop/web`."""
    play.runtime["workspaces"] = shop
    start = IN_SHOP | options.pop("start", {})
    return await play(*(script or ("done",)), start=start, **options)


@pytest.mark.rule("L-130", "L-131")
async def test_a_run_in_a_workspace_is_prepared_before_its_first_step(play, autojump_clock):
    shop = Shop(ends=lambda: gr.Preparation(facts={"name": "shop", "files": 3}, doubts={"untested_version": "new"}))
    life = await shop_life(play, shop)
    assert path(life) == PREPARED
    (started,) = life.payloads("started")
    assert started["detail"] == {"name": "shop", "files": 3}
    (doubt,) = life.payloads("degraded")
    assert (doubt["reason"], doubt["detail"]) == ("untested_version", "new")
    assert life.record.info.place == "here"
    assert (shop.begun, shop.ended) == (["r"], ["r"])
    assert life.end["activeSeconds"] < 1  # a preparation is not active time


@pytest.mark.rule("L-130")
async def test_a_tool_prepares_itself_once_and_sees_the_workspace(play, autojump_clock):
    log: list[Any] = []
    tool = probe(log, gr.Preparation(facts={"program": "1.2"}))
    life = await shop_life(play, Shop(), [call("program", id="A")], "done", tools=[tool])
    assert log == [("r", "the copy of shop/web for t")]
    (started,) = life.payloads("started")
    assert started["detail"] == {"name": "shop/web", "files": 3, "program": "1.2"}
    assert life.tool_texts == {"A": "worked"}


@pytest.mark.rule("L-130")
async def test_a_tool_prepares_itself_without_a_workspace(play, autojump_clock):
    log: list[Any] = []
    life = await play("done", tools=[probe(log)])
    assert (log, path(life)) == ([("r", None)], PREPARED)
    assert "detail" not in life.payloads("started")[0]


@pytest.mark.rule("L-131")
async def test_a_run_without_either_writes_the_same_bytes_as_without_workspaces(autojump_clock):
    shop, logs = Shop(), []
    for workspaces in (None, shop):
        helper = gr.Agent("helper", model=ScriptedModel(["done"]))
        async with home(gr.MemoryStore(), agents=[helper], clock=Clock(BIRTHDAY), workspaces=workspaces) as runtime:
            run = await runtime.start(helper, "hi", run_id="r")
            await run.result()
            logs.append(tuple(await runtime.store.events("r", limit=100)))
    assert logs[0] == logs[1]
    assert shop.begun == []


ENDS: dict[str, tuple[Any, str, str]] = {
    "missing": (raising(MISSING), "runtime_unavailable", "missing: there is no git; install git 2.38 or newer"),
    "outside": (
        raising(gr.PreparationError("workspace_outside_allowlist", "'shop/x' is not a folder that a run may use")),
        "workspace_outside_allowlist",
        "'shop/x' is not a folder that a run may use",
    ),
    "bug": (raising(KeyError("x")), "internal_error", "the workspace: KeyError: 'x'"),
    "no preparation": (lambda: 5, "internal_error", "TypeError: it returned int; return gr.Preparation(...) or None"),
    "no facts": (
        lambda: gr.Preparation(facts={"long": "x" * 20_000}),
        "internal_error",
        "cannot be stored: they have more than 16384 bytes as JSON",
    ),
}


@pytest.mark.rule("L-132")
@pytest.mark.parametrize("case", ENDS)
async def test_a_run_that_cannot_be_prepared_fails_from_preparing(play, autojump_clock, case):
    ends, code, text = ENDS[case]
    life = await shop_life(play, Shop(ends=ends))
    assert path(life) == "accepted preparing failed"
    assert (life.outcome.code, life.requests) == (code, ())
    assert text in life.outcome.message
    assert (life.end["errorId"] if code == "internal_error" else "errorId" not in life.end) in ("r/prepare:", True)


@pytest.mark.rule("L-132")
async def test_what_is_not_available_is_in_the_log_with_the_way_out(play, autojump_clock):
    life = await shop_life(play, Shop(ends=raising(MISSING)))
    *_, event, end = life.events
    assert (event.type, event.payload) == (
        "runtime.unavailable",
        {
            "code": "runtime_unavailable",
            "runtime": "workspace",
            "reason": "missing",
            "hint": "there is no git; install git 2.38 or newer",
        },
    )
    assert end.type == "run.failed"


@pytest.mark.rule("L-132")
async def test_a_tool_that_cannot_be_prepared_ends_the_run(play, autojump_clock):
    error = gr.PreparationError("runtime_unavailable", "log in with `program login`", reason="unauthorized")
    life = await shop_life(play, Shop(), tools=[probe([], error)])
    assert (life.outcome.code, life.outcome.message) == (
        "runtime_unavailable", "unauthorized: log in with `program login`"
    )  # fmt: skip


@pytest.mark.rule("L-132")
async def test_a_bug_of_a_tool_is_a_tool_error(play, autojump_clock):
    life = await play("done", tools=[probe([], ZeroDivisionError("of nothing"))])
    assert (life.outcome.code, life.end["errorId"]) == ("tool_error", "r/prepare:program")


@pytest.mark.rule("L-132")
async def test_a_preparation_has_its_time(play, autojump_clock):
    life = await shop_life(play, Shop(seconds=FAR))
    assert (life.outcome.code, life.outcome.message) == (
        "runtime_unavailable", "timeout: the workspace was not prepared within 300 s"
    )  # fmt: skip


SECRET = "hunter2-and-more"
LEAKS: dict[str, Any] = {
    "facts": lambda: gr.Preparation(facts={"login": SECRET, "nested": [f"with {SECRET}"]}, doubts={"new": SECRET}),
    "error": raising(gr.PreparationError("runtime_unavailable", f"log in with {SECRET}")),
    "bug": raising(ValueError(SECRET)),
}


@pytest.mark.parametrize("case", LEAKS)
async def test_no_secret_of_a_preparation_is_shown(play, autojump_clock, case, caplog):
    play.runtime["secrets"] = [SECRET]
    life = await shop_life(play, Shop(ends=LEAKS[case]))
    assert not any(SECRET.encode() in frame for frame in life.frames)
    assert SECRET not in f"{life.view} {life.outcome} {caplog.text}"


@pytest.mark.rule("L-133")
@pytest.mark.parametrize("when", ["now", "after_step"])
async def test_a_cancel_ends_a_preparation(play, autojump_clock, when):
    shop = Shop(seconds=FAR)
    life = await shop_life(play, shop, do=[after(HALF, cancel(mode=when, reason="enough"))])
    assert path(life) == "accepted preparing cancelled"
    assert (life.replies, shop.ended, life.requests) == (["accepted"], [], ())


@pytest.mark.rule("L-133")
async def test_the_deadline_ends_a_preparation(play, autojump_clock):
    life = await shop_life(play, Shop(seconds=FAR), start={"deadline": HALF})
    assert (path(life), life.outcome.code) == ("accepted preparing failed", "run_timeout")


@pytest.mark.rule("L-133")
async def test_a_preparation_that_ignores_its_cancel_holds_no_run(play, autojump_clock):
    life = await shop_life(play, Shop(seconds=FAR, stubborn=60), do=[after(HALF, cancel())])
    assert path(life) == "accepted preparing cancelled"
    assert life.end["stubborn"] == ["prepare"]
    await trio.sleep(61)


@pytest.mark.rule("L-134")
async def test_a_crash_repeats_a_preparation_and_no_finished_one(play, autojump_clock):
    shop = Shop()
    down = Down(1)
    life = await shop_life(play, shop, [delay(20), "done"], do=[after(HALF, down), after(PREPARING + 5, down)])
    assert (path(life), shop.begun, shop.ended) == (PREPARED, ["r", "r"], ["r"])
    assert life.types.count("started") == 1


@pytest.mark.rule("L-134")
async def test_a_cancel_is_not_lost_in_a_crash_of_a_preparation(play, autojump_clock):
    """The process ends while the cancelled preparation still runs; the next process ends the run."""
    shop = Shop(seconds=FAR, stubborn=4)
    life = await shop_life(play, shop, do=[after(HALF, cancel()), after(1, Down(1))])
    assert (path(life), shop.begun) == ("accepted preparing cancelled", ["r"])


@pytest.mark.rule("L-135")
async def test_input_that_comes_meanwhile_is_read_by_the_first_step(play, autojump_clock):
    life = await shop_life(play, Shop(), do=[after(HALF, send("and this"))])
    assert [m.content for m in life.requests[0].messages if m.role == "user"] == ["hi", "and this"]


@pytest.mark.rule("L-135")
async def test_a_pause_holds_the_run_before_its_first_step(play, autojump_clock):
    life = await shop_life(play, Shop(), do=[after(HALF, pause_run())])
    assert (path(life), life.requests) == ("accepted preparing running needs_approval", ())


@pytest.mark.rule("L-130")
async def test_the_next_run_of_the_thread_waits_for_the_end_and_is_prepared_itself(play, autojump_clock):
    shop = Shop()
    life = await shop_life(play, shop, do=[after(HALF, another("too", workspace="shop")), joined])
    assert shop.begun == ["r", "next"]
    assert life.outcome.output == "done"


async def joined(scene: Scene) -> None:
    """The second run has ended."""
    assert (await scene.others["next"].result()).output == "too"


async def test_a_child_run_works_where_its_parent_run_does(play, autojump_clock):
    shop = Shop(seconds=1)
    child = play.agent("I looked", key="scout").as_tool(name="scout")
    life = await shop_life(play, shop, [call("scout", {"input": "go"}, id="A")], "done", tools=[*TOOLS, child])
    assert life.tool_texts == {"A": "I looked"}
    parents = {commit.run_id for commit in play.shelf.log} - {"r"}
    assert [*shop.begun] == ["r", *parents]
