"""The list of runs: what rows say, how they move, what is found, and what it costs with ten thousand of them."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import Console, expect
from .fake_gateway import FakeGateway
from .generated import WHOLE_END

pytestmark = [pytest.mark.slow, pytest.mark.judge]

NOW = datetime.now(UTC)


def ticket(**given: Any) -> dict[str, Any]:
    known = {
        "ticketId": "t1",
        "callId": "c1",
        "tool": "refund",
        "reason": "tool_permission",
        "action": "tool:refund",
        "message": "",
        "requestedAt": NOW.isoformat(),
        "expiresAt": None,
        "onExpiry": "deny",
        "reviewers": [],
    }
    return known | given


def row(n: int, **given: Any) -> dict[str, Any]:
    """A row of the list; the higher its number the newer it is."""
    asked = given.get("asked", [])
    known = {
        "run": f"run_{n:05d}",
        "thread": f"t{n}",
        "agent": "support",
        "by": "ada",
        "title": f"Order {n}",
        "stage": "needs_approval" if asked else "completed",
        "status": "waiting" if asked else "done",
        "createdAt": (NOW - timedelta(hours=20) + timedelta(seconds=n)).isoformat(),
        "endedAt": None,
        "step": 1,
        "sequence": 10,
        "usage": {"input": 10, "output": 5},
        "pending": 0,
        "held": False,
        "queue": "helper",
        "owner": None,
        "dead": None,
        "degraded": None,
        "waitingSince": (NOW - timedelta(seconds=n)).isoformat() if asked else None,
        "asked": asked,
        "askedCount": len(asked),
        "termination": None if asked else {"kind": "natural_end", "code": None, "detail": None, "by": "ada"},
    }
    return known | given


class Place(FakeGateway):
    """A gateway with a list of runs: pages over HTTP, changes over the socket."""

    def __init__(self, console: Console, rows: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(console, **options)
        self.rows = {one["run"]: one for one in rows}
        self.watches: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.more = self._watching
        console.page.route(re.compile(r"/v1/runs\?"), self._http)

    def found(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        status, text = query.get("status"), str(query.get("text", "")).casefold()
        status = query.get("outcome", status)
        some = [one for one in self.rows.values() if status in (None, one["status"], one["stage"])]
        some = [one for one in some if all(one[name] == query[name] for name in ("agent", "by") if name in query)]
        some = [one for one in some if text in f"{one['title']} {one['run']}".casefold()]
        some = [one for one in some if one["run"].startswith(query.get("prefix", ""))]
        some = [one for one in some if one["createdAt"] >= query.get("since", "").replace("Z", "+00:00")]
        if query.get("order") == "waiting_longest":
            return sorted(some, key=lambda one: one["waitingSince"])
        return sorted(some, key=lambda one: one["createdAt"], reverse=True)

    def change(self, changed: dict[str, Any]) -> None:
        """A run is another one now, or a new one."""
        self.rows[changed["run"]] = changed
        for watch, query in self.watches.items():
            matches = changed in self.found(query)
            frame = {"type": "gw.run", "watch": watch, "run": changed["run"], "matches": matches}
            self.send(frame | ({"row": changed} if matches else {}))
        self.send({"type": "gw.counts", "counts": self.counts})

    @property
    def counts(self) -> dict[str, int]:
        names = ("created", "running", "waiting")
        return {name: sum(one["status"] == name for one in self.rows.values()) for name in names}

    def page(self, query: dict[str, Any], start: int, limit: int) -> dict[str, Any]:
        found = self.found(query)
        cursor = str(start + limit) if start + limit < len(found) else None
        return {"runs": found[start : start + limit], "cursor": cursor, "counts": self.counts}

    def _watching(self, frame: dict[str, Any]) -> list[Any]:
        if frame["type"] == "unwatch":
            self.watches.pop(frame["id"], None)
            return [{"type": "gw.unwatched", "watch": frame["id"]}]
        if frame["type"] != "watch":
            return []
        query = {name: value for name, value in frame.items() if name not in ("type", "id", "limit")}
        self.watches[frame["id"]] = query
        head = {"type": "gw.runs", "watch": frame["id"], "reason": "asked"}
        return [head | self.page(query, 0, frame["limit"])]

    def _http(self, route: Any) -> None:
        query: dict[str, Any] = {name: one[0] for name, one in parse_qs(urlsplit(route.request.url).query).items()}
        if "prefix" not in query:  # else the page looks at the run that it shows
            self.asked.append(dict(query))
        limit, start = int(query.pop("limit")), int(query.pop("cursor", 0))
        route.fulfill(json=self.page(query, start, limit))


def rows_in(console: Console) -> list[str]:
    """The runs whose rows are in the document, in its order."""
    return console.page.locator("#runs a").evaluate_all("all => all.map((one) => one.dataset.run)")


def shows(console: Console, *runs: str) -> None:
    """Wait until the list begins with these runs."""
    console.until(
        f"JSON.stringify([...document.querySelectorAll('#runs a')].slice(0, {len(runs)}).map((one) => one.dataset.run))"
        f" === JSON.stringify({json.dumps(runs)})"
    )


def shot(console: Console, name: str) -> None:
    """For people who want to see the page: GREENROOM_SHOTS names a folder."""
    if folder := os.environ.get("GREENROOM_SHOTS"):
        console.page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_rows_say_what_is_asked_and_those_that_wait_longest_stand_first(console: Console):
    place = Place(
        console,
        [
            row(1),
            row(2, asked=[ticket(tool="refund", message="Pay 42.00 back?"), ticket(), ticket()], askedCount=5),
            row(9, asked=[ticket(tool="ask_person", reason="user_input", message="Where does Ada live?")]),
            row(8, asked=[ticket(tool="", callId=None, reason="manual_pause", message="bob paused the run: lunch")]),
            row(7, asked=[ticket(tool="wipe", reviewers=["bob", "eve"])]),
            row(6, termination={"kind": "stopped", "code": "max_rounds", "detail": None, "by": "x"}),
            row(5, stage="accepted", status="running", held=True),
            row(4, stage="running", status="running", degraded="deps_missing"),
        ],
    ).open()
    shows(console, "run_00009", "run_00008", "run_00007", "run_00002", "run_00006", "run_00005", "run_00004")

    def said(n: int) -> str:
        return console.text(f"#runs a[data-run=run_{n:05d}]")

    assert "ask_person needs an answer · Where does Ada live?" in said(9)
    assert "Paused · bob paused the run: lunch" in said(8)
    assert "wipe: for bob, eve" in said(7)
    assert "Approve refund? · Pay 42.00 back? (+4)" in said(2)
    assert "Stopped" in said(6)
    assert "Completed" not in said(6)
    assert "Queued" in said(5)
    assert "No process" in said(4)
    assert "Order 1" in said(1)
    expect(console.page.locator("#waiting")).to_have_text("4", use_inner_text=True)
    assert place.sent[0]["type"] == "hello"


def test_while_the_list_is_read_that_is_said_below_the_rows_that_wait(console: Console):
    """Eight rows that wait look like all that there are, else."""
    place = Place(console, [row(n, asked=[ticket()] if n == 2 else []) for n in range(1, 5)])
    held: list[dict[str, Any]] = []

    def late(frame: dict[str, Any]) -> list[Any]:
        if frame["type"] == "watch" and frame["id"].startswith("runs-") and frame.get("order") != "waiting_longest":
            held.append(frame)
            return []
        return place._watching(frame)

    place.more = late
    place.open()
    shows(console, "run_00002")
    note = console.page.locator("#runs-note")
    expect(note).to_have_text("Reading the runs…", use_inner_text=True)
    expect(note).to_be_visible()
    (asked,) = held
    for answer in place._watching(asked):
        place.send(answer)
    shows(console, "run_00002", "run_00004", "run_00003", "run_00001")
    expect(note).to_be_hidden()


def test_a_row_that_changes_moves_and_its_header_agrees(console: Console):
    place = Place(console, [row(n) for n in range(1, 6)]).open()
    shows(console, "run_00005", "run_00004")
    place.change(row(3, asked=[ticket()], sequence=11))
    shows(console, "run_00003", "run_00005", "run_00004", "run_00002")
    expect(console.page.locator("#waiting")).to_have_text("1", use_inner_text=True)
    for watch in place.watches:  # late, and older than what is known
        place.send({"type": "gw.run", "watch": watch, "run": "run_00003", "matches": True, "row": row(3, sequence=9)})
    place.change(row(6))
    shows(console, "run_00003", "run_00006", "run_00005")
    place.change(row(3, sequence=12))
    shows(console, "run_00006", "run_00005", "run_00004", "run_00003")
    expect(console.page.locator("#waiting")).to_be_hidden()
    expect(console.page.locator("#runs .group")).to_have_count(0)


def test_the_row_of_the_shown_run_never_contradicts_the_head_of_the_page(console: Console):
    """The page has the run's own events, which may be ahead of the list."""
    place = Place(console, [row(1), row(2, stage="running", status="running", sequence=1, termination=None)]).open()
    place.show("run_00002", [])
    state = console.page.locator("#runs a[data-run=run_00002] .run-stage")
    waiting = {"from": "running", "to": "needs_approval", "by": "engine", "tickets": ["t1"]}
    asked = {"arguments": {}, "fingerprint": "f", "resumeMode": "replay_tool_call", **ticket()}
    place.tell("run_00002", "run.approval.requested", asked)
    place.tell("run_00002", "run.waiting", waiting)
    console.stage("needs_approval")
    console.until("document.querySelector('#runs a[data-run=run_00002] .run-stage').textContent === 'Waiting'")
    expect(console.page.locator("#runs a[data-run=run_00002]")).to_contain_text("Approve refund?", use_inner_text=True)
    end = {**WHOLE_END, "to": "completed", "termination": "stopped", "code": "max_rounds"}
    place.tell("run_00002", "run.completed", end)
    console.until("document.querySelector('#runs a[data-run=run_00002] .run-stage').textContent === 'Stopped'")
    expect(console.page.locator("#run-stage")).to_have_text("Stopped", use_inner_text=True)
    expect(state).to_have_text("Stopped", use_inner_text=True)


def test_runs_are_found_by_text_agent_person_and_time(console: Console):
    old = (NOW - timedelta(days=3)).isoformat()
    rows = [
        row(1, title="Refund for Ada"),
        row(2, agent="billing"),
        row(3, by="bob"),
        row(4, createdAt=old),
        row(5, asked=[ticket()], title="Refund for Bob"),
    ]
    place = Place(console, rows).open()
    page = console.page
    shows(console, "run_00005", "run_00003", "run_00002", "run_00001", "run_00004")
    page.keyboard.press("/")
    page.keyboard.type("REFUND")
    shows(console, "run_00005", "run_00001")
    console.until("document.querySelectorAll('#runs a').length === 2")
    page.keyboard.press("Escape")
    console.until("document.querySelectorAll('#runs a').length === 5")
    page.get_by_role("button", name="More filters").click()
    page.get_by_label("Agent", exact=True).fill("billing")
    console.until("document.querySelectorAll('#runs a').length === 1")
    page.get_by_label("Agent", exact=True).fill("")
    page.get_by_label("Started by").fill("bob")
    shows(console, "run_00003")
    page.get_by_role("button", name="Clear filters").click()
    page.locator("#narrow-since").select_option("In the last 24 hours")
    console.until("document.querySelectorAll('#runs a').length === 4")
    assert "run_00004" not in rows_in(console)
    page.get_by_role("button", name=re.compile("^Waiting")).click()
    console.until("document.querySelectorAll('#runs a').length === 1")
    page.locator("#search").fill("nobody has this title")
    page.locator("#runs-note", has_text="No run matches").wait_for()
    assert len([name for name in place.watches if name.startswith("runs-")]) == 1  # and none is left behind
    assert len({frame["id"] for frame in place.sent if frame["type"] == "watch"}) == len(
        [frame for frame in place.sent if frame["type"] == "watch"]
    )


def test_runs_that_failed_or_were_cancelled_are_listed_by_one_click(console: Console):
    rows = [row(1), row(2, stage="failed"), row(3, stage="cancelled"), row(4, asked=[ticket()])]
    place = Place(console, rows).open()
    for name, run in (("Failed", "run_00002"), ("Cancelled", "run_00003")):
        console.page.get_by_role("button", name=name, exact=True).click()
        console.until("document.querySelectorAll('#runs a').length === 1")
        shows(console, run)
    place.change(row(4, stage="cancelled"))
    shows(console, "run_00004", "run_00003")
    shot(console, "stages")


def test_nothing_is_polled(console: Console):
    Place(console, [row(n) for n in range(1, 6)]).open()
    shows(console, "run_00005")
    console.page.wait_for_timeout(5_000)
    assert [url for url in console.urls if "/v1/runs" in url] == []


def test_a_list_that_is_not_live_says_since_when(console: Console):
    place = Place(console, [row(n) for n in range(1, 6)]).open()
    page = console.page
    shows(console, "run_00005")
    expect(page.locator("#runs-as-of")).to_be_hidden()
    page.route_web_socket(re.compile("/v1/ws$"), lambda socket: None)  # nothing answers any more
    place.cut()
    page.locator("#runs-as-of", has_text=re.compile(r"Offline: as of \d")).wait_for()
    expect(page.locator("#runs.is-stale")).to_have_count(1)
    assert rows_in(console)[0] == "run_00005"


def test_after_an_outage_the_list_is_as_deep_as_it_was_and_as_it_is(console: Console):
    place = Place(console, [row(n) for n in range(1, 400)]).open()
    page = console.page
    shows(console, "run_00399")
    scroll_to_end(console, "run_00001")
    top = page.evaluate("document.getElementById('runs-scroll').scrollTop")
    for n in range(400, 403):
        place.rows[f"run_{n:05d}"] = row(n)
    del place.rows["run_00200"]
    place.cut()
    console.until("document.getElementById('runs-as-of').hidden === false")
    console.until("document.getElementById('runs-as-of').hidden === true")
    console.until("parseFloat(document.getElementById('runs').style.height) === 401 * 56")
    assert page.evaluate("document.getElementById('runs-scroll').scrollTop") == top
    assert "run_00200" not in rows_in(console)


def scroll_to_end(console: Console, last: str) -> None:
    """Scroll as a person does until the row of this run is there."""
    for _ in range(400):
        if last in rows_in(console):
            return
        console.page.evaluate("document.getElementById('runs-scroll').scrollBy(0, 100000)")
        console.page.wait_for_timeout(30)
    raise AssertionError(f"{last} never came")


FRAMES = """async () => {
    const scroller = document.getElementById("runs-scroll");
    const frames = [];
    let before = performance.now();
    for (let n = 0; n < 120; n += 1) {
        scroller.scrollTop = (scroller.scrollHeight / 120) * n;
        await new Promise((go) => requestAnimationFrame(go));
        const now = performance.now();
        frames.push(now - before);
        before = now;
    }
    frames.sort((one, other) => one - other);
    return { middle: frames[60], worst: frames[119], rows: document.querySelectorAll("#runs li").length };
}"""


def test_ten_thousand_runs_are_scrolled_searched_and_changed_in_no_time(console: Console):
    rows = [row(n, asked=[ticket()] if n % 10 == 0 else []) for n in range(1, 10_001)]
    place = Place(console, rows).open()
    page = console.page
    shows(console, "run_10000")
    scroll_to_end(console, "run_00001")
    assert len(place.asked) <= 110  # a hundred rows a page
    found = page.evaluate(FRAMES)
    assert found["rows"] < 80
    assert found["middle"] < 100  # some 17 ms on a quiet machine
    page.evaluate("document.getElementById('runs-scroll').scrollTop = 0")
    page.evaluate(
        """() => {
            window.took = [];
            new PerformanceObserver((list) => took.push(...list.getEntries().map((one) => one.duration)))
                .observe({ type: "longtask", buffered: false });
        }"""
    )
    for n in range(1, 101):
        place.change(row(n * 100 - 1, sequence=11, title=f"Changed {n}"))
    place.change(row(9_999, sequence=12, title="The last change"))
    page.locator("#runs a", has_text="The last change").wait_for()
    took = page.evaluate("took")
    assert sum(took) < 5_000  # two thousand changes of rows in a list of ten thousand
    page.locator("#search").fill("Order 7777")
    shows(console, "run_07777")


def test_the_keyboard_goes_through_rows_that_are_not_in_the_document(console: Console):
    Place(console, [row(n) for n in range(1, 301)]).open()
    page = console.page
    shows(console, "run_00300")
    page.keyboard.press("j")
    for _ in range(80):
        page.keyboard.press("ArrowDown")
    console.until("document.activeElement.dataset.run !== undefined")
    console.until("document.activeElement.dataset.run <= 'run_00252'")  # as far as the first page goes, or further
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    room = page.locator("#runs-scroll").bounding_box()
    assert room["y"] - 1 <= box["top"]
    assert box["bottom"] <= room["y"] + room["height"] + 1
    held = page.evaluate("document.activeElement.dataset.run")
    page.evaluate("document.getElementById('runs-scroll').scrollTop = 0")
    page.wait_for_timeout(200)
    assert page.evaluate("document.activeElement.dataset.run") == held  # out of sight, and not forgotten
