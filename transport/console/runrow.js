// A run's row in the list: its title, its state, and its question.

import { foreign } from "./blocks.js";
import { h, say, setRun, sign, tell } from "./dom.js";
import { ago, compact, moment, oneLine, wholeSeconds } from "./format.js";
import { addressOf } from "./session.js";
import { mayDecide, saysNothing } from "./ticket.js";
import { knows, t } from "./words.js";

/** The displayed state of a run: its stage, or why it does not proceed. */
export function stateOf({ stage, status, held, degraded, dead, termination }) {
  if (status === "done") return termination?.kind === "stopped" && stage === "completed" ? "stopped" : stage;
  if (dead) return "dead";
  if (degraded) return "degraded";
  return held ? "held" : stage;
}

/** What the oldest open ticket asks, as a key of the words and its values; null if nothing is asked. */
export function askOf({ asked, askedCount: count = 0, dead }, me) {
  if (dead) return ["runs.dead", { reason: oneLine(dead, 160) }];
  const [ticket] = asked ?? [];
  if (!ticket) return null;
  const message = saysNothing(ticket.message) ? "" : oneLine(ticket.message, 160);
  const values = { tool: oneLine(ticket.tool, 40), message, more: Math.max(0, count - 1) };
  if (!mayDecide(ticket, me)) return ["runs.ask.others", { ...values, who: oneLine(ticket.reviewers.join(", "), 80) }];
  const key = `runs.ask.${ticket.reason}`;
  return [knows(key) ? key : "runs.ask.tool_permission", values];
}

const ROW_MS = 5_000; // between two looks at the row of the shown run

/** Read which process has a run, and whether it is a dead letter: no event says so. `drawn` is called with news. */
export async function readRow(entry, api, drawn) {
  if (entry.model.done || Date.now() - (entry.rowAt ?? 0) < ROW_MS) return;
  entry.rowAt = Date.now();
  try {
    entry.row = await api.row(entry.run);
  } catch {
    return; // the state of the connection is shown elsewhere; the next attempt follows
  }
  drawn();
}

export class RunRow {
  /** @param {object} row as sent by the gateway */
  constructor(row) {
    this.sign = sign("none");
    this.word = h("span", { class: "run-stage" });
    this.title = h("span", { class: "run-title" });
    this.when = h("time", { class: "run-when" });
    this.facts = h("span", { class: "run-facts" });
    this.ask = h("span", { class: "run-ask", hidden: true });
    const state = h("span", { class: "run-state" }, this.sign, this.word);
    const agent = foreign(oneLine(row.agent, 60), "run-agent");
    this.link = h(
      "a",
      { class: "run", href: addressOf(row.run), data: { run: row.run }, tabindex: "-1" },
      h("span", { class: "run-line" }, this.title, this.when),
      h("span", { class: "run-line" }, state, agent, this.facts),
      this.ask,
    );
    this.element = h("li", {}, this.link);
    this.drawn = null;
  }

  /** Update the texts; cheap for an unchanged row. */
  show(row, { me, selected, language }) {
    setRun(this.link, selected);
    if (this.drawn === row && this.language === language) return;
    this.drawn = row;
    this.language = language;
    this.#title(row.title || row.run);
    const state = stateOf(row);
    if (this.state !== state) {
      this.state = state;
      this.sign.replaceWith((this.sign = sign(state)));
      this.link.dataset.stage = state;
    }
    if (knows(`stage.${state}`)) say(this.word, `stage.${state}`);
    else tell(this.word, oneLine(state, 30));
    tell(this.facts, factsOf(row, me));
    const asked = askOf(row, me);
    this.ask.hidden = !asked;
    if (asked) say(this.ask, ...asked);
    this.link.title = asked ? this.ask.textContent : "";
    const at = moment(Date.parse(row.waitingSince ?? row.createdAt));
    say(this.when, row.waitingSince ? "runs.when.waiting" : "runs.when.started", { at }, "title");
    this.tick();
  }

  /** What changes with the time. */
  tick(now = Date.now()) {
    const { waitingSince: since, createdAt: created } = this.drawn;
    if (since) tell(this.when, wholeSeconds((now - Date.parse(since)) / 1000));
    else tell(this.when, ago(Date.parse(created), now));
    this.when.classList.toggle("is-waiting", Boolean(since));
  }

  #title(text) {
    if (this.named === text) return;
    this.named = text;
    this.title.replaceChildren(foreign(oneLine(text, 90)));
  }
}

function factsOf({ step, usage, by, status, termination }, me) {
  const tokens = (usage?.input ?? 0) + (usage?.output ?? 0);
  const other = by === me ? "" : oneLine(by ?? "", 40);
  const code = status === "done" ? oneLine(termination?.code ?? "", 40) : ""; // why it failed, stopped or was cancelled
  return [code, other, step ? t("runs.step", { n: step }) : "", tokens ? t("runs.tokens", { n: compact(tokens) }) : ""]
    .filter(Boolean)
    .join(" · ");
}
