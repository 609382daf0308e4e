"""Remembered rules in the console: an answer for ever, the list of rules, and a rule that is revoked."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .conftest import LOOKER, Console, Server, expect
from .fake_gateway import FakeGateway
from .test_list import shot

pytestmark = [pytest.mark.slow, pytest.mark.judge]

PHONE = {"width": 360, "height": 740}
MADE = datetime(2031, 5, 1, 12, 30, tzinfo=UTC)


def dialog(console: Console) -> Any:
    console.page.get_by_role("button", name="Remembered rules").click()
    return console.page.get_by_role("dialog")


def test_always_lets_the_next_call_pass_until_the_rule_is_revoked(console: Console, server: Server):
    run = console.start("ruled")
    page = console.page
    card = page.locator(".card:not(.is-settled)")
    card.get_by_role("button", name="Always…").click()
    options = card.get_by_label("Where does this apply?").locator("option")
    expect(options).to_have_text(["this conversation", "this run"])
    expect(card.get_by_label("What may run without asking?")).to_be_focused()
    shot(console, "always")
    console.press("Escape")
    expect(card.get_by_role("button", name="Approve shell")).to_be_visible()
    card.get_by_role("button", name="Always…").click()
    card.get_by_label("Where does this apply?").select_option("run")
    card.get_by_role("button", name="Approve, and always").click()
    expect(page.locator(".card", has_text="git push")).to_be_visible()  # the second "make test" has passed
    assert [payload["note"][:11] for payload in server.payloads(run, "gate.allowed")] == ["remembered:"]
    expect(page.locator(".card", has_text="git push").get_by_role("button", name="Always…")).to_have_count(0)

    rules = dialog(console)
    rule = rules.locator(".rule", has_text=run)
    expect(rule).to_have_count(1)
    assert rule.inner_text().split("\n")[:4] == ["shell", "with the same words", "", "make test"]
    expect(rule.locator(".run-link")).to_have_text(run)
    rule.get_by_role("button", name="Revoke the rule about make test").click()
    expect(rule.locator(".tone-wait")).to_contain_text("Revoked by ")
    expect(rules.get_by_label("Show revoked rules, too")).to_be_checked()
    rules.get_by_label("Show revoked rules, too").uncheck()
    expect(rule).to_have_count(0)
    (stored,) = [one for one in server.get("/v1/rules")["rules"] if one["runId"] == run]
    assert (stored["form"], stored["scope"], stored["revokedAt"] is None) == ("argv", "run", False)
    console.press("Escape")
    page.locator(".card:not(.is-settled)").get_by_role("button", name="Approve shell").click()
    expect(page.locator(".card", has_text="make b")).to_be_visible()


def line(number: int, **fields: Any) -> dict[str, Any]:
    """A rule of the list."""
    return {
        "ruleId": f"{number:032x}",
        "scope": "thread",
        "holder": f"thread-{number}",
        "form": "argv",
        "tool": "shell",
        "about": f"make {number}",
        "by": "ada",
        "at": (MADE + timedelta(minutes=number)).isoformat(),
        "runId": f"run_{number}",
        "ticketId": f"run_{number}.t1",
        "revokedAt": None,
        "revokedBy": None,
        **fields,
    }


HOSTILE = "<b onclick=alert(1)>\u202emake\u0007</b>" + "x" * 400
RULES = [
    line(1),
    line(2, scope="workspace", holder="shop", form="tool", tool="fetch", about="https://docs.example/" + "a" * 200),
    line(3, scope="run", holder="run_3", form="call", about="", by=None),
    line(4, revokedAt=MADE.isoformat(), revokedBy="bob"),
    line(5, about=HOSTILE, tool=HOSTILE, holder=HOSTILE, by=HOSTILE),
]


def listed(console: Console, **options: Any) -> FakeGateway:
    """A gateway with two pages of rules."""
    here = FakeGateway(console, **options)

    def page(route: Any) -> None:
        second = "cursor=" in route.request.url
        route.fulfill(json={"rules": RULES[3:] if second else RULES[:3], "cursor": None if second else "c"})

    console.page.route(re.compile(r"/v1/rules(\?|$)"), page)
    return here.open()


def test_rules_of_all_pages_are_listed_newest_first_and_hostile_ones_are_text(console: Console):
    listed(console)
    rules = dialog(console)
    heads = rules.locator(".rule")
    expect(heads).to_have_count(4)
    assert [text.splitlines()[0][:5] for text in heads.all_inner_texts()[1:]] == ["shell", "fetch", "shell"]
    expect(heads.nth(1)).to_contain_text("For the run run_3")
    expect(heads.nth(2)).to_contain_text("For the workspace shop")
    expect(heads.nth(2)).to_contain_text("every call")
    assert console.page.locator(".rule b").count() == 0
    console.no_sideways_scroll()
    rules.get_by_label("Show revoked rules, too").check()
    expect(heads).to_have_count(5)
    shot(console, "rules")


def test_a_rule_that_is_not_revoked_stays_and_says_why(console: Console):
    listed(console)
    error = {"error": {"code": "store_unavailable", "message": "the store does not answer", "retry": True}}
    console.page.route(re.compile(r"/revoke$"), lambda route: route.fulfill(status=503, json=error))
    rules = dialog(console)
    rules.get_by_role("button", name="Revoke the rule about make 1").click()
    expect(rules.get_by_role("status")).to_contain_text("The rule was not revoked: ")
    expect(rules.get_by_role("button", name="Revoke the rule about make 1")).to_be_enabled()
    console.said.clear()  # Chromium writes of each answer above 400


def test_who_may_only_look_revokes_nothing(console: Console):
    listed(console, scopes=("follow",))
    rules = dialog(console)
    expect(rules.locator(".rule")).to_have_count(4)
    expect(rules.get_by_role("button", name="Revoke")).to_have_count(0)


def test_who_may_not_follow_sees_no_rules(console: Console):
    FakeGateway(console, scopes=("start",)).open()
    expect(console.page.locator("#start")).to_be_visible()
    expect(console.page.locator("#rules")).to_be_hidden()


def test_a_looker_is_offered_no_always(console: Console, server: Server):
    run = server.start_run("ruled")
    console.open(run, token=LOOKER)
    expect(console.page.locator(".card")).to_be_visible()
    expect(console.page.get_by_role("button", name="Always…")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_nothing_is_wider_than_the_screen(consoles: Callable[..., Console], theme: str, locale: str, size: str):
    console = consoles(color_scheme=theme, locale=locale)
    listed(console)
    console.page.locator("#rules").click()
    expect(console.page.locator(".rule")).to_have_count(4)
    if size == "phone":
        console.page.set_viewport_size(PHONE)
    console.no_sideways_scroll()
    shot(console, f"rules-{size}-{theme}-{locale}")
    console.press("Escape")
    console.page.set_viewport_size({"width": 1280, "height": 800})
    run = console.server.start_run("ruled")
    other = consoles(color_scheme=theme, locale=locale).open(run)
    if size == "phone":
        other.page.set_viewport_size(PHONE)
    other.page.locator(".card-buttons button[data-say-text*='ask.always']").click()
    expect(other.page.locator(".card-always")).to_be_visible()
    other.page.locator(".card-always").scroll_into_view_if_needed()
    other.no_sideways_scroll()
    shot(other, f"always-{size}-{theme}-{locale}")
