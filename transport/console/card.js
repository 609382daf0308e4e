// One open decision: the possible answers, and the result of an answer. The gateway validates; this page shows, asks
// and sends. A decision contains the ticket's fingerprint, so it cannot apply to another call.

import { AlwaysChoice, mayRemember } from "./always.js";
import { Answer, JsonEditor } from "./answer.js";
import { Block, foreign } from "./blocks.js";
import { announce, button, h, icon, say, sign, tell } from "./dom.js";
import { isObject, pretty, sameJson } from "./exact.js";
import { clock, oneLine, wholeSeconds } from "./format.js";
import { freshId } from "./link.js";
import { FileChoice, ProposedChanges } from "./proposal.js";
import { formOf, mayDecide, reviewersOf, subjectOf, ticketBody, titleOf } from "./ticket.js";
import { knows, t } from "./words.js";

const ARMED_MS = 6_000; // time for the second of two presses
const LINGER_MS = 4_000; // time for which a settled ticket stays visible
const URGENT_S = 60;
const MASKS = ["[redacted]", "[home]", "[workspace]"]; // the redactor's placeholders for hidden text

/** Refusals after which the ticket can no longer be decided. */
export const FINAL = new Set(["already_decided", "run_done", "expired", "unknown_target", "unknown_run"]);

const anObject = (value) => (isObject(value) ? null : ["ask.edit.object", {}]);

export class Card {
  /**
   * @param {object} ticket the payload of run.approval.requested, with its status
   * @param {object | undefined} call the item of its call
   * @param {object | null} proposal the proposal that its call applies
   * @param {{run: string, may: boolean, me: string, keys: () => boolean, decide: (frame: object) => Promise<object>,
   *   connected: () => boolean, explain: (error: Error) => string, remove: (card: Card) => void,
   *   placed: () => boolean, difference: (proposal: object) => (() => Promise<Blob>) | null}} context
   */
  constructor(ticket, call, context, proposal = null) {
    Object.assign(this, { ticket, context, proposal, form: formOf(ticket), state: "idle", blocks: [] });
    this.tool = subjectOf(ticket);
    this.may = context.may && mayDecide(ticket, context.me);
    this.ofRun = ticket.callId === null; // it holds the run: there is no call, and nothing to edit
    this.element = this.#build(call);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.extra.addEventListener("input", () => this.#corrected());
    this.element.addEventListener("focusout", (event) => this.element.contains(event.relatedTarget) || this.#disarm());
    this.tick(Date.now());
  }

  // --- --- display ---------------------------------------------------------------------------------------------------

  #build(call) {
    const { ticket, tool } = this;
    const title = h("h3", { class: "card-title", id: `ticket-${freshId()}`, say: [titleOf(ticket), { tool }] });
    const reason = `ask.reason.${ticket.reason}`;
    const word = h("span", { say: knows(reason) ? reason : "ask.reason.tool_permission" });
    const kind = h("span", { class: "chip chip-wait" }, sign("needs_approval"), word);
    this.left = h("span", { class: "card-left", hidden: true });
    this.status = h("p", { class: "card-status", role: "status" });
    this.extra = h("div", { class: "card-extra" });
    this.buttons = h("div", { class: "card-buttons" });
    const head = h("header", { class: "card-head" }, kind, this.left, title);
    this.changes = this.#changes();
    const parts = [head, ...ticketBody(ticket, call, this.blocks, this.changes), this.extra, this.status, this.buttons];
    const element = h("article", { class: "card", tabindex: "0", "aria-labelledby": title.id }, ...parts);
    this.#actions();
    return element;
  }

  /** What a proposal changes, of a call that applies one that this page knows; else null. */
  #changes() {
    const proposal = this.proposal;
    if (!proposal || this.form !== "approve") return null;
    const changes = new ProposedChanges(proposal, this.context.difference(proposal));
    this.blocks.push(changes);
    return changes;
  }

  /** The time that is left. */
  tick(now) {
    const { expiresAt: until } = this.ticket;
    if (!until || this.settled) return;
    const left = (Date.parse(until) - now) / 1000;
    this.left.hidden = false;
    this.left.classList.toggle("is-urgent", left < URGENT_S);
    if (left > 0) say(this.left, "ask.expires", { left: wholeSeconds(left) });
    else say(this.left, "ask.expired");
  }

  // --- --- actions ---------------------------------------------------------------------------------------------------

  #actions() {
    if (!this.context.may) return say(this.status, "ask.lookonly");
    if (!this.may)
      return say(this.status, "ask.notyou", { me: oneLine(this.context.me, 60), who: reviewersOf(this.ticket) });
    this.extra.replaceChildren();
    if (this.form === "approve" && this.ofRun) {
      this.primary = this.#button("primary", "ask.go", () => this.approve());
      return this.buttons.replaceChildren(
        this.primary,
        this.#button("", "ask.tell", () => this.tell()),
        this.#button("", "ask.end", () => this.deny()),
      );
    }
    if (this.changes) {
      this.primary = this.#button("primary", "ask.apply.go", () => this.approve());
      return this.buttons.replaceChildren(
        this.primary,
        ...(this.proposal.files?.length > 1 ? [this.#button("", "ask.apply.some", () => this.some())] : []),
        this.#button("", "ask.apply.tell", () => this.change()),
        this.#button("", "ask.apply.reject", () => this.deny()),
        ...this.#alwaysButton(),
      );
    }
    if (this.form === "approve") {
      this.primary = this.#button("primary", ["ask.approve", { tool: this.tool }], () => this.approve());
      const edit = button("", { say: "ask.edit.short", sayLabel: "ask.edit", on: { click: () => this.edit() } });
      return this.buttons.replaceChildren(
        this.primary,
        this.#button("", "ask.deny", () => this.deny()),
        edit,
        ...this.#alwaysButton(),
        this.#button("quiet", "ask.reason.add", () => this.#reasoned()),
      );
    }
    if (this.form === "answer") {
      this.answer ??= this.#answer();
      this.extra.append(this.answer.element);
      this.primary = this.#button("primary", "ask.approve.answer", () => this.approve());
      return this.buttons.replaceChildren(
        this.primary,
        this.#button("", "ask.deny", () => this.deny()),
      );
    }
    this.primary = this.#button("", "ask.rerun", () => this.#arm("ask.rerun.again") || this.approve());
    const use = this.#button("", "ask.use", () => this.use());
    return this.buttons.replaceChildren(
      use,
      this.primary,
      this.#button("", "ask.drop", () => this.deny()),
    );
  }

  #button(className, key, click) {
    return button(className, { say: key, on: { click } });
  }

  #answer() {
    const { resumeMode: mode, responseSchema: schema, arguments: given } = this.ticket;
    const passed = mode === "pass_decision_to_tool";
    const label = schema ? "ask.answer.label" : passed ? "ask.passed.label" : "ask.result.label";
    return new Answer({
      schema,
      label,
      initial: passed && !schema ? given : undefined,
      check: passed ? anObject : undefined,
    });
  }

  /** Handle the first of two presses; false if this is the second one. */
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

  /** Approve nothing that was not shown. */
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
    const key = this.form === "unknown" ? "ask.drop" : this.ofRun ? "ask.end" : ["ask.deny.go", { tool: this.tool }];
    const why = this.ofRun ? "ask.end.label" : "ask.deny.label";
    this.#askReason("denying", why, "danger", key, { action: "cancel" });
  }

  /** Approve with a reason, which the log keeps. */
  #reasoned() {
    if (this.busy || !this.#allShown()) return;
    const key = ["ask.approve", { tool: this.tool }];
    this.#askReason("approving", "ask.reason.label", "primary", key, { action: "resume" });
  }

  #askReason(state, label, tone, key, decision) {
    const id = `reason-${freshId()}`;
    const field = h("input", { id, sayHint: "ask.deny.placeholder", autocomplete: "off", maxlength: "2000" });
    const go = () => this.#send({ ...decision, ...(field.value.trim() ? { reason: field.value.trim() } : {}) });
    const asked = h("div", { class: "field" }, h("label", { for: id, say: label }), field);
    this.#step(state, asked, this.#button(tone, key, go));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || event.repeat) return;
      event.preventDefault();
      go();
    });
    field.focus();
  }

  #alwaysButton() {
    return mayRemember(this.ticket) ? [this.#button("", "ask.always", () => this.always())] : [];
  }

  /** Approve, and let later calls pass without a question. */
  always() {
    if (this.busy || !this.#allShown()) return;
    const choice = new AlwaysChoice(this.ticket, this.context.placed());
    const go = () => this.#send({ action: "resume", remember: choice.read() });
    this.#step("editing", choice.element, this.#button("primary", "ask.always.go", go));
    choice.form.focus();
  }

  /** Apply some files of the proposal; the others stay pending. */
  some() {
    if (this.busy || !this.#allShown()) return;
    const choice = new FileChoice(this.proposal.files);
    const go = () => {
      const paths = choice.read();
      if (paths.length === choice.boxes.length && !this.proposal.truncated) this.#send({ action: "resume" });
      else if (paths.length) this.#send({ action: "resume", editedArguments: { ...this.ticket.arguments, paths } });
    };
    this.#step("editing", choice.element, this.#button("primary", "ask.apply.chosen", go));
    choice.boxes[0]?.focus();
  }

  /** Refuse with a text that the agent reads, and works on with. */
  change() {
    if (this.busy) return;
    const id = `change-${freshId()}`;
    const field = h("textarea", { id, rows: "3", maxlength: "10000" });
    const go = () => {
      const text = field.value.trim();
      if (text) this.#send({ action: "cancel", result: text });
      else field.focus();
    };
    const asked = h("div", { class: "field" }, h("label", { for: id, say: "ask.apply.label" }), field);
    this.#step("denying", asked, this.#button("primary", "ask.apply.send", go));
    field.focus();
  }

  edit() {
    if (this.busy || this.form !== "approve" || this.ofRun) return;
    const given = this.ticket.arguments ?? {};
    const changed = h("p", { class: "hint" });
    const note = (read) => noteChanges(changed, given, read);
    const editor = new JsonEditor({ label: "ask.edit.label", text: pretty(given), check: anObject, onInput: note });
    note({ value: given });
    const text = pretty(given);
    const masked = MASKS.some((mask) => text.includes(mask))
      ? h("p", { class: "card-warn" }, icon("warn"), h("span", { say: "ask.masked.warn" }))
      : null;
    const go = () => {
      const read = editor.read();
      if (read.fault) editor.focus();
      else this.#send({ action: "resume", editedArguments: read.value });
    };
    const content = h("div", { class: "card-edit" }, masked, editor.element, changed);
    this.#step("editing", content, this.#button("primary", "ask.approve.edited", go));
    editor.focus();
  }

  /** Ask for a text about the effect of the call; the run continues with the text as the result of the call. */
  tell() {
    if (this.busy) return;
    const id = `note-${freshId()}`;
    const field = h("input", { id, autocomplete: "off", maxlength: "10000" });
    const go = () => {
      const text = field.value.trim();
      if (text) this.#send({ action: "resume", result: text });
      else field.focus();
    };
    const asked = h("div", { class: "field" }, h("label", { for: id, say: "ask.tell.label" }), field);
    this.#step("answering", asked, this.#button("primary", "ask.go", go));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      go();
    });
    field.focus();
  }

  use() {
    if (this.busy) return;
    const check = (value) => (value === null ? ["ask.use.null", {}] : null);
    const answer = new Answer({ schema: this.ticket.responseSchema, label: "ask.result.label", check });
    const go = () => {
      const read = answer.read();
      if (read.fault) answer.focus();
      else this.#send({ action: "resume", result: read.value });
    };
    this.#step("answering", answer.element, this.#button("primary", "ask.use.go", go));
    answer.focus();
  }

  /** A second step, with its own button and a way back. */
  #step(state, content, go) {
    this.#disarm();
    this.state = state;
    this.#say(null);
    this.extra.replaceChildren(content);
    this.buttons.replaceChildren(
      go,
      this.#button("quiet", "back", () => this.back()),
    );
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
    if (typing) return;
    if (event.target !== this.element && event.key === "Enter") return; // of a button
    if (this.press(event)) event.preventDefault();
  }

  /** Handle a key that answers; false if the key has no meaning now. A key that is held down confirms nothing. */
  press({ key, repeat }) {
    if (this.state !== "idle" || !this.may || this.settled) return false;
    if (repeat) return key === "a" || key === "d" || (key === "Enter" && Boolean(this.armed));
    if (key === "Enter" && this.armed) this.approve();
    else if (!this.context.keys()) return false;
    else if (key === "a") this.#pressedApprove();
    else if (key === "d") this.deny();
    else if (key === "e") this.edit();
    else return false;
    return true;
  }

  #pressedApprove() {
    if (this.form === "answer") return this.answer.focus();
    if (this.blocks.some((block) => block.cut)) return this.#allShown();
    const again = this.form === "unknown" ? "ask.rerun.again" : this.ofRun ? "ask.go.again" : "ask.approve.again";
    return this.#arm(again) || this.approve();
  }

  /** Clear a refusal after its cause was changed. */
  #corrected() {
    if (!this.busy && this.status.classList.contains("tone-bad")) this.#say(null);
  }

  // --- --- results ---------------------------------------------------------------------------------------------------

  get busy() {
    return this.state === "sending" || this.settled;
  }

  get settled() {
    return this.state === "sent" || this.state === "over";
  }

  /** True while the user is answering, or has just received a message to read. */
  get held() {
    return ["denying", "approving", "editing", "answering", "sending"].includes(this.state) || this.conflict === true;
  }

  async #send(decision) {
    const before = this.state;
    this.state = "sending";
    for (const control of this.element.querySelectorAll(
      ".card-extra :is(input, textarea, select, button), .card-buttons button",
    ))
      control.disabled = true;
    this.#say(this.context.connected() ? "ask.sending" : "ask.queued");
    const { ticketId: target, fingerprint } = this.ticket;
    let ack;
    try {
      ack = await this.context.decide({
        type: "decide",
        id: freshId(),
        run: this.context.run,
        target,
        fingerprint,
        ...decision,
      });
    } catch (error) {
      return this.#refused(error, before);
    }
    const ends = this.ofRun && decision.action === "cancel";
    const kept = decision.remember ? (ack?.code === "not_remembered" ? "ask.always.lost" : "ask.always.kept") : null;
    const tone = kept === "ask.always.lost" ? "wait" : "good";
    if (!this.settled) this.#close("sent", kept ?? (ends ? "ask.ended" : "ask.accepted"), {}, tone);
    if (decision.editedArguments) {
      const name = h("span", { class: "block-name", say: "ask.edit.used" });
      this.extra.replaceChildren(new Block(name).set(decision.editedArguments).element);
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
    this.buttons.replaceChildren(
      ...(this.conflict ? [button("quiet", { say: "dismiss", on: { click: () => this.context.remove(this) } })] : []),
    );
    this.element.classList.add("is-settled");
    this.#say(key, values, tone);
    if (focused) this.element.focus({ preventScroll: true });
  }

  /** Show a sentence about the question; `over`: it cannot be answered any more. */
  note([key, values, tone], { over }) {
    if (over) this.#close("over", key, values, tone);
    else if (this.state === "idle" && !this.armed) this.#say(key, values, tone);
  }

  #say(key, values = {}, tone = "") {
    this.status.className = `card-status${tone ? ` tone-${tone}` : ""}`;
    if (key === null) tell(this.status, "");
    else say(this.status, key, values);
  }

  /** The ticket is no longer open. */
  resolved() {
    if (this.final) return;
    this.final = true;
    const { status, by, why } = this.ticket;
    const held = this.held || this.answer?.touched;
    if (held && this.state !== "sending" && !this.settled) this.conflict = true;
    const word = t(`ask.was.${status}`);
    const who = oneLine(by ?? "", 60);
    const key = !by
      ? [`ask.was.${status}`, {}]
      : this.ofRun && (status === "approved" || status === "denied")
        ? [`item.run.${status}`, { by: who }]
        : ["ask.was.by", { status: word, by: who }];
    if (!(this.conflict && this.settled)) this.#close("over", ...key, status === "approved" ? "good" : "bad");
    if (why) this.status.append(": ", foreign(oneLine(why, 300)));
    if (!this.conflict) setTimeout(() => this.context.remove(this), LINGER_MS);
  }
}

/** Show which arguments differ from the model's. */
function noteChanges(element, given, { value, fault }) {
  if (fault) return tell(element, "");
  const all = new Set([...Object.keys(given), ...Object.keys(value)]);
  const same = (name) => Object.hasOwn(given, name) && Object.hasOwn(value, name) && sameJson(given[name], value[name]);
  const names = [...all].filter((name) => !same(name));
  if (!names.length) return say(element, "ask.edit.same");
  return say(element, "ask.edit.changed", { names: oneLine(names.join(", "), 200) });
}

/** The earlier decision of another principal, as a sentence. */
export function conflictOf(current) {
  if (!isObject(current)) return ["ask.refused", { message: t("error.already_decided") }];
  const { status, decidedBy: by, decidedAt: at } = current;
  const word = knows(`ask.was.${status}`) ? t(`ask.was.${status}`) : oneLine(String(status), 40);
  return [
    "ask.conflict",
    { status: word, by: oneLine(by ?? t("item.unnamed"), 60), when: at ? clock(Date.parse(at)) : "" },
  ];
}
