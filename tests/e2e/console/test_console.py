"""What people do with the console: follow, decide, start, cancel, send, find their runs."""

import re
from typing import TYPE_CHECKING

import pytest

from .conftest import LOOKER, TOKEN, Console, Server, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.judge]


def card(page: "Page"):
    return page.locator(".card")


# --- following --------------------------------------------------------------------------------------------------------


def test_a_run_is_followed_live_from_its_input_to_its_end(console: Console, server: Server):
    run = console.start("talker", "Tell me.")
    page = console.page
    page.locator(".row-input .prose", has_text="Tell me.").wait_for()
    page.locator(".row-message.is-live .prose", has_text="One.").wait_for()  # while it is still being said
    console.stage("completed")
    expect(console.page.locator(".row-message .prose")).to_have_text("One. Two. Three.", use_inner_text=True)
    expect(console.page.locator(".end")).to_contain_text("Completed", use_inner_text=True)
    expect(console.page.locator("#details .detail-events dd")).to_have_text(
        str(len(server.events(run))), use_inner_text=True
    )
    expect(console.page.locator("#details .detail-by dd")).to_have_text("operator", use_inner_text=True)
    expect(page).to_have_title("talker · Completed - Greenroom")


def test_a_finished_run_shows_its_calls_with_arguments_results_and_reasoning(console: Console):
    console.start("support", "Order 7 is broken.")
    page = console.page
    console.stage("needs_approval")
    first = page.locator(".row-call").first
    expect(first.locator(".call-tool")).to_have_text("look_up", use_inner_text=True)
    expect(first.locator(".call-status")).to_have_text("Succeeded", use_inner_text=True)
    blocks = first.locator(".block-body").all_inner_texts()
    assert blocks[0] == '{ "order": "7" }'
    assert '"customer": "Ada Lovelace"' in blocks[1]
    page.locator(".reasoning summary").click()
    expect(console.page.locator(".is-reasoning")).to_contain_text(
        "what was paid before I propose it", use_inner_text=True
    )


def test_output_and_progress_of_a_call_are_seen_while_it_runs(console: Console):
    run = console.start("counter")
    page = console.page
    page.locator(".row-call .bar-text", has_text="of 40").wait_for()
    page.locator(".activity bdi", has_text="count is running").wait_for()
    console.server.let_go(run)
    console.stage("completed")
    page.get_by_role("button", name="Show all (40 lines").click()
    output = page.locator(".row-call .block-body").nth(1).inner_text()
    assert output.splitlines() == [f"line {n}" for n in range(1, 41)]


def test_the_page_does_not_move_under_its_reader(console: Console):
    """A client that has scrolled up stays where they read, and is shown what is new."""
    run = console.start("counter")
    page = console.page
    page.set_viewport_size({"width": 1280, "height": 420})
    page.locator(".row-call .block-body", has_text=re.compile(r"line ([4-9]|\d\d)")).wait_for()
    page.locator("#scroller").hover()
    page.mouse.wheel(0, -4000)
    console.server.let_go(run)
    page.locator("#jump").wait_for()
    before = page.locator(".row-input").bounding_box()
    console.stage("completed")
    assert page.locator(".row-input").bounding_box() == before
    page.get_by_role("button", name=re.compile("new event")).click()
    expect(page.locator(".row-end")).to_be_visible()
    expect(page.locator("#jump")).to_be_hidden()


def test_a_run_of_five_thousand_events_stays_usable(console: Console, server: Server):
    run = console.start("many")
    page = console.page
    console.stage("completed")
    events = server.events(run)
    assert len(events) > 5000
    page.locator("#details .detail-events dd", has_text=re.compile(f"^{len(events):,}$")).wait_for()
    page.locator(".row-end").wait_for()
    assert page.locator(".row").count() <= 450
    page.reload()  # and all of them at once
    page.locator(".row-end").wait_for()
    assert page.locator(".row").count() <= 450
    while page.locator("#earlier").is_visible():
        page.locator("#earlier").click()
        assert page.locator(".row").count() <= 450
    expect(page.locator(".row").first).to_have_attribute("class", "row row-input")
    page.locator("#later").wait_for()
    page.keyboard.press("l")
    page.locator(".row-end").wait_for()


GROWS = """async () => {
    const { Timeline } = await import("./console/timeline.js");
    const { h } = await import("./console/dom.js");
    const list = h("ol");
    const scroller = h("div", {}, list);
    Object.assign(scroller.style, { height: "300px", overflowY: "auto", overflowAnchor: "none" });
    const activity = h("p", {}, h("bdi"), h("span"));
    const [earlier, later, jump] = [h("button"), h("button"), h("button", {}, h("span"))];
    document.body.append(scroller);
    const timeline = new Timeline({ scroller, list, earlier, later, activity, jump, tail: () => null });
    const model = { items: [], changed: new Set(), running: new Map(), done: true, startedAt: 0, agent: "a" };
    const painted = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
    const more = (count) => {
        for (let n = 0; n < count; n++) model.items.push({ kind: "step", step: model.items.length, at: 0 });
        timeline.draw();
    };
    timeline.show(model);
    for (let n = 0; n < 4; n++) more(110);
    await painted();
    more(20);  // more than the document holds: the rows above are dropped, and the page is shorter than before
    scroller.append(h("div"));
    scroller.lastChild.style.height = "500px";  // and grows by other means before it is told of its move
    await painted();
    const states = [[timeline.following, list.children.length]];
    scroller.scrollTop -= 200;  // as its reader does
    await painted();
    states.push([timeline.following, list.children.length]);
    return states;
}"""
"""A timeline of its own in the page: its window moves on, and the page grows between that and the news of it."""


def test_only_its_reader_takes_the_page_from_the_end(console: Console):
    console.open()
    assert console.page.evaluate(GROWS) == [[True, 150], [False, 150]]


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_a_nested_call_is_drawn_under_the_call_that_makes_it_and_decided_there(console: Console, server: Server):
    run = console.start("coding")
    page = console.page
    shown = card(page)
    expect(shown.locator(".card-fact", has_text="Called by")).to_contain_text("coder")
    expect(shown.get_by_text("A process is waiting for this decision.")).to_be_visible()
    calls = page.locator(".row-call")
    expect(calls).to_have_count(2)
    parent, nested = calls.nth(0), calls.nth(1)
    expect(parent.locator(".call-tool")).to_have_text("coder")
    expect(nested.locator(".call-tool")).to_have_text("coder \u203a Bash")
    assert nested.locator(".call").bounding_box()["x"] > parent.locator(".call").bounding_box()["x"]
    shown.get_by_role("button", name="Approve Bash").click()
    console.stage("completed")
    expect(nested.locator(".call-status")).to_have_text("Succeeded")
    resolved = server.payloads(run, "approval.resolved")
    assert [(one["callId"], one["resolution"]) for one in resolved] == [("p1.1", "approved")]


def test_an_approval_shows_the_call_in_full_and_lets_it_happen(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    shown = card(page)
    expect(shown.get_by_role("heading", name="Approve refund?")).to_be_visible()
    names = shown.locator(".card-values .block-name > bdi").all_inner_texts()
    values = shown.locator(".card-values .block-body").all_inner_texts()
    assert names == ["order", "cents", "note"]
    assert values == ['"7"', "4200", '"The lamp arrived broken; the photos show it."']
    fingerprint = server.payloads(run, "approval.requested")[0]["fingerprint"]
    expect(shown.locator(".card-mark code")).to_have_attribute("title", fingerprint)
    expect(page).to_have_title(re.compile(r"^\("))
    shown.get_by_role("button", name="Approve refund").click()
    shown.get_by_text("Approved by operator").wait_for()
    console.stage("completed")
    assert server.payloads(run, "tool.result")[-1]["result"] == "paid back 4200 cents of order 7"
    shown.wait_for(state="detached")
    expect(page.locator(".row-note", has_text="refund was approved by operator")).to_be_visible()


def test_the_questions_of_a_child_run_are_answered_in_its_parent_one_by_one(console: Console, server: Server):
    """Two questions about one call of the parent: a mirror each; an answer to one leaves the other."""
    run = console.start("boss")
    page = console.page
    shown = card(page)
    expect(shown).to_have_count(2)
    values = [one.locator(".card-values .block-body").all_inner_texts() for one in shown.all()]
    assert sorted(values) == [['"7"', "4200"], ['"8"', "100"]]
    second = shown.filter(has_text='"8"')
    second.get_by_role("button", name="Deny").click()
    page.get_by_label("Reason (").fill("8 was never paid.")
    second.get_by_role("button", name="Deny refund").click()
    page.locator(".row-note", has_text="refund was denied by operator").wait_for()
    second.wait_for(state="detached")
    console.stage("needs_approval")
    expect(shown).to_have_count(1)
    shown.get_by_role("button", name="Approve refund").click()
    console.stage("completed")
    asked, answered = server.payloads(run, "approval.requested"), server.payloads(run, "approval.resolved")
    assert {payload["callId"] for payload in asked} == {"P"}
    assert sorted(payload["resolution"] for payload in answered) == ["approved", "denied"]
    child = asked[0]["childRunId"]
    results = server.payloads(child, "tool.result")
    assert sorted(payload["status"] for payload in results) == ["cancelled", "succeeded"]
    page.locator(".row-note a.run-link", has_text=child).click()
    page.locator(".row-note", has_text="8 was never paid.").wait_for()
    expect(page.locator("#run-stage.chip-completed")).to_be_visible()


def test_a_call_is_denied_with_a_reason(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).get_by_role("button", name="Deny").click()
    page.get_by_label("Reason (").fill("The photos show nothing.")
    card(page).get_by_role("button", name="Deny refund").click()
    console.stage("completed")
    resolved = server.payloads(run, "approval.resolved")[0]
    assert (resolved["resolution"], resolved["by"]) == ("denied", "operator")
    assert resolved["reason"] == "The photos show nothing."
    row = page.locator(".row-note", has_text="refund was denied by operator")
    expect(row).to_contain_text("The photos show nothing.", use_inner_text=True)


def test_a_held_run_is_asked_about_as_a_run_and_reads_a_text_when_it_continues(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    server.post(f"/v1/runs/{run}/commands", type="pause", reason="lunch")
    held = card(page).filter(has_text="operator paused the run: lunch")
    held.get_by_role("heading", name="The run is paused").wait_for()
    expect(held.get_by_text("Exact arguments")).to_have_count(0)
    expect(held.get_by_role("button", name="Edit")).to_have_count(0)
    card(page).get_by_role("button", name="Approve refund").click()
    page.locator(".row-note", has_text="operator asked to pause the run").wait_for()
    held.get_by_role("button", name="Continue with a message…").click()
    page.get_by_label("What should the agent know").fill("The shop is open again.")
    held.get_by_role("button", name="Let it continue").click()
    console.stage("completed")
    assert server.payloads(run, "input.received")[0]["text"] == "The shop is open again."
    page.locator(".row-note", has_text="operator let the run continue").wait_for()
    page.locator(".row-input .prose", has_text="The shop is open again.").wait_for()


def test_a_held_run_is_ended_with_a_reason(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    server.post(f"/v1/runs/{run}/commands", type="pause")
    held = card(page).filter(has_text="operator paused the run")
    held.get_by_role("button", name="End the run").click()
    page.get_by_label("Reason (").fill("Wrong order.")
    held.get_by_role("button", name="End the run").click()
    console.stage("cancelled")
    page.locator(".row-note", has_text="operator ended the run").wait_for()
    assert server.payloads(run, "cancelled")[0]["reason"] == "Wrong order."


def test_arguments_are_edited_only_as_valid_json(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).get_by_role("button", name="Edit arguments").click()
    editor = page.get_by_label("Arguments as JSON")
    expect(editor).to_have_value(re.compile(re.escape('"cents": 4200')))
    editor.fill('{"order": "7", "cents": }')
    expect(console.page.locator(".card .fault")).to_contain_text("line 1, column", use_inner_text=True)
    card(page).get_by_role("button", name="Approve with these arguments").click()
    editor.fill("[1]")
    expect(console.page.locator(".card .fault")).to_contain_text("must be a JSON object", use_inner_text=True)
    editor.fill('{"order": "7", "cents": "many", "note": ""}')
    card(page).get_by_role("button", name="Approve with these arguments").click()
    page.locator(".card-status", has_text="The arguments do not fit the tool").wait_for()  # the gateway judges
    editor.fill('{"order": "7", "cents": 2100, "note": ""}')
    expect(card(page)).to_contain_text("Changed: cents, note", use_inner_text=True)
    card(page).get_by_role("button", name="Approve with these arguments").click()
    console.stage("completed")
    assert server.payloads(run, "approval.resolved")[0]["edited"] is True
    assert server.payloads(run, "tool.result")[-1]["result"] == "paid back 2100 cents of order 7"
    page.locator(".row-call .block-name", has_text="as the decision has changed them").wait_for()
    expect(page.locator(".row-call", has_text="as the decision has changed them")).to_contain_text(
        "2100", use_inner_text=True
    )


def test_the_keyboard_alone_decides_and_asks_once_more(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    page.keyboard.press("a")  # nothing is in focus: nothing happens
    page.keyboard.press("w")
    page.keyboard.press("a")
    again = card(page).get_by_role("button", name="Press a again")
    again.wait_for()
    page.keyboard.press("Escape")
    again.wait_for(state="detached")
    page.keyboard.press("d")
    page.keyboard.press("Escape")
    assert server.payloads(run, "approval.resolved") == []
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    console.stage("completed")
    assert server.payloads(run, "approval.resolved")[0]["resolution"] == "approved"


def test_the_keyboard_denies_with_a_reason(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    page.keyboard.press("w")
    page.keyboard.press("d")
    page.keyboard.type("no")
    page.keyboard.press("Enter")
    console.stage("completed")
    assert server.payloads(run, "approval.resolved")[0]["reason"] == "no"


def test_single_keys_can_be_switched_off(console: Console):
    console.start("support")
    page = console.page
    card(page).wait_for()
    page.keyboard.press("?")
    page.get_by_label("Use single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    console.press("n", "w", "?")
    assert page.locator("dialog").count() == 0
    assert page.evaluate("document.activeElement.closest('.card') === null")


def test_a_question_with_a_schema_is_answered_in_a_form(console: Console, server: Server):
    run = console.start("asker")
    page = console.page
    expect(card(page)).to_contain_text("Where do you live?", use_inner_text=True)
    card(page).get_by_role("button", name="Send the answer").click()
    expect(console.page.locator(".card .fault")).to_have_text("address is required.", use_inner_text=True)
    page.get_by_label("Address").fill("5 High Street")
    page.get_by_label("Floor").fill("3.5")
    card(page).get_by_role("button", name="Send the answer").click()
    expect(console.page.locator(".card .fault")).to_have_text("floor must be a whole number.", use_inner_text=True)
    page.get_by_label("Floor").fill("3")
    page.get_by_label("Is there a lift?").select_option("No")
    page.get_by_label("Speed").select_option("fast")
    card(page).get_by_role("button", name="Send the answer").click()
    console.stage("completed")
    given = {"address": "5 High Street", "floor": 3, "lift": False, "speed": "fast"}
    assert server.payloads(run, "tool.result")[0]["result"] == given


def test_a_question_can_be_answered_in_json_and_the_gateway_says_what_does_not_fit(console: Console, server: Server):
    run = console.start("asker")
    page = console.page
    card(page).get_by_role("button", name="Write JSON instead").click()
    page.locator(".card textarea.json").fill('{"address": 5}')
    card(page).get_by_role("button", name="Send the answer").click()
    page.locator(".card-status", has_text="does not fit what is asked for").wait_for()
    page.locator(".card textarea.json").fill('{"address": "x", "floor": 1}')
    card(page).get_by_role("button", name="Send the answer").click()
    console.stage("completed")
    assert server.payloads(run, "tool.result")[0]["result"] == {"address": "x", "floor": 1}


def test_a_decision_form_gives_the_arguments_and_sees_until_when(console: Console, server: Server):
    run = console.start("shipper")
    page = console.page
    assert re.match(r"Expires in (1 h 0|59) min", console.text(".card-left"))
    page.get_by_label("Arguments for the call, as JSON").fill('{"to": "Ada", "parcels": 2}')
    card(page).get_by_role("button", name="Send the answer").click()
    card(page).get_by_text("Approved by operator").wait_for()
    assert server.payloads(run, "approval.resolved")[0]["resolution"] == "approved"
    console.stage("needs_approval")  # its body asks again


def test_a_decision_that_comes_too_late_says_who_was_faster(console: Console, server: Server):
    """The page has not learned of the other decision yet when it sends its own."""
    run, held = server.start_run("support"), []

    def hold(socket):
        def heard(text):
            if held or "run.approval.resolved" in text:
                held.append(text)
            if not held or '"gw.error"' in text:
                socket.send(text)

        gateway = socket.connect_to_server()
        gateway.on_message(heard)

    console.page.route_web_socket(re.compile("/v1/ws$"), hold)
    console.open(run)
    card(console.page).wait_for()
    ticket = server.payloads(run, "approval.requested")[0]["ticketId"]
    server.post(f"/v1/runs/{run}/commands", type="decide", target=ticket, action="cancel")
    while not held:
        console.page.wait_for_timeout(20)
    card(console.page).get_by_role("button", name="Approve refund").click()
    message = console.page.locator(".card-status", has_text="Already denied by operator")
    message.wait_for()
    card(console.page).get_by_role("button", name="Dismiss").click()
    expect(card(console.page)).to_have_count(0)


# --- starting, sending, cancelling ------------------------------------------------------------------------------------


def test_a_run_is_started_once_and_shown(console: Console, server: Server):
    console.open()
    page = console.page
    before = len(server.get("/v1/runs?limit=1000")["runs"])
    page.keyboard.press("n")
    page.locator("dialog").get_by_label("Agent").select_option("talker")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator("dialog .fault").last).to_contain_text("Say what the run should do", use_inner_text=True)
    page.get_by_label("What should it do?").fill("Say something.")
    page.keyboard.press("Control+Enter")
    console.stage("completed")
    runs = server.get("/v1/runs?limit=1000")["runs"]
    assert len(runs) == before + 1
    expect(page).to_have_url(f"{server.url}/#run={runs[0]['run']}")
    expect(console.page.locator(".row-input .prose")).to_have_text("Say something.", use_inner_text=True)
    expect(page.locator(f"#runs a[data-run='{runs[0]['run']}'][aria-current]")).to_have_count(1)


def test_a_run_is_started_with_a_title_in_a_named_thread(console: Console, server: Server):
    console.open()
    page = console.page
    page.keyboard.press("n")
    dialog = page.locator("dialog.start")
    dialog.get_by_label("Agent").select_option("talker")
    dialog.get_by_label("What should it do?").fill("Say something long.")
    dialog.get_by_text("Options").click()
    dialog.get_by_label("Title").fill("The morning post")
    dialog.get_by_label("Thread").fill("post")
    page.get_by_role("button", name="Start the run").click()
    console.stage("completed")
    (run,) = [run for run in server.get("/v1/runs?limit=1000")["runs"] if run["title"] == "The morning post"]
    assert server.payloads(run["run"], "created")[0]["threadId"] == "post"
    expect(page.locator(f"#runs a[data-run='{run['run']}']")).to_contain_text("The morning post", use_inner_text=True)


def test_more_input_reaches_the_run(console: Console, server: Server):
    run = console.start("echo", "wait")
    page = console.page
    page.locator(".row-call").wait_for()
    page.get_by_label("More input for this run").fill("Hurry up!")
    page.keyboard.press("Enter")
    page.locator(".row-input .prose", has_text="Hurry up!").wait_for()
    server.let_go(run)
    expect(page.get_by_label("More input for this run")).to_have_value("")
    console.stage("completed")
    expect(page.locator(".row-message .prose").last).to_have_text("You said: Hurry up!", use_inner_text=True)
    assert server.payloads(run, "input.received")[0]["by"] == "operator"


def test_a_run_that_is_done_is_continued_in_its_thread(console: Console, server: Server):
    run = console.start("echo", "first")
    page = console.page
    console.stage("completed")
    page.get_by_label("Continue this conversation").fill("second")
    page.get_by_role("button", name="Continue").click()
    page.locator(".row-message .prose", has_text="You said: second").wait_for()
    console.stage("completed")
    after = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('run')")
    assert after != run
    threads = [server.payloads(one, "created")[0]["threadId"] for one in (run, after)]
    assert threads[0] == threads[1]


def test_a_run_that_is_done_is_tried_again(console: Console, server: Server):
    run = console.start("echo", "the question")
    page = console.page
    console.stage("completed")
    page.get_by_role("button", name="Try again").click()
    page.locator("#details .detail-forkedFrom a", has_text=f"{run}@0").wait_for()
    console.stage("completed")
    expect(console.page.locator(".row-input .prose")).to_have_text("the question", use_inner_text=True)
    expect(console.page.locator(".row-message .prose")).to_have_text("You said: the question", use_inner_text=True)
    page.locator("#details .detail-forkedFrom a").click()
    page.locator("#run-sub code", has_text=run).wait_for()


def test_a_run_that_is_done_is_forked_from_a_step(console: Console, server: Server):
    run = console.start("support", "Order 7 is broken.")
    page = console.page
    card(page).get_by_role("button", name="Deny").click()
    card(page).get_by_role("button", name="Deny refund").click()
    console.stage("completed")
    page.get_by_role("button", name="Fork from a step").click()
    options = page.get_by_label("Begin").locator("option").all_inner_texts()
    assert options[:3] == ["at the beginning", "after step 1 (look_up)", "after step 2 (refund)"]
    page.get_by_label("Begin").select_option("after step 1 (look_up)")
    page.get_by_role("button", name="Fork", exact=True).click()
    page.locator("#details .detail-forkedFrom a", has_text=f"{run}@1").wait_for()
    forked = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('run')")
    assert server.payloads(forked, "created")[0]["forkedFrom"] == f"{run}@1"
    assert server.payloads(forked, "created")[0]["by"] == "operator"


def test_who_may_not_start_runs_is_offered_nothing_after_the_end(consoles, server: Server):
    looker = consoles()
    run = server.start_run("talker")
    looker.open(run, token=LOOKER)
    looker.stage("completed")
    for part in ("#again", "#fork", "#composer"):
        expect(looker.page.locator(part)).to_be_hidden()


def test_a_run_is_cancelled_after_a_question_and_with_a_reason(console: Console, server: Server):
    run = console.start("counter")
    page = console.page
    page.locator(".row-call .bar-text").wait_for()
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("button", name="Keep it running").click()
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_label("Reason").fill("Wrong order.")
    page.get_by_role("button", name="Cancel the run").click()
    console.stage("cancelled")
    expect(console.page.locator(".end")).to_contain_text("Wrong order.", use_inner_text=True)
    asked = server.payloads(run, "cancel.requested")
    assert [(payload["mode"], payload["reason"], payload["by"]) for payload in asked] == [
        ("now", "Wrong order.", "operator")
    ]
    expect(page.get_by_role("button", name="Cancel run")).to_be_hidden()


def test_a_run_is_paused_with_a_reason_and_let_continue(console: Console, server: Server):
    """The page says that the run will hold; no person is asked to pause it twice."""
    run = console.start("counter")
    page = console.page
    pause = page.get_by_role("button", name="Pause run")
    page.locator(".row-call .bar-text").wait_for()
    pause.click()
    page.get_by_role("button", name="Keep it running").click()
    pause.click()
    page.get_by_label("Reason").fill("lunch")
    page.get_by_role("button", name="Pause the run").click()
    page.get_by_text("The run will hold before its next step").wait_for()
    expect(console.page.locator(".activity")).to_contain_text("count is running", use_inner_text=True)
    expect(pause).to_be_hidden()
    console.until("document.activeElement.id === 'run-title'")
    server.let_go(run)
    held = card(page).filter(has_text="operator paused the run: lunch")
    held.get_by_role("heading", name="The run is paused").wait_for()
    page.locator(".row-note", has_text="The run is paused").wait_for()
    expect(pause).to_be_hidden()
    expect(page.locator("#pausing")).to_be_hidden()
    held.get_by_role("button", name="Let it continue").click()
    page.locator(".row-note", has_text="operator let the run continue").wait_for()
    console.stage("completed")
    expect(pause).to_be_hidden()
    asked = server.payloads(run, "pause.requested")
    assert [(payload["reason"], payload["by"]) for payload in asked] == [("lunch", "operator")]


def test_a_waiting_run_is_paused_at_once_without_a_reason_and_the_keyboard_lets_it_continue(
    console: Console, server: Server
):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    page.get_by_role("button", name="Pause run").click()
    page.keyboard.press("Enter")  # the reason may be left out
    held = card(page).filter(has_text="operator paused the run.")
    held.wait_for()
    server.post(f"/v1/runs/{run}/commands", type="pause")  # joins the first one, and leaves nothing behind
    page.locator(".row-note", has_text="operator asked to pause").nth(1).wait_for()
    held.focus()
    page.keyboard.press("a")
    held.get_by_role("button", name="Press a again, or Enter, to let it continue").wait_for()
    page.keyboard.press("a")
    held.locator(".card-status", has_text="operator let the run continue").wait_for()
    page.get_by_role("button", name="Pause run").wait_for()  # it waits for the refund only, and may be paused again
    assert "reason" not in server.payloads(run, "pause.requested")[0]


@pytest.mark.parametrize("name", ["pause", "cancel"])
@pytest.mark.parametrize("way", ["Enter", "Escape"])
def test_a_button_that_vanishes_gives_the_focus_to_the_name_of_the_run(
    console: Console, server: Server, name: str, way: str
):
    """Before its dialog is answered or after: a frame around one word, and no button that would take the next Enter."""
    run = console.start("counter")
    page = console.page
    page.locator(".row-call .bar-text").wait_for()
    page.locator(f"#{name}").focus()
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    if way == "Escape":
        server.post(f"/v1/runs/{run}/commands", type=name)
        page.locator(f"#{name}").wait_for(state="hidden")
    page.keyboard.press(way)
    page.locator(f"#{name}").wait_for(state="hidden")
    page.locator("dialog").wait_for(state="detached")
    console.until("document.activeElement.id === 'run-title'")
    server.let_go(run)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    box, all_of_it = page.locator("#run-title").bounding_box(), page.locator("#page").bounding_box()
    assert (outline, box["height"] < 40, box["width"] < all_of_it["width"] / 4) == ("solid", True, True)


def test_a_pause_that_comes_too_late_is_said_to_be(console: Console, server: Server):
    run = console.start("support")
    page = console.page
    card(page).wait_for()
    page.get_by_role("button", name="Pause run").click()
    server.post(f"/v1/runs/{run}/commands", type="cancel")
    console.stage("cancelled")
    page.get_by_role("button", name="Pause the run").click()
    page.get_by_text("The run was not paused. The run has ended.").wait_for()


# --- the list ---------------------------------------------------------------------------------------------------------


def test_the_list_finds_runs_by_their_state_and_the_keyboard_goes_through_it(console: Console, server: Server):
    waiting = server.start_run("support")
    done = server.start_run("talker")
    console.open(done)
    page = console.page
    console.stage("completed")
    expect(page.locator("#runs .group").first).to_have_text("Waiting for a decision", use_inner_text=True)
    page.locator("#runs a", has_text="Waiting").first.wait_for()
    expect(page.locator("#waiting")).to_have_text(re.compile(r"^[1-9]"))
    page.get_by_role("button", name="Done").click()
    console.until("[...document.querySelectorAll('#runs a')].every((one) => !/Waiting/.test(one.textContent))")
    page.locator(f"#runs a[data-run='{done}']").wait_for()
    page.get_by_role("button", name=re.compile("^Waiting")).click()
    page.locator(f"#runs a[data-run='{waiting}']").wait_for()
    page.keyboard.press("j")
    console.until("document.activeElement.closest('#runs a') !== null")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    console.until("location.hash.startsWith(`#run=${document.activeElement.dataset.run}&show=waiting`)")
    console.stage("needs_approval")


def test_more_runs_than_fit_come_on_demand(console: Console, server: Server):
    runs = [server.start_run("talker") for _ in range(55)]
    console.open()
    page = console.page
    page.locator(f"#runs a[data-run='{runs[-1]}']").wait_for()
    height = "parseFloat(document.getElementById('runs').style.height)"
    before = page.evaluate(height)
    more = page.get_by_role("button", name="Show more")
    expect(more).to_be_visible()
    more.evaluate(
        "button => button.click()"
    )  # a real click scrolls to the button first, and scrolling requests the page, too
    console.until(f"{height} > {before}")
    drawn = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
    page.evaluate("document.getElementById('runs-scroll').scrollTo(0, 0)")
    page.locator(f"#runs a[data-run='{runs[0]}']").wait_for(state="detached")
    for _ in range(400):  # only rows in sight are in the document
        if page.locator(f"#runs a[data-run='{runs[0]}']").count():
            break
        page.evaluate("document.getElementById('runs-scroll').scrollBy(0, 200)")
        page.evaluate(drawn)
    page.locator(f"#runs a[data-run='{runs[0]}']").wait_for()
    newest = server.start_run("talker")  # it appears by itself, where it belongs
    page.evaluate("document.getElementById('runs-scroll').scrollTo(0, 0)")
    page.locator(f"#runs a[data-run='{newest}']").wait_for()


def test_a_run_that_is_not_there_is_said_to_be_so(console: Console):
    console.open()
    console.page.evaluate("location.hash = '#run=run_nobody'")
    console.page.get_by_role("heading", name="There is no such run").wait_for()
    expect(console.page.locator("#nothing-hint")).to_contain_text("Choose another one", use_inner_text=True)


# --- who is there -----------------------------------------------------------------------------------------------------


def test_without_a_token_the_page_asks_and_a_wrong_one_is_said_to_be_wrong(console: Console, server: Server):
    page = console.page
    page.goto(f"{server.url}/#token=nobody-has-this-token")
    page.get_by_role("alert").filter(has_text="This token is not known").wait_for()
    expect(page).to_have_url(f"{server.url}/")
    page.get_by_label("Token").fill("still-nobodys-token")
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="This token is not known").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.locator("#link[data-state=live]").wait_for()
    expect(page.locator("dialog")).to_have_count(0)
    page.reload()  # this tab remembers
    page.locator("#link[data-state=live]").wait_for()
    assert not [url for url in console.urls if TOKEN in url]
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    page.reload()
    page.get_by_role("heading", name="Sign in").wait_for()


def test_a_token_goes_from_the_address_at_once_and_a_run_stays_in_it(console: Console, server: Server):
    run = console.start("talker")
    assert console.page.url == f"{server.url}/#run={run}"
    assert TOKEN not in console.page.evaluate("JSON.stringify([location.href, history.state, document.referrer])")


def test_a_principal_who_may_only_look_is_offered_nothing_else(consoles):
    looker = consoles()
    run = looker.server.start_run("support")
    looker.open(run, token=LOOKER)
    page = looker.page
    card(page).wait_for()
    expect(card(page)).to_contain_text("You can look, but not decide", use_inner_text=True)
    expect(card(page).get_by_role("button", name=re.compile("Approve|Deny|Edit"))).to_have_count(0)
    for part in ("#start", "#pause", "#cancel", "#composer"):
        expect(page.locator(part)).to_be_hidden()
    looker.press("n")
    assert page.locator("dialog").count() == 0
