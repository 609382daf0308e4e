"""A run's page: title, waterfall, arguments once, long texts as text; and a new run with files and options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Console, Server, expect

pytestmark = [pytest.mark.slow, pytest.mark.judge]

Makes = Callable[..., Console]


def test_the_header_has_the_title_and_the_timeline_has_arguments_once(console: Console, server: Server) -> None:
    run = console.start("support", "My lamp is broken.\nWhat now?")
    page = console.page
    page.locator(".card").wait_for()
    expect(page.get_by_role("heading", level=1)).to_have_text("My lamp is broken.")
    expect(page.locator("#run-sub")).to_contain_text("support")
    asked = page.locator(".row-call").nth(1)
    expect(asked.get_by_text("Arguments: shown in the open decision")).to_be_visible()
    expect(asked.locator(".block-body").first).to_be_hidden()  # the card beside it shows them
    ticket = server.payloads(run, "approval.requested")[0]["ticketId"]
    server.post(f"/v1/runs/{run}/commands", type="decide", target=ticket, action="approve")
    console.stage("completed")
    expect(asked.locator(".block-body").first).to_be_visible()


def test_the_waterfall_says_where_the_time_went_and_leads_there(console: Console, server: Server) -> None:
    run = console.start("support")
    page = console.page
    page.locator(".card").wait_for()
    rows = page.locator(".fall-row")
    expect(rows).to_have_count(6)  # two steps, each with a request and a call
    expect(rows.nth(1)).to_contain_text("scripted")
    expect(rows.nth(5)).to_contain_text("refund")
    expect(rows.nth(5).locator(".is-wait")).to_have_count(1)
    ticket = server.payloads(run, "approval.requested")[0]["ticketId"]
    server.post(f"/v1/runs/{run}/commands", type="decide", target=ticket, action="approve")
    console.stage("completed")
    expect(rows).to_have_count(8)
    rows.nth(2).focus()
    page.keyboard.press("Enter")
    console.until("document.activeElement.matches('.row-call') && document.activeElement.innerText.includes('look_up')")


def test_on_a_wide_screen_time_and_details_begin_at_the_same_height(consoles: Makes) -> None:
    console = consoles(viewport={"width": 1600, "height": 950})
    console.start("support")
    console.stage("needs_approval")
    page = console.page
    card, fall, details = (page.locator(one).bounding_box() for one in (".card", "#waterfall", ".details"))
    assert card
    assert fall
    assert details
    assert details["x"] > fall["x"] + fall["width"]
    assert 0 <= fall["y"] - (card["y"] + card["height"]) < 60, "no gap, however long the details are"
    page.get_by_role("button", name="Deny", exact=True).click()
    page.keyboard.press("Enter")
    console.stage("completed")
    page.reload()  # the answered card is gone then
    console.stage("completed")
    page.locator(".fall-row").first.wait_for()
    fall, details = page.locator("#waterfall").bounding_box(), page.locator(".details").bounding_box()
    assert fall
    assert details
    assert abs(fall["y"] - details["y"]) < 30


def test_a_long_wait_takes_a_small_part_of_the_waterfall(console: Console) -> None:
    console.page.goto(console.server.url)
    places: Any = console.page.evaluate(
        """async () => {
            const { Spans, scaleOf, timesOf } = await import("/console/spans.js");
            const spans = new Spans();
            const day = 86_400_000;
            const told = [
                ["run.step.started", { step: 1 }, 0],
                ["run.tool.call", { callId: "c", tool: "pay" }, 1000],
                ["run.tool.suspended", { callId: "c" }, 1000],
                ["run.waiting", {}, 1000],
                ["run.resumed", {}, 1000 + day],
                ["run.tool.started", { callId: "c" }, 1000 + day],
                ["run.tool.result", { callId: "c", status: "failed" }, 2000 + day],
                ["run.completed", {}, 2000 + day],
            ];
            for (const [type, payload, at] of told) spans.apply({ type, payload }, at);
            const scale = scaleOf(spans, 0, 2000 + day);
            const call = spans.rows[1];
            return [scale(0), scale(1000), scale(1000 + day), scale(2000 + day), timesOf(call, 0), call.bad];
        }"""
    )
    first, before, after, last, times, bad = places
    assert (first, last, bad) == (0, 1, True)
    assert (before, after - before) == (pytest.approx(0.446, abs=0.01), pytest.approx(0.107, abs=0.01))
    assert times == {"took": 86_401_000, "waited": 86_400_000}


def test_the_cost_is_that_of_the_tokens_by_the_prices(console: Console) -> None:
    console.page.goto(console.server.url)
    found: Any = console.page.evaluate(
        """async () => {
            const { costOf } = await import("/console/prices.js");
            const usage = { input: 1_000_000, cached: 500_000, output: 100_000 };
            const rows = [{ kind: "model", name: "a", usage }, { kind: "call", name: "a", usage }];
            const other = { kind: "model", name: "b", usage };
            const prices = { a: { input: 2, output: 10, cached: 0.5, stored: null } };
            return [costOf(rows, prices), costOf([...rows, other], prices).whole, costOf(rows, {})];
        }"""
    )
    assert found == [{"sum": 2.25, "whole": True}, False, None]


def test_a_long_text_of_a_call_is_text(console: Console) -> None:
    console.page.goto(console.server.url)
    shown: Any = console.page.evaluate(
        """async () => {
            const { Values } = await import("/console/values.js");
            const values = new Values("Arguments");
            values.set({ to: "ada", body: "Dear Ada,\\n\\nthe lamp is on its way." });
            document.body.append(values.element);
            return [...values.element.querySelectorAll("dt, dd pre")].map((one) => one.textContent);
        }"""
    )
    assert shown == ["to", "ada", "body", "Dear Ada,\n\nthe lamp is on its way."]


def test_a_new_run_takes_files_and_options(console: Console, server: Server, tmp_path: Path) -> None:
    console.open()
    page = console.page
    (tmp_path / "notes.txt").write_text("the shade is broken")
    page.get_by_role("button", name="New run").click()
    dialog = page.locator("dialog.start")
    dialog.get_by_label("Agent").select_option("echo")
    dialog.get_by_label("What should it do?").fill("Read the notes.")
    page.locator("#attach").set_input_files([tmp_path / "notes.txt"])
    expect(dialog.get_by_role("list", name="Attachments")).to_contain_text("notes.txt")
    dialog.get_by_text("Options").click()
    dialog.get_by_label("Title").fill("Notes")
    dialog.get_by_role("button", name="Start the run").click()
    console.stage("completed")
    expect(page.get_by_role("heading", level=1)).to_have_text("Notes")
    run = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('run')")
    created = server.payloads(run, "created")[0]
    assert [part["name"] for part in created["attachments"]] == ["notes.txt"], json.dumps(created)
    page.get_by_role("button", name="Edit and start again").click()
    expect(dialog.get_by_label("What should it do?")).to_have_value("Read the notes.")


def test_an_image_is_pasted_and_a_file_that_does_not_fit_is_refused(console: Console) -> None:
    console.open()
    page = console.page
    page.get_by_role("button", name="New run").click()
    page.evaluate(
        """() => {
            const pasted = new DataTransfer();
            pasted.items.add(new File([new Uint8Array(900)], "shot.png", { type: "image/png" }));
            pasted.items.add(new File([new Uint8Array(9_000_000)], "film.mp4", { type: "video/mp4" }));
            const text = document.getElementById("start-text");
            text.dispatchEvent(new ClipboardEvent("paste", { clipboardData: pasted, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.get_by_role("list", name="Attachments")).to_contain_text("shot.png")
    expect(page.locator(".attach .fault")).to_contain_text("film.mp4 does not fit")
    page.get_by_role("button", name="Remove shot.png").click()
    expect(page.get_by_role("list", name="Attachments")).to_be_hidden()
