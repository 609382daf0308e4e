// The places of the console, in its top line: the runs, and the inbox with the number of its open questions.

import { h, tell } from "./dom.js";
import { compact } from "./format.js";
import { INBOX } from "./session.js";

export class Places {
  /** @param {HTMLElement} element receives the links */
  constructor(element) {
    this.element = element;
    this.badge = h("span", { class: "badge", hidden: true });
    this.what = h("span", { class: "unseen", say: "inbox.open", hidden: true });
    this.runs = h("a", { class: "place", href: "#", say: "inbox.runs" });
    this.inbox = h("a", { class: "place", href: INBOX }, h("span", { say: "inbox.title" }), this.badge, this.what);
    this.counted(0, false);
    element.append(this.runs, this.inbox);
  }

  /** Mark the shown place. */
  show(inbox) {
    if (!inbox) this.runs.setAttribute("href", location.hash || "#");
    for (const [link, here] of [
      [this.runs, !inbox],
      [this.inbox, inbox],
    ]) {
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Show the number of open questions; `more`: there are more than were read. */
  counted(n, more) {
    this.badge.hidden = this.what.hidden = n === 0;
    tell(this.badge, `${compact(n)}${more ? "+" : ""}`);
  }
}
