"""Every field of every event, whatever is in it: the page shows it, and no value takes the others with it."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from .conftest import Console, expect
from .fake_gateway import FakeGateway
from .generated import WHOLE_END, payload, types, variants

pytestmark = [pytest.mark.slow, pytest.mark.judge]

FEW = 120
"""Events of one run: fewer than the page draws at once."""
SAID = """() => {
    const said = [];
    const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_ELEMENT);
    while (walker.nextNode()) {
        const one = walker.currentNode;
        for (const node of one.childNodes) if (node.nodeType === Node.TEXT_NODE) said.push(node.data);
        for (const name of ["title", "aria-label", "placeholder"]) said.push(one.getAttribute(name) ?? "");
        if (one.style.width.includes("NaN")) said.push(one.style.width);
    }
    return said.filter((text) => /\\[object|\\bNaN\\b|\\bundefined\\b|Invalid Date|\\bInfinity\\b/.test(text));
}"""
"""The texts of the shown run that no person should read."""


@pytest.fixture
def shown(console: Console):
    """Show a run with these events, and judge what is on the page."""
    gateway = FakeGateway(console).open()

    def show(run: str, kinds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        gateway.show(run, kinds)
        assert console.page.evaluate(SAID) == [], run
        assert console.page.locator(".toast, .row-broken").count() == 0, run
        assert console.said == [], run

    return show


def test_every_field_of_every_event_is_shown_whatever_its_schema_lets_stand_there(console: Console, shown):
    for kind in types():
        made = [(kind, content) for content in variants(kind)]
        for n in range(0, len(made), FEW):
            shown(f"{kind}-{n}", made[n : n + FEW])
            row = {"run.message.delta": "message", "run.completed": "end", "run.tool.call": "call"}.get(kind)
            assert row is None or console.page.locator(f".row-{row}").count() > 0
    console.page.get_by_role("button", name="Switch to Chinese").click()
    assert console.page.evaluate(SAID) == []


@pytest.mark.parametrize("seed", range(6))
def test_events_of_all_types_in_any_order_and_with_any_values_are_shown(shown, seed: int):
    chosen = Random(seed)
    known = types()
    for n in range(5):
        kinds = [chosen.choice(known) for _ in range(FEW)]
        shown(f"mixed-{seed}-{n}", [(kind, payload(kind, chosen)) for kind in kinds])


def test_a_time_that_is_a_whole_number_is_a_time(console: Console, shown):
    """1.0 is kept as it was written where a person decides about it; here it is measured."""
    end = {**WHOLE_END, "to": "completed", "termination": "natural_end", "output": {"n": 1.0}}
    shown("whole", [("run.completed", end)])
    expect(console.page.locator(".end-facts")).to_contain_text("2.0 s active", use_inner_text=True)
    expect(console.page.locator(".end .block-body")).to_have_text('{ "n": 1.0 }', use_inner_text=True)


def test_a_model_that_is_asked_again_says_when(console: Console, shown):
    again = {"step": 1, "messageId": "m1", "code": "rate_limited", "detail": "rate_limited: slow down"}
    note = console.page.locator(".row-note")
    shown("later", [("run.inference.retried", {**again, "delayMs": 30_000})])
    expect(note).to_contain_text("The model is asked again in 30.0 s (rate_limited)", use_inner_text=True)
    shown("now", [("run.inference.retried", again)])
    expect(note).to_contain_text("The model is asked again (rate_limited)", use_inner_text=True)


def test_a_request_that_leaves_messages_out_says_how_many(console: Console, shown):
    shown("trimmed", [("run.context.trimmed", {"step": 3, "messages": 12, "by": "ContextWindow"})])
    expect(console.page.locator(".row-note")).to_contain_text(
        "12 older messages are not sent to the model (ContextWindow)"
    )


def test_an_answer_that_was_cut_stays_and_says_so(console: Console, shown):
    delta = {"messageId": "m1", "index": 0, "text": "Once upon"}
    usage = {"requests": 1, "input": 7, "output": 1, "cached": 0, "reasoning": 0, "incomplete": 1}
    completed = {"messageId": "m1", "role": "assistant", "text": "Once upon a time", "cut": True}
    cut = {"step": 1, "messageId": "m1", "usage": usage}
    shown("cut", [("run.message.delta", delta), ("run.inference.cut", cut), ("run.message.completed", completed)])
    expect(console.page.locator("main")).to_contain_text("Once upon a time", use_inner_text=True)
    expect(console.page.locator(".gone-note")).to_have_text("Cut off: the run ended before the model finished this")


def test_cached_tokens_stand_beside_those_that_were_read(console: Console, shown):
    usage = {"requests": 1, "input": 12_000, "output": 20, "cached": 9_000, "reasoning": 0}
    shown("cached", [("run.step.finished", {"step": 1, "usage": usage, "activeSeconds": 1.0})])
    expect(console.page.locator("main")).to_contain_text("12K in (9,000 cached) · 20 out")


def test_an_answer_that_is_continued_keeps_its_text(console: Console, shown):
    delta = {"messageId": "m1", "index": 0, "text": "Once upon"}
    broken = {"step": 1, "messageId": "m1", "code": "interrupted", "mode": "continue", "delayMs": 500}
    shown("kept", [("run.message.delta", delta), ("run.inference.retried", broken)])
    expect(console.page.locator(".row-note")).to_contain_text("asked to continue its answer in 500 ms (interrupted)")
    expect(console.page.locator("main")).to_contain_text("Once upon", use_inner_text=True)
    shown("other", [("run.inference.retried", {**broken, "model": "second"})])
    expect(console.page.locator(".row-note")).to_contain_text("Another model is asked: second (interrupted)")
    shown("dropped", [("run.message.delta", delta), ("run.inference.retried", {**broken, "mode": "restart"})])
    expect(console.page.locator(".row-note")).to_contain_text("The model is asked again in 500 ms (interrupted)")
