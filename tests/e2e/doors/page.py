"""The door of a person: the console, in Chromium."""

import json
from typing import TYPE_CHECKING, Any

from .door import CITY, INPUT, Door, Ending
from .house import PATIENCE, TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class ConsoleDoor(Door):
    """A page with the console; the page connects again by itself."""

    name = "console"
    browser: "Browser"

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self._context = self.browser.new_context(locale="en-US", reduced_motion="reduce")
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.heard: dict[str, list[dict[str, Any]]] = {}
        self.page.on("websocket", lambda socket: socket.on("framereceived", self._hear))
        self.page.goto(f"{self.gateway.url}/#token={TOKEN}")
        self.page.locator("#link[data-state=live]").wait_for()

    def _hear(self, text: Any) -> None:
        frame = json.loads(text)
        if not frame["type"].startswith("gw."):
            self.heard.setdefault(frame["runId"], []).append(frame)

    def start(self, key: str) -> str:
        page = self.page
        page.keyboard.press("n")
        dialog = page.locator("dialog.start")
        dialog.get_by_label("Agent").select_option("desk")
        dialog.get_by_label("What should it do?").fill(INPUT)
        dialog.get_by_text("Options").click()
        dialog.get_by_label("Thread").fill(f"thread-{key}")
        page.get_by_role("button", name="Start the run").click()
        page.locator(".row-input").wait_for()
        run: str = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('run')")
        return run

    def follow(self, run: str, thread: str) -> None:
        super().follow(run, thread)
        self.page.evaluate(f"location.hash = 'run={run}'")
        self.page.locator("#page:not([hidden]) .timeline .row").first.wait_for()

    def question(self) -> str | None:
        while not (fresh := self._open - {self.asked}):
            if self.page.locator(".row-end").count():
                return None
            self.page.wait_for_timeout(30)  # the page's frames come meanwhile
        (self.asked,) = fresh
        return self.asked

    @property
    def _open(self) -> set[str]:
        """The tickets that the page has heard of, and of no decision about them."""
        tickets = [event for event in self.heard.get(self.run, ()) if event["type"].startswith("run.approval.")]
        return {event["payload"]["ticketId"] for event in tickets if event["type"] == "run.approval.requested"} - {
            event["payload"]["ticketId"] for event in tickets if event["type"] == "run.approval.resolved"
        }

    @property
    def may_decide(self) -> bool:
        """The form of an unknown outcome is another one."""
        asked = [event["payload"] for event in self.heard[self.run] if event["type"] == "run.approval.requested"]
        return bool(asked[-1]["reason"] != "outcome_unknown")

    def decide(self, *, yes: bool = True) -> None:
        card = self.page.locator(".card").last
        card.locator(".card-buttons button").first.wait_for()
        if card.get_by_role("button", name="Send the answer").count():
            card.locator(".answer").locator("input, textarea").first.fill(CITY)
            card.get_by_role("button", name="Send the answer").click()
        else:
            card.get_by_role("button", name="Approve refund" if yes else "Deny").click()

    def cancel(self) -> None:
        self.page.get_by_role("button", name="Cancel run").click()
        self.page.get_by_role("button", name="Cancel the run").click()

    def ended(self) -> Ending:
        self.page.locator(".row-end").wait_for()
        stage = self.page.locator("#run-stage").get_attribute("class") or ""
        return Ending(
            status=stage.rpartition("chip-")[2],
            texts=[text.strip() for text in self.page.locator(".row-message .prose").all_inner_texts()],
            events=self.heard[self.run],
        )

    def close(self) -> None:
        self._context.close()
