// All open decisions of a run, oldest first.

import { Card } from "./card.js";
import { announce, h, say } from "./dom.js";
import { APPLY, differenceOf } from "./proposal.js";
import { t } from "./words.js";

export class Approvals {
  #cards = new Map(); // ticket id -> Card
  #read = new Set(); // tickets whose outcome has been read or dismissed
  #model = null;
  #context = null;

  /** @param {{may, me, keys, decide, connected, explain, artifact, changed: () => void}} context */
  constructor(context) {
    this.context = context;
    this.title = h("h2", { class: "asks-title", tabindex: "-1" });
    this.list = h("div", { class: "asks-list" });
    this.element = h("section", { class: "asks", hidden: true }, this.title, this.list);
  }

  /** Show the decisions of another run; null shows none. */
  show(model) {
    this.#model = model;
    this.#cards.clear();
    this.#read.clear();
    this.list.replaceChildren();
    this.#context = model && {
      ...this.context,
      run: model.run,
      may: this.context.may(),
      me: this.context.me(),
      placed: () => Boolean(model.facts.workspace),
      remove: (card) => this.#remove(card),
      difference: (proposal) => {
        const artifact = differenceOf(proposal, model.artifacts);
        return artifact && (() => this.context.artifact(model.run, artifact));
      },
    };
    this.draw({ quiet: true });
  }

  /** The open tickets, without those that this page knows to be decided. */
  get #open() {
    return (this.#model?.open ?? []).filter((ticket) => !this.#read.has(ticket.ticketId));
  }

  /** The number of open tickets. */
  get count() {
    return this.#open.length;
  }

  /** The element to scroll to, if a decision is open. */
  get tail() {
    return this.count ? this.element : null;
  }

  draw({ quiet = false } = {}) {
    const open = this.#open;
    for (const ticket of open) {
      if (this.#cards.has(ticket.ticketId)) continue;
      const proposal = this.#model.proposals.get(ticket.arguments?.proposal) ?? null;
      const applied = ticket.tool === APPLY ? proposal : null;
      const card = new Card(ticket, this.#model.calls.get(ticket.callId), this.#context, applied);
      this.#cards.set(ticket.ticketId, card);
      this.list.append(card.element);
      if (!quiet) announce(t("ask.said", { tool: card.tool }), { urgent: true });
    }
    for (const card of this.#cards.values()) if (card.ticket.status !== "open") card.resolved();
    const empty = this.#cards.size === 0;
    this.element.hidden = empty;
    say(this.title, this.#context?.may ? "ask.title" : "ask.title.look", { n: open.length });
    this.element.classList.toggle("is-quiet", open.length === 0);
  }

  tick(now) {
    for (const card of this.#cards.values()) card.tick(now);
  }

  /** Put the focus on the next open decision. */
  focusNext() {
    const open = [...this.#cards.values()].filter((card) => !card.settled);
    if (!open.length) return false;
    const at = open.findIndex((card) => card.element.contains(document.activeElement));
    const next = open[(at + 1) % open.length].element;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    return true;
  }

  #remove(card) {
    if (this.#cards.get(card.ticket.ticketId) !== card) return;
    const focused = card.element.contains(document.activeElement);
    this.#cards.delete(card.ticket.ticketId);
    this.#read.add(card.ticket.ticketId);
    card.element.remove();
    this.draw();
    if (focused && !this.focusNext()) this.context.fallback();
    this.context.changed();
  }
}
