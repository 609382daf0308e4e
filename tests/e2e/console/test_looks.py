"""How the console looks: hostile text, themes, languages, small screens, people who see or move otherwise."""

import re
from typing import Any

import pytest

from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.failures import FAILURES
from greenroom.transport.protocol.codes import ERRORS

from .conftest import Console, Server, expect
from .server import BIG_NUMBER, HOSTILE, LONG_WORD

pytestmark = [pytest.mark.slow, pytest.mark.judge]

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


# --- hostile text -----------------------------------------------------------------------------------------------------


def test_what_a_run_says_is_never_more_than_text(console: Console, server: Server):
    run = console.start("hostile", f"{HOSTILE} {LONG_WORD}")
    page = console.page
    console.stage("needs_approval")
    assert HOSTILE in page.locator(".row-message .prose").text_content()
    shown = page.locator(".card-values .block-body")
    marks = page.locator(".card-values .mark").all_inner_texts()
    assert marks == ["U+202E", "U+200B", "U+202E"]
    assert "\u202e" not in "".join(shown.all_inner_texts())
    expect(page.locator(".card-warn").first).to_contain_text("invisible", use_inner_text=True)
    expect(shown.nth(2)).to_have_text(str(BIG_NUMBER), use_inner_text=True)
    assert page.evaluate("window.hacked === undefined && document.querySelectorAll('.row img, .card img').length === 0")
    console.no_sideways_scroll()
    # nothing is approved that was not shown
    page.get_by_role("button", name="Approve run_anything").click()
    page.get_by_text("Everything is shown now").wait_for()
    blob = server.payloads(run, "approval.requested")[0]["arguments"]["blob"]  # a megabyte: what an event has of it
    assert shown.nth(1).evaluate("one => one.textContent") == blob
    expect(page.locator(".card-warn").nth(1)).to_contain_text("too long to show in full")
    assert server.payloads(run, "approval.resolved") == []
    page.get_by_role("button", name="Approve run_anything").click()
    console.stage("completed")
    assert server.payloads(run, "tool.result")[0]["result"].endswith(str(BIG_NUMBER))
    console.no_sideways_scroll()
    assert page.evaluate("window.hacked === undefined")


def test_a_number_that_javascript_cannot_hold_is_sent_back_as_it_is(console: Console, server: Server):
    run = console.start("hostile")
    page = console.page
    page.get_by_role("button", name="Edit arguments").click()
    editor = page.get_by_label("Arguments as JSON")
    expect(editor).to_have_value(re.compile(re.escape(str(BIG_NUMBER))))
    editor.fill(f'{{"command": "ls", "blob": "", "number": {BIG_NUMBER + 1}}}')
    expect(page.locator(".card")).to_contain_text("Changed: command, blob, number", use_inner_text=True)
    page.get_by_role("button", name="Approve with these arguments").click()
    console.stage("completed")
    assert server.payloads(run, "tool.result")[0]["result"].endswith(f"ls {BIG_NUMBER + 1}")


# --- themes -----------------------------------------------------------------------------------------------------------

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, i) => part * a + under[i] * (1 - a)).concat(1);
  const behind = (element) => {
    if (!element) return rgba(getComputedStyle(document.documentElement).colorScheme === "dark" ? "black" : "white");
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] >= 0.999 ? own : over(own, behind(element.parentElement));
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest("svg, option, .unseen, :disabled, .skip, noscript")) continue;
    seen += 1;
    const ground = behind(element);
    const [one, other] = [light(over(rgba(getComputedStyle(element).color), ground)), light(ground)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${element.className || element.tagName}: ${text.slice(0, 40)}`);
  }
  return { seen, faint };
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read(consoles, server: Server, theme: str):
    """A contrast of 4.5 to 1, in every state that a run and a decision can be in."""
    console = consoles(color_scheme=theme, reduced_motion="reduce")  # no colour is on its way to another one
    page = console.page
    seen = 0

    def look(what: str) -> None:
        nonlocal seen
        found = page.evaluate(CONTRAST)
        assert found["faint"] == [], what
        seen += found["seen"]

    console.start("support")
    page.locator(".card").wait_for()
    look("a decision")
    page.get_by_role("button", name="Edit arguments").click()
    page.get_by_label("Arguments as JSON").fill("{")
    look("a fault")
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Deny").click()
    look("a denial")
    page.keyboard.press("Enter")
    console.stage("completed")
    look("a completed run")
    console.start("counter")
    page.locator(".row-call .bar-text").wait_for()
    look("a running run")
    page.get_by_role("button", name="Cancel run").click()
    look("a dialog")
    page.get_by_role("button", name="Cancel the run").click()
    console.stage("cancelled")
    page.locator(".toast").wait_for()
    look("a cancelled run")
    page.keyboard.press("?")
    look("help")
    assert seen > 300


def test_theme_and_language_are_chosen_and_remembered(consoles):
    console = consoles(color_scheme="dark")
    console.start("support")
    page = console.page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Theme: as the system").click()
    light = page.evaluate(ground)
    assert dark != light
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Theme: dark").click()  # as the system again, which is dark
    page.get_by_role("button", name="Theme: as the system").click()
    page.get_by_role("button", name="Switch to Chinese").click()
    expect(page.get_by_role("button", name="批准 refund")).to_be_visible()
    expect(page.get_by_role("button", name="取消运行")).to_be_visible()
    expect(console.page.locator(".step-name >> nth=0")).to_have_text("第 1 步", use_inner_text=True)
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.reload()
    page.get_by_role("button", name="批准 refund").wait_for()
    assert page.evaluate(ground) == light
    left = page.evaluate(
        """() => [...document.querySelectorAll("[data-say-text]")]
            .filter((one) => one.checkVisibility() && /^[A-Z][a-z ]+$/.test(one.textContent))
            .map((one) => one.textContent)"""
    )
    assert left == ["Greenroom"]
    page.get_by_role("button", name="切换到英文").click()
    expect(page.get_by_role("button", name="Approve refund")).to_be_visible()


def test_a_chinese_browser_gets_a_chinese_page(consoles):
    console = consoles(locale="zh-TW")
    console.open()
    expect(console.page.locator(".side-head h2")).to_have_text("运行", use_inner_text=True)


def test_both_languages_say_everything(console: Console):
    console.open()
    found: dict[str, Any] = console.page.evaluate(
        """async () => {
            const { WORDS } = await import("/console/words.js");
            const { KNOWN_TYPES } = await import("/console/model.js");
            const same = (key) => typeof WORDS.en[key] === typeof WORDS.zh[key];
            return {
                en: Object.keys(WORDS.en), zh: Object.keys(WORDS.zh), types: KNOWN_TYPES,
                other: Object.keys(WORDS.en).filter((key) => !same(key)),
            };
        }"""
    )
    assert sorted(found["en"]) == sorted(found["zh"])
    assert found["other"] == []
    assert {f"advice.{code}" for code in FAILURES} <= set(found["en"])
    missing = {f"error.{code}" for code in ERRORS} - set(found["en"])
    assert {key.removeprefix("error.") for key in missing} == {
        "unauthenticated",  # these lead to the form, or are HTTP's own
        "forbidden_origin",
        "not_found",
        "method_not_allowed",
        "request_timeout",
        "too_big",
        "too_many_connections",
        "headers_too_large",
        "reset",
    }
    assert set(found["types"]) == set(CATALOGUE)


def test_what_plugins_and_state_do_is_said_in_words(console: Console):
    console.open()
    said: list[str] = console.page.evaluate(
        """async () => {
            const { WORDS } = await import("/console/words.js");
            const { RunModel } = await import("/console/model.js");
            const model = new RunModel("r");
            const told = [
                ["run.tool.call", { callId: "c", tool: "put", arguments: { a: 1 }, effect: "read", status: "new" }],
                ["run.tool.edited", { callId: "c", arguments: { a: 2 }, by: "Policy" }],
                ["run.gate.overruled", { callId: "c", plugin: "Cache", verdict: "set_result", by: "(approval)" }],
                ["run.guardrail.tripped", { kind: "tool_input", guardrail: "g", verdict: "reject", callId: "c" }],
                ["run.guardrail.tripped", { kind: "output", guardrail: "g", verdict: "trip", info: { n: 1 } }],
                ["run.state.changed", { revision: 1, keys: ["k", "thread:n"], by: "c" }],
                ["run.state.conflict", { key: "k", writer: "c", other: null, detail: "d" }],
                ["run.state.conflict", { key: "k", writer: "step_end", other: "c", detail: "d", retried: true }],
            ];
            told.forEach(([type, payload], n) =>
                model.apply({ sequence: n + 1, type, payload, agentId: "a", timestamp: "2026-01-01T00:00:00Z" }));
            const [call, ...notes] = model.items;
            const say = (item) => WORDS.en[item.text](item.values);
            return [JSON.stringify([call.given, call.changed]), ...notes.map(say)];
        }"""
    )
    assert said == [
        '[{"a":2},"plugin"]',
        "Policy changed the arguments of put",
        "put: the verdict of Cache (set_result) gave way to that of (approval)",
        "The guardrail g rejected the arguments of put",
        "The guardrail g stopped the run for its answer",
        "State written by put: k, thread:n",
        "What put wrote to state was dropped",
        "What step_end wrote to state was dropped; it runs again",
    ]


def test_what_a_program_says_has_its_name_and_is_not_the_answer(console: Console):
    console.open()
    said: list[str] = console.page.evaluate(
        """async () => {
            const { RunModel } = await import("/console/model.js");
            const model = new RunModel("r");
            const told = [
                ["run.tool.call", { callId: "c", tool: "coder", arguments: {}, effect: "read", status: "new" }],
                ["run.message.delta", { messageId: "m", index: 0, text: "I lo", callId: "c" }],
                ["run.message.completed", { messageId: "m", role: "assistant", text: "I look.", callId: "c" }],
                ["run.message.delta", { messageId: "n", index: 0, text: "I wr", callId: "c" }],
                ["run.message.discarded", { messageId: "n", reason: "it has ended", callId: "c" }],
                ["run.message.completed", { messageId: "o", role: "assistant", text: "Done." }],
            ];
            told.forEach(([type, payload], n) =>
                model.apply({ sequence: n + 1, type, payload, agentId: "a", timestamp: "2026-01-01T00:00:00Z" }));
            const messages = model.items.filter((item) => item.kind === "message");
            const one = ({ agent, text, discarded }) => `${agent}: ${text} ${discarded ?? ""}`.trim();
            return [...messages.map(one), model.said];
        }"""
    )
    assert said == ["coder: I look.", "coder: I wr it has ended", "a: Done.", "Done."]


# --- small screens ----------------------------------------------------------------------------------------------------


def test_a_phone_has_one_column_and_nothing_beside_it(consoles, server: Server):
    console = consoles(**PHONE)
    page = console.page
    run = server.start_run("support")
    console.open()
    console.no_sideways_scroll()
    page.locator(f"#runs a[data-run='{run}']").click()
    page.locator(".card").wait_for()
    expect(page.locator(".side")).to_be_hidden()
    expect(page.locator(".card")).to_be_visible()
    console.no_sideways_scroll()
    for name in ("Deny", "Back", "Edit arguments"):
        page.get_by_role("button", name=name, exact=True).click()
        console.no_sideways_scroll()
    page.get_by_role("button", name="Approve with").click()
    console.stage("completed")
    page.get_by_role("button", name="Back to the list of runs").click()
    expect(page.locator(".side")).to_be_visible()
    page.go_back()
    expect(page.locator("#page")).to_be_visible()
    for open_it in ("New run", "Keyboard shortcuts and help"):
        page.get_by_role("button", name=open_it).click()
        console.no_sideways_scroll()
        page.get_by_role("button", name="Close").click()


def test_a_phone_holds_hostile_text(consoles):
    console = consoles(**PHONE)
    console.start("hostile", f"{HOSTILE} {LONG_WORD}")
    console.stage("needs_approval")
    console.no_sideways_scroll()


def test_on_a_phone_a_decision_is_where_the_run_stands(consoles):
    """At the end of the timeline; a reader that scrolled away gets a notice."""
    console = consoles(**PHONE)
    console.start("support")
    page = console.page
    button = page.get_by_role("button", name="Approve refund")
    button.wait_for()
    box, room = page.locator(".card").bounding_box(), page.locator("#scroller").bounding_box()
    assert room["y"] <= box["y"] < room["y"] + room["height"]
    page.locator("#scroller").evaluate("one => one.scrollTo(0, 0)")
    page.get_by_role("button", name="A decision is waiting").click()
    box = page.locator(".card").bounding_box()
    assert room["y"] <= box["y"] < room["y"] + room["height"]


# --- without eyes, hands or motion ------------------------------------------------------------------------------------


def test_everything_that_can_be_pressed_or_filled_has_a_name(console: Console):
    console.start("asker")
    page = console.page
    page.locator(".card").wait_for()
    page.get_by_role("button", name="Cancel run").click()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select, dialog, nav, aside, [role=region]")]
            .filter((one) => one.checkVisibility())
            .filter((one) => !(one.ariaLabel || one.labels?.length || one.getAttribute("aria-labelledby")
                || (one.tagName === "BUTTON" && one.innerText.trim())))
            .map((one) => one.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    expect(page.locator("h1:visible")).to_have_count(1)


def test_new_decisions_and_stages_are_said_aloud(console: Console, server: Server):
    run = console.start("echo", "wait")
    page = console.page
    page.evaluate(
        """() => { window.heard = []; for (const id of ["said", "said-now"]) new MutationObserver(
            () => heard.push(document.getElementById(id).textContent.trim()))
            .observe(document.getElementById(id), { childList: true, characterData: true, subtree: true }); }"""
    )
    page.locator(f"#runs a[data-run='{run}']").wait_for()  # the list is there: what waits from now on is news
    server.start_run("support")  # one that is in the list only
    console.until("heard.includes('A run of support waits for a decision.')")
    server.post(f"/v1/runs/{run}/commands", type="cancel")
    console.until("heard.includes('echo: Cancelled')")
    stuck = server.start_run("late")
    page.evaluate(f"location.hash = '#run={stuck}'")
    console.until("heard.includes('New question: refund')")


def test_the_focus_is_seen_and_stays_where_the_user_works(console: Console, server: Server):
    console.start("support")
    page = console.page
    page.keyboard.press("w")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("d")
    page.keyboard.type("half a rea")
    server.start_run("talker")
    page.locator("#runs a", has_text="talker").first.wait_for()
    page.keyboard.type("son")
    expect(page.get_by_label("Reason (")).to_have_value("half a reason")


def test_nothing_moves_for_those_who_do_not_want_it(consoles):
    console = consoles(reduced_motion="reduce")
    run = console.start("counter")
    console.page.locator(".row-call .bar-text").wait_for()
    moving = console.page.evaluate(
        "document.getAnimations().filter((one) => one.playState === 'running').map((one) => one.animationName)"
    )
    console.server.let_go(run)
    assert moving == []


# --- the parts that are pure ------------------------------------------------------------------------------------------


FORMATTED = {
    "duration(0.0072)": "7 ms",
    "duration(59.97)": "1 min 0 s",
    "duration(1.44)": "1.4 s",
    "duration(11400)": "3 h 10 min",
    "duration(172800)": "2 days",
    "size(999)": "999 bytes",
    "size(1)": "1 byte",
    "size(2100)": "2.1 kB",
    "size(3.4e6)": "3.4 MB",
    "offset(3.44)": "+3.4",
    "offset(125)": "+2:05",
    "offset(3725)": "+1:02:05",
    "spelled('a\\u202eb')": "a⟨U+202E⟩b",
    "spelled('a\\r\\nb\\tc')": "a\nb\tc",
    "spelled('\\u{e0041}')": "⟨U+E0041⟩",
    "hides('plain, 中文, emoji \\u{1f600}\\ufe0f')": False,
    "hides('a\\u00a0b')": True,
    "oneLine('a\\n  b', 9)": "a b",
    "cut('\\u{1f600}\\u{1f600}\\u{1f600}', 4)": "😀…",
}
"""JavaScript -> what it gives."""


def test_values_become_words(console: Console):
    console.page.goto(console.server.url)
    names = ", ".join(sorted({re.match(r"\w+", call)[0] for call in FORMATTED}))
    found = console.page.evaluate(f"import('/console/format.js').then(({{ {names} }}) => [{', '.join(FORMATTED)}])")
    assert dict(zip(FORMATTED, found, strict=True)) == FORMATTED


def test_json_is_read_and_written_without_loss(console: Console):
    console.page.goto(console.server.url)
    text = '{"a":12345678901234567890,"b":1.0,"c":[1e5,-0.5,7],"d":"12345678901234567890"}'
    written = console.page.evaluate(
        "(text) => import('/console/exact.js').then(({ parseExact }) => JSON.stringify(parseExact(text)))", text
    )
    assert written == text


CUTS = (
    ("a\nb", False, "a\nb"),
    ("\n".join(map(str, range(40))), False, "\n".join(map(str, range(14)))),
    ("\n".join(map(str, range(40))), True, "\n".join(map(str, range(26, 40)))),
    ("x" * 5000, False, "x" * 1600),
    ("x" * 5000 + "end", True, "x" * 1597 + "end"),
    ("\n" * 3, True, "\n" * 3),
    ("", False, ""),
)
"""Text, whether its end is shown, and what is shown."""


def test_long_values_are_cut_where_they_say(console: Console):
    console.page.goto(console.server.url)
    given = [[text, {"lines": 14, "chars": 1600, "tail": tail}] for text, tail, _ in CUTS]
    shown = console.page.evaluate(
        "(given) => import('/console/blocks.js').then(({ excerpt }) => given.map((one) => excerpt(...one)))", given
    )
    assert shown == [cut for _, _, cut in CUTS]
