// The evidence of a run: who allowed what, and what came of it, as the gateway has read it from the log.

import { aboutOf, kindOf } from "./artifacts.js";
import { foreign } from "./blocks.js";
import { dialog, show } from "./dialogs.js";
import { button, h, icon, say, sign } from "./dom.js";
import { isObject, pretty } from "./exact.js";
import { moment, number, oneLine } from "./format.js";
import { knows, t } from "./words.js";

/** Read the account of a run, and show it. `load()` returns it. */
export function showEvidence({ run, load, explain }) {
  const note = h("p", { class: "hint", role: "status", say: "evidence.loading" });
  const content = h("div", { class: "evidence" });
  const save = button("", { disabled: true }, icon("down"), h("span", { say: "artifact.save" }));
  const element = dialog("artifact", "evidence.title", note, content, h("div", { class: "dialog-buttons" }, save));
  const read = async () => {
    try {
      const account = await load();
      content.replaceChildren(...accountOf(account));
      note.hidden = true;
      save.disabled = false;
      save.addEventListener("click", () => saved(account, run));
    } catch (error) {
      say(note, "evidence.failed", { message: explain(error) });
    }
  };
  read();
  return show(element, element.querySelector(".dialog-close"));
}

const list = (given) => (Array.isArray(given) ? given.filter(isObject) : []);
const when = (at) => moment(Date.parse(at)) || oneLine(at, 40);

function* accountOf(account) {
  const { by, agent, createdAt, calls, tickets, commands, restrictions, children, events } = account;
  const values = { by: oneLine(by, 60), agent: oneLine(agent, 60), at: when(createdAt) };
  yield h("p", { class: "evidence-head", say: ["evidence.started", values] });
  for (const call of list(calls)) yield callPart(call);
  for (const ticket of list(tickets)) yield h("p", {}, ...question(ticket));
  const others = [...(commands ?? []), ...(restrictions ?? [])].map(String);
  for (const text of others) yield h("p", { class: "hint" }, foreign(oneLine(text, 300)));
  for (const artifact of list(account.artifacts))
    yield h("p", {}, kindOf(artifact), " ", foreign(oneLine(artifact.name, 120)), " ", h("bdi", {}, aboutOf(artifact)));
  for (const child of list(children)) yield h("section", { class: "evidence-child" }, ...accountOf(child));
  yield h("p", { class: "hint", say: ["evidence.events", { n: number(events) }] });
}

function callPart(call) {
  const status = oneLine(call.status, 20);
  const word = knows(`call.${status}`) ? { say: `call.${status}` } : {};
  const effect = h("span", { class: "row-meta", say: ["item.call.effect", { effect: oneLine(call.effect, 40) }] });
  const head = h(
    "h3",
    { class: "evidence-call" },
    sign(status),
    foreign(oneLine(call.tool, 80), "call-tool"),
    h("span", { class: "call-status", ...word }),
    effect,
  );
  const noted = (name) => (call[name] ?? []).map((text) => h("li", {}, ...note(`evidence.${name}`, text)));
  const lines = [
    ...list(call.tickets).map((ticket) => h("li", {}, ...question(ticket))),
    ...["allowed", "overruled", "guardrails"].flatMap(noted),
  ];
  const ran = Array.isArray(call.startedAt) && call.startedAt.length > 0;
  if (!lines.length) lines.push(h("li", { say: ran ? "evidence.unasked" : "evidence.unstarted" }));
  return h("section", { class: "evidence-part" }, head, h("ul", {}, ...lines));
}

const note = (key, text) => [h("span", { say: key }), " ", foreign(oneLine(text, 300))];

function* question({ reason, askedAt, resolution, by, why, edited, resolvedAt }) {
  const key = `ask.reason.${reason}`;
  const kind = knows(key) ? t(key) : oneLine(reason, 40);
  if (!resolution) return yield h("span", { say: ["evidence.open", { kind, at: when(askedAt) }] });
  const status = knows(`ask.was.${resolution}`) ? t(`ask.was.${resolution}`) : oneLine(resolution, 40);
  const how = edited ? "evidence.edited" : by ? "evidence.decided" : "evidence.closed";
  yield h("span", { say: [how, { kind, status, by: oneLine(by ?? "", 60), at: when(resolvedAt) }] });
  if (why) yield foreign(` ${oneLine(why, 300)}`);
}

function saved(account, run) {
  const url = URL.createObjectURL(new Blob([pretty(account)], { type: "application/octet-stream" }));
  const link = h("a", { href: url, download: `${oneLine(run, 80)}.evidence.json` });
  document.body.append(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(url);
}
