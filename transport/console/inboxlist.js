// The open questions of all runs, as a fold of the gateway's frames and pages: which are shown, in which order, and
// what became of those that were answered. Without DOM, clock and network; inbox.js draws it.
// Theory of operation. A person presses keys and buttons on this list, so a question that is shown keeps its place: one
// that was answered stays, with its answer, until it is cleared, and one that comes later waits until it is let in,
// unless its place is the end of the list.

import { APPLY } from "./proposal.js";
import { formOf, mayDecide } from "./ticket.js";

/** True if a question is answered by yes or no alone, so that several can be answered together. */
export const isPlain = (ticket) => formOf(ticket) === "approve" && ticket.callId !== null && ticket.tool !== APPLY;

const at = (ticket) => Date.parse(ticket.requestedAt);
const byText = (field) => (one, other) => one[field].localeCompare(other[field]) || at(one) - at(other);
const ORDERS = {
  oldest: (one, other) => at(one) - at(other),
  newest: (one, other) => at(other) - at(one),
  agent: byText("agent"),
  tool: byText("tool"),
};
export const ORDER_NAMES = Object.keys(ORDERS);

/**
 * A question: `state` is open, sending, answered (by this page), elsewhere (by others) or gone; `note` is a sentence
 * about it as [key, values, tone], of a refused answer too.
 */
class Question {
  constructor(ticket) {
    this.ticket = ticket;
    this.state = "open";
    this.note = null;
  }

  get id() {
    return this.ticket.ticketId;
  }

  get open() {
    return this.state === "open";
  }
}

export class InboxList {
  #all = new Map(); // ticket id -> Question
  #view = { order: "oldest", tool: "", agent: "", mine: true };
  rows = []; // the shown questions, in their order
  held = new Set(); // questions that came and are not let in yet
  ticked = new Set(); // the chosen questions
  cursor = null; // of the next page
  loaded = false;

  /** @param {{me: () => string, may: () => boolean}} who the signed-in principal, and whether it may decide */
  constructor(who) {
    this.who = who;
  }

  get view() {
    return this.#view;
  }

  get(id) {
    return this.#all.get(id);
  }

  /** True if this principal may decide a question. */
  isMine({ ticket }) {
    return this.who.may() && mayDecide(ticket, this.who.me());
  }

  /** The open questions that this principal may decide. */
  get count() {
    return [...this.#all.values()].filter((one) => one.open && this.isMine(one)).length;
  }

  /** Forget everything. */
  clear() {
    this.#all.clear();
    this.rows = [];
    this.held.clear();
    this.ticked.clear();
    this.cursor = null;
    this.loaded = false;
  }

  /** Take the first page of the list: questions that are open and not on it may be on a later one. */
  begin(tickets, cursor) {
    this.loaded = true;
    this.cursor = cursor;
    this.#stale = new Set(this.#all.keys());
    return this.add(tickets, cursor);
  }
  #stale = new Set();

  /** Take a page. Returns the ids of the questions that are new. */
  add(tickets, cursor) {
    this.cursor = cursor;
    const fresh = tickets.map((ticket) => this.#put(ticket)).filter(Boolean);
    if (cursor === null) {
      for (const id of this.#stale) this.#close(this.#all.get(id));
      this.#stale.clear();
    }
    this.#admit(fresh);
    return fresh;
  }

  /** Take all open questions of a run. Returns the ids of those that are new. */
  change(run, tickets) {
    const open = new Set(tickets.map((ticket) => ticket.ticketId));
    for (const one of this.#all.values()) if (one.ticket.run === run && !open.has(one.id)) this.#close(one);
    const newest = this.rows.at(-1);
    const behind = (ticket) => this.cursor !== null && newest && at(ticket) > at(newest.ticket);
    const fresh = tickets
      .filter((ticket) => this.#all.has(ticket.ticketId) || !behind(ticket))
      .map((ticket) => this.#put(ticket))
      .filter(Boolean);
    this.#admit(fresh);
    return fresh;
  }

  #put(ticket) {
    const known = this.#all.get(ticket.ticketId);
    this.#stale.delete(ticket.ticketId);
    if (!known) {
      this.#all.set(ticket.ticketId, new Question(ticket));
      return ticket.ticketId;
    }
    if (known.ticket.fingerprint !== ticket.fingerprint) {
      this.ticked.delete(known.id); // it was chosen as another call
      known.ticket = ticket;
    }
    if (known.state === "elsewhere") known.state = "open";
    return null;
  }

  /** A question is not open any more. */
  #close(question) {
    if (!question?.open) return;
    question.state = "elsewhere";
    question.note = ["inbox.elsewhere", {}, "soft"];
    this.ticked.delete(question.id);
    if (this.held.delete(question.id)) this.#all.delete(question.id);
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  #fits(question) {
    const { tool, agent, mine } = this.#view;
    const { ticket } = question;
    if (tool && ticket.tool !== tool) return false;
    if (agent && ticket.agent !== agent) return false;
    return !mine || !this.who.may() || this.isMine(question);
  }

  /** Show new questions whose place is the end of the list; hold the others back. */
  #admit(ids) {
    const compare = ORDERS[this.#view.order];
    const fitting = ids.map((id) => this.#all.get(id)).filter((one) => this.#fits(one));
    fitting.sort((one, other) => compare(one.ticket, other.ticket));
    for (const one of fitting) {
      const last = this.rows.at(-1);
      if (!last || compare(last.ticket, one.ticket) <= 0) this.rows.push(one);
      else this.held.add(one.id);
    }
  }

  /** Choose the filter and the order; answered questions and the choice of rows go. */
  show(view) {
    this.#view = { ...this.#view, ...view };
    this.ticked.clear();
    this.settle();
  }

  /** Let the held questions in, and drop those that were answered. */
  settle() {
    for (const one of this.#all.values()) if (!one.open && one.state !== "sending") this.#all.delete(one.id);
    const compare = ORDERS[this.#view.order];
    this.rows = [...this.#all.values()].filter((one) => this.#fits(one));
    this.rows.sort((one, other) => compare(one.ticket, other.ticket));
    this.held.clear();
  }

  /** The number of shown questions that are answered. */
  get settled() {
    return this.rows.filter((one) => !one.open && one.state !== "sending").length;
  }

  /** The values of a field with the numbers of their open questions, the largest first. */
  values(field) {
    const counts = new Map();
    for (const one of this.#all.values())
      if (one.open && (!this.#view.mine || !this.who.may() || this.isMine(one)))
        counts.set(one.ticket[field], (counts.get(one.ticket[field]) ?? 0) + 1);
    return [...counts].sort(([a, n], [b, m]) => m - n || a.localeCompare(b));
  }

  // --- the choice of rows --------------------------------------------------------------------------------------------

  /** True if a row can be chosen: it is open, this principal may decide it, and yes or no answers it. */
  tickable(question) {
    return question.open && this.isMine(question) && isPlain(question.ticket) && question.ticket.whole;
  }

  /** Choose a row, or not; false if it cannot be chosen. */
  tick(question, on = !this.ticked.has(question.id)) {
    if (!this.tickable(question)) return false;
    if (on) this.ticked.add(question.id);
    else this.ticked.delete(question.id);
    return true;
  }

  /** Choose the first rows, at most so many. Returns their number. */
  tickAll(most) {
    this.ticked.clear();
    for (const one of this.rows) if (this.ticked.size < most) this.tick(one, true);
    return this.ticked.size;
  }

  /** The chosen questions, in the order of the list. */
  get chosen() {
    return this.rows.filter((one) => this.ticked.has(one.id) && this.tickable(one));
  }

  // --- answers -------------------------------------------------------------------------------------------------------

  sending(question) {
    question.state = "sending";
    question.note = ["inbox.sending", {}, "soft"];
    this.ticked.delete(question.id);
  }

  answered(question, note) {
    question.state = "answered";
    question.note = note;
  }

  /** An answer was refused; `final`: the question cannot be answered any more. */
  refused(question, note, { final = false } = {}) {
    question.state = final ? "elsewhere" : "open";
    question.note = note;
  }
}
