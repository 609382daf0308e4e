// A question's row in the inbox: what is asked, its arguments, for whom, since when, and what became of it.

import { foreign } from "./blocks.js";
import { h, icon, say, tell } from "./dom.js";
import { ago, moment, oneLine } from "./format.js";
import { saysNothing, subjectOf, titleOf } from "./ticket.js";

const LONGEST = { value: 90, line: 320 }; // characters of an argument, and of all of them

/** The arguments in one line; a value that does not fit is cut. */
export function argumentsLine({ arguments: given }) {
  const shown = [];
  let length = 0;
  for (const [name, value] of Object.entries(given ?? {})) {
    if (length > LONGEST.line) break;
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const part = `${oneLine(name, 40)}: ${oneLine(text, LONGEST.value)}`;
    shown.push(part);
    length += part.length;
  }
  return shown.join("  ·  ");
}

let made = 0;

export class InboxRow {
  #drawn = {};

  /** @param {object} question of InboxList */
  constructor(question) {
    const { ticket } = question;
    this.question = question;
    this.tick = h("span", { class: "ask-tick", "aria-hidden": "true" }, icon("check"));
    this.title = h("span", { class: "ask-title" });
    this.message = h("span", { class: "ask-message" });
    this.values = h("span", { class: "ask-values" });
    this.note = h("span", { class: "ask-note" });
    this.when = h("time", { class: "ask-when" });
    const facts = h("span", { class: "ask-facts" });
    facts.append(foreign(oneLine(ticket.agent, 40), "ask-agent"), " ", h("span", { class: "ask-by" }));
    this.by = facts.lastElementChild;
    const what = h("span", { class: "ask-what" }, this.title, " ", this.message);
    const line = h("span", { class: "ask-line" }, this.note, " ", this.values);
    const main = h("span", { class: "ask-main" }, what, " ", line);
    this.element = h(
      "li",
      { class: "ask-row", role: "option", id: `ask-${(made += 1)}`, data: { ticket: question.id } },
      this.tick,
      main,
      facts,
      this.when,
    );
  }

  /**
   * Update the row; cheap for an unchanged one.
   * @param {{current: boolean, ticked: boolean, tickable: boolean, place: number, count: number,
   *   language: string}} shown
   */
  show({ current, ticked, tickable, place, count, language }) {
    const { question, element } = this;
    element.classList.toggle("is-current", current);
    element.classList.toggle("is-ticked", ticked);
    element.classList.toggle("is-single", !tickable && question.open);
    element.dataset.state = question.state;
    element.setAttribute("aria-selected", String(ticked));
    element.setAttribute("aria-posinset", place);
    element.setAttribute("aria-setsize", count);
    const { ticket, note } = question;
    if (this.#drawn.ticket === ticket && this.#drawn.note === note && this.#drawn.language === language) return;
    this.#drawn = { ticket, note, language };
    this.#texts(ticket, note);
  }

  #texts(ticket, note) {
    const tool = subjectOf(ticket);
    say(this.title, titleOf(ticket), { tool });
    tell(this.message, saysNothing(ticket.message) ? "" : oneLine(ticket.message, 160));
    const line = argumentsLine(ticket);
    if (!ticket.whole) say(this.values, "inbox.large");
    else if (line) tell(this.values, line);
    else if (ticket.callId === null) tell(this.values, oneLine(ticket.title, 120));
    else say(this.values, "inbox.noargs");
    say(this.by, "inbox.by", { by: oneLine(ticket.by, 40) });
    this.note.hidden = !note;
    this.note.className = `ask-note tone-${note?.[2] ?? "soft"}`;
    if (note) say(this.note, note[0], note[1]);
    say(this.when, "inbox.since", { at: moment(Date.parse(ticket.requestedAt)) }, "title");
    this.age();
  }

  /** What changes with the time. */
  age(now = Date.now()) {
    tell(this.when, ago(Date.parse(this.question.ticket.requestedAt), now));
  }
}
