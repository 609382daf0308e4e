// The current question of the inbox: everything about it, and the ways to answer it.

import { foreign } from "./blocks.js";
import { Card } from "./card.js";
import { button, h, icon, say } from "./dom.js";
import { oneLine } from "./format.js";
import { freshId } from "./link.js";
import { APPLY } from "./proposal.js";
import { addressOf } from "./session.js";
import { formOf } from "./ticket.js";

export class InboxDetail {
  #question = null;
  #ticket; // the drawn ticket of the question; undefined: nothing is drawn yet
  #card = null;
  #mine = false;
  #asked = null; // the question whose whole ticket is being read

  /** @param {{api, link, me, may, keys, explain, decide, closed: () => void, changed: () => void}} context */
  constructor(context) {
    this.context = context;
    const leave = () => {
      this.close();
      context.closed();
    };
    this.back = button("icon-only quiet inbox-back", { sayLabel: "inbox.back", on: { click: leave } }, icon("back"));
    this.who = h("h2", { class: "inbox-who" });
    this.run = h("a", { class: "button small inbox-run", say: "inbox.run" });
    this.head = h("div", { class: "inbox-detail-head" }, this.back, this.who, this.run);
    this.body = h("div", { class: "inbox-detail-body" });
    this.element = h("section", { class: "inbox-detail", sayLabel: "inbox.detail" }, this.head, this.body);
  }

  /** The frame of a decision about a question. */
  frameOf(question, decision, fingerprint = question.ticket.fingerprint) {
    const { run, ticketId: target } = question.ticket;
    return { type: "decide", id: freshId(), run, target, fingerprint, ...decision };
  }

  /** Show a question; `mine`: this principal may decide it. */
  show(question, { mine }) {
    this.#question = question;
    this.#mine = mine;
    this.#ticket = undefined;
    this.draw();
  }

  /** Draw the question, if it is not the drawn one. */
  draw() {
    const question = this.#question;
    const ticket = question?.ticket ?? null;
    this.head.hidden = !question;
    if (this.#ticket === ticket) return this.#settled();
    if (this.#ticket && ticket && this.#ticket.ticketId === ticket.ticketId && this.#card?.held) return;
    this.#ticket = ticket;
    this.#card = null;
    if (!question) return this.body.replaceChildren(nothing());
    this.who.replaceChildren(foreign(oneLine(ticket.title, 90)), h("span", { class: "hint" }, about(ticket)));
    this.run.href = addressOf(ticket.run);
    if (!ticket.whole) return this.#read(question);
    this.#card = new Card(ticket, undefined, this.#context(question));
    const changes = ticket.tool === APPLY && formOf(ticket) === "approve";
    this.body.replaceChildren(
      ...(changes ? [h("p", { class: "card-warn" }, icon("warn"), h("span", { say: "inbox.changes" }))] : []),
      this.#card.element,
    );
    this.body.scrollTop = 0;
    this.#settled();
  }

  /** Show on the card what became of the question elsewhere, or why an answer was refused. */
  #settled() {
    const question = this.#question;
    if (!question || !this.#card || this.#card.busy) return;
    if (question.note && question.state !== "sending") this.#card.note(question.note, { over: !question.open });
  }

  #context(question) {
    const { context } = this;
    return {
      run: question.ticket.run,
      may: context.may("decide"),
      me: context.me(),
      keys: context.keys,
      decide: (frame) => context.decide(question, frame),
      connected: () => context.link.state.name === "live",
      explain: context.explain,
      remove: () => context.changed(),
      placed: () => false,
      difference: () => null,
    };
  }

  /** Read a ticket that is too large for the list. */
  async #read(question) {
    this.body.replaceChildren(h("p", { class: "inbox-reading", say: "inbox.reading" }));
    if (this.#asked === question) return;
    this.#asked = question;
    try {
      const { ticket } = question;
      const whole = (await this.context.api.ticketsOf(ticket.run)).find((one) => one.ticketId === ticket.ticketId);
      if (whole) question.ticket = { ...ticket, ...whole, whole: true };
    } catch (error) {
      if (this.#question === question)
        this.body.replaceChildren(h("p", { class: "fault" }, this.context.explain(error)));
    }
    this.#asked = null;
    this.context.changed();
  }

  tick() {
    this.#card?.tick(Date.now());
  }

  /** Hand a key to the card; false if it has no meaning there. */
  press(event) {
    return this.#card?.press(event) ?? false;
  }

  /** True if the question takes the place of the list, as on a phone. */
  get over() {
    return getComputedStyle(this.back).display !== "none";
  }

  /** Focus the card; on a phone, show it in place of the list. False if there is none. */
  focus() {
    if (!this.#question) return false;
    this.element.classList.add("is-open");
    this.#card?.element.focus({ preventScroll: true });
    return true;
  }

  /** On a phone, show the list again; false if it is shown. */
  close() {
    const open = this.element.classList.contains("is-open");
    this.element.classList.remove("is-open");
    return open && (this.over || this.element.contains(document.activeElement));
  }
}

const about = ({ agent, by }) => ` ${oneLine(agent, 40)} · ${oneLine(by, 40)}`;

function nothing() {
  const title = h("p", { class: "inbox-pick", say: "inbox.pick" });
  return h("div", { class: "inbox-nothing" }, title, h("p", { class: "hint", say: "inbox.pick.hint" }));
}
