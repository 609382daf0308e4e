"""Rules of artifacts: whole or not there, durable before they are seen, masked, bounded, forked and pruned."""

import os
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.artifacts import MAX_ARTIFACTS
from greenroom.actors.contract.parts import MAX_BYTES
from greenroom.actors.services.clock import Clock
from greenroom.testing import FakeWall, FunctionModel, call

from ..support.artifact_scenes import KEY, PNG, publish, publish_from_thread
from ..support.part_scenes import PNG as CHART
from ..support.runs import agent, events_of, frames_of, home, payloads
from ..support.scene_tools import TOOLS
from ..support.scenes import THREAD, after, cancel, restart

pytestmark = pytest.mark.pace(5)
LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)
SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
PUBLISHES: dict[str, Any] = {"tools": [*TOOLS, publish]}
NOTES = b"# Notes\n\nkey: [redacted]\n"


def publishing(what: str, call_id: str = "A", seconds: float = 1.0) -> Any:
    return call("publish", id=call_id, what=what, seconds=seconds)


# --- publishing ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-1", "AR-2", "AR-6")
async def test_a_body_publishes_text_without_its_secrets(play, autojump_clock):
    life = await play(publishing("notes"), "done", **PUBLISHES)
    (ready,) = life.payloads("artifact.ready")
    assert ready == {
        "artifactId": life.tool_texts["A"],
        "callId": "A",
        "name": "notes.md",
        "kind": "file",
        "mediaType": "text/markdown",
        "size": len(NOTES),
        "sha256": sha256(NOTES).hexdigest(),
        "metadata": {"author": "ann"},
    }
    (event,) = [event for event in life.events if event.type == "run.artifact.ready"]
    assert ready["artifactId"] == f"r.a{event.sequence}"
    (artifact,) = life.view.artifacts
    assert (artifact.artifact_id, artifact.metadata, artifact.data) == (ready["artifactId"], {"author": "ann"}, None)
    async with home(life.scene.play.shelf.open(), agents=[life.scene.agent]) as runtime:
        run = await runtime.get("r")
        assert await run.artifact(artifact) == await run.artifact(artifact.artifact_id) == NOTES
        assert await runtime.artifact("r", artifact.artifact_id) == NOTES
    rows = repr([life.record, [entry for commit in life.log for entry in commit.taken]])
    assert KEY not in rows


@pytest.mark.rule("AR-3", "AR-4")
@pytest.mark.parametrize("what", ["picture", "blocked"])
async def test_a_blocked_screenshot_is_known_and_never_served(play, what, autojump_clock):
    life = await play(publishing(what), "done", **PUBLISHES)
    (ready,) = life.payloads("artifact.ready")
    review = "passed" if what == "picture" else "blocked"
    assert (ready["kind"], ready["metadata"]["privacy_review"], ready["size"]) == ("screenshot", review, len(PNG))
    async with home(life.scene.play.shelf.open(), agents=[life.scene.agent]) as runtime:
        stored = await runtime.store.parts(THREAD, [ready["sha256"]])
        if what == "picture":
            assert await runtime.artifact("r", ready["artifactId"]) == PNG
            return
        assert stored == {}
        with pytest.raises(gr.UnknownArtifact, match="privacy review has blocked"):
            await runtime.artifact("r", ready["artifactId"])


@pytest.mark.rule("AR-3", "AR-5")
async def test_previews_have_their_file_or_their_address(play, autojump_clock):
    life = await play(publishing("preview"), publishing("address", "B"), "done", **PUBLISHES)
    page, address = life.payloads("preview.ready")
    assert (page["path"], page["readAt"]) == ("site/page.html", "2031-05-01T11:30:00.000Z")
    assert (address["url"], address["size"], address["sha256"]) == ("http://localhost:3000/?token=[redacted]", 0, "")
    async with home(life.scene.play.shelf.open(), agents=[life.scene.agent]) as runtime:
        assert await runtime.artifact("r", page["artifactId"]) == b"<p>hi</p>"
        with pytest.raises(gr.UnknownArtifact, match="it is an address"):
            await runtime.artifact("r", address["artifactId"])


async def test_a_sync_tool_publishes_from_its_thread(shelf):
    helper = agent(call("jot", id="A"), "done", tools=[publish_from_thread])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (ready,) = payloads(await events_of(run), "artifact.ready")
        assert await run.artifact(ready["artifactId"]) == b"a line\n"


@pytest.mark.rule("AR-1")
async def test_a_file_is_read_whole(shelf, tmp_path):
    source = tmp_path / "chart.png"
    source.write_bytes(CHART)
    faults: list[str] = []

    async def draw(ctx: gr.ToolContext) -> str:
        """Draws."""
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
            with pytest.raises(gr.UsageError) as caught:
                await ctx.artifact("x", path)
            faults.append(str(caught.value))
        return (await ctx.artifact("chart.png", source)).media_type

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (artifact,) = (await run.view()).artifacts
        assert (artifact.media_type, await run.artifact(artifact)) == ("image/png", CHART)
    assert [fault.partition(" ")[2].partition("' ")[2] for fault in faults] == [
        "cannot be read: No such file or directory",
        "cannot be read: Is a directory",
        "is not a file",
    ]
    assert str(tmp_path) not in "".join(faults)


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-7")
async def test_an_artifact_over_the_limit_leaves_nothing(shelf, tmp_path):
    faults: list[str] = []
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(MAX_BYTES + 1))

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        for data in (bytes(MAX_BYTES + 1), large, "x" * (MAX_BYTES - 18) + " password=hunter22"):
            with pytest.raises((gr.UsageError, gr.ToolError)) as caught:
                await ctx.artifact("large.bin", data)
            faults.append(str(caught.value))

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert (await run.view()).artifacts == ()
        assert payloads(await events_of(run), "artifact.ready") == []
    assert all("8,388,608 bytes" in fault for fault in faults)
    assert ["8,388,609 bytes" in fault for fault in faults] == [True, True, False]


@pytest.mark.rule("AR-8")
async def test_a_run_has_so_many_artifacts_and_no_more(shelf, autojump_clock):
    faults: list[str] = []

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        for number in range(MAX_ARTIFACTS):
            await ctx.artifact(f"{number}.txt", "one")
        with pytest.raises(gr.ToolError) as caught:
            await ctx.artifact("one more.txt", "one")
        faults.append(str(caught.value))

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw, timeout=None)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert len((await run.view()).artifacts) == MAX_ARTIFACTS
    assert "200, the most that a run may" in faults[0]


@pytest.mark.slow
@pytest.mark.rule("AR-8")
async def test_a_run_has_so_many_bytes_of_artifacts_and_no_more(shelf, autojump_clock):
    faults: list[str] = []

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        for number in range(8):
            await ctx.artifact("full.bin", bytes([number]) + bytes(MAX_BYTES - 1))
        with pytest.raises(gr.ToolError) as caught:
            await ctx.artifact("one more.bin", b"\0")
        faults.append(str(caught.value))
        await ctx.artifact("full.bin", b"\0" + bytes(MAX_BYTES - 1))

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert len((await run.view()).artifacts) == 8
    assert "at most 67,108,864 bytes of artifacts" in faults[0]


@pytest.mark.rule("AR-9")
async def test_a_background_task_cannot_publish(shelf, autojump_clock):
    faults: list[str] = []

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        with pytest.raises(gr.ToolError) as caught:
            await ctx.artifact("a.txt", "one")
        faults.append(str(caught.value))

    helper = agent(call("draw", id="A"), "so far", "done", tools=[gr.tool(draw, background=True)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi")).result()
    assert "A background task cannot publish" in faults[0]


@pytest.mark.rule("AR-6")
async def test_what_is_said_to_be_a_text_has_to_be_one(shelf, autojump_clock):
    faults: list[str] = []
    texts: list[dict[str, Any]] = [{"media_type": "text/plain"}, {"kind": "raw"}, {"kind": "diff"}, {}]

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        for more in texts:
            for data in (b"a" * 9_000 + b"\xff", b"a\0", "é".encode()[:1]):
                if more or (data[:1] == b"a" and data[1:2] != b"\0"):
                    with pytest.raises(gr.UsageError, match="is text, and these bytes are not UTF-8") as caught:
                        await ctx.artifact("a", data, **more)
                    faults.append(str(caught.value))
        await ctx.artifact("a.bin", f"{KEY}".encode() + b"\xff", media_type="application/octet-stream")

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw)])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (artifact,) = (await run.view()).artifacts
        assert await run.artifact(artifact) == KEY.encode() + b"\xff"
    assert len(faults) == 10


# --- crashes, forks, prunes ------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-10")
async def test_a_body_that_runs_again_publishes_once(play, autojump_clock):
    life = await play(publishing("notes", seconds=9.0), "done", do=[after(5, restart)], **PUBLISHES)
    (ready,) = life.payloads("artifact.ready")
    assert life.tool_texts == {"A": ready["artifactId"]}
    assert len(life.view.artifacts) == 1


@pytest.mark.rule("AR-2")
async def test_what_a_body_has_published_stays_if_the_run_is_cancelled(play, autojump_clock):
    life = await play(publishing("notes", seconds=9.0), do=[after(5, cancel())], **PUBLISHES)
    (artifact,) = life.view.artifacts
    async with home(life.scene.play.shelf.open(), agents=[life.scene.agent]) as runtime:
        assert await runtime.artifact("r", artifact.artifact_id) == NOTES


@pytest.mark.rule("AR-11")
async def test_a_fork_has_the_artifacts_of_its_steps(play, autojump_clock):
    script = publishing("notes"), publishing("picture", "B"), "done"
    life = await play(*script, **PUBLISHES)
    first, second = life.view.artifacts
    helper = gr.Agent("helper", tools=PUBLISHES["tools"], model=FunctionModel(lambda _: "done"))
    async with home(life.scene.play.shelf.open(), agents=[helper], deps=life.scene.outside) as runtime:
        forks = [await runtime.fork("r", step=step) for step in range(3)]
        for fork, kept in zip(forks, ([], [first], [first, second]), strict=True):
            await fork.result()
            assert list((await fork.view()).artifacts) == kept
            assert [await fork.artifact(artifact) for artifact in kept] == [NOTES, PNG][: len(kept)]
            assert (await runtime.replay(fork.id)).equal
        with pytest.raises(gr.UnknownArtifact, match="has no artifact"):
            await forks[1].artifact(second)
        again = await runtime.fork(forks[2].id, step=0)
        await again.result()
        assert list((await again.view()).artifacts) == [first, second]
        assert await again.artifact(second) == PNG


@pytest.mark.rule("AR-11", "AR-12")
async def test_artifacts_are_pruned_with_their_thread_and_a_fork_keeps_its_own(shelf, autojump_clock):
    wall = FakeWall(LONG_AGO)

    async def draw(ctx: gr.ToolContext) -> str:
        """Draws."""
        return (await ctx.artifact("a.txt", "one")).artifact_id

    def answer(request: gr.ModelRequest) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("draw")

    helper = gr.Agent("helper", tools=[gr.tool(draw)], model=FunctionModel(answer))
    async with home(shelf.open(), agents=[helper], clock=Clock(wall)) as runtime:
        run = await runtime.start(helper, "hi", thread_id="t")
        await run.result()
        (artifact,) = (await run.view()).artifacts
        wall.step(timedelta(days=20).total_seconds())
        fork = await runtime.fork(run.id, step=1)
        await fork.result()
        await runtime.store.prune(LONG_AGO + timedelta(days=9))
        assert await runtime.store.parts("t", [artifact.sha256]) == {}
        with pytest.raises(gr.UnknownRun):
            await runtime.artifact(run.id, artifact.artifact_id)
        assert await fork.artifact(artifact) == b"one"
        await runtime.store.prune(LONG_AGO + timedelta(days=99))
        assert await runtime.store.parts(fork.thread_id, [artifact.sha256]) == {}


@SEQUENTIAL
async def test_unknown_artifacts_are_refused(play, autojump_clock):
    life = await play(publishing("notes"), "done", **PUBLISHES)
    (artifact,) = life.view.artifacts
    sequence = int(artifact.artifact_id.rpartition(".a")[2])
    async with home(life.scene.play.shelf.open(), agents=[life.scene.agent]) as runtime:
        run = await runtime.get("r")
        for wrong in (
            "",
            "r.a0",
            f"r.a{sequence + 1}",
            "r.a99999",
            "r.a-1",
            f"q.a{sequence}",
            "r.a" + "9" * 40,
            "\ud800",
        ):
            with pytest.raises(gr.UnknownArtifact):
                await run.artifact(wrong)
        with pytest.raises(gr.UsageError, match="give an Artifact"):
            await run.artifact(7)  # type: ignore[arg-type]
        with pytest.raises(gr.UnknownRun):
            await runtime.artifact("nothing", artifact.artifact_id)


@pytest.mark.rule("AR-6")
@pytest.mark.parametrize("size", [300, 32_760, 65_530, 1_100_000])
async def test_a_secret_is_masked_wherever_a_text_is_cut_into_pieces(shelf, size, autojump_clock):
    """A text is read in pieces; a named secret lies across the place where one ends."""

    async def draw(ctx: gr.ToolContext) -> None:
        """Draws."""
        await ctx.artifact("a.log", "x" * (size - 20) + f" {KEY} " + "y" * 40_000, kind="raw", media_type="text/plain")

    helper = agent(call("draw", id="A"), "done", tools=[gr.tool(draw)])
    async with home(shelf.open(), agents=[helper], secrets=[KEY]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (artifact,) = (await run.view()).artifacts
        body = await run.artifact(artifact)
        shown = body + await frames_of(runtime, run.id)
    assert b"[redacted]" in body
    assert len(body) == size - 20 + len(" [redacted] ") + 40_000
    assert not any(KEY[:length].encode() in shown for length in range(8, len(KEY)))
