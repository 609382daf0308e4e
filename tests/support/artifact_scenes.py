"""Tools that publish, for scenes and for the gateway."""

from datetime import UTC, datetime
from typing import Any

import greenroom as gr

from .scene_tools import Context

PNG = b"\x89PNG\r\n\x1a\n" + b"a picture"
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
READ_AT = datetime(2031, 5, 1, 11, 30, tzinfo=UTC)
SCREENSHOT: dict[str, Any] = {
    "kind": "screenshot",
    "viewport": "1280x720",
    "route": "/runs",
    "theme": "dark",
    "language": "en",
}


@gr.tool(replay="safe")
async def publish(ctx: Context, seconds: float = 1.0, what: str = "notes") -> str:
    """Publishes, and works on."""
    match what:
        case "notes":
            artifact = await ctx.artifact("notes.md", f"# Notes\n\nkey: {KEY}\n", author="ann")
        case "picture":
            artifact = await ctx.artifact("shot.png", PNG, privacy_review="passed", **SCREENSHOT)
        case "blocked":
            artifact = await ctx.artifact("shot.png", PNG, privacy_review="blocked", **SCREENSHOT)
        case "preview":
            artifact = await ctx.artifact(
                "page.html", "<p>hi</p>", kind="preview", path="site/page.html", read_at=READ_AT
            )
        case "address":
            address = f"http://localhost:3000/?token={KEY}"
            artifact = await ctx.artifact("the page", kind="preview", url=address, read_at=READ_AT)
        case _:
            raise AssertionError(what)
    await ctx.deps.work(ctx, seconds)
    return artifact.artifact_id


PUBLISHED = ("notes", "picture", "blocked", "preview", "address")
"""What `publish` can publish."""


@gr.tool(background=True, replay="safe")
async def publishes_late(ctx: Context) -> str:
    """Cannot publish, because it is a task."""
    try:
        await ctx.artifact("late.txt", "too late")
    except gr.ToolError as error:
        return str(error)
    raise AssertionError("a task has published")


@gr.tool(name="jot")
def publish_from_thread(ctx: gr.SyncToolContext) -> str:
    """Publishes from a worker thread."""
    return ctx.artifact("jot.txt", "a line\n").artifact_id
