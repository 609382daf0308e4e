"""Artifacts over the gateway: the download, its headers, and who gets it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.parts import MAX_BYTES
from greenroom.testing import call
from greenroom.transport import Principal, connect
from greenroom.transport.gateway.downloads import MOST_EACH

from ..support.artifact_scenes import PNG, publish
from ..support.gateway import PATIENCE, TOKEN, gateway, http
from ..support.runs import agent
from ..support.scene_tools import Outside

NAME = 'naïve "50 %" 報告.html'
PAGE = "<script>alert(1)</script>"


@gr.tool
async def page(ctx: gr.ToolContext) -> str:
    """Publishes a page with a script."""
    return (await ctx.artifact(NAME, PAGE, media_type="text/html")).artifact_id


@asynccontextmanager
async def served(*script: Any, **options: Any) -> AsyncIterator[tuple[Any, gr.Run[Any], list[gr.Artifact]]]:
    helper = agent(*script, "done", tools=[publish, page])
    async with gr.open_runtime(agents=[helper], deps=Outside()) as runtime, gateway(runtime, **options) as address:
        run = await runtime.start(helper, "hi", by="ann")
        await run.result()
        yield address, run, list((await run.view()).artifacts)


def path(run: gr.Run[Any], artifact_id: str) -> str:
    return f"/v1/runs/{run.id}/artifacts/{artifact_id}"


@pytest.mark.rule("AR-13")
async def test_a_page_with_a_script_is_a_download_that_no_browser_executes():
    async with served(call("page")) as (address, run, (artifact,)):
        reply = await http(address, "GET", path(run, artifact.artifact_id))
        assert (reply.status, reply.body.decode()) == (200, PAGE)
        shown = {
            name: reply.headers[name]
            for name in (
                *("content-type", "content-disposition", "content-security-policy", "x-content-type-options"),
                *("cross-origin-resource-policy", "cache-control", "referrer-policy"),
            )
        }
        assert shown == {
            "content-type": "text/html; charset=utf-8",
            "content-disposition": 'attachment; filename="na_ve _50 __ __.html"; '
            "filename*=UTF-8''na%C3%AFve%20%2250%20%25%22%20%E5%A0%B1%E5%91%8A.html",
            "content-security-policy": "default-src 'none'; sandbox",
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "private, no-cache",
            "referrer-policy": "no-referrer",
        }
        again = await http(
            address, "GET", path(run, artifact.artifact_id), headers={"if-none-match": reply.headers["etag"]}
        )
        assert (again.status, again.body) == (304, b"")


@pytest.mark.rule("AR-13")
async def test_those_who_may_follow_the_run_get_its_artifacts_and_no_one_else():
    principals = [
        Principal(name="ann", token="token-of-ann-12345", scopes={"follow"}),
        Principal(name="bob", token="token-of-bob-12345", scopes={"follow"}, sees=lambda info: info.by == "bob"),
        Principal(name="cid", token="token-of-cid-12345", scopes={"decide"}),
    ]
    async with served(call("publish", what="picture"), principals=principals) as (address, run, (artifact,)):
        target = path(run, artifact.artifact_id)
        replies = {
            name: await http(address, "GET", target, token=name and f"token-of-{name}-12345")
            for name in ("ann", "bob", "cid", None)
        }
        assert {name: reply.status for name, reply in replies.items()} == {
            "ann": 200,
            "bob": 404,
            "cid": 403,
            None: 401,
        }
        assert replies["ann"].body == PNG
        assert replies["bob"].json()["error"]["code"] == "unknown_run"


@pytest.mark.rule("AR-4", "AR-5")
@pytest.mark.parametrize(("what", "why"), [("blocked", "privacy review"), ("address", "it is an address")])
async def test_what_has_no_bytes_is_not_served(what, why):
    async with served(call("publish", what=what)) as (address, run, (artifact,)):
        reply = await http(address, "GET", path(run, artifact.artifact_id))
        assert (reply.status, reply.json()["error"]["code"]) == (404, "unknown_artifact")
        assert why in reply.json()["error"]["message"]
        wrong = await http(address, "GET", path(run, "no.a1"))
        assert (wrong.status, wrong.json()["error"]["code"]) == (404, "unknown_artifact")


async def test_so_many_artifacts_are_sent_to_one_principal_at_the_same_time():
    """A reader that reads nothing holds its places, and no more; when it goes they are free again."""

    @gr.tool
    async def large(ctx: gr.ToolContext) -> None:
        """Publishes more than sockets buffer."""
        await ctx.artifact("large.bin", bytes(MAX_BYTES))

    helper = agent(call("large"), "done", tools=[large])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.result()
        (artifact,) = (await run.view()).artifacts
        target = path(run, artifact.artifact_id)
        head = f"GET {target} HTTP/1.1\r\nhost: {address.host}:{address.port}\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        streams = [await trio.open_tcp_stream(address.host, address.port) for _ in range(MOST_EACH)]
        for stream in streams:
            await stream.send_all(head.encode())
            assert (await stream.receive_some(15)) == b"HTTP/1.1 200 \r\n"
        reply = await http(address, "GET", target)
        assert (reply.status, reply.json()["error"]["code"]) == (429, "too_many_connections")
        for stream in streams:
            await trio.aclose_forcefully(stream)
        with trio.fail_after(PATIENCE):
            while (await http(address, "GET", target)).status == 429:  # noqa: ASYNC110 - nothing says that a place is free
                await trio.sleep(0.01)


async def test_a_client_reads_facts_and_bytes():
    async with served(call("publish", what="preview")) as (address, run, (artifact,)):
        async with connect(f"http://{address.host}:{address.port}", token=TOKEN) as client:
            assert (await client.view(run.id)).artifacts == (artifact,)
            assert await client.artifact(run.id, artifact.artifact_id) == b"<p>hi</p>"
            with pytest.raises(gr.UnknownArtifact, match="has no artifact"):
                await client.artifact(run.id, "no.a1")
            with pytest.raises(gr.UnknownRun):
                await client.artifact("nothing", artifact.artifact_id)
