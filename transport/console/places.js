// The places of the console, in its top line: the start page, the runs, and the inbox with the number of its open
// questions.

import { h, say, tell } from "./dom.js";
import { compact } from "./format.js";
import { INBOX, OVERVIEW } from "./session.js";

export class Places {
  /** @param {HTMLElement} element receives the links */
  constructor(element) {
    this.element = element;
    this.said = h("span", { class: "unseen" }); // the badge in words
    this.badge = h("span", { class: "badge", hidden: true, "aria-hidden": "true" });
    this.overview = h("a", { class: "place", href: OVERVIEW, say: "overview.page" });
    this.runs = h("a", { class: "place", href: "#", say: "inbox.runs" });
    this.inbox = h("a", { class: "place", href: INBOX }, h("span", { say: "inbox.title" }), this.badge, this.said);
    this.counted(0, false);
    element.append(this.overview, this.runs, this.inbox);
  }

  /** Mark the shown place: "inbox", "overview", or null for the runs. */
  show(place) {
    if (!place) this.runs.setAttribute("href", location.hash || "#");
    for (const [link, here] of [
      [this.overview, place === "overview"],
      [this.runs, !place],
      [this.inbox, place === "inbox"],
    ]) {
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Show the number of open questions; `more`: there are more than were read. */
  counted(n, more) {
    this.badge.hidden = n === 0;
    tell(this.badge, `${compact(n)}${more ? "+" : ""}`);
    say(this.said, "inbox.open", { n });
  }
}
