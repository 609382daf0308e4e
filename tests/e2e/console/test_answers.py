"""What a model says, how long people were waited for, how a run ended, who may decide."""

from itertools import pairwise
from typing import Any

import pytest

from .conftest import Console, expect
from .fake_gateway import FakeGateway
from .generated import WHOLE_END

pytestmark = [pytest.mark.slow, pytest.mark.judge]

ANSWER = """# Refund of order 7

The lamp is **broken**; the _photos_ show it, `ref 12` too.
Second line. ~~Old price~~

1. Pay back [the bank](https://bank.example/pay?x=1 "official")
2. Write
   - to Ada
   - to Bob

| item | cents |
|------|------:|
| lamp | 4200  |

```python
print("<b>paid</b>")
```

> quoted

<b>no HTML</b> <img src=x onerror="window.hacked = 1">
[bad](javascript:window.hacked=1) [own](#token=evil) [path](/v1/runs) ![photo](https://pictures.example/p.png)
"""


def said(text: str, message: str = "m1") -> tuple[str, dict[str, Any]]:
    return "run.message.completed", {"messageId": message, "role": "assistant", "text": text}


def test_an_answer_is_shown_as_markdown_and_loads_and_runs_nothing(console: Console):
    gateway = FakeGateway(console).open()
    gateway.show("answer", [said(ANSWER)])
    page = console.page
    answer = page.locator(".row-message .prose")
    expect(answer.locator("h3")).to_have_text("Refund of order 7", use_inner_text=True)
    expect(answer.locator("strong")).to_have_text("broken", use_inner_text=True)
    expect(answer.locator("em")).to_have_text("photos", use_inner_text=True)
    expect(answer.locator("p code")).to_have_text("ref 12", use_inner_text=True)
    expect(answer.locator("s")).to_have_text("Old price", use_inner_text=True)
    expect(answer.locator("ol > li")).to_have_count(2)
    assert answer.locator("ol ul > li").all_inner_texts() == ["to Ada", "to Bob"]
    assert answer.locator("td").all_inner_texts() == ["lamp", "4200"]
    expect(answer.locator("td").nth(1)).to_have_attribute("class", "is-right")
    expect(answer.locator("pre")).to_have_text('print("<b>paid</b>")\n', use_inner_text=True)
    expect(answer.locator("blockquote")).to_have_text("quoted", use_inner_text=True)
    text = answer.inner_text()
    assert "<b>no HTML</b> <img src=x" in text
    assert "the bank (bank.example)" in text
    links = answer.locator("a").evaluate_all("all => all.map((one) => [one.getAttribute('href'), one.rel, one.target])")
    outside = ["noopener noreferrer nofollow", "_blank"]
    assert links == [["https://bank.example/pay?x=1", *outside], ["https://pictures.example/p.png", *outside]]
    assert "Picture: photo (pictures.example)" in text
    assert page.evaluate("window.hacked === undefined && document.querySelectorAll('.row img').length === 0")
    assert [url for url in console.urls if "example" in url] == []
    expect(page.locator("h1:visible")).to_have_count(1)
    console.no_sideways_scroll()


STREAM = """async (whole) => {
    const { Rich, elementsOf } = await import("./console/markdown.js");
    const text = (nodes) => nodes.map((node) => node.outerHTML ?? node.data).join("");
    const rich = new Rich("x");
    document.body.append(rich.element);
    let made = 0;
    new MutationObserver((changes) => changes.forEach((one) => { made += one.addedNodes.length; }))
        .observe(rich.body, { childList: true, subtree: true });
    const begin = performance.now();
    for (let n = 5; n < whole.length; n += 5) rich.set(whole.slice(0, n), { live: true });
    const took = performance.now() - begin;
    rich.set(whole, { live: true });
    const before = rich.body.innerText;
    rich.set(whole);
    const same = text([...rich.done.childNodes]) === text(elementsOf(whole));
    await new Promise((go) => setTimeout(go));
    rich.element.remove();
    return { took, made, same, before, after: rich.body.innerText, hasLast: rich.last.childNodes.length };
}"""


def test_an_answer_that_grows_draws_its_whole_blocks_once(console: Console):
    """3,400 pieces: what is written again for each of them is its last block, not all of it."""
    console.open()
    paragraph = "A paragraph with *some* text in it, and no more than that.\n\n"
    found = console.page.evaluate(STREAM, ANSWER + paragraph * 280)
    assert found["same"]
    assert found["hasLast"] == 0
    assert found["made"] < 20_000  # some blocks of a few nodes for each piece; all of them each time would be 500,000


def test_the_markdown_of_a_hostile_text_is_linear_in_its_length(console: Console):
    """The library is linear, and what is read at once is bounded."""
    console.open()
    worst = ["[" * 20_000, "*a _b " * 3_300, "|a" * 10_000 + "\n" + "|-" * 10_000, "> " * 10_000, "![[]()" * 3_300]
    took = console.page.evaluate(
        """async (worst) => {
            const { Rich } = await import("./console/markdown.js");
            return worst.map((text) => {
                const begin = performance.now();
                new Rich("x").set(text);
                return performance.now() - begin;
            });
        }""",
        [*worst, "[" * 1_000_000],
    )
    assert max(took) < 5_000  # some 0.1 s on a quiet machine; a quadratic reader takes minutes


def test_a_run_that_a_stop_condition_has_cut_does_not_look_like_a_success(console: Console):
    gateway = FakeGateway(console).open()
    end = {**WHOLE_END, "to": "completed", "termination": "stopped", "code": "max_rounds"}
    gateway.show("cut", [("run.completed", end)])
    page = console.page
    expect(console.page.locator("#run-stage")).to_have_text("Stopped", use_inner_text=True)
    expect(page.locator("#run-stage.chip-completed, .end-completed, .end .sign-completed")).to_have_count(0)
    expect(console.page.locator(".end")).to_contain_text(
        "The stop condition max_rounds ended the run.", use_inner_text=True
    )
    expect(page).to_have_title("agent · Stopped - Greenroom")


def moved(to: str, before: str) -> tuple[str, dict[str, Any]]:
    kinds = {"planned": "planned", "accepted": "accepted", "preparing": "preparing", "running": "started"}
    return f"run.{kinds[to]}", {"from": before, "to": to, "by": "engine"}


def test_how_a_run_comes_to_life_is_one_line_that_opens(console: Console):
    gateway = FakeGateway(console).open()
    path = ["created", "planned", "accepted", "preparing", "running"]
    gateway.show("born", [moved(to, before) for before, to in pairwise(path)])
    row = console.page.locator(".row-stages")
    expect(row).to_have_count(1)
    assert row.inner_text().splitlines()[-1].startswith("Ready after")
    row.locator("summary").click()
    row.locator(".stages-path").wait_for()
    words = row.locator(".stages-path").inner_text().split()
    assert words == ["Created", "→", "Planned", "→", "Accepted", "→", "Preparing", "→", "Running"]


TICKET = {
    "ticketId": "t1",
    "callId": "c1",
    "tool": "refund",
    "arguments": {"cents": 1},
    "fingerprint": "f",
    "reason": "tool_permission",
    "resumeMode": "replay_tool_call",
}


def test_the_time_in_which_people_are_waited_for_is_shown_as_such(console: Console):
    gateway = FakeGateway(console).open()
    waiting = {"from": "running", "to": "needs_approval", "by": "engine", "tickets": ["t1"]}
    gateway.show("slow", [("run.approval.requested", TICKET), ("run.waiting", waiting)])
    page = console.page
    page.locator("#details .detail-waited dd").wait_for()
    page.locator("#activity bdi", has_text="Waiting for a decision").wait_for()
    expect(page.locator("#activity.is-busy")).to_have_count(0)
    for _ in range(3):
        gateway.tell("slow", "run.state.changed", {"revision": 1, "keys": ["k"], "by": "c1"})
    gateway.tell("slow", "run.approval.resolved", {**TICKET, "resolution": "approved", "by": "ada"})
    expect(page.locator(".row-note", has_text="approved by ada")).to_contain_text(
        "after 5.0 s of waiting", use_inner_text=True
    )
    gateway.tell("slow", "run.resumed", {"from": "needs_approval", "to": "running", "by": "engine"})
    end = {**WHOLE_END, "to": "completed", "termination": "natural_end"}
    gateway.tell("slow", "run.completed", end)
    expect(console.page.locator(".end-facts")).to_contain_text(
        "2.0 s active · 5.0 s waiting for people", use_inner_text=True
    )
    expect(console.page.locator("#details .detail-waited dd")).to_have_text("5 s", use_inner_text=True)


@pytest.mark.parametrize(
    ("scopes", "reviewers", "sentence"),
    [
        (["follow"], [], "You can look, but not decide"),
        (["follow"], ["ada"], "You can look, but not decide"),
        (["follow", "decide"], ["bob", "eve"], "Only bob, eve may decide this; you are signed in as ada."),
        (["admin"], ["bob"], "Only bob may decide this; you are signed in as ada."),
        (["follow", "decide"], [], None),
        (["follow", "decide"], ["bob", "ada"], None),
    ],
)
def test_who_may_not_decide_sees_no_buttons_and_a_true_sentence(
    console: Console, scopes: list[str], reviewers: list[str], sentence: str | None
):
    gateway = FakeGateway(console, scopes=scopes).open()
    gateway.show("asked", [("run.approval.requested", TICKET | {"reviewers": reviewers})])
    card = console.page.locator(".card")
    if reviewers:
        assert card.locator(".card-fact", has_text="Who may decide").inner_text().split("\n")[-1] == ", ".join(
            reviewers
        )
    else:
        expect(card.get_by_text("Who may decide")).to_have_count(0)
    if sentence is None:
        expect(card.get_by_role("button", name="Approve refund")).to_be_visible()
        return
    expect(card).to_contain_text(sentence, use_inner_text=True)
    expect(card.locator(".card-buttons button")).to_have_count(0)
    card.focus()
    console.press("a", "d", "e")
    expect(card.locator(".card-extra")).to_have_text("", use_inner_text=True)
    assert [frame for frame in gateway.sent if frame["type"] == "decide"] == []


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("deny", "it is denied at"),
        ("cancel_run", "the run is cancelled at"),
        ("set_result", "its prepared result is used at"),
    ],
)
def test_what_happens_without_a_decision_is_said(console: Console, then: str, words: str):
    gateway = FakeGateway(console).open()
    asked = TICKET | {"expiresAt": "2126-11-22T10:00:00Z", "onExpiry": then}
    gateway.show("timed", [("run.approval.requested", asked)])
    fact = console.page.locator(".card-fact", has_text="Without a decision").inner_text()
    assert words in fact
    assert "2126" in fact


def test_a_fault_goes_when_what_it_speaks_of_is_corrected(console: Console):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "floor": {"type": "integer"}},
        "required": ["name", "floor"],
    }
    asked = TICKET | {"resumeMode": "use_decision_as_tool_result", "responseSchema": schema}
    gateway = FakeGateway(console).open()
    gateway.show("form", [("run.approval.requested", asked)])
    page = console.page
    fault = page.locator(".card .answer > .fault")
    page.get_by_role("button", name="Send the answer").click()
    expect(fault).to_have_text("name is required.", use_inner_text=True)
    page.get_by_label("name").fill("Ada")
    expect(fault).to_have_text("", use_inner_text=True)
    page.get_by_label("floor").fill("3.5")
    page.get_by_role("button", name="Send the answer").click()
    expect(fault).to_have_text("floor must be a whole number.", use_inner_text=True)
    page.get_by_label("floor").fill("3")
    expect(fault).to_have_text("", use_inner_text=True)
    expect(page.locator("[aria-invalid=true]")).to_have_count(0)
    refused = {"type": "gw.error", "code": "invalid_result", "message": "floor: too high"}
    gateway.more = lambda frame: [refused | {"id": frame["id"]}] if frame["type"] == "decide" else []
    page.get_by_role("button", name="Send the answer").click()
    page.locator(".card-status", has_text="floor: too high").wait_for()
    page.get_by_label("floor").fill("2")
    expect(console.page.locator(".card-status")).to_have_text("", use_inner_text=True)
    page.keyboard.press("Escape")
    page.locator("#start").click()
    page.get_by_role("button", name="Start the run").wait_for()
    console.until("document.querySelector('dialog button[type=submit]').disabled === false")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator("dialog .fault").last).to_contain_text("Say what the run should do", use_inner_text=True)
    page.get_by_label("What should it do?").fill("x")
    expect(console.page.locator("dialog .fault").last).to_have_text("", use_inner_text=True)
