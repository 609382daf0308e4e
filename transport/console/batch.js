// Several questions answered together: one dialog that shows each action exactly, and the sending of the decisions.

import { fill, foreign } from "./blocks.js";
import { h, say } from "./dom.js";
import { dialog, show } from "./dialogs.js";
import { pretty } from "./exact.js";
import { oneLine } from "./format.js";
import { freshId } from "./link.js";
import { saysMore, saysNothing, subjectOf, ticketWarnings } from "./ticket.js";

const PIECE = 6; // actions that are drawn in one go, so that the page stays quick
const TOGETHER = 4; // decisions that are on their way at the same time
const SHARE = 0.6; // of the messages that the gateway takes from this connection

/**
 * Ask whether to approve or deny these questions, and show each of them exactly.
 * @param {{action: "approve" | "deny", questions: object[], isOpen: (question: object) => boolean,
 *   decide: (questions: {question: object, fingerprint: string}[], reason: string) => void,
 *   closed: () => void}} options
 */
export function askBatch({ action, questions, isOpen, decide, closed }) {
  const seen = questions.map((question) => ({ question, fingerprint: question.ticket.fingerprint }));
  const n = seen.length;
  const id = `reason-${freshId()}`;
  const reason = h("input", { id, autocomplete: "off", maxlength: "2000", sayHint: "batch.reason.hint" });
  const tone = action === "approve" ? "primary" : "danger";
  const go = h("button", { class: `button ${tone}`, type: "submit", disabled: true });
  say(go, `batch.go.${action}`, { n });
  const leave = h("button", { class: "button quiet", type: "button", say: "batch.cancel" });
  const list = h("ol", { class: "batch-list", tabindex: "0", sayLabel: "batch.list" });
  const submit = (event) => {
    event.preventDefault();
    if (go.disabled) return;
    const still = seen.filter(({ question, fingerprint }) => isOpen(question, fingerprint));
    element.close();
    decide(still, reason.value.trim());
  };
  const form = h(
    "form",
    { novalidate: true, class: "batch-form", on: { submit } },
    h("p", { class: "hint", say: action === "approve" ? "batch.why" : "batch.why.deny" }),
    list,
    h("div", { class: "field" }, h("label", { for: id, say: "batch.reason" }), reason),
    h("div", { class: "dialog-buttons" }, leave, go),
  );
  const element = dialog("batch", [`batch.${action}`, { n }], form);
  leave.addEventListener("click", () => element.close());
  // a key that is held down must not confirm what it has opened
  form.addEventListener("keydown", (event) => event.key === "Enter" && event.repeat && event.preventDefault());
  const timer = setInterval(() => mark(list, seen, isOpen), 250);
  element.addEventListener("close", () => {
    clearInterval(timer);
    closed();
  });
  show(element, action === "deny" ? reason : list);
  draw(list, seen, () => {
    go.disabled = false;
    if (action === "approve" && element.open) go.focus();
  });
  return element;
}

/** Draw all actions, some per frame; nothing can be confirmed before the last one is there. */
function draw(list, seen, done, from = 0) {
  list.append(...seen.slice(from, from + PIECE).map(({ question }, index) => item(question, from + index + 1)));
  const next = from + PIECE;
  if (next >= seen.length) done();
  else requestAnimationFrame(() => draw(list, seen, done, next));
}

/** Values by their names; a long text as text. */
function listed(given) {
  const values = Object.entries(given).flatMap(([name, value]) => {
    const text = h("dd");
    const long = typeof value === "string" && (value.includes("\n") || value.length > 200);
    fill(text, long ? value : pretty(value), { json: !long });
    return [h("dt", {}, foreign(name)), text];
  });
  return h("dl", { class: "batch-values" }, ...values);
}

function item({ ticket }, n) {
  const facts = h("span", { class: "batch-facts" });
  say(facts, "batch.for", { agent: oneLine(ticket.agent, 40), by: oneLine(ticket.by, 40) });
  const place = h("span", { class: "batch-place" }, `${n}.`);
  const tool = foreign(ticket.tool || subjectOf(ticket), "batch-tool"); // the whole name: two may begin alike
  const head = h("div", { class: "batch-head" }, place, tool, facts);
  const said = [];
  if (!saysNothing(ticket.message)) said.push(h("p", { class: "batch-said" }, foreign(ticket.message)));
  if (saysMore(ticket)) said.push(h("p", { class: "batch-said" }, foreign(ticket.action)));
  const isEmpty = !Object.keys(ticket.arguments ?? {}).length;
  const shown = isEmpty ? h("p", { class: "hint", say: "ask.noargs" }) : listed(ticket.arguments);
  const details = [];
  if (Object.keys(ticket.parameters ?? {}).length)
    details.push(h("p", { class: "hint", say: "ask.parameters" }), listed(ticket.parameters));
  return h("li", { class: "batch-item" }, head, ...said, shown, ...details, ...ticketWarnings(ticket));
}

/** Mark the actions that are not open any more. */
function mark(list, seen, isOpen) {
  seen.forEach(({ question, fingerprint }, index) => {
    const element = list.children[index];
    if (!element || element.classList.contains("is-gone") || isOpen(question, fingerprint)) return;
    element.classList.add("is-gone");
    element.prepend(h("p", { class: "batch-gone", say: "batch.gone" }));
  });
}

/**
 * Send decisions, a few at a time and not faster than the gateway takes messages.
 * @param {object[]} decisions what `send` takes, each a promise of its end that never fails
 * @param {number} perSecond messages that the gateway takes
 */
export async function sendAll(decisions, send, perSecond) {
  const pause = 1_000 / (perSecond * SHARE);
  let next = performance.now();
  const waiting = [...decisions];
  const work = async () => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
      const wait = next - performance.now();
      next = Math.max(next, performance.now()) + pause;
      if (wait > 0) await new Promise((done) => setTimeout(done, wait));
      await send(one);
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, work));
}
