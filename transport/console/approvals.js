// Open decisions: for each ticket exactly what would happen, and what can be answered. The gateway judges; this page
// shows, asks and sends. A decision carries the ticket's fingerprint, so it can not be one about another call.

import { Answer, JsonEditor } from "./answer.js";
import { Block, foreign, kindWord, Prose } from "./blocks.js";
import { announce, button, copyText, h, icon, say, sign, tell } from "./dom.js";
import { isObject, keptNumber, pretty, sameJson } from "./exact.js";
import { clock, hides, oneLine, wholeSeconds } from "./format.js";
import { freshId } from "./link.js";
import { knows, t } from "./words.js";

const ARMED_MS = 6_000; // so long a first press waits for the second one
const LINGER_MS = 4_000; // so long a settled question stays to be read
const SHORT = 12; // characters of a fingerprint
const URGENT_S = 60;
const PLAIN = "This call needs an approval."; // what a tool says that says nothing
const CUT = { lines: 20, chars: 2_400 };

const FINAL = new Set(["already_decided", "run_done", "expired", "unknown_target", "unknown_run"]);

/** How a ticket is answered. */
function formOf(ticket) {
  if (ticket.reason === "outcome_unknown") return "unknown";
  return ticket.response_schema || ticket.resume_mode !== "replay_tool_call" ? "answer" : "approve";
}

const titleOf = ({ reason }, form) =>
  form === "unknown" ? "ask.unknown" : reason === "manual_pause" ? "ask.pause" : reason === "external_event" ? "ask.external" : form === "answer" ? "ask.answer" : "ask.may";

class Card {
  /** @param {{run: string, may: boolean, decide: (frame: object) => Promise, connected: () => boolean, explain: (error: Error) => string}} context */
  constructor(ticket, call, context) {
    Object.assign(this, { ticket, context, form: formOf(ticket), state: "idle", blocks: [] });
    this.tool = oneLine(ticket.tool, 60);
    this.decisionId = null;
    this.element = this.#build(call);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("focusout", (event) => this.element.contains(event.relatedTarget) || this.#disarm());
    this.tick(Date.now());
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  #build(call) {
    const { ticket, tool } = this;
    const title = h("h3", { class: "card-title", id: `ticket-${freshId()}`, say: [titleOf(ticket, this.form), { tool }] });
    this.left = h("span", { class: "card-left", hidden: true });
    const kind = h("span", { class: "chip chip-wait" }, sign("needs_approval"), h("span", { say: knows(`ask.reason.${ticket.reason}`) ? `ask.reason.${ticket.reason}` : "ask.reason.tool_permission" }));
    this.status = h("p", { class: "card-status", role: "status" });
    this.extra = h("div", { class: "card-extra" });
    this.buttons = h("div", { class: "card-buttons" });
    const element = h("article", { class: "card", tabindex: "0", "aria-labelledby": title.id },
      h("header", { class: "card-head" }, kind, this.left, title), ...this.#body(call), this.extra, this.status, this.buttons);
    this.#actions();
    return element;
  }

  *#body(call) {
    const { ticket } = this;
    if (this.form === "unknown") yield h("p", { class: "card-unknown" }, icon("warn"), h("span", { say: "ask.unknown.why" }));
    else if (ticket.message && ticket.message !== PLAIN) yield this.#prose(ticket.message);
    const action = ticket.action;
    if (action && action !== `tool:${ticket.tool}` && action !== "outcome_unknown") yield this.#fact("ask.action", foreign(action));
    yield this.#fact("ask.call", foreign(ticket.tool, "card-tool"), call?.effect && call.effect !== "none" ? h("span", { class: "row-meta", say: ["item.call.effect", { effect: oneLine(call.effect, 40) }] }) : null);
    yield* this.#values("ask.args", ticket.arguments, "ask.noargs");
    if (Object.keys(ticket.parameters ?? {}).length) yield* this.#values("ask.parameters", ticket.parameters);
    yield* this.#warnings();
    yield this.#fingerprint();
  }

  #prose(text) {
    const prose = new Prose("is-ask");
    prose.set(text);
    return prose.element;
  }

  #fact(name, ...values) {
    return h("div", { class: "card-fact" }, h("span", { class: "card-name", say: name }), h("span", { class: "card-value" }, ...values));
  }

  *#values(title, given, none) {
    const entries = Object.entries(given ?? {});
    if (!entries.length) return yield h("p", { class: "card-none", say: none });
    const items = entries.map(([name, value]) => {
      const label = h("span", { class: "block-name" }, foreign(name), h("span", { class: "block-kind" }, kindWord(value)));
      const block = new Block(label, { quoted: true, limits: CUT, what: oneLine(name, 60) }).set(value);
      this.blocks.push(block);
      return h("li", {}, block.element);
    });
    yield h("section", { class: "card-values" }, h("h4", { say: title }), h("ul", {}, ...items));
  }

  *#warnings() {
    const text = pretty([this.ticket.arguments, this.ticket.parameters, this.ticket.message, this.ticket.tool]);
    const warn = (key) => h("p", { class: "card-warn" }, icon("warn"), h("span", { say: key }));
    if (hidden([this.ticket.arguments, this.ticket.parameters, this.ticket.tool, this.ticket.action])) yield warn("ask.hidden.warn");
    if (/\d{16}/.test(text) && typeof JSON.rawJSON !== "function") yield warn("ask.rounded.warn");
  }

  #fingerprint() {
    const mark = String(this.ticket.fingerprint);
    const shown = mark.length > SHORT ? `${mark.slice(0, SHORT)}…` : mark;
    const copied = async () => announce(t((await copyText(mark)) ? "copied" : "copy.failed"));
    return h("p", { class: "card-mark", sayTitle: "ask.fingerprint.why" }, icon("lock"), h("span", { say: "ask.fingerprint" }), h("code", { title: mark }, shown),
      button("icon-only quiet", { sayLabel: ["copy.what", { what: t("ask.fingerprint") }], sayTitle: "copy", on: { click: copied } }, icon("copy")));
  }

  /** The time that is left. */
  tick(now) {
    const { expires_at: until } = this.ticket;
    if (!until || this.settled) return;
    const left = (Date.parse(until) - now) / 1000;
    this.left.hidden = false;
    this.left.classList.toggle("is-urgent", left < URGENT_S);
    if (left > 0) say(this.left, "ask.expires", { left: wholeSeconds(left) });
    else say(this.left, "ask.expired");
  }

  // --- what can be done ----------------------------------------------------------------------------------------------

  #actions() {
    if (!this.context.may) {
      say(this.status, "ask.lookonly");
      return;
    }
    const { tool } = this;
    this.extra.replaceChildren();
    const deny = (key, className = "") => button(className, { data: { does: "deny" }, say: key, on: { click: () => this.deny() } });
    if (this.form === "approve") {
      this.primary = button("primary", { data: { does: "approve" }, say: ["ask.approve", { tool }], on: { click: () => this.approve() } });
      const edit = button("", { data: { does: "edit" }, say: "ask.edit", on: { click: () => this.edit() } });
      this.buttons.replaceChildren(this.primary, deny("ask.deny"), edit);
    } else if (this.form === "answer") {
      this.answer ??= this.#answer();
      this.extra.append(this.answer.element);
      this.primary = button("primary", { data: { does: "approve" }, say: "ask.approve.answer", on: { click: () => this.approve() } });
      this.buttons.replaceChildren(this.primary, deny("ask.deny"));
    } else {
      this.primary = button("", { data: { does: "approve" }, say: "ask.rerun", on: { click: () => this.#arm("ask.rerun.again") || this.approve() } });
      const use = button("", { data: { does: "use" }, say: "ask.use", on: { click: () => this.use() } });
      this.buttons.replaceChildren(use, this.primary, deny("ask.drop"));
    }
  }

  #answer() {
    const { ticket } = this;
    const passed = ticket.resume_mode === "pass_decision_to_tool";
    const schema = ticket.response_schema;
    const label = schema || !passed ? (ticket.resume_mode === "use_decision_as_tool_result" && !schema ? "ask.result.label" : "ask.answer.label") : "ask.passed.label";
    const check = passed ? (value) => (isObject(value) ? null : ["ask.edit.object", {}]) : undefined;
    return new Answer({ schema, label, initial: passed && !schema ? ticket.arguments : undefined, check });
  }

  /** A first press of two; false if this is the second one. */
  #arm(key) {
    if (this.armed) return false;
    this.armed = setTimeout(() => this.#disarm(), ARMED_MS);
    this.primary.classList.add("is-armed");
    this.unarmed = this.primary.dataset.sayText;
    say(this.primary, key);
    announce(t(key), { urgent: true });
    return true;
  }

  #disarm() {
    if (!this.armed) return;
    clearTimeout(this.armed);
    this.armed = null;
    this.primary.classList.remove("is-armed");
    say(this.primary, ...JSON.parse(this.unarmed));
  }

  /** Nothing is approved that was not shown. */
  #allShown() {
    const cut = this.blocks.filter((block) => block.cut);
    for (const block of cut) block.whole();
    if (cut.length) this.#say("ask.approve.seen", {}, "wait");
    return !cut.length;
  }

  approve() {
    if (this.busy || !this.#allShown()) return this.#disarm();
    this.#disarm();
    if (this.form !== "answer") return this.#send({ action: "resume" });
    const read = this.answer.read();
    if (read.fault) return announce(t(...read.fault));
    return this.#send({ action: "resume", result: read.value });
  }

  deny() {
    if (this.busy) return;
    const field = h("input", { id: `reason-${freshId()}`, sayHint: "ask.deny.placeholder", autocomplete: "off", maxlength: "2000" });
    const go = () => this.#send({ action: "cancel", ...(field.value.trim() ? { reason: field.value.trim() } : {}) });
    const key = this.form === "unknown" ? ["ask.drop", {}] : ["ask.deny.go", { tool: this.tool }];
    this.#step("denying", h("div", { class: "field" }, h("label", { for: field.id, say: "ask.deny.label" }), field), { className: "danger", key, go });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) {
        event.preventDefault();
        go();
      }
    });
    field.focus();
  }

  edit() {
    if (this.busy || this.form !== "approve") return;
    const given = this.ticket.arguments ?? {};
    const changed = h("p", { class: "hint" });
    const check = (value) => (isObject(value) ? null : ["ask.edit.object", {}]);
    const note = (read) => {
      const names = read.fault ? null : [...new Set([...Object.keys(given), ...Object.keys(read.value)])].filter((name) => !(name in given) || !(name in read.value) || !sameJson(given[name], read.value[name]));
      if (names === null) tell(changed, "");
      else if (names.length) say(changed, "ask.edit.changed", { names: oneLine(names.join(", "), 200) });
      else say(changed, "ask.edit.same");
    };
    const editor = new JsonEditor({ label: "ask.edit.label", text: pretty(given), check, onInput: note });
    note({ value: given });
    const masked = pretty(given).includes("[redacted]") ? h("p", { class: "card-warn" }, icon("warn"), h("span", { say: "ask.masked.warn" })) : null;
    const go = () => {
      const read = editor.read();
      if (read.fault) editor.focus();
      else this.#send({ action: "resume", edited_arguments: read.value });
    };
    this.#step("editing", h("div", {}, masked, editor.element, changed), { className: "primary", key: ["ask.approve.edited", {}], go });
    editor.focus();
  }

  use() {
    if (this.busy) return;
    const check = (value) => (value === null ? ["ask.use.null", {}] : null);
    const answer = new Answer({ schema: this.ticket.response_schema, label: "ask.result.label", check });
    const go = () => {
      const read = answer.read();
      if (read.fault) answer.focus();
      else this.#send({ action: "resume", result: read.value });
    };
    this.#step("answering", answer.element, { className: "primary", key: ["ask.use.go", {}], go });
    answer.focus();
  }

  /** A second step, with its own button and one that leads back. */
  #step(state, content, { className, key, go }) {
    this.#disarm();
    this.state = state;
    this.#say(null);
    this.extra.replaceChildren(content);
    const back = button("quiet", { say: "back", on: { click: () => this.back() } });
    this.buttons.replaceChildren(button(className, { say: key, data: { does: "go" }, on: { click: go } }), back);
  }

  back() {
    if (this.busy) return;
    this.state = "idle";
    this.#say(null);
    this.#actions();
    this.element.focus({ preventScroll: true });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && (this.armed || this.state !== "idle")) {
      event.stopPropagation();
      if (this.armed) this.#disarm();
      else this.back();
      return;
    }
    if (typing || this.state !== "idle" || !this.context.may || this.settled) return;
    if (event.key === "Enter" && event.target === this.element && this.armed) this.approve();
    else if (!this.context.keys()) return;
    else if (event.key === "a") this.#pressedApprove();
    else if (event.key === "d") this.deny();
    else if (event.key === "e") this.edit();
    else return;
    event.preventDefault();
  }

  #pressedApprove() {
    if (this.form === "answer") return this.answer.focus();
    if (this.blocks.some((block) => block.cut)) return this.#allShown();
    return this.#arm(this.form === "unknown" ? "ask.rerun.again" : "ask.approve.again") || this.approve();
  }

  // --- what becomes of it --------------------------------------------------------------------------------------------

  get busy() {
    return this.state === "sending" || this.settled;
  }

  get settled() {
    return this.state === "sent" || this.state === "over";
  }

  /** True if somebody is in the middle of answering, or was just told something to read. */
  get held() {
    return ["denying", "editing", "answering", "sending"].includes(this.state) || this.conflict === true;
  }

  async #send(decision) {
    const before = this.state;
    this.state = "sending";
    for (const control of this.element.querySelectorAll(".card-extra :is(input, textarea, select, button), .card-buttons button")) control.disabled = true;
    this.#say(this.context.connected() ? "ask.sending" : "ask.queued");
    const { ticket_id: target, fingerprint } = this.ticket;
    try {
      await this.context.decide({ type: "decide", id: freshId(), run: this.context.run, target, fingerprint, ...decision });
    } catch (error) {
      return this.#refused(error, before);
    }
    if (!this.settled) this.#close("sent", "ask.accepted", {}, "good");
    if (decision.edited_arguments) {
      const name = h("span", { class: "block-name", say: "ask.edit.used" });
      this.extra.replaceChildren(new Block(name).set(decision.edited_arguments).element);
    }
  }

  #refused(error, before) {
    if (this.settled) return;
    if (FINAL.has(error.code)) {
      this.conflict = true;
      if (error.code === "already_decided") this.#close("over", ...conflictOf(error.current), "bad");
      else this.#close("over", "ask.refused", { message: this.context.explain(error) }, "bad");
      return;
    }
    this.state = before;
    for (const control of this.element.querySelectorAll(":disabled")) control.disabled = false;
    this.#say("ask.refused", { message: this.context.explain(error) }, "bad");
  }

  #close(state, key, values, tone) {
    this.#disarm();
    const focused = this.element.contains(document.activeElement);
    this.state = state;
    this.left.hidden = true;
    this.extra.replaceChildren();
    this.buttons.replaceChildren(...(this.conflict ? [button("quiet", { say: "dismiss", on: { click: () => this.context.remove(this) } })] : []));
    this.element.classList.add("is-settled");
    this.#say(key, values, tone);
    if (focused) this.element.focus({ preventScroll: true });
  }

  #say(key, values = {}, tone = "") {
    this.status.className = `card-status${tone ? ` tone-${tone}` : ""}`;
    if (key === null) tell(this.status, "");
    else say(this.status, key, values);
  }

  /** The ticket is open no more. */
  resolved() {
    if (this.told) return;
    this.told = true;
    const { status, by, why } = this.ticket;
    const held = this.held || this.answer?.touched;
    if (held && this.state !== "sending" && !this.settled) this.conflict = true;
    const word = t(`ask.was.${status}`);
    const key = by ? ["ask.was.by", { status: word, by: oneLine(by, 60) }] : [`ask.was.${status}`, {}];
    if (!(this.conflict && this.settled)) this.#close("over", ...key, status === "approved" ? "good" : "bad");
    if (why && status !== "approved") this.status.append(": ", foreign(oneLine(why, 300)));
    if (!this.conflict) setTimeout(() => this.context.remove(this), LINGER_MS);
  }
}

/** Who was faster, as a sentence. */
function conflictOf(current) {
  if (!isObject(current)) return ["ask.refused", { message: t("error.already_decided") }];
  const { status, decided_by: by, decided_at: at } = current;
  const word = knows(`ask.was.${status}`) ? t(`ask.was.${status}`) : oneLine(String(status), 40);
  return ["ask.conflict", { status: word, by: oneLine(by ?? t("item.somebody"), 60), when: at ? clock(Date.parse(at)) : "" }];
}

/** True if a text in the data holds what can not be seen. JSON writes some of it as escapes, so the data is walked. */
function hidden(data) {
  if (typeof data === "string") return hides(data);
  if (data === null || typeof data !== "object" || keptNumber(data) !== undefined) return false;
  return Object.entries(data).some(([name, value]) => hides(name) || hidden(value));
}

export class Approvals {
  #cards = new Map(); // ticket id -> Card
  #read = new Set(); // tickets whose end has been read, or dismissed
  #model = null;
  #context = null;

  /** @param {{may, keys, decide, connected, explain, changed: () => void}} context */
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
    this.#context = model && { ...this.context, run: model.run, may: this.context.may(), remove: (card) => this.#remove(card) };
    this.draw({ quiet: true });
  }

  /** The tickets that wait, without those that this page knows to be decided. */
  get #open() {
    return (this.#model?.open ?? []).filter((ticket) => !this.#read.has(ticket.ticket_id));
  }

  /** How many are open. */
  get count() {
    return this.#open.length;
  }

  /** The element to come to, if something waits. */
  get tail() {
    return this.count ? this.element : null;
  }

  draw({ quiet = false } = {}) {
    const open = this.#open;
    for (const ticket of open) {
      if (this.#cards.has(ticket.ticket_id)) continue;
      const card = new Card(ticket, this.#model.calls.get(ticket.call_id), this.#context);
      this.#cards.set(ticket.ticket_id, card);
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
    if (this.#cards.get(card.ticket.ticket_id) !== card) return;
    const focused = card.element.contains(document.activeElement);
    this.#cards.delete(card.ticket.ticket_id);
    this.#read.add(card.ticket.ticket_id);
    card.element.remove();
    this.draw();
    if (focused && !this.focusNext()) this.context.fallback();
    this.context.changed();
  }
}
