// A run's timeline on the page: one row per item of the model, drawn at most once per frame.
//
// Only a window of a long run is in the document. The page stays where its reader is: it follows the end only while the
// reader is at the end, and otherwise keeps what is being read in its place, whatever grows above it.

import { Block, foreign, Prose } from "./blocks.js";
import { h, icon, say, sign, tell } from "./dom.js";
import { compact, duration, moment, offset, oneLine, percent, wholeSeconds } from "./format.js";
import { knows, t } from "./words.js";

const PAGE = 150; // rows that come at once
const MOST = 450; // rows in the document
const NEAR = 40; // pixels from the end that still count as being there

// --- rows ------------------------------------------------------------------------------------------------------------

/** What all rows have: when, a sign, and their content. */
class Row {
  constructor(item, origin, signed, ...content) {
    const at = (item.at - origin) / 1000;
    this.time = h("span", { class: "row-time", title: moment(item.at) }, offset(at));
    this.sign = h("span", { class: "row-sign" }, signed);
    this.main = h("div", { class: "row-main" }, ...content);
    this.element = h("li", { class: `row row-${item.kind}` }, this.time, this.sign, this.main);
  }

  update() {}
}

class InputRow extends Row {
  constructor(item, origin) {
    const head = h("div", { class: "row-head" });
    const key = item.first ? "item.input.by" : "item.more.by";
    say(head, key, { by: oneLine(item.by ?? t("item.somebody"), 60) });
    const text = new Prose("is-input");
    text.set(item.text);
    super(item, origin, icon("person"), head, text.element);
  }
}

class StepRow extends Row {
  constructor(item, origin) {
    super(item, origin, "", h("span", { class: "step-name", say: ["item.step", { n: item.step }] }));
  }
}

class StagesRow extends Row {
  constructor(item, origin) {
    super(item, origin, "");
  }

  update(item) {
    const names = item.path.flatMap((stage, index) => [
      index ? h("span", { class: "stages-to", "aria-hidden": "true" }, "→") : null,
      h("span", stageWord(stage)),
    ]);
    this.main.replaceChildren(...names.filter(Boolean));
  }
}

/** The word of a stage; one that is not known is shown as it is. */
const stageWord = (stage) => (knows(`stage.${stage}`) ? { say: `stage.${stage}` } : { data: { raw: stage } });

class MessageRow extends Row {
  constructor(item, origin, agent) {
    const meta = h("span", { class: "row-meta" });
    const head = h("div", { class: "row-head" }, foreign(oneLine(agent, 80)), meta);
    const gone = h("div", { class: "gone-note", hidden: true });
    const text = new Prose("is-message");
    super(item, origin, icon("spark"), head, gone, text.element);
    Object.assign(this, { meta, gone, text });
  }

  update(item) {
    this.text.set(item.text);
    this.element.classList.toggle("is-live", item.live);
    this.element.classList.toggle("is-gone", Boolean(item.discarded));
    tell(this.meta, item.took === undefined ? "" : duration(item.took / 1000));
    this.gone.hidden = !item.discarded;
    if (item.discarded) say(this.gone, "item.message.discarded", { reason: item.discarded });
  }
}

class ReasoningRow extends Row {
  constructor(item, origin) {
    const teaser = h("bdi", { class: "teaser" });
    const text = new Prose("is-reasoning");
    const title = h("summary", {}, icon("chevron", "turns"), h("span", { say: "item.reasoning" }), teaser);
    const details = h("details", { class: "reasoning" }, title, text.element);
    super(item, origin, icon("brain"), details);
    Object.assign(this, { teaser, text, details });
    details.addEventListener("toggle", () => details.open && text.set(this.newest));
  }

  update(item) {
    this.newest = item.text;
    if (this.details.open) this.text.set(item.text);
    tell(this.teaser, oneLine(item.text.slice(0, 400), 110));
    this.element.classList.toggle("is-live", item.live);
    this.element.classList.toggle("is-gone", Boolean(item.discarded));
  }
}

class NoteRow extends Row {
  constructor(item, origin) {
    const values = {
      ...item.values,
      tool: oneLine(item.values.tool ?? "", 80) || t("ask.run"), // a ticket of the run itself has no tool
      by: oneLine(item.values.by ?? t("item.somebody"), 60),
    };
    if (item.values.grace !== undefined) values.grace = duration(item.values.grace);
    const text = h("div", { class: "note-text", say: [item.text, values] });
    const detail = item.detail ? new Block("").set(String(item.detail)) : null;
    super(item, origin, icon(item.icon ?? "note"), text, detail && plainly(detail));
    if (item.tone) this.element.classList.add(`tone-${item.tone}`);
  }
}

/** A block that is only its text. */
const plainly = (block) => {
  block.element.classList.add("is-plain");
  return block.element;
};

class CallRow extends Row {
  constructor(item, origin) {
    const tool = h("bdi", { class: "call-tool" });
    const status = h("span", { class: "call-status" });
    const facts = h("span", { class: "row-meta" });
    const head = h("div", { class: "call-head" }, tool, status, facts);
    const bar = h(
      "div",
      { class: "bar", hidden: true },
      h("div", { class: "bar-fill" }),
      h("bdi", { class: "bar-text" }),
    );
    const body = h("div", { class: "call-body" });
    const mark = h("span", { class: "sign" });
    super(item, origin, mark, h("div", { class: "call" }, head, bar, body));
    Object.assign(this, { mark, tool, status, facts, bar, body, blocks: new Map() });
  }

  update(item) {
    const shown = item.status === "new" && item.ended ? "cancelled" : item.status;
    if (this.shown !== shown) {
      const fresh = sign(shown);
      this.mark.replaceWith(fresh);
      this.mark = fresh;
      this.element.dataset.status = this.shown = shown;
    }
    tell(this.tool, oneLine(item.tool, 80));
    if (knows(`call.${shown}`)) say(this.status, `call.${shown}`);
    else tell(this.status, shown);
    tell(this.facts, this.#facts(item));
    this.#progress(item);
    this.#values(item);
  }

  #facts(item) {
    const facts = item.task ? [t("item.call.task")] : [];
    if (item.effect && item.effect !== "none" && item.effect !== "read")
      facts.push(t("item.call.effect", { effect: oneLine(item.effect, 40) }));
    const attempts = Math.max(item.attempts ?? 0, item.attempt);
    if (attempts > 1)
      facts.push(item.ended ? t("item.call.attempts", { n: attempts }) : t("item.call.attempt", { n: attempts }));
    if (item.took !== undefined && item.attempt > 0) facts.push(duration(item.took / 1000));
    return facts.join(" · ");
  }

  #progress({ progress }) {
    this.bar.hidden = !progress;
    if (!progress) return;
    const [fill, text] = this.bar.children;
    fill.style.width = `${Math.min(1, Math.max(0, progress.fraction)) * 100}%`;
    tell(text, [percent(progress.fraction), oneLine(progress.text, 80)].filter(Boolean).join(" · "));
  }

  #values(item) {
    const given = Object.keys(item.given ?? {}).length > 0;
    const block = this.#block("arguments", given ? item.given : undefined, "item.call.arguments");
    if (block && item.changed) say(block.name, `item.call.arguments.${item.changed}`);
    for (const { attempt, text, dropped } of item.outputs) {
      const name = item.outputs.length > 1 ? ["item.call.output.attempt", { n: attempt }] : "item.call.output";
      const block = this.#block(`output ${attempt}`, text || undefined, name, { tail: true });
      if (block && dropped) say(block.name, "item.call.dropped");
    }
    const label = item.code ? ["item.call.error", { code: oneLine(item.code, 60) }] : "item.call.result";
    const result = item.result ?? (item.code ? "" : undefined);
    this.#block("result", result, label, { bad: item.status === "failed" });
  }

  #block(key, value, label, { tail = false, bad = false } = {}) {
    let block = this.blocks.get(key);
    if (value === undefined) return block;
    if (!block) {
      const name = h("span", { class: "block-name", say: label });
      block = Object.assign(new Block(name, { tail }), { name });
      if (bad) block.element.classList.add("is-bad");
      this.blocks.set(key, block);
      this.body.append(block.element);
    }
    return block.set(value);
  }
}

class EndRow extends Row {
  constructor(item, origin) {
    const kind = item.termination === "stopped" ? "stopped" : item.type.slice(4);
    const by =
      item.termination === "cancelled" && item.by
        ? h("span", { class: "row-meta", say: ["end.by", { by: oneLine(item.by, 60) }] })
        : null;
    const head = h("div", { class: "end-head" }, sign(item.to), h("strong", { say: `end.${kind}` }), by);
    super(item, origin, "", h("div", { class: `end end-${kind}` }, head, ...why(item), ...output(item), summary(item)));
  }
}

function* why(item) {
  if (item.termination === "stopped") yield h("p", { say: ["end.stop", { code: oneLine(item.code ?? "?", 60) }] });
  else if (item.code)
    yield h("p", {}, h("span", { class: "end-label", say: "end.code" }), " ", h("code", {}, oneLine(item.code, 60)));
  const said = item.message ?? item.reason ?? item.detail;
  if (said) yield plainly(new Block("").set(String(said)));
  if (item.code && knows(`advice.${item.code}`))
    yield h("p", { class: "end-advice" }, icon("note"), h("span", { say: `advice.${item.code}` }));
  if (item.stubborn?.length) yield h("p", { class: "end-advice", say: ["end.stubborn", { n: item.stubborn.length }] });
}

function* output({ output, said }) {
  if (output === undefined || output === null || said) return;
  if (typeof output === "string") {
    const text = new Prose("is-output");
    text.set(output);
    yield text.element;
  } else {
    yield new Block(h("span", { class: "block-name", say: "end.output" })).set(output).element;
  }
}

function summary({ steps, usage, active_seconds: active }) {
  const values = { steps, tokens: compact((usage?.input ?? 0) + (usage?.output ?? 0)), active: duration(active ?? 0) };
  return h("p", { class: "end-facts", say: ["end.summary", values] });
}

class UnknownRow extends Row {
  constructor(item, origin) {
    const block = new Block(h("code", { class: "block-name" }, oneLine(item.type, 80)));
    super(item, origin, icon("note"), block.set(item.payload).element);
  }
}

const ROWS = {
  input: InputRow,
  step: StepRow,
  stages: StagesRow,
  message: MessageRow,
  reasoning: ReasoningRow,
  note: NoteRow,
  call: CallRow,
  end: EndRow,
  unknown: UnknownRow,
};

// --- the window ------------------------------------------------------------------------------------------------------

export class Timeline {
  #rows = new Map(); // item -> Row
  #start = 0; // the rows are those of items[start:end]
  #end = 0;
  #known = 0; // items when it was drawn last; the model may have more by now
  #seen = 0; // items at the time that the reader left the end
  #top = 0; // where the page stood when it was moved, or told of a move, last
  #model = null;
  following = true;

  /**
   * @param {object} parts scroller (what scrolls), list (the ol), earlier, later (buttons), activity (a line), jump (a
   *   button), and tail: () => the element that stands after the list and waits for somebody, or null
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.scroller.addEventListener("click", () => this.#look()); // what was opened by it has grown
    this.earlier.addEventListener("click", () => this.#page(-PAGE));
    this.later.addEventListener("click", () => this.#page(PAGE));
    this.jump.addEventListener("click", () => this.toLatest());
    new ResizeObserver(() => this.following && this.#toEnd()).observe(this.scroller);
  }

  /** Show a run; null shows none. */
  show(model) {
    this.#model = model;
    this.#start = this.#end = this.#known = this.#seen = 0;
    this.#rows.clear();
    this.list.replaceChildren();
    this.following = true;
    for (const control of [this.earlier, this.later, this.jump]) control.hidden = true;
    this.tick();
  }

  /** Make the rows anew: the language has changed. */
  again() {
    if (!this.#model) return;
    const { following } = this;
    this.#rows.clear();
    this.list.replaceChildren();
    const [start, end] = [this.#start, this.#end];
    this.#start = this.#end = start;
    this.#place(start, end);
    if (following) this.#toEnd();
    this.tick();
  }

  /** Bring the page up to date with the model. */
  draw() {
    const model = this.#model;
    if (!model) return;
    const count = model.items.length;
    this.#keeping(() => {
      for (const item of model.changed) this.#rows.get(item)?.update(item);
      model.changed.clear();
      this.#extend(count);
      this.#buttons();
      this.tick();
    });
  }

  /** Go to the end, or to what waits there. */
  toLatest() {
    if (!this.#model) return;
    const count = this.#model.items.length;
    this.#known = count;
    this.#place(Math.max(0, count - PAGE), count);
    this.following = true;
    this.#buttons();
    this.#toEnd();
  }

  /** What goes on right now, with its time. */
  tick(now = Date.now()) {
    const [text, since] = this.#activity();
    this.activity.classList.toggle("is-busy", Boolean(text));
    const [words, time] = this.activity.children;
    tell(words, text);
    tell(time, since ? wholeSeconds((now - since) / 1000) : "");
  }

  #activity() {
    const model = this.#model;
    if (!model || model.done) return ["", null];
    const first = model.running.values().next().value;
    if (model.cancelling) return [t("run.cancelling"), null];
    if (first) {
      const values = { tool: oneLine(first.item.tool, 60), n: model.running.size - 1 };
      return [t(values.n ? "run.working.more" : "run.working", values), first.since - this.skew()];
    }
    if (model.thinking)
      return [t("run.thinking", { agent: oneLine(model.agent, 60) }), model.thinking.since - this.skew()];
    return ["", null];
  }

  /** How much further the gateway's clock is, in ms. */
  skew = () => 0;

  #extend(count) {
    const attached = this.#end === this.#known;
    this.#known = count;
    if (this.following) {
      const start = count - this.#start > MOST ? count - PAGE : this.#start;
      this.#place(Math.max(start, this.#rows.size ? 0 : count - PAGE), count);
    } else if (attached && count - this.#start <= MOST) {
      this.#place(this.#start, count);
    }
  }

  #page(by) {
    const count = this.#known;
    this.#keeping(() => {
      if (by < 0) {
        const start = Math.max(0, this.#start + by);
        this.#place(start, Math.min(this.#end, start + MOST));
      } else {
        const end = Math.min(count, this.#end + by);
        this.#place(Math.max(this.#start, end - MOST), end);
      }
    });
    this.#look();
  }

  /** Let the rows be those of items[start:end]; what is there already stays as it is. */
  #place(start, end) {
    const { items } = this.#model;
    if (start >= this.#end || end <= this.#start) {
      for (const item of items.slice(this.#start, this.#end)) this.#remove(item);
      this.#start = this.#end = start;
    }
    while (this.#start < start) this.#remove(items[this.#start++]);
    while (this.#end > end) this.#remove(items[--this.#end]);
    if (start < this.#start) {
      this.list.prepend(...items.slice(start, this.#start).map((item) => this.#row(item)));
      this.#start = start;
    }
    if (end > this.#end) {
      this.list.append(...items.slice(this.#end, end).map((item) => this.#row(item)));
      this.#end = end;
    }
  }

  #row(item) {
    const row = new ROWS[item.kind](item, this.#model.startedAt, this.#model.agent);
    row.update(item);
    this.#rows.set(item, row);
    return row.element;
  }

  #remove(item) {
    this.#rows.get(item)?.element.remove();
    this.#rows.delete(item);
  }

  /** Change the document, and keep what is being read where it is. */
  #keeping(change) {
    if (this.following) {
      change();
      return this.#toEnd();
    }
    const anchor = this.#anchor();
    const before = anchor?.getBoundingClientRect().top;
    change();
    if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  /** What the reader looks at: the decision that has the focus, else the first row in sight. */
  #anchor() {
    const focused = document.activeElement?.closest(".card");
    if (focused && this.scroller.contains(focused)) return focused;
    const top = this.scroller.getBoundingClientRect().top;
    const rows = this.list.children;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].getBoundingClientRect().bottom > top) high = middle;
      else low = middle + 1;
    }
    return rows[low] ?? this.tail();
  }

  #toEnd() {
    const tail = this.tail();
    const { scroller } = this;
    scroller.scrollTop = scroller.scrollHeight;
    const above = tail ? scroller.getBoundingClientRect().top - tail.getBoundingClientRect().top : 0;
    if (above > 0) scroller.scrollTop -= above + 12; // a long question is read from its beginning
    this.#top = scroller.scrollTop; // in every case: rows that were dropped above have made it smaller, too
  }

  /** The event comes later than what moved the page, which may have grown since: only who goes up leaves the end. */
  #scrolled() {
    const up = this.scroller.scrollTop < this.#top - 1;
    this.#top = this.scroller.scrollTop;
    if (up || !this.following) this.#look();
  }

  #look() {
    const { scroller } = this;
    const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    const at = (left <= NEAR || this.#atTail()) && this.#end === this.#known;
    if (this.following && !at) this.#seen = this.#known;
    this.following = at;
    this.#buttons();
  }

  /** True where #toEnd goes to when what waits is higher than the page. */
  #atTail() {
    const tail = this.tail();
    if (!tail) return false;
    const above = this.scroller.getBoundingClientRect().top - tail.getBoundingClientRect().top;
    return Math.abs(above + 12) < 2;
  }

  #buttons() {
    const count = this.#known;
    this.earlier.hidden = this.#start === 0;
    if (this.#start) say(this.earlier, "run.earlier", { n: this.#start });
    this.later.hidden = this.#end >= count;
    if (this.#end < count) say(this.later, "run.later", { n: count - this.#end });
    this.jump.hidden = this.following;
    if (this.following) return;
    const fresh = count - this.#seen;
    const text = this.jump.lastElementChild;
    this.jump.classList.toggle("is-urgent", this.tail() !== null);
    if (this.tail()) say(text, "run.new.waiting");
    else if (fresh > 0) say(text, "run.new", { n: fresh });
    else say(text, "run.latest");
  }
}
