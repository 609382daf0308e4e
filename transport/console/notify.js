// Notifications of the desktop about new questions: asked for by a person, and shown while the page is out of sight.

import { keep, recall } from "./prefs.js";
import { t } from "./words.js";

const TOGETHER_MS = 1_500; // questions that come within this time are one notification

export class Notifier {
  #waiting = [];
  #timer = null;

  /** @param {(ticket: object) => void} opened called when a person presses a notification */
  constructor(opened) {
    this.opened = opened;
  }

  /** True if the browser has notifications; some have none on a page without TLS. */
  get possible() {
    return "Notification" in window;
  }

  /** True if the person wants notifications, and the browser allows them. */
  get on() {
    return this.possible && recall("notify") === "on" && Notification.permission === "granted";
  }

  /** Turn notifications on or off. Only turning them on asks for the permission; false if it is refused. */
  async turn(on) {
    if (!on) {
      keep("notify", null);
      return true;
    }
    if ((await Notification.requestPermission()) !== "granted") return false;
    keep("notify", "on");
    return true;
  }

  /** Tell of new questions. */
  tell(tickets) {
    if (!tickets.length || !this.on || !document.hidden) return;
    this.#waiting.push(...tickets);
    this.#timer ??= setTimeout(() => this.#show(), TOGETHER_MS);
  }

  #show() {
    const tickets = this.#waiting;
    this.#waiting = [];
    this.#timer = null;
    const [first] = tickets;
    const tool = first.tool || t("ask.run");
    const title = tickets.length === 1 ? t("notify.one", { tool }) : t("notify.many", { n: tickets.length });
    // the arguments stay on the page: a notification may be shown on a locked screen
    const shown = new Notification(title, { body: `${first.agent} · ${first.by}`, tag: "greenroom-questions" });
    shown.onclick = () => {
      window.focus();
      shown.close();
      this.opened(first);
    };
  }
}
