"""Make the pictures of the console in `docs/images`: real runs behind a real gateway, in Chromium.

    python scripts/pictures.py [FOLDER]

It needs the program `chromium` (`bash scripts/judges.sh --programs`), and two fonts: Inter, and one with Chinese
characters (Debian: fonts-inter, fonts-wqy-microhei). Look at what it has made before you commit it.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, ScriptedModel, Step, call, delay, text
from greenroom.transport import serve

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TOKEN = "token-of-the-pictures"  # noqa: S105 - of a gateway that lives for some seconds
DESK: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}}
SMALL: dict[str, Any] = {"viewport": {"width": 1280, "height": 640}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


@gr.tool(replay="safe")
async def look_up(order: str) -> dict[str, Any]:
    """What an order cost."""
    await trio.sleep(0.4)
    return {"order": order, "customer": "Ada Lovelace", "total_cents": 4200, "paid": True, "status": "delivered"}


@gr.tool(replay="safe")
async def check_photos(order: str) -> dict[str, Any]:
    """What the photos of a complaint show."""
    await trio.sleep(1.3)
    return {"photos": 3, "damage": "broken shade", "confidence": 0.97}


@gr.tool(needs_approval=True, effect="publish")
async def refund(order: str, cents: int, method: str, note: str) -> str:
    """Pay money back."""
    await trio.sleep(0.6)
    return f"refund rf_8812 of {cents / 100:.2f} to {method}"


@gr.tool(needs_approval=True, effect="deploy")
async def deploy(version: str) -> str:
    """Put a version into production."""
    return version


@gr.tool
async def compile_all() -> None:
    """Build, for as long as the pictures take."""
    await trio.sleep_forever()


PROPOSED = {
    "order": "A-2041",
    "cents": 4200,
    "method": "original card",
    "note": "Lamp arrived with a broken shade; three photos, same day.",
}
SUPPORT: list[Step] = [
    [
        text("Let me look at the order and at the photos first."),
        delay(0.4),
        call("look_up", order="A-2041"),
        call("check_photos", order="A-2041"),
    ],
    [
        text("The order was paid in full and all three photos show a broken shade. I would like to refund the lamp."),
        delay(0.5),
        call("refund", PROPOSED),
    ],
    [
        text("Done: 42.00 are on their way back to your card. You will see them in three days. You may keep the lamp."),
        delay(0.6),
    ],
]
OTHERS: dict[str, tuple[str, list[Any], list[Step]]] = {
    "triage": ("Sort the mail of this morning.", [], ["Sorted: nothing is urgent."]),
    "writer": ("Write the notes of the release.", [], ["The notes are written."]),
    "release": ("Release 2.4.", [deploy], [call("deploy", version="2.4")]),
    "builder": ("Build everything.", [compile_all], [call("compile_all")]),
}


def agents() -> Iterator[gr.Agent[Any]]:
    """All that have a run in the pictures."""
    tools, streaming = [look_up, check_photos, refund], "parallel_streaming"
    yield gr.Agent("support", tools=tools, model=ScriptedModel(SUPPORT), execution=streaming)
    for key, (_, tools, steps) in OTHERS.items():
        yield gr.Agent(key, tools=tools, model=ScriptedModel(steps))


async def main(folder: Path) -> None:
    """Have all pictures taken."""
    await one_process(folder)
    await many_processes(folder)
    await a_proposal(folder)
    await a_day(folder)


async def one_process(folder: Path) -> None:
    """Serve, start the runs, and have the pictures taken."""
    async with gr.open_runtime(agents=agents(), drain=0) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
        for key in ("triage", "writer", "triage", "release", "builder"):
            await runtime.start(key, OTHERS[key][0], by="operator")
            await trio.sleep(1)
        run = await runtime.start(
            "support", "My lamp, order A-2041, came broken. May I have my money back?", by="operator"
        )
        await run.wait()
        await trio.to_thread.run_sync(take, folder, f"{address.url}/#token={TOKEN}&run={run.id}")
        nursery.cancel_scope.cancel()


beginning = trio.Event()


@gr.tool(replay="safe")
async def resize(picture: str) -> None:
    """Whatever works on it ends."""
    beginning.set()
    await trio.sleep_forever()


async def many_processes(folder: Path) -> None:
    """A gateway without agents and two processes that work, on one store, which has queues and a dead letter."""
    global beginning  # noqa: PLW0603 - one for each owner of the run
    store = gr.MemoryStore()
    edge, *works = (store.peer(name=name) for name in ("edge", "work-1", "work-2"))
    builder = gr.Agent("builder", tools=[compile_all], model=ScriptedModel([call("compile_all")]))
    pictures = gr.Agent("pictures", tools=[resize], model=ScriptedModel([call("resize", picture="lamp.tiff")]))
    async with (
        gr.open_runtime(edge, drain=0) as runtime,
        gr.open_runtime(works[0], agents=[builder], drain=0),
        gr.open_runtime(works[1], agents=[pictures], drain=0),
        trio.open_nursery() as nursery,
    ):
        address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
        await edge.set_queue("nightly", max_running=2)
        await edge.set_queue("reports", paused=True)
        poison = await runtime.start("pictures", "Make the pictures smaller.", by="operator")
        for day in ("Monday", "Tuesday", "Wednesday", "Thursday"):
            await runtime.start("builder", f"Build the work of {day}.", by="operator", queue="nightly")
            await trio.sleep(0.5)
        await runtime.start("builder", "Build the report of the week.", by="operator", queue="reports")
        for _ in range(5):  # owners in a row that end
            await beginning.wait()
            beginning = trio.Event()
            await edge.bury((await edge.summaries((poison.id,))).runs[0].owner or "")
        newest = (await runtime.runs(text="Monday")).runs[0].info.run_id
        await trio.to_thread.run_sync(take_shared, folder, f"{address.url}/#token={TOKEN}&run={newest}")
        nursery.cancel_scope.cancel()


PRICES = "tea 3\ncoffee 4\ncake 5\n"
"""A file of the workspace."""


def edits(request: gr.ModelRequest) -> Step:
    """The steps of an agent that changes two files and proposes that."""
    newest = request.messages[-1]
    if newest.role == "user":
        page = "# November\n\nTea is cheaper until the end of the month.\n"
        prices = call("edit_file", path="prices.txt", old="tea 3", new="tea 2")
        return [
            text("I lower the price and write a page about that."),
            prices,
            call("write_file", path="news.md", content=page),
        ]
    if newest.content.startswith("proposal "):
        proposal = newest.content.split(":")[0].removeprefix("proposal ")
        return call(
            "apply_changes", proposal=proposal, summary="Tea costs 2 until the end of November, and a page says so."
        )
    return call("propose_changes")


def shop_in(folder: Path) -> Path:
    """Make the workspace in a folder, and return the folder."""
    (folder / "shop").mkdir()
    (folder / "shop" / "prices.txt").write_text(PRICES)
    return folder


async def a_proposal(folder: Path) -> None:
    """An agent that has worked on a copy of a folder, and asks whether its changes may be applied."""
    with TemporaryDirectory(prefix="greenroom-pictures-") as name:
        place = shop_in(Path(name))
        workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", place / "shop")], state=place / "state")
        tools, rules = gr.ext.workspace_tools(), [gr.ext.Permission()]
        coder = gr.Agent("coder", tools=tools, plugins=rules, model=FunctionModel(edits))
        async with (
            gr.open_runtime(agents=[coder], workspaces=workspaces, drain=0) as runtime,
            trio.open_nursery() as nursery,
        ):
            address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
            run = await runtime.start("coder", "Make tea cheaper for November.", workspace="shop", by="operator")
            await run.wait()
            await trio.to_thread.run_sync(take_proposal, folder, f"{address.url}/#token={TOKEN}&run={run.id}")
            nursery.cancel_scope.cancel()


TITLES = ("Where is order {}?", "Invoice for order {}", "Change the address of order {}", "Return of order {}")


def answers(request: gr.ModelRequest) -> Step:
    """Answer; the model of every ninth order has a fault."""
    last = request.messages[-1].content
    if any(f"order {number}" in last for number in range(9, 200, 9)):
        raise gr.ModelError("The account has nothing left to spend.", kind="quota_exceeded")
    return "It is on its way."


async def a_day(folder: Path) -> None:
    """The start page after a day of work: the runs are real, and their ends are moved into the hours before."""
    with TemporaryDirectory(prefix="greenroom-pictures-") as name:
        path = Path(name) / "runs.db"
        desk = gr.Agent("desk", model=FunctionModel(answers))
        async with gr.open_runtime(path, agents=[desk], drain=0) as runtime:
            for number in range(1, 161):
                title = TITLES[number % len(TITLES)].format(number)
                await (await runtime.start("desk", title, by="operator")).result()
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE runs SET ended_at = ended_at - 3600000 * (number * number % 23),"
                " created_at = created_at - 60000 * number"
            )
        connection.close()
        async with gr.open_runtime(path, agents=[desk, *agents()], drain=0) as runtime, trio.open_nursery() as nursery:
            for _ in range(3):
                await (await runtime.start("support", "The lamp of order A-2041 arrived broken.", by="ada")).wait()
            await runtime.start("builder", OTHERS["builder"][0], by="operator")
            await (await runtime.start("release", OTHERS["release"][0], by="operator")).wait()
            address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
            await trio.to_thread.run_sync(take_overview, folder, f"{address.url}/#token={TOKEN}")
            nursery.cancel_scope.cancel()


def take_overview(folder: Path, url: str) -> None:
    """The start page."""
    with chromium() as browser:
        page = browser.new_context(color_scheme="light", locale="en-US", **DESK).new_page()
        page.goto(url)
        page.locator(".chart svg").wait_for()
        page.wait_for_timeout(1_000)  # until nothing moves
        page.screenshot(path=folder / "console-overview.png")


def take_proposal(folder: Path, url: str) -> None:
    """The card with the difference."""
    with chromium() as browser:
        page = browser.new_context(color_scheme="light", locale="en-US", **DESK).new_page()
        page.goto(url)
        page.locator(".card").wait_for()
        page.wait_for_timeout(1_500)  # until nothing moves
        page.screenshot(path=folder / "console-proposal.png")


def take_shared(folder: Path, url: str) -> None:
    """The queues, beside a dead letter and a run that another process works on."""
    with chromium() as browser:
        page = browser.new_context(color_scheme="light", locale="en-US", **SMALL).new_page()
        page.goto(url)
        page.locator("#runs a[data-stage=dead]").wait_for()
        page.locator("#queues").click()
        page.locator("table.queues tbody tr").nth(1).wait_for()
        page.wait_for_timeout(1_000)  # until nothing moves
        page.screenshot(path=folder / "console-queues.png")


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not installed with the other tools

    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def take(folder: Path, url: str) -> None:
    """The run as it waits, on a phone and on a wide screen; then it is approved, and shown at its end."""
    with chromium() as browser:
        for name, theme, screen in (("phone", "light", PHONE), ("light", "light", DESK), ("dark", "dark", DESK)):
            page = browser.new_context(color_scheme=theme, locale="en-US", **screen).new_page()
            page.goto(url)
            approve = page.get_by_role("button", name="Approve refund")
            approve.wait_for()
            if name == "dark":
                approve.click()
                page.locator("#run-stage.chip-completed").wait_for()
                page.locator(".card").wait_for(state="detached")
            page.wait_for_timeout(1_000)  # until nothing moves
            page.screenshot(path=folder / f"console-{name}.png")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
