// The rows of a run's timeline: one class per kind of item of the model. timeline.js places them.

import { aboutOf, kindOf, opener } from "./artifacts.js";
import { Block, copyFrom, foreign, Prose, runLink } from "./blocks.js";
import { button, h, icon, say, sign, tell } from "./dom.js";
import { compact, duration, moment, offset, oneLine, percent } from "./format.js";
import { Rich } from "./markdown.js";
import { pictureOf } from "./pictures.js";
import { proposalBody, statusOf } from "./proposal.js";
import { Values } from "./values.js";
import { knows, t } from "./words.js";

const WAITED_MS = 1_000; // shorter waits are not shown

/** The common parts of all rows: time, icon, and content. */
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

/** A replacement for a row that failed to draw; shows the data of the item. A failed row never affects the others. */
export class BrokenRow extends Row {
  constructor(item, origin) {
    const { kind, type, text, values, payload } = item;
    const known = { kind, type, text, values, payload };
    const block = new Block(h("span", { class: "block-name", say: "item.broken" })).set(known);
    super(item, origin, icon("warn"), block.element);
    this.element.classList.add("row-broken", "tone-bad");
  }
}

class InputRow extends Row {
  constructor(item, origin) {
    const head = h("div", { class: "row-head" });
    const key = item.first ? "item.input.by" : "item.more.by";
    say(head, key, { by: oneLine(item.by ?? t("item.unnamed"), 60) });
    const text = new Prose("is-input");
    text.set(item.text);
    const lines = (item.attachments ?? []).map((part) => pictureOf(part));
    super(item, origin, icon("person"), head, text.element, ...lines);
  }
}

class StepRow extends Row {
  constructor(item, origin) {
    super(item, origin, "", h("span", { class: "step-name", say: ["item.step", { n: item.step }] }));
  }
}

/** The start of a run: one line; opening it shows the stages on the way. */
class StagesRow extends Row {
  constructor(item, origin) {
    const title = h("span");
    const path = h("div", { class: "stages-path" });
    super(item, origin, "", h("details", {}, h("summary", {}, icon("chevron", "turns"), title), path));
    Object.assign(this, { title, path });
  }

  update(item) {
    const last = item.path.at(-1);
    if (last === "running") say(this.title, "item.ready", { took: duration(item.took / 1000) });
    else if (knows(`stage.${last}`)) say(this.title, `stage.${last}`);
    else tell(this.title, oneLine(last, 40));
    const names = item.path.flatMap((stage, index) => [
      index ? h("span", { class: "stages-to", "aria-hidden": "true" }, "→") : null,
      h("span", stageWord(stage)),
    ]);
    this.path.replaceChildren(...names.filter(Boolean));
  }
}

/** The text of a stage; an unknown stage is shown unchanged. */
const stageWord = (stage) => (knows(`stage.${stage}`) ? { say: `stage.${stage}` } : { data: { raw: stage } });

class MessageRow extends Row {
  constructor(item, origin, agent) {
    const meta = h("span", { class: "row-meta" });
    const head = h("div", { class: "row-head" }, foreign(oneLine(agent, 80)), meta);
    const gone = h("div", { class: "gone-note", hidden: true });
    const text = new Rich("is-message");
    const copy = button("icon-only quiet row-copy", { sayLabel: "copy", sayTitle: "copy" }, icon("copy"));
    copy.addEventListener("click", () => copyFrom(copy, item.text));
    head.append(copy);
    super(item, origin, icon("spark"), head, gone, text.element);
    Object.assign(this, { meta, gone, text });
  }

  update(item) {
    this.text.set(item.text, { live: item.live });
    this.element.classList.toggle("is-live", item.live);
    this.element.classList.toggle("is-gone", Boolean(item.discarded));
    tell(this.meta, item.took === undefined ? "" : duration(item.took / 1000));
    this.gone.hidden = !item.discarded && !item.cut;
    if (item.discarded) say(this.gone, "item.message.discarded", { reason: item.discarded });
    else if (item.cut) say(this.gone, "item.message.cut");
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

/** Foreign texts of a sentence in one line; values of other types stay. */
const tamed = (value) =>
  Array.isArray(value) ? value.map(tamed) : typeof value === "string" ? oneLine(value, 80) : value;

class NoteRow extends Row {
  constructor(item, origin) {
    const values = {
      ...Object.fromEntries(Object.entries(item.values).map(([name, value]) => [name, tamed(value)])),
      tool: oneLine(item.values.tool ?? "", 80) || t("ask.run"), // a ticket of the run itself has no tool
      by: oneLine(item.values.by ?? t("item.unnamed"), 60),
    };
    for (const name of ["grace", "wait"]) {
      if (item.values[name] !== undefined) values[name] = duration(item.values[name]);
    }
    const text = h("div", { class: "note-text", say: [item.text, values] });
    const waited = item.after >= WAITED_MS ? { say: ["item.waited", { waited: duration(item.after / 1000) }] } : null;
    const run = item.run ? runLink(item.run) : null;
    const line = h("div", { class: "note-line" }, text, run, waited && h("span", { class: "row-meta", ...waited }));
    const detail = item.detail ? new Block("").set(String(item.detail)) : null;
    super(item, origin, icon(item.icon ?? "note"), line, ...(detail ? [plainly(detail)] : []));
    if (item.tone) this.element.classList.add(`tone-${item.tone}`);
  }
}

/** A block that only has its text. */
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
    this.element.classList.toggle("is-nested", Boolean(item.caller));
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
    if (block) this.#fold(block, Boolean(item.asked));
    for (const { attempt, text, dropped } of item.outputs) {
      const name = item.outputs.length > 1 ? ["item.call.output.attempt", { n: attempt }] : "item.call.output";
      const block = this.#block(`output ${attempt}`, text || undefined, name, { tail: true });
      if (block && dropped) say(block.name, "item.call.dropped");
    }
    const label = item.code ? ["item.call.error", { code: oneLine(item.code, 60) }] : "item.call.result";
    const result = item.result ?? (item.code ? "" : undefined);
    this.#block("result", result, label, { bad: item.status === "failed" });
  }

  /** The arguments are shown once: while a decision shows them, they are folded here. */
  #fold(block, asked) {
    if (this.folded === asked) return;
    this.folded = asked;
    if (asked) {
      const summary = h("summary", {}, icon("chevron", "turns"), h("span", { say: "item.call.asked" }));
      this.body.prepend(h("details", { class: "call-folded" }, summary, block.element));
    } else {
      this.body.querySelector(".call-folded")?.remove();
      this.body.prepend(block.element);
    }
  }

  #block(key, value, label, { tail = false, bad = false } = {}) {
    let block = this.blocks.get(key);
    if (value === undefined) return block;
    if (!block) {
      const name = h("span", { class: "block-name", say: label });
      block = new Values(name, { tail });
      if (bad) block.element.classList.add("is-bad");
      this.blocks.set(key, block);
      this.body.append(block.element);
    }
    return block.set(value);
  }
}

class ArtifactRow extends Row {
  constructor(item, origin) {
    const { artifact } = item;
    const name = opener(artifact, foreign(oneLine(artifact.name, 120)));
    const facts = h("span", { class: "row-meta" }, kindOf(artifact), " · ", h("bdi", {}, aboutOf(artifact)));
    const head = h("div", { class: "note-line" }, h("span", publishedBy(item)), name, facts);
    super(item, origin, icon("file"), head);
  }
}

class ProposalRow extends Row {
  constructor(item, origin) {
    const status = h("span", { class: "chip" });
    const title = h("strong", { say: "proposal.title" });
    const summary = h("bdi", { class: "row-meta" }, oneLine(item.proposal.summary, 120));
    const head = h("div", { class: "note-line" }, title, summary, status);
    super(item, origin, icon("file"), h("div", { class: "proposal" }, head, ...proposalBody(item)));
    Object.assign(this, { status });
  }

  update({ proposal }) {
    const status = proposal.status ?? "ready";
    this.status.className = `chip proposal-${oneLine(status, 20)}`;
    say(this.status, statusOf(proposal).say);
  }
}

const publishedBy = ({ tool }) => ({ class: "note-text", say: ["item.published", { tool: oneLine(tool, 80) }] });

class EndRow extends Row {
  constructor(item, origin) {
    const kind = item.termination === "stopped" ? "stopped" : item.type.slice(4);
    const by =
      item.termination === "cancelled" && item.by
        ? h("span", { class: "row-meta", say: ["end.by", { by: oneLine(item.by, 60) }] })
        : null;
    const head = h(
      "div",
      { class: "end-head" },
      sign(kind === "stopped" ? kind : item.to),
      h("strong", { say: `end.${kind}` }),
      by,
    );
    super(item, origin, "", h("div", { class: `end end-${kind}` }, head, ...why(item), ...output(item), summary(item)));
  }
}

/** A remedy for a failure; the message of a model's failure begins with its kind. */
function adviceOf({ code, message }) {
  if (!code) return null;
  const kind = code === "model_error" ? /^([a-z_]+): /.exec(message ?? "")?.[1] : undefined;
  return [`advice.${code}.${kind}`, `advice.${code}`].find(knows) ?? null;
}

function* why(item) {
  if (item.termination === "stopped") yield h("p", { say: ["end.stop", { code: oneLine(item.code ?? "?", 60) }] });
  else if (item.code)
    yield h("p", {}, h("span", { class: "end-label", say: "end.code" }), " ", h("code", {}, oneLine(item.code, 60)));
  const said = item.message ?? item.reason ?? item.detail;
  if (said) yield plainly(new Block("").set(String(said)));
  const advice = adviceOf(item);
  if (advice) yield h("p", { class: "end-advice" }, icon("note"), h("span", { say: advice }));
  if (item.stubborn?.length) yield h("p", { class: "end-advice", say: ["end.stubborn", { n: item.stubborn.length }] });
}

function* output({ output, said }) {
  if (output === undefined || output === null || said) return;
  if (typeof output === "string") {
    const text = new Rich("is-output");
    text.set(output);
    yield text.element;
  } else {
    yield new Block(h("span", { class: "block-name", say: "end.output" })).set(output).element;
  }
}

function summary({ steps, usage, activeSeconds: active, waited }) {
  const values = { steps, tokens: compact((usage?.input ?? 0) + (usage?.output ?? 0)), active: duration(active ?? 0) };
  if (waited < WAITED_MS) return h("p", { class: "end-facts", say: ["end.summary", values] });
  return h("p", { class: "end-facts", say: ["end.summary.waited", { ...values, waited: duration(waited / 1000) }] });
}

class UnknownRow extends Row {
  constructor(item, origin) {
    const block = new Block(h("code", { class: "block-name" }, oneLine(item.type, 80)));
    super(item, origin, icon("note"), block.set(item.payload).element);
  }
}

/** Kind of an item -> its row; `update(item)` shows the item's present state. */
export const ROWS = {
  input: InputRow,
  step: StepRow,
  stages: StagesRow,
  message: MessageRow,
  reasoning: ReasoningRow,
  note: NoteRow,
  call: CallRow,
  artifact: ArtifactRow,
  proposal: ProposalRow,
  end: EndRow,
  unknown: UnknownRow,
};
