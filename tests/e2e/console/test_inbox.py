"""The inbox: the open questions of all runs, read and answered one by one and together, by mouse and by keyboard."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from .axe import Axe, need_axe
from .conftest import TOKEN, Console, Server, expect
from .fake_gateway import FakeGateway

pytestmark = [pytest.mark.slow, pytest.mark.judge]

NOW = datetime.now(UTC)
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
Consoles = Callable[..., Console]
BIG_NUMBER = 12_345_678_901_234_567_890


def question(n: int, **given: Any) -> dict[str, Any]:
    """An open ticket of a run of its own; the higher its number, the newer it is."""
    known = {
        "run": f"run_{n:05d}",
        "thread": f"t{n}",
        "agent": "support",
        "by": "ada",
        "title": f"Order {n}",
        "ticketId": f"run_{n:05d}.t1",
        "callId": "c1",
        "tool": "refund",
        "arguments": {"order": str(n), "cents": 100 + n},
        "fingerprint": f"print-{n}",
        "reason": "tool_permission",
        "action": "tool:refund",
        "message": "",
        "parameters": {},
        "responseSchema": None,
        "resumeMode": "replay_tool_call",
        "requestedAt": (NOW - timedelta(hours=20) + timedelta(seconds=n)).isoformat(),
        "expiresAt": None,
        "onExpiry": "deny",
        "reviewers": [],
        "live": False,
        "whole": True,
    }
    return known | given


class Office(FakeGateway):
    """A gateway with open questions: pages over HTTP, changes over the socket, and an answer to each decision.

    Attributes:
        refusals: ticket id -> what is wrong with each decision about it.
        silent: True: decisions get no answer.
    """

    def __init__(self, console: Console, questions: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(console, **options)
        self.questions = {one["ticketId"]: one for one in questions}
        self.refusals: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.more = self._hear
        console.page.route(re.compile(r"/v1/tickets\?"), self._http)
        console.page.route(re.compile(r"/v1/runs\?"), lambda route: route.fulfill(json=self._runs()))

    def enter(self) -> "Office":
        """Open the inbox."""
        page = self.console.page
        page.goto(f"{self.console.server.url}/#inbox&token={TOKEN}")
        page.locator("#link[data-state=live]").wait_for(state="attached")
        if self.questions:
            page.locator(".ask-row").first.wait_for()
        return self

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [frame for frame in self.sent if frame["type"] == "decide"]

    def ask(self, *questions: dict[str, Any]) -> None:
        """Runs ask, or ask again."""
        for one in questions:
            self.questions[one["ticketId"]] = one
            self.send({"type": "gw.asked", "watch": "inbox", "run": one["run"], "tickets": [one]})

    def withdraw(self, *numbers: int) -> None:
        """Others have answered."""
        for n in numbers:
            self.questions.pop(f"run_{n:05d}.t1")
            self.send({"type": "gw.asked", "watch": "inbox", "run": f"run_{n:05d}", "tickets": []})

    def page(self, start: int, limit: int) -> dict[str, Any]:
        found = sorted(self.questions.values(), key=lambda one: one["requestedAt"])
        cursor = str(start + limit) if start + limit < len(found) else None
        return {"tickets": found[start : start + limit], "cursor": cursor}

    def _runs(self) -> dict[str, Any]:
        counts = {"created": 0, "running": 0, "waiting": len(self.questions)}
        return {"runs": [], "cursor": None, "counts": counts}

    def _answers(self, frame: dict[str, Any]) -> Any:
        if frame["type"] != "hello":
            return super()._answers(frame)
        (welcome,) = super()._answers(frame)
        return [welcome | {"limits": {"messagesPerSecond": 5_000}}]

    def _hear(self, frame: dict[str, Any]) -> list[Any]:
        match frame:
            case {"type": "watchTickets", "limit": limit, "id": name}:
                return [{"type": "gw.tickets", "watch": name, "reason": "asked", **self.page(0, limit)}]
            case {"type": "watch", "id": name}:
                return [{"type": "gw.runs", "watch": name, "reason": "asked", **self._runs()}]
            case {"type": "decide", "id": name, "target": target} if not self.silent:
                if target in self.refusals:
                    return [{"type": "gw.error", "id": name, **self.refusals[target]}]
                run = self.questions.pop(target)["run"]
                ack = {"type": "gw.ack", "id": name, "run": run, "status": "accepted"}
                return [{"type": "gw.asked", "watch": "inbox", "run": run, "tickets": []}, ack]
        return []

    def _http(self, route: Any) -> None:
        query = {name: one[0] for name, one in parse_qs(urlsplit(route.request.url).query).items()}
        route.fulfill(json=self.page(int(query["cursor"]), int(query["limit"])))


def row(console: Console, n: int) -> Any:
    return console.page.locator(f'.ask-row[data-ticket="run_{n:05d}.t1"]')


def current(console: Console) -> Any:
    return console.page.locator(".ask-row.is-current")


def keys(console: Console, *pressed: str) -> None:
    for key in pressed:
        console.page.keyboard.press(key)


def asking(server: Server, agent: str, text: str = "go") -> str:
    """A run that asks; the runs ask in the order of these calls."""
    before = len(server.get("/v1/tickets")["tickets"])
    run = server.start_run(agent, text)
    for _ in range(600):
        if len(server.get("/v1/tickets")["tickets"]) > before:
            return run
    raise AssertionError("the run asks nothing")


def ends(server: Server, run: str) -> list[dict[str, Any]]:
    """The answers that a run has got; waits for one."""
    for _ in range(600):
        if found := server.payloads(run, "approval.resolved"):
            return found
    raise AssertionError("no answer came")


# --- before a real gateway -------------------------------------------------------------------------------------------


def test_questions_of_all_runs_are_answered_one_after_the_other_with_two_keys_each(consoles: Consoles, mortal: Server):
    console = consoles(mortal, outages=True)
    runs = [asking(mortal, "support", f"Pay order {n} back") for n in range(3)]
    page = console.page
    page.goto(f"{mortal.url}/#inbox&token={TOKEN}")
    expect(page.locator(".ask-row")).to_have_count(3)
    expect(page.locator(".ask-row").first).to_contain_text("Approve refund?", use_inner_text=True)
    expect(page.locator(".ask-row").first).to_contain_text("order: 7", use_inner_text=True)
    expect(page.locator(".ask-row").first).to_contain_text("for operator", use_inner_text=True)
    expect(page.locator(".inbox-detail")).to_contain_text("Pay order 0 back", use_inner_text=True)
    keys(console, "a", "Enter")
    expect(page.locator(".ask-row").first).to_contain_text("Approved", use_inner_text=True)
    expect(page.locator(".inbox-detail")).to_contain_text("Pay order 1 back", use_inner_text=True)
    keys(console, "d")
    page.locator(".card-extra input").fill("too expensive")
    keys(console, "Enter")
    expect(page.locator(".ask-row").nth(1)).to_contain_text("Denied", use_inner_text=True)
    expect(page.locator(".inbox-detail")).to_contain_text("Pay order 2 back", use_inner_text=True)
    expect(page.get_by_role("listbox")).to_be_focused()
    expect(page.locator(".ask-row").nth(1)).to_contain_text("order: 7", use_inner_text=True)  # what was denied
    page.get_by_role("button", name="Approve with a reason…").click()
    page.locator(".card-extra input").fill("seen the photos")
    page.locator(".card-buttons .primary").click()
    expect(page.locator(".ask-row").nth(2)).to_contain_text("Approved", use_inner_text=True)
    expect(page.locator(".inbox-detail")).to_contain_text("No question is chosen", use_inner_text=True)
    expect(page.locator("#places .badge")).to_be_hidden()
    answers = [ends(mortal, run)[0] for run in runs]
    assert [one["resolution"] for one in answers] == ["approved", "denied", "approved"]
    assert [one.get("reason") for one in answers] == [None, "too expensive", "seen the photos"]


def test_several_are_answered_together_after_a_look_at_each(consoles: Consoles, mortal: Server):
    console = consoles(mortal, outages=True)
    hidden = asking(mortal, "hostile")
    runs = [asking(mortal, "support") for _ in range(2)]
    page = console.page
    page.goto(f"{mortal.url}/#inbox&token={TOKEN}")
    expect(page.locator(".ask-row")).to_have_count(3)
    large = page.locator(".ask-row", has_text="Approve run_anything?")
    expect(large).to_contain_text("blob: mmm", use_inner_text=True)  # a megabyte: it is read when it is opened
    page.locator(".ask-row", has_text="refund").first.click()
    keys(console, "Shift+ArrowDown", "a")
    dialog = page.get_by_role("dialog", name="Approve 2 actions?")
    expect(dialog.locator(".batch-item")).to_have_count(2)
    expect(dialog.locator(".batch-item").first).to_contain_text("order", use_inner_text=True)
    dialog.get_by_label("Reason (optional)").fill("both seen")
    keys(console, "Enter")
    expect(page.locator(".ask-row[data-state=answered]")).to_have_count(2)
    assert [ends(mortal, run)[0].get("reason") for run in runs] == ["both seen"] * 2
    large.click()
    card = page.locator(".inbox-detail .card")
    expect(card).to_contain_text(str(BIG_NUMBER), use_inner_text=True)
    expect(card).to_contain_text("invisible", use_inner_text=True)
    card.get_by_role("button", name="Deny").click()
    keys(console, "Enter")
    assert ends(mortal, hidden)[0]["resolution"] == "denied"
    assert page.evaluate("window.hacked === undefined")


def test_together_each_action_shows_all_that_its_card_shows(console: Console):
    long = "transfer_" + "x" * 60
    said = {
        "message": "This pays 5,000 EUR to a new account.",
        "action": "pay: all\u202e of it",
        "parameters": {"to": "eve"},
    }
    Office(
        console, [question(1, tool=f"{long}_in", **said), question(2, tool=f"{long}_out", action=f"tool:{long}_out")]
    ).enter()
    keys(console, "Shift+ArrowDown", "a")
    one, two = console.page.locator(".batch-item").all()
    for text in (f"{long}_in", said["message"], "pay: all", "U+202E", "to", "eve", "invisible"):
        expect(one).to_contain_text(text, use_inner_text=True)
    expect(two).to_contain_text(f"{long}_out", use_inner_text=True)
    expect(two.locator(".batch-said")).to_have_count(0)


# --- one by one, and together ----------------------------------------------------------------------------------------


def test_two_hundred_approvals_take_at_most_three_hundred_keys(console: Console):
    office = Office(console, [question(n) for n in range(220)]).enter()
    pressed = ["Shift+ArrowDown"] * 199 + ["a"]
    keys(console, *pressed)
    dialog = console.page.get_by_role("dialog", name="Approve 200 actions?")
    expect(dialog.locator(".batch-item")).to_have_count(200)
    expect(dialog.get_by_role("button", name="Approve 200")).to_be_focused()
    keys(console, "Enter")
    expect(console.page.locator("#toasts")).to_contain_text("Approved 200.", use_inner_text=True)
    assert len(pressed) + 1 <= 300
    sent = sorted((one["target"], one["fingerprint"], one["action"]) for one in office.decisions)
    assert sent == [(f"run_{n:05d}.t1", f"print-{n}", "resume") for n in range(200)]
    expect(current(console)).to_contain_text("order: 200", use_inner_text=True)
    # and one by one: two keys for each
    for n in range(200, 210):
        expect(current(console)).to_contain_text(f"order: {n}", use_inner_text=True)
        keys(console, "a", "Enter")
    expect(row(console, 209)).to_contain_text("Approved", use_inner_text=True)
    assert len(office.decisions) == 210


def test_all_of_a_filter_are_chosen_up_to_a_limit(console: Console):
    mails = [question(n, tool="mail", agent="outreach", arguments={"to": "x"}) for n in range(300, 305)]
    Office(console, [*(question(n) for n in range(250)), *mails]).enter()
    page = console.page
    expect(page.get_by_role("button", name="Select the first 200")).to_be_visible()
    keys(console, "Shift+A")
    expect(page.locator(".inbox-selected")).to_have_text("200 selected", use_inner_text=True)
    keys(console, "End", "x")
    expect(page.locator("#toasts")).to_contain_text("At most 200", use_inner_text=True)
    page.locator("#inbox-tool").select_option(label="mail (5)")
    expect(page.locator(".ask-row")).to_have_count(5)
    expect(page.locator(".inbox-selected")).to_be_hidden()
    page.get_by_role("button", name="Select all").click()
    keys(console, "d")
    dialog = page.get_by_role("dialog", name="Deny 5 actions?")
    dialog.get_by_label("Reason (optional)").fill("no mail today")
    keys(console, "Enter")
    expect(page.locator(".ask-row[data-state=answered]")).to_have_count(5)
    page.get_by_role("button", name="Clear 5 answered").click()
    expect(page.locator(".inbox-empty")).to_contain_text("No open question fits", use_inner_text=True)


def test_a_refused_answer_stays_in_the_list_and_says_why(console: Console):
    office = Office(console, [question(n) for n in range(4)])
    office.refusals = {
        "run_00000.t1": {"code": "fingerprint_mismatch", "message": "look again"},
        "run_00001.t1": {
            "code": "already_decided",
            "message": "",
            "current": {"status": "denied", "decidedBy": "bob", "decidedAt": NOW.isoformat()},
        },
        "run_00002.t1": {"code": "busy", "message": ""},
    }
    office.enter()
    keys(console, *["Shift+ArrowDown"] * 3, "a")
    expect(console.page.get_by_role("dialog").get_by_role("button", name="Approve 4")).to_be_focused()
    keys(console, "Enter")
    expect(row(console, 0)).to_contain_text("The call is not the one that you looked at", use_inner_text=True)
    expect(row(console, 1)).to_contain_text("Already denied by bob", use_inner_text=True)
    expect(row(console, 3)).to_contain_text("Approved", use_inner_text=True)
    states = [row(console, n).get_attribute("data-state") for n in range(4)]
    assert states == ["open", "elsewhere", "open", "answered"]
    expect(console.page.locator("#toasts")).to_contain_text("Approved 1, 3 not accepted.", use_inner_text=True)
    office.refusals = {}
    row(console, 0).click()
    expect(console.page.locator(".card-status")).to_contain_text("Not accepted", use_inner_text=True)
    keys(console, "a", "a")
    expect(row(console, 0)).to_contain_text("Approved", use_inner_text=True)


def test_what_changes_while_its_dialog_is_open_is_left_out(console: Console):
    office = Office(console, [question(n) for n in range(3)]).enter()
    keys(console, "Shift+ArrowDown", "Shift+ArrowDown", "a")
    dialog = console.page.get_by_role("dialog", name="Approve 3 actions?")
    office.withdraw(0)
    office.ask(question(1, arguments={"order": "1", "cents": 999_999}, fingerprint="another"))
    expect(dialog.locator(".batch-item.is-gone")).to_have_count(2)
    keys(console, "Enter")
    expect(row(console, 2)).to_contain_text("Approved", use_inner_text=True)
    assert [one["target"] for one in office.decisions] == ["run_00002.t1"]
    expect(row(console, 0)).to_contain_text("Answered elsewhere", use_inner_text=True)
    expect(row(console, 1)).to_contain_text("999999", use_inner_text=True)


def test_a_key_that_is_held_down_approves_nothing(console: Console):
    office = Office(console, [question(n) for n in range(3)]).enter()
    page = console.page
    page.evaluate(
        """() => { for (let n = 0; n < 6; n += 1) document.querySelector(".inbox-rows").dispatchEvent(
            new KeyboardEvent("keydown", { key: "a", repeat: n > 0, bubbles: true })); }"""
    )
    expect(page.locator(".card-buttons .is-armed")).to_be_visible()
    assert office.decisions == []


# --- live ------------------------------------------------------------------------------------------------------------


def test_a_row_keeps_its_place_whatever_comes_and_goes(console: Console):
    office = Office(console, [question(n) for n in range(5, 25)]).enter()
    page = console.page
    keys(console, "ArrowDown", "ArrowDown")
    before = row(console, 8).bounding_box()
    office.withdraw(5, 6)
    office.ask(question(30))  # its place is the end
    expect(row(console, 5)).to_contain_text("Answered elsewhere", use_inner_text=True)
    page.locator("#inbox-order").select_option("newest")
    expect(page.locator(".ask-row").first).to_contain_text("order: 30", use_inner_text=True)
    first = row(console, 30).bounding_box()
    office.ask(question(31))  # its place would be the first
    held = page.get_by_role("button", name="Show 1 new question")
    expect(held).to_be_visible()
    assert row(console, 30).bounding_box() == first
    held.click()
    expect(page.locator(".ask-row").first).to_contain_text("order: 31", use_inner_text=True)
    page.locator("#inbox-order").select_option("oldest")
    after = row(console, 8).bounding_box()
    assert before["y"] - after["y"] == 2 * after["height"]  # only now the two answered ones went


def test_numbers_are_exact(console: Console):
    Office(console, [question(1, arguments={"cents": BIG_NUMBER})]).enter()
    expect(row(console, 1)).to_contain_text(f"cents: {BIG_NUMBER}", use_inner_text=True)
    expect(console.page.locator(".card .block-body")).to_have_text(str(BIG_NUMBER), use_inner_text=True)


def test_only_those_that_the_person_may_decide_are_listed_unless_asked_for(console: Console):
    office = Office(console, [question(1), question(2, reviewers=["bob"])], scopes=["follow", "decide"]).enter()
    page = console.page
    expect(page.locator(".ask-row")).to_have_count(1)
    page.get_by_label("Only those I may decide").uncheck()
    expect(page.locator(".ask-row")).to_have_count(2)
    row(console, 2).click()
    expect(page.locator(".card-status")).to_contain_text("Only bob may decide this", use_inner_text=True)
    keys(console, "x", "a", "Enter")
    assert office.decisions == []


def test_a_question_that_needs_an_answer_is_not_chosen_with_others(console: Console):
    schema = {"type": "object", "properties": {"floor": {"type": "integer"}}, "required": ["floor"]}
    form = question(1, tool="ask", reason="user_input", responseSchema=schema, resumeMode="use_decision_as_tool_result")
    office = Office(console, [form, question(2)]).enter()
    keys(console, "x")
    expect(console.page.locator("#said-now")).to_contain_text("needs an answer of its own", use_inner_text=True)
    console.page.get_by_label("floor").fill("3")
    console.page.get_by_role("button", name="Send the answer").click()
    expect(row(console, 1)).to_contain_text("Answered", use_inner_text=True)
    expect(current(console)).to_contain_text("order: 2", use_inner_text=True)
    assert office.decisions[0]["result"] == {"floor": 3}


# --- the page --------------------------------------------------------------------------------------------------------

STUB = """
    window.asked = 0; window.shown = [];
    window.Notification = class { constructor(title, options) { shown.push([title, options.body]); } };
    Notification.permission = "default";
    Notification.requestPermission = async () => { asked += 1; return (Notification.permission = "granted"); };
"""


def test_a_notification_comes_only_to_those_who_asked_for_it(console: Console):
    console.page.add_init_script(STUB)
    office = Office(console, [question(1)]).enter()
    page = console.page
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    office.ask(question(2))
    expect(page.locator("#places .badge")).to_have_text("2", use_inner_text=True)
    assert page.title().startswith("(2) ")
    assert page.evaluate("[asked, shown.length]") == [0, 0]
    page.get_by_role("button", name="Notify me of new questions").click()
    expect(page.get_by_role("button", name="Stop notifying me")).to_be_visible()
    office.ask(question(3), question(4, reviewers=["bob"]), question(5))
    console.until("shown.length > 0")
    assert page.evaluate("[asked, shown]") == [1, [["2 questions need a decision", "support · ada"]]]


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-US"), ("dark", "zh-CN")])
def test_axe_finds_nothing_wrong_and_a_phone_has_room(consoles: Consoles, theme: str, locale: str):
    axe = Axe(need_axe())
    for shape in ({}, PHONE):
        console = consoles(color_scheme=theme, locale=locale, **shape)
        office = Office(console, [question(n) for n in range(30)]).enter()
        office.refusals = {"run_00000.t1": {"code": "busy", "message": ""}}
        page = console.page
        assert axe.violations(page) == []
        keys(console, "a", "Enter")
        expect(row(console, 0).locator(".tone-bad")).to_be_visible()
        row(console, 2).click()
        assert axe.violations(page) == []
        console.no_sideways_scroll()
        if shape:
            page.locator(".inbox-back").click()
        row(console, 3).locator(".ask-tick").click()
        row(console, 4).locator(".ask-tick").click()
        page.locator(".inbox-actions .primary").click()
        expect(page.locator(".batch-item")).to_have_count(2)
        assert axe.violations(page) == []
        console.no_sideways_scroll()
        keys(console, "Escape")
        expect(page.locator("dialog")).to_have_count(0)


def test_a_screen_reader_hears_the_list_its_place_and_the_answers(console: Console):
    Office(console, [question(n, by=f"person {n}") for n in range(3)]).enter()
    page = console.page
    listbox = page.get_by_role("listbox", name="Open questions")
    expect(listbox).to_be_focused()
    keys(console, "ArrowDown", "x")
    option = page.locator(f"#{listbox.get_attribute('aria-activedescendant')}")
    shown = ["aria-selected", "aria-posinset", "aria-setsize"]
    assert [option.get_attribute(name) for name in shown] == ["true", "2", "3"]
    name = option.inner_text().replace("\n", " ")
    assert all(word in name for word in ("Approve refund?", "order: 1", "support", "for person 1"))
    keys(console, "x", "a", "Enter")
    expect(page.locator("#said")).to_contain_text("refund: Approved", use_inner_text=True)


LONG = """() => { window.long = []; new PerformanceObserver((list) => {
    for (const one of list.getEntries()) long.push(Math.round(one.duration)); }).observe({ type: "longtask" }); }"""


def test_two_thousand_questions_are_few_rows_of_the_document(console: Console, record_property: Callable[..., None]):
    """The figures are printed and not judged: they are of the machine."""
    office = Office(console, [question(n, tool=f"tool{n % 7}") for n in range(2_000)])
    console.page.add_init_script(f"({LONG})()")
    office.enter()
    page = console.page
    first = page.evaluate("Math.round(performance.now())")
    expect(page.locator(".inbox-count")).to_have_text("2,000 open", use_inner_text=True)
    whole = page.evaluate("Math.round(performance.now())")
    keys(console, "End")
    expect(current(console)).to_contain_text("order: 1999", use_inner_text=True)
    assert page.locator(".ask-row").count() < 60
    page.locator("#inbox-tool").select_option("tool3")
    expect(page.locator(".ask-row").first).to_contain_text("order: 3 ", use_inner_text=True)
    figures = {"first rows ms": first, "all 2,000 ms": whole, "long tasks ms": page.evaluate("long")}
    record_property("figures", figures)
