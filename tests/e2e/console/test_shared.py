"""The console on a shared store: which process has a run, dead letters, queues."""

import re
from datetime import timedelta
from typing import Any

import pytest

from .conftest import Console, expect
from .test_list import NOW, Place, row, shot

pytestmark = [pytest.mark.slow, pytest.mark.judge]

PHONE = {"width": 360, "height": 740}
WHY = "its process ended 5 times without a finished step: exit code 139"
OWNER = "worker-host-4711-2-ab12cd"


def queue(name: str, **given: Any) -> dict[str, Any]:
    known = {"name": name, "maxRunning": None, "paused": False, "ready": 0, "working": 0, "oldest": None}
    known |= {"scheduled": 0, "later": None}
    return known | given


QUEUES = [
    queue("support", ready=2_000, scheduled=7, working=12, oldest=(NOW - timedelta(minutes=3)).isoformat()),
    queue("mails-to-customers-of-the-northern-region", maxRunning=5, working=5, paused=True),
]


def place(console: Console) -> Place:
    """A gateway with one run in another process, and one dead letter."""
    works = row(1, stage="running", status="running", termination=None, owner=OWNER, queue="mails", title="In work")
    dead = row(2, stage="running", status="running", termination=None, dead=WHY, title="Poison")
    here = Place(console, [works, dead])
    console.page.route(re.compile(r"/v1/queues$"), lambda route: route.fulfill(json={"queues": QUEUES}))
    return here


def test_the_process_of_a_run_and_its_queue_are_shown(console: Console):
    here = place(console).open()
    here.show("run_00001", [("run.step.started", {"step": 1})])
    expect(console.page.locator(".detail-owner dd")).to_have_text(OWNER)
    expect(console.page.locator(".detail-queue dd")).to_have_text("mails")
    expect(console.page.locator("#notice")).to_be_hidden()
    shot(console, "owner")


def test_a_dead_letter_says_why_and_is_revived(console: Console):
    here = place(console).open()
    revived = []

    def revive(route: Any) -> None:
        revived.append((route.request.method, route.request.url.rpartition("/v1/")[2]))
        here.rows["run_00002"]["dead"] = None
        route.fulfill(json={"run": "run_00002", "revived": True})

    console.page.route(re.compile(r"/revive$"), revive)
    expect(console.page.locator("#runs a[data-stage=dead] .run-stage")).to_have_text("Dead letter")
    expect(console.page.locator("#runs a[data-stage=dead] .run-ask")).to_have_text(WHY)
    here.show("run_00002", [("run.step.started", {"step": 1})])
    notice = console.page.locator("#notice")
    expect(notice).to_contain_text(WHY)
    shot(console, "dead")
    console.page.get_by_role("button", name="Revive").click()
    expect(notice).to_be_hidden()
    assert revived == [("POST", "runs/run_00002/revive")]


def test_a_refused_revive_is_explained(console: Console):
    here = place(console).open()
    error = {"error": {"code": "store_unavailable", "message": "the store does not answer", "retry": True}}
    console.page.route(re.compile(r"/revive$"), lambda route: route.fulfill(status=503, json=error))
    here.show("run_00002", [("run.step.started", {"step": 1})])
    console.page.get_by_role("button", name="Revive").click()
    expect(console.page.locator("#notice p")).to_contain_text("was not revived")
    console.said.clear()  # Chromium writes of each answer above 400


def test_queues_have_lengths_limits_and_ages(console: Console):
    place(console).open()
    console.page.get_by_role("button", name="Queues").click()
    lines = console.page.locator("table.queues tbody tr")
    expect(lines).to_have_count(2)
    assert re.fullmatch(r"support\s*7 later\s+2,000\s+12\s+(\d+:\d\d|\d+ m).*", lines.nth(0).inner_text())
    expect(lines.nth(1)).to_contain_text("paused")
    expect(lines.nth(1)).to_contain_text("5 of 5")
    shot(console, "queues")
    console.press("Escape")
    expect(console.page.locator("dialog[open]")).to_have_count(0)


def test_queues_are_for_admins(console: Console):
    here = Place(console, [row(1)], scopes=("follow", "decide", "start")).open()
    expect(console.page.locator("#start")).to_be_visible()
    expect(console.page.locator("#queues")).to_be_hidden()
    assert here.sent


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_on_a_phone_nothing_is_wider_than_the_screen(consoles: Any, theme: str, locale: str):
    console = consoles(color_scheme=theme, locale=locale)
    here = place(console).open()
    console.page.set_viewport_size(PHONE)
    shot(console, f"phone-list-{theme}-{locale}")
    console.no_sideways_scroll()
    console.page.locator("#queues").click()
    expect(console.page.locator("table.queues tbody tr")).to_have_count(2)
    shot(console, f"phone-queues-{theme}-{locale}")
    console.no_sideways_scroll()
    console.press("Escape")
    console.page.set_viewport_size({"width": 1280, "height": 800})
    here.show("run_00002", [("run.step.started", {"step": 1})])
    expect(console.page.locator("#notice")).to_contain_text("139")
    console.page.set_viewport_size(PHONE)
    shot(console, f"phone-dead-{theme}-{locale}")
    console.no_sideways_scroll()
