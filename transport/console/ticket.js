// The complete content of a ticket: the call, every argument, hidden characters, and the fingerprint.

import { hasForm } from "./answer.js";
import { Block, foreign, kindWord, runLink } from "./blocks.js";
import { announce, button, copyText, h, icon } from "./dom.js";
import { keptNumber, pretty } from "./exact.js";
import { hides, moment, oneLine } from "./format.js";
import { asksOutcome } from "./model.js";
import { APPLY } from "./proposal.js";
import { t } from "./words.js";

const SHORT = 12; // characters of a fingerprint
const PLAIN = "This call needs an approval."; // the message of a tool without a message of its own
const CUT = { lines: 20, chars: 2_400 };

/** True if a ticket's message adds nothing to its kind. */
export const saysNothing = (message) => !message || message === PLAIN;

/** True if a ticket's action says more than its tool. */
export const saysMore = ({ action, tool }) =>
  Boolean(action) && !["outcome_unknown", "run:resume", `tool:${tool}`].includes(action);

/** How a ticket is answered: "approve" (yes or no), "answer" (with a value), "unknown" (did the call take effect?). */
export function formOf(ticket) {
  if (asksOutcome(ticket)) return "unknown";
  return ticket.responseSchema || ticket.resumeMode !== "replay_tool_call" ? "answer" : "approve";
}

/** True if a ticket names no reviewers, or this principal among them. */
export function mayDecide({ reviewers }, principal) {
  return !reviewers?.length || reviewers.includes(principal);
}

/** The reviewers, as a text. */
export const reviewersOf = ({ reviewers }) => (reviewers ?? []).map((name) => oneLine(name, 60)).join(", ");

/** The subject: the tool, or the run itself for a ticket without a call. */
export function subjectOf(ticket) {
  return oneLine(ticket.tool ?? "", 60) || t("ask.run");
}

/** The question, as a key of the words. */
export function titleOf(ticket) {
  const form = formOf(ticket);
  if (form === "unknown") return "ask.unknown";
  if (ticket.reason === "manual_pause") return "ask.pause";
  if (ticket.tool === APPLY && form === "approve") return "ask.apply";
  if (ticket.reason === "external_event") return "ask.external";
  return form === "answer" ? "ask.answer" : "ask.may";
}

/**
 * The elements that show the effect of an approval.
 * @param {object} ticket the payload of run.approval.requested
 * @param {object | undefined} call the item of its call, if the page knows it
 * @param {Block[]} blocks receives every value that may be cut: all must be shown completely before an approval
 * @param {ProposedChanges | null} changes what a proposal changes, of a call that applies one
 */
export function* ticketBody(ticket, call, blocks, changes = null) {
  const form = formOf(ticket);
  if (form === "unknown") yield h("p", { class: "card-unknown" }, icon("warn"), h("span", { say: "ask.unknown.why" }));
  else if (!saysNothing(ticket.message)) yield message(ticket.message, blocks);
  if (saysMore(ticket)) yield fact("ask.action", foreign(ticket.action));
  if (ticket.callId !== null) {
    const own = !ticket.childRunId; // the call of a mirror is another tool's
    yield fact("ask.call", foreign(ticket.tool, "card-tool"), own ? effect(call) : null);
    if (own && call?.caller) yield fact("ask.caller", foreign(oneLine(call.caller, 80)));
    if (!own) yield fact("ask.child", runLink(ticket.childRunId));
    if (changes) yield changes.element;
    yield* values("ask.args", ticket.arguments, blocks, "ask.noargs");
  }
  if (Object.keys(ticket.parameters ?? {}).length) yield* values("ask.parameters", ticket.parameters, blocks);
  if (ticket.responseSchema && !hasForm(ticket.responseSchema)) yield schema(ticket.responseSchema, blocks);
  if (ticket.reviewers?.length) yield fact("ask.reviewers", foreign(oneLine(reviewersOf(ticket), 300)));
  if (ticket.live) yield h("p", { class: "card-live" }, icon("dot"), h("span", { say: "ask.live" }));
  if (ticket.expiresAt) yield expiry(ticket);
  yield* ticketWarnings(ticket);
  yield fingerprint(String(ticket.fingerprint));
}

function message(text, blocks) {
  const block = new Block("", { limits: CUT }).set(String(text));
  block.element.classList.add("is-plain", "is-ask");
  blocks.push(block);
  return block.element;
}

function fact(name, ...shown) {
  const value = h("span", { class: "card-value" }, ...shown);
  return h("div", { class: "card-fact" }, h("span", { class: "card-name", say: name }), value);
}

/** The time of the expiry, and the effect of an expiry without a decision. */
function expiry({ expiresAt: until, onExpiry: then, callId: call }) {
  const what = then === "cancel_run" || call === null ? "cancel_run" : then === "set_result" ? then : "deny";
  const at = moment(Date.parse(until)) || oneLine(until, 40);
  return fact("ask.expiry", h("span", { say: [`ask.expiry.${what}`, { at }] }));
}

function effect(call) {
  if (!call?.effect || call.effect === "none") return null;
  return h("span", { class: "row-meta", say: ["item.call.effect", { effect: oneLine(call.effect, 40) }] });
}

function* values(title, given, blocks, none) {
  const entries = Object.entries(given ?? {});
  if (!entries.length) return yield h("p", { class: "card-none", say: none });
  const items = entries.map(([name, value]) => {
    const kind = h("span", { class: "block-kind" }, kindWord(value));
    const label = h("span", { class: "block-name" }, foreign(name), kind);
    const block = new Block(label, { quoted: true, limits: CUT, what: oneLine(name, 60) }).set(value);
    blocks.push(block);
    return h("li", {}, block.element);
  });
  yield h("section", { class: "card-values" }, h("h4", { say: title }), h("ul", {}, ...items));
}

function schema(given, blocks) {
  const block = new Block("", { limits: CUT }).set(given);
  blocks.push(block);
  return h(
    "section",
    { class: "card-values" },
    h("h4", { say: "ask.schema" }),
    h("ul", {}, h("li", {}, block.element)),
  );
}

/** The elements that warn of what a person could overlook in a ticket. */
export function* ticketWarnings({ arguments: given, parameters, tool, action, message: said }) {
  const warn = (key) => h("p", { class: "card-warn" }, icon("warn"), h("span", { say: key }));
  const all = [given, parameters, tool, action, said];
  if (conceals(all)) yield warn("ask.hidden.warn");
  if (isCut([given, parameters])) yield warn("ask.cut.warn");
  if (typeof JSON.rawJSON !== "function" && /\d{16}/.test(pretty(all))) yield warn("ask.rounded.warn");
}

const CUT_MARK = /\n\[\.\.\. \d+ of \d+ characters left out \.\.\.\]\n/; // as written by the gateway

/** True if a text in the data is too long for an event, which then has only its beginning and end. */
export function isCut(data) {
  if (typeof data === "string") return CUT_MARK.test(data);
  if (data === null || typeof data !== "object" || keptNumber(data) !== undefined) return false;
  return Object.values(data).some(isCut);
}

/** True if a text in the data has invisible characters. JSON escapes some of them, so the data is traversed. */
function conceals(data) {
  if (typeof data === "string") return hides(data);
  if (data === null || typeof data !== "object" || keptNumber(data) !== undefined) return false;
  return Object.entries(data).some(([name, value]) => hides(name) || conceals(value));
}

function fingerprint(mark) {
  const shown = mark.length > SHORT ? `${mark.slice(0, SHORT)}…` : mark;
  const copied = async () => announce(t((await copyText(mark)) ? "copied" : "copy.failed"));
  const named = { sayLabel: ["copy.what", { what: t("ask.fingerprint") }], sayTitle: "copy" };
  const copy = button("icon-only quiet", { ...named, on: { click: copied } }, icon("copy"));
  const words = [h("span", { say: "ask.fingerprint" }), h("code", { title: mark }, shown)];
  return h("p", { class: "card-mark", sayTitle: "ask.fingerprint.why" }, icon("lock"), ...words, copy);
}
