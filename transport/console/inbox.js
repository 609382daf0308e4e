// The inbox: the open questions of all runs, to be read and answered one after the other, or several together.

import { askBatch, sendAll } from "./batch.js";
import { FINAL, conflictOf } from "./card.js";
import { announce, button, h, icon, say, tell } from "./dom.js";
import { oneLine } from "./format.js";
import { InboxDetail } from "./inboxdetail.js";
import { InboxList, ORDER_NAMES } from "./inboxlist.js";
import { InboxRows } from "./inboxrows.js";
import { toast } from "./messages.js";
import { Notifier } from "./notify.js";
import { subjectOf } from "./ticket.js";
import { t } from "./words.js";

const FIRST = 100; // questions of the first page, and
const PAGE = 250; // of each further one
const MOST = 5_000; // questions that are shown
const TOGETHER = 200; // questions that are answered together
const WATCH = "inbox";
const MESSAGES = 50; // per second, of a gateway that does not say

export class Inbox {
  #watched = false;
  #reading = false;
  #fault = null;
  #scheduled = false;
  #anchor = null; // where a range of chosen rows begins

  /**
   * @param {HTMLElement} element receives the inbox
   * @param {{api, link, me: () => string, may: (scope: string) => boolean, keys: () => boolean, explain, open,
   *   counted: (count: number) => void}} context
   */
  constructor(element, context) {
    Object.assign(this, { element, context });
    const may = () => context.may("decide");
    this.list = new InboxList({ me: context.me, may });
    this.notifier = new Notifier((ticket) => {
      this.context.open();
      this.rows.choose(this.list.get(ticket.ticketId) ?? null);
    });
    this.rows = new InboxRows(this.list, {
      chosen: (question) => this.#choose(question),
      ticked: (question, event) => this.#tick(question, event),
      opened: () => (this.detail.over ? this.detail.focus() : this.rows.focus()),
    });
    this.detail = new InboxDetail({
      ...context,
      decide: (question, frame) => this.#decide(question, frame),
      closed: () => this.rows.focus(),
      changed: () => this.#schedule(),
    });
    this.#build();
    setInterval(() => document.hidden || this.#tickTime(), 1_000);
  }

  /** True while the inbox is shown. */
  get shown() {
    return !this.element.hidden;
  }

  // --- --- frames of the gateway -------------------------------------------------------------------------------------

  /** Watch the questions, on this connection and each later one. */
  watch() {
    if (this.#watched) return;
    this.#watched = true;
    this.context.link.watchTickets(WATCH, { limit: FIRST });
  }

  /** Forget everything: another person may sign in. */
  clear() {
    if (this.#watched) this.context.link.unwatch(WATCH);
    this.#watched = this.#reading = false;
    this.#fault = null;
    this.list.clear();
    this.rows.choose(null);
    this.#counted();
    this.#schedule();
  }

  /** Handle gw.tickets or gw.asked. */
  asked(frame) {
    const first = frame.type === "gw.tickets";
    const before = this.list.loaded;
    const fresh = first ? this.list.begin(frame.tickets, frame.cursor) : this.list.change(frame.run, frame.tickets);
    this.#fault = null;
    if (before) this.#sayNew(fresh);
    this.#counted();
    this.#schedule();
    if (!this.shown) return;
    if (!this.rows.current) this.#first();
    if (!before) this.#draw();
    if (!before && document.activeElement === document.body) this.rows.focus();
    if (first) this.#more();
  }

  /** The watch was refused. */
  unlisted(watch, error) {
    if (watch !== WATCH) return;
    this.#fault = error;
    this.#schedule();
  }

  #sayNew(ids) {
    const mine = ids.map((id) => this.list.get(id)).filter((one) => one && this.list.isMine(one));
    this.notifier.tell(mine.map((one) => one.ticket));
    if (mine.length && this.shown) announce(t("inbox.said.new", { n: mine.length }));
  }

  #counted() {
    const { count, cursor } = this.list;
    this.context.counted(count, cursor !== null && count > 0);
  }

  /** Read the further pages, one after the other. */
  async #more() {
    if (this.#reading) return;
    this.#reading = true;
    try {
      while (this.#watched && this.list.cursor !== null && this.list.rows.length < MOST) {
        const { cursor } = this.list;
        const page = await this.context.api.tickets(cursor, PAGE);
        if (this.list.cursor !== cursor) continue; // the list has begun again
        this.list.add(page.tickets, page.cursor);
        this.#counted();
        this.#schedule();
      }
    } catch (error) {
      this.#fault = error;
      this.#schedule();
    }
    this.#reading = false;
  }

  // --- --- what is shown ---------------------------------------------------------------------------------------------

  /** Show the inbox, or hide it. */
  show(shown) {
    if (this.element.hidden === !shown) return;
    this.element.hidden = !shown;
    if (!shown) return this.detail.close();
    this.list.settle();
    this.#more();
    this.#draw();
    if (!this.rows.current || !this.list.rows.includes(this.rows.current)) this.#first();
    this.rows.focus();
  }

  #first() {
    this.rows.choose(this.rows.next(null), { quiet: true });
  }

  /** Redraw all texts in another language. */
  again() {
    this.#draw();
  }

  #build() {
    const select = (name, options = []) => {
      const control = h("select", { id: `inbox-${name}`, sayLabel: `inbox.${name}` }, ...options);
      control.addEventListener("change", () => this.#filtered({ [name]: control.value }));
      return control;
    };
    this.count = h("span", { class: "inbox-count" });
    this.tool = select("tool");
    this.agent = select("agent");
    this.order = select("order", ORDER_NAMES.map((name) => h("option", { value: name, say: `inbox.order.${name}` })));
    this.mine = h("input", { type: "checkbox", id: "inbox-mine", checked: true });
    this.mine.addEventListener("change", () => this.#filtered({ mine: this.mine.checked }));
    this.only = h("label", { class: "inbox-mine" }, this.mine, h("span", { say: "inbox.mine" }));
    this.bell = button("icon-only quiet inbox-bell", { on: { click: () => this.#notify() } }, icon("bell"));
    const head = h("div", { class: "inbox-head" }, h("h1", { say: "inbox.title" }), this.count, this.bell);
    const filters = h("div", { class: "inbox-filters", role: "group", sayLabel: "inbox.filter" });
    filters.append(this.tool, this.agent, this.order, this.only);
    this.all = button("small", { say: "inbox.all", on: { click: () => this.tickAll() } });
    this.selected = h("span", { class: "inbox-selected", role: "status" });
    this.approve = button("small primary", { say: "inbox.approve", on: { click: () => this.batch("approve") } });
    this.deny = button("small", { say: "inbox.deny", on: { click: () => this.batch("deny") } });
    this.none = button("small quiet", { say: "inbox.clear", on: { click: () => this.#untick() } });
    this.fresh = button("small inbox-held", { on: { click: () => this.#settle() } });
    this.clearing = button("small quiet", { on: { click: () => this.#settle() } });
    this.keys = h("span", { class: "inbox-keys", say: "inbox.keys", "aria-hidden": "true" });
    const actions = h("div", { class: "inbox-actions" });
    actions.append(this.all, this.approve, this.deny, this.none, this.selected, this.fresh, this.clearing, this.keys);
    this.state = h("div", { class: "inbox-empty", hidden: true }, h("p"), h("p", { class: "hint" }));
    const left = h("div", { class: "inbox-list" }, head, filters, actions, this.rows.element, this.state);
    this.element.append(left, this.detail.element);
  }

  #schedule() {
    if (this.#scheduled || !this.shown) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const { list } = this;
    say(this.count, "inbox.count", { n: list.count, more: list.cursor !== null });
    this.#options(this.tool, "tool");
    this.#options(this.agent, "agent");
    this.order.value = list.view.order;
    this.only.hidden = !this.context.may("decide");
    this.bell.hidden = !this.notifier.possible;
    this.bell.setAttribute("aria-pressed", String(this.notifier.on));
    for (const place of ["label", "title"]) say(this.bell, this.notifier.on ? "notify.off" : "notify.on", {}, place);
    this.#actions();
    this.rows.draw();
    this.detail.draw();
    this.#empty();
  }

  /** The values of a filter, with the numbers of their questions. */
  #options(control, field) {
    const values = this.list.values(field);
    const noted = JSON.stringify([values, t("inbox.title")]);
    if (control.dataset.noted === noted) return;
    control.dataset.noted = noted;
    const chosen = this.list.view[field];
    if (chosen && !values.some(([name]) => name === chosen)) values.push([chosen, 0]);
    const options = values.map(([name, n]) => {
      const option = h("option", { value: name });
      return say(option, "inbox.value", { name: oneLine(name, 40) || t("inbox.ofrun"), n });
    });
    control.replaceChildren(h("option", { value: "", say: `inbox.any.${field}` }), ...options);
    control.value = chosen;
  }

  #actions() {
    const { list } = this;
    const n = list.chosen.length;
    const may = this.context.may("decide");
    this.all.hidden = !may || n > 0 || !list.rows.some((one) => list.tickable(one));
    const many = list.rows.length > TOGETHER;
    say(this.all, many ? "inbox.all.some" : "inbox.all", many ? { n: TOGETHER } : {});
    for (const control of [this.approve, this.deny, this.none, this.selected]) control.hidden = n === 0;
    say(this.selected, "inbox.selected", { n });
    this.fresh.hidden = list.held.size === 0;
    say(this.fresh, "inbox.held", { n: list.held.size });
    this.clearing.hidden = n > 0 || list.settled === 0;
    say(this.clearing, "inbox.settle", { n: list.settled });
    this.keys.hidden = n > 0 || !this.context.keys() || !may;
  }

  #empty() {
    const { list } = this;
    const [title, hint] = this.state.children;
    const full = list.rows.length > 0;
    const cut = list.cursor !== null && list.rows.length >= MOST;
    this.state.hidden = full && !this.#fault && !cut;
    this.rows.element.hidden = !full;
    hint.hidden = true;
    this.state.classList.toggle("is-bad", Boolean(this.#fault));
    if (this.#fault) say(title, "inbox.failed", { message: this.context.explain(this.#fault) });
    else if (cut) say(title, "inbox.most", { n: MOST });
    else if (!this.context.may("follow")) say(title, "inbox.forbidden");
    else if (!list.loaded || list.cursor !== null) say(title, "inbox.loading");
    else if (list.view.tool || list.view.agent) say(title, "inbox.none.filtered");
    else {
      say(title, "inbox.none");
      say(hint, "inbox.none.hint");
      hint.hidden = false;
    }
  }

  #filtered(view) {
    this.list.show(view);
    this.#anchor = null;
    this.rows.top();
    this.#first();
    this.#draw();
  }

  /** Let new questions in, and drop those that were answered. */
  #settle() {
    this.list.settle();
    if (!this.list.rows.includes(this.rows.current)) this.#first();
    this.#draw();
    this.rows.focus();
  }

  #tickTime() {
    if (this.shown) this.rows.age();
    if (this.shown) this.detail.tick();
  }

  async #notify() {
    const on = !this.notifier.on;
    const done = await this.notifier.turn(on);
    toast(done ? `notify.is.${on ? "on" : "off"}` : "notify.refused", {}, done ? "" : "bad");
    this.#draw();
  }

  // --- --- the choice of rows ----------------------------------------------------------------------------------------

  #choose(question) {
    this.detail.show(question, { mine: question ? this.list.isMine(question) : false });
    this.#schedule();
  }

  #tick(question, { range = false, on } = {}) {
    const { list } = this;
    if (range && this.#anchor && list.rows.includes(this.#anchor)) this.#tickRange(question);
    else if (!list.ticked.has(question.id) && list.ticked.size >= TOGETHER) this.#full();
    else if (!list.tick(question, on)) this.#single(question);
    if (!range) this.#anchor = question;
    this.#draw();
  }

  #tickRange(question) {
    const [from, to] = [this.#anchor, question].map((one) => this.list.rows.indexOf(one)).sort((a, b) => a - b);
    for (const one of this.list.rows.slice(from, to + 1)) {
      if (this.list.ticked.size >= TOGETHER && !this.list.ticked.has(one.id)) return this.#full();
      this.list.tick(one, true);
    }
  }

  #full() {
    toast("inbox.full", { n: TOGETHER }, "bad");
  }

  #single(question) {
    if (question.open && this.list.isMine(question)) announce(t("inbox.own"), { urgent: true });
  }

  /** Choose all rows of this filter, up to a limit. */
  tickAll() {
    const n = this.list.tickAll(TOGETHER);
    announce(t("inbox.selected", { n }));
    this.#draw();
    this.rows.focus();
  }

  #untick() {
    this.list.ticked.clear();
    this.#anchor = null;
    this.#draw();
    this.rows.focus();
  }

  // --- --- answers ---------------------------------------------------------------------------------------------------

  /** Ask whether to approve or deny the chosen questions. */
  batch(action) {
    const questions = this.list.chosen;
    if (!questions.length) return;
    const isOpen = (one, fingerprint) => one.open && one.ticket.fingerprint === fingerprint;
    const decide = (seen, reason) => this.#decideAll(action, seen, reason);
    askBatch({ action, questions, isOpen, decide, closed: () => this.rows.focus() });
  }

  async #decideAll(action, seen, reason) {
    const words = { approve: "resume", deny: "cancel" };
    const frames = seen.map(({ question, fingerprint }) => ({
      question,
      frame: this.detail.frameOf(question, { action: words[action], ...(reason ? { reason } : {}) }, fingerprint),
    }));
    for (const { question } of frames) this.list.sending(question);
    this.#leave();
    let [sent, bad] = [0, 0];
    const send = async ({ question, frame }) => {
      const good = await this.#sent(question, frame, this.context.link.command(frame));
      sent += 1;
      bad += good ? 0 : 1;
      if (frames.length > 20 && sent % 20 === 0) announce(t("inbox.progress", { n: sent, of: frames.length }));
    };
    await sendAll(frames, send, this.context.link.welcome?.limits?.messagesPerSecond ?? MESSAGES);
    toast(`inbox.done.${action}`, { n: sent - bad, bad }, bad ? "bad" : "");
  }

  /** Send the decision of the card; the next question opens without waiting, unless the answer may need correction. */
  #decide(question, frame) {
    const ack = this.context.link.command(frame);
    const corrected = "result" in frame || "editedArguments" in frame || "remember" in frame;
    this.list.sending(question);
    const settled = this.#sent(question, frame, ack);
    if (!corrected) this.#leave();
    else settled.then((good) => good && this.rows.current === question && this.#leave());
    return ack;
  }

  /** Note what became of a decision; true if it counts. */
  async #sent(question, frame, promise) {
    const key = wordOf(frame);
    const word = t(key);
    let good = true;
    try {
      const ack = await promise;
      const said = ack.status === "duplicate" ? ["inbox.again", { word }] : [key, {}];
      this.list.answered(question, [...said, frame.action === "cancel" ? "bad" : "good"]);
      announce(t("inbox.said", { word, tool: subjectOf(question.ticket) }));
    } catch (error) {
      good = false;
      const { explain } = this.context;
      const decided = error.code === "already_decided" ? conflictOf(error.current) : null;
      const note = decided ?? ["inbox.refused", { message: explain(error) }];
      this.list.refused(question, [...note, "bad"], { final: FINAL.has(error.code) });
      announce(t(...note), { urgent: true });
    }
    this.#counted();
    this.#schedule();
    return good;
  }

  /** Open the next question. */
  #leave() {
    const over = this.detail.over && this.detail.element.contains(document.activeElement);
    this.rows.choose(this.rows.next(this.rows.current));
    this.#draw();
    if (!over || !this.detail.focus()) {
      this.detail.close();
      this.rows.focus();
    }
  }

  // --- --- the keyboard ----------------------------------------------------------------------------------------------

  /** Handle a key; true if it had a meaning. */
  key(event) {
    const { key, shiftKey } = event;
    const pages = { PageDown: this.rows.page, PageUp: -this.rows.page, Home: -Infinity, End: Infinity };
    const moves = { ArrowDown: 1, ArrowUp: -1, ...pages };
    const inDetail = this.detail.element.contains(event.target);
    if (key in moves && !inDetail) return this.#move(moves[key], shiftKey);
    if (key === "Escape") return this.#escape();
    if (inDetail && event.target.closest("button, a, summary") && key === "Enter") return false;
    if (key === " " && this.rows.element.contains(event.target)) return this.#tickCurrent();
    if (key === "Enter" && this.rows.element.contains(event.target))
      return this.detail.press(event) || this.detail.focus() || true;
    return this.context.keys() && this.#letter(event);
  }

  #letter(event) {
    const { key } = event;
    const chosen = this.list.ticked.size > 0;
    if (key === "j" || key === "k") return this.#move(key === "j" ? 1 : -1, false);
    if (key === "J" || key === "K") return this.#move(key === "J" ? 1 : -1, true);
    if (key === "x") return this.#tickCurrent();
    if (key === "A") return this.tickAll() || true;
    if (chosen && (key === "a" || key === "d")) {
      if (!event.repeat) this.batch(key === "a" ? "approve" : "deny");
      return true;
    }
    return this.detail.press(event);
  }

  #move(by, range) {
    const { current } = this.rows;
    if (range && current) {
      this.#anchor ??= current;
      if (!this.list.ticked.size) this.#tick(current, { on: true });
    }
    const question = this.rows.step(by);
    if (question && range) this.#tick(question, { range: true });
    return true;
  }

  #tickCurrent() {
    if (this.rows.current) this.#tick(this.rows.current);
    return true;
  }

  #escape() {
    if (this.detail.close()) this.rows.focus();
    else if (this.list.ticked.size) this.#untick();
    else return false;
    return true;
  }
}

const wordOf = (frame) =>
  frame.action === "cancel" ? "inbox.denied" : "result" in frame ? "inbox.answered" : "inbox.approved";
