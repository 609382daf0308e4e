// The waterfall of a run: one line for each step, request to a model and call, with its time, its tokens and its cost.
// A line is a button that shows its part of the timeline.

import { h, icon, say, tell } from "./dom.js";
import { compact, duration, money, oneLine } from "./format.js";
import { keep, recall } from "./prefs.js";
import { costOf } from "./prices.js";
import { scaleOf, timesOf } from "./spans.js";
import { t } from "./words.js";

const WIDE = matchMedia("(min-width: 1180px)"); // as in style.css: the waterfall is then beside the timeline
const MOST = 150; // lines; of a longer run, the newest ones
const WAITED_MS = 1_000; // shorter waits are not said
const REST_MS = 500; // between two drawings of a run that works
const ICONS = { model: "spark", call: "tool", pause: "hand" };

export class Waterfall {
  #model = null;
  #lines = new Map(); // row -> {element, ...parts}
  #prices = null; // model name -> its price, once they are read
  #drawnAt = 0;
  #drawn = null; // the newest event of the drawing

  /** @param {{reveal: (row: object) => void, prices: () => Promise<object>}} context */
  constructor(context) {
    this.context = context;
    this.total = h("span", { class: "fall-total" });
    this.earlier = h("p", { class: "hint", hidden: true });
    this.list = h("ol", { class: "fall-rows" });
    const summary = h("summary", {}, icon("chevron", "turns"), h("span", { say: "fall.title" }), this.total);
    this.details = h("details", { class: "fall", hidden: true }, summary, this.earlier, this.list);
    this.details.open = recall("fall") ? recall("fall") === "open" : WIDE.matches;
    summary.addEventListener("click", () => keep("fall", this.details.open ? "closed" : "open")); // before it toggles
    this.details.addEventListener("toggle", () => this.draw(Date.now()));
    this.element = this.details;
  }

  /** Show a run; null shows none. */
  show(model) {
    this.#model = model;
    this.#drawn = null;
    this.#lines.clear();
    this.list.replaceChildren();
    this.details.hidden = true;
    if (model && this.#prices === null) this.#read();
  }

  /** Read the prices once; without them no cost is shown. */
  async #read() {
    this.#prices = {};
    try {
      this.#prices = await this.context.prices();
    } catch {
      this.#prices = null; // the next run asks again
    }
  }

  again() {
    this.show(this.#model);
  }

  /** Draw, at most twice a second; `now` is by the gateway's clock. */
  draw(now) {
    const model = this.#model;
    if (!model || model.startedAt === null) return;
    const { spans } = model;
    this.details.hidden = spans.rows.length === 0;
    this.#total(spans);
    const done = model.done && this.#drawn === model.last;
    if (!this.details.open || done || Math.abs(now - this.#drawnAt) < REST_MS) return;
    [this.#drawnAt, this.#drawn] = [now, model.last];
    const end = model.endedAt ?? now;
    const scale = scaleOf(spans, model.startedAt, end);
    const rows = spans.rows.slice(-MOST);
    this.earlier.hidden = rows.length === spans.rows.length;
    say(this.earlier, "fall.earlier", { n: spans.rows.length - rows.length });
    const shown = new Set(rows);
    for (const row of this.#lines.keys()) if (!shown.has(row)) this.#lines.delete(row);
    const wanted = rows.map((row) => this.#line(row, scale, end));
    if (
      wanted.some((element, index) => this.list.children[index] !== element) ||
      wanted.length !== this.list.children.length
    )
      this.list.replaceChildren(...wanted);
  }

  #total({ rows }) {
    const cost = costOf(rows, this.#prices ?? {});
    tell(this.total, cost === null ? "" : t(cost.whole ? "fall.cost" : "fall.cost.part", { cost: money(cost.sum) }));
  }

  #line(row, scale, end) {
    let line = this.#lines.get(row);
    if (!line) this.#lines.set(row, (line = this.#make(row)));
    const { took, waited } = timesOf(row, end);
    line.track.replaceChildren(...row.segments.map((segment) => bar(segment, scale, end)));
    tell(line.time, row.segments.length ? duration(took / 1000) : "");
    const usage = row.usage && row.usage.input + row.usage.output;
    tell(line.tokens, usage ? compact(usage) : "");
    tell(line.unit, usage ? t("run.tokens") : "");
    tell(line.more, waited >= WAITED_MS ? t("item.waited", { waited: duration(waited / 1000) }) : "");
    line.button.classList.toggle("is-bad", row.bad);
    tell(line.name, row.kind === "step" ? t("item.step", { n: row.id }) : named(row));
    return line.element;
  }

  #make(row) {
    const name = h("bdi", { class: "fall-name" });
    const track = h("span", { class: "fall-track" });
    const time = h("span", { class: "fall-time" });
    const tokens = h("span", { class: "fall-tokens" });
    const unit = h("span", { class: "unseen" }); // for those who do not see the columns
    const more = h("span", { class: "unseen" });
    const sign = row.kind in ICONS ? icon(ICONS[row.kind]) : null;
    const button = h(
      "button",
      { type: "button", class: `fall-row fall-${row.kind}` },
      sign,
      name,
      track,
      tokens,
      unit,
      time,
      more,
    );
    button.classList.toggle("is-nested", Boolean(row.nested));
    button.addEventListener("click", () => this.context.reveal(row));
    return { element: h("li", {}, button), button, name, track, time, tokens, unit, more };
  }
}

const named = (row) => (row.kind === "pause" ? t("fall.pause") : oneLine(row.name || t("fall.model"), 60));

function bar({ kind, from, to }, scale, end) {
  const element = h("span", { class: `fall-bar is-${kind}` });
  const [left, right] = [scale(from), scale(to ?? end)];
  element.style.left = `${left * 100}%`;
  element.style.width = `${Math.max(0.6, (right - left) * 100)}%`;
  return element;
}
