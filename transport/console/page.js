// The shown run: its head, its details, its activity, and the field for more input.

import { Approvals } from "./approvals.js";
import { ArtifactList, showArtifact } from "./artifacts.js";
import { copyFrom, foreign } from "./blocks.js";
import { askFork } from "./dialogs.js";
import { announce, button, h, icon, say, sign, tell } from "./dom.js";
import { ago, compact, moment, number, oneLine, wholeSeconds } from "./format.js";
import { addressOf } from "./session.js";
import { showConversation } from "./conversation.js";
import { showEvidence } from "./evidence.js";
import { Timeline } from "./timeline.js";
import { Waterfall } from "./waterfall.js";
import { knows, t } from "./words.js";

const WIDE = matchMedia("(min-width: 1180px)"); // as in style.css: the decisions are then beside the timeline
const SKEW_MS = 2_000; // clocks that differ by less count as equal

const part = (id) => document.getElementById(id);

export class Page {
  #entry = null;
  #drawn = {}; // the last drawn content of the head
  #skew = null;
  #sending = false;

  /** @param {{may: (scope: string) => boolean, me: () => string, command, connected, explain, keys, follow,
   *   revive: (run: string) => Promise<object>, open: (run: string) => void}} context */
  constructor(context) {
    this.context = context;
    this.approvals = new Approvals({
      may: () => context.may("decide"),
      me: context.me,
      keys: context.keys,
      decide: context.command,
      connected: context.connected,
      explain: context.explain,
      artifact: context.artifact,
      changed: () => this.#entry?.live && this.timeline.draw(),
      fallback: () => part("scroller").focus({ preventScroll: true }),
    });
    part("jump").replaceChildren(icon("down"), h("span"));
    part("pausing").replaceChildren(icon("hand"), h("span", { say: "run.pausing" }));
    this.timeline = new Timeline({
      scroller: part("scroller"),
      list: part("timeline"),
      earlier: part("earlier"),
      later: part("later"),
      activity: part("activity"),
      jump: part("jump"),
      tail: () => (WIDE.matches ? null : this.approvals.tail),
    });
    this.timeline.skew = () => this.skew;
    this.notice = part("notice");
    this.notice.lastElementChild.addEventListener("click", () => this.#noticed());
    this.waterfall = new Waterfall({
      prices: context.prices,
      reveal: (row) => this.timeline.reveal(this.#entry.model.itemOf(row)),
    });
    part("waterfall").append(this.waterfall.element);
    this.artifacts = new ArtifactList();
    part("artifacts").append(this.artifacts.element);
    part("page").addEventListener("artifact", ({ detail }) => this.#artifact(detail));
    part("page").addEventListener("part", ({ detail }) => detail.found(this.#parts(detail.part)));
    WIDE.addEventListener("change", () => this.#settle());
    this.#settle();
    this.#composer();
    this.#next();
    this.#details();
  }

  /** The offset of the gateway's clock to ours, in ms; 0 if negligible. */
  get skew() {
    return this.#skew !== null && Math.abs(this.#skew) > SKEW_MS ? this.#skew : 0;
  }

  /** Measure the clock offset with a new event. */
  measureSkew(event) {
    const ahead = Date.parse(event.timestamp) - Date.now();
    this.#skew = Math.max(this.#skew ?? ahead, ahead);
  }

  /** Show a run: {run, model, live, head, notice, degraded, row: as in the list or null}; null shows none. */
  show(entry) {
    this.#entry = entry;
    this.#drawn = {};
    this.artifacts.again();
    this.artifacts.draw({ artifacts: [] });
    this.artifacts.again();
    part("nothing").hidden = true;
    part("page").hidden = entry === null;
    part("send-text").value = "";
    tell(part("send-fault"), "");
    this.#shown = null;
    if (entry) this.draw();
  }
  #shown = null;

  /** Show that there is no such run. */
  missing(message) {
    this.show(null);
    part("nothing").hidden = false;
    say(part("nothing-title"), "run.unknown");
    say(part("nothing-hint"), "run.unknown.hint", { message });
  }

  /** Update everything; once per frame. */
  draw() {
    const entry = this.#entry;
    if (!entry) return;
    this.#loading(entry);
    this.#notices(entry);
    if (entry.live && this.#shown !== entry.model) {
      this.#shown = entry.model;
      this.timeline.show(entry.model);
      this.approvals.show(entry.model);
      this.waterfall.show(entry.model);
    }
    this.#head(entry);
    if (this.#shown !== entry.model) return;
    this.approvals.draw();
    this.timeline.draw();
    this.artifacts.draw(entry.model);
    this.tick();
  }

  /** Update the parts that depend only on the time. */
  tick() {
    const entry = this.#entry;
    if (!entry) return;
    const now = Date.now() + this.skew;
    const { model } = entry;
    if (model.startedAt !== null) {
      this.values.elapsed(wholeSeconds(((model.endedAt ?? now) - model.startedAt) / 1000));
      const waited = model.waitedAt(now);
      this.values.waited(waited >= 1_000 ? wholeSeconds(waited / 1000) : "");
      say(part("run-sub").lastElementChild ?? part("run-sub"), "run.subtitle", {
        by: oneLine(model.by, 60),
        when: ago(model.startedAt, now),
      });
    }
    this.timeline.tick();
    this.approvals.tick(now);
    this.waterfall.draw(now);
  }

  /** Redraw everything in another language. */
  again() {
    this.#drawn = {};
    this.artifacts.again();
    if (!this.#entry) return;
    this.timeline.again();
    this.waterfall.again();
    this.draw();
  }

  // --- parts ---------------------------------------------------------------------------------------------------------

  #artifact(artifact) {
    const { run } = this.#entry;
    showArtifact({ artifact, load: () => this.context.artifact(run, artifact), explain: this.context.explain });
  }

  /** Place the decisions where they are read: beside the timeline, or at its end. */
  #settle() {
    part(WIDE.matches ? "asks-wide" : "asks-narrow").append(this.approvals.element);
  }

  #loading({ live, model, head }) {
    const line = part("loading");
    line.hidden = live;
    if (live) return;
    this.timeline.show(null);
    this.approvals.show(null);
    this.waterfall.show(null);
    if (head > 500) say(line, "run.loading.of", { n: model.last, head });
    else say(line, "run.loading");
  }

  /** A dead letter can be revived; a run without a process can be followed again. */
  #notices({ notice, degraded, row, model, fault }) {
    const [text, again] = this.notice.children;
    const dead = model.done ? null : row?.dead;
    const lost = degraded ? ["run.degraded", { detail: oneLine(degraded.detail ?? "", 200) }] : notice;
    const refused = fault ? ["run.revive.failed", { message: fault }] : null;
    const shown = dead ? (refused ?? ["run.dead", { reason: oneLine(dead, 300) }]) : lost;
    this.notice.hidden = !shown;
    this.notice.classList.toggle("is-bad", Boolean(dead));
    again.hidden = dead ? !this.context.may("start") : !degraded;
    say(again, dead ? "run.revive" : "run.follow");
    if (shown) say(text, ...shown);
  }

  async #noticed() {
    const entry = this.#entry;
    if (!entry.row?.dead) return this.context.follow(entry.run);
    const again = this.notice.lastElementChild;
    again.disabled = true;
    entry.fault = null;
    try {
      await this.context.revive(entry.run);
      entry.row = { ...entry.row, dead: null };
      this.context.follow(entry.run);
    } catch (error) {
      entry.fault = this.context.explain(error);
    }
    again.disabled = false;
    this.land();
    return this.draw();
  }

  #head({ run, model, live, row }) {
    const agent = oneLine(model.active, 80);
    const title = oneLine(model.title || row?.title || agent, 120);
    this.#once("title", title, () => part("run-title").replaceChildren(foreign(title || "…")));
    this.#once("run", `${run} ${agent}`, () => this.#subtitle(run, agent));
    if (live) this.#once("stage", model.shown, (before) => this.#stage(model, before));
    const { may, connected } = this.context;
    this.#offer("pause", live && connected() && model.pausable && may("decide"));
    this.#offer("cancel", live && !model.done && may("start"));
    part("pausing").hidden = !live || !model.pausing;
    const goes = model.done ? "start" : "decide";
    part("composer").hidden = !live || !may(goes);
    part("next").hidden = !live || !model.done;
    for (const id of ["again", "edit-again", "fork"]) part(id).hidden = !may("start");
    this.#once("goes", goes, () => this.#compose(model.done));
    const { values } = this;
    values.by(model.by);
    values.started(model.startedAt === null ? "" : moment(model.startedAt));
    values.steps(number(model.step));
    values.tokens(
      model.usage.input + model.usage.output
        ? t("run.tokens.of", {
            input: compact(model.usage.input),
            output: compact(model.usage.output),
            cached: model.usage.cached > 0 ? compact(model.usage.cached) : "",
          })
        : "",
    );
    values.model(model.model);
    values.thread(model.thread);
    values.events(number(model.last));
    values.owner(model.done ? "" : (row?.owner ?? ""));
    values.queue(row?.queue && row.queue !== model.agent ? row.queue : "");
    for (const name of ["workspace", "deadline", "parent", "forkedFrom"]) values[name](model.facts[name] ?? "");
  }

  /** Show or hide a button; the focus stays on the page. */
  #offer(name, offered) {
    const control = part(name);
    const held = document.activeElement === control;
    control.hidden = !offered;
    if (held && !offered) this.land();
  }

  /** Move the focus to the run's name if the focused button was hidden: its successor would receive the next Enter. */
  land() {
    const { activeElement } = document;
    if (activeElement === null || activeElement === document.body || activeElement.closest("[hidden]") !== null)
      part("run-title").focus({ preventScroll: true });
  }

  #once(name, value, change) {
    if (this.#drawn[name] === value) return;
    const before = this.#drawn[name];
    this.#drawn[name] = value;
    change(before);
  }

  #subtitle(run, agent) {
    const copy = button("icon-only quiet", { sayLabel: ["copy.what", { what: run }], sayTitle: "copy" }, icon("copy"));
    copy.addEventListener("click", () => copyFrom(copy, run));
    const named = foreign(agent, "page-agent");
    part("run-sub").replaceChildren(named, h("code", {}, run), copy, h("span"));
  }

  #stage(model, before) {
    const stage = model.shown ?? "unknown";
    const known = knows(`stage.${stage}`);
    const word = known ? h("span", { say: `stage.${stage}` }) : h("span", {}, stage);
    const chip = part("run-stage");
    chip.className = `chip chip-${stage}`;
    chip.replaceChildren(sign(stage), word);
    if (before !== undefined) announce(t("stage.said", { agent: oneLine(model.active, 60), stage: word.textContent }));
  }

  /** The list of facts: name -> setter of its value; an empty value hides the line. */
  #details() {
    this.values = {};
    for (const name of [
      "by",
      "started",
      "elapsed",
      "waited",
      "steps",
      "tokens",
      "model",
      "thread",
      "owner",
      "queue",
      "workspace",
      "deadline",
      "parent",
      "forkedFrom",
      "events",
    ]) {
      const value = h("bdi");
      const line = h(
        "div",
        { class: `detail detail-${name}`, hidden: true },
        h("dt", { say: `run.${name}` }),
        h("dd", {}, value),
      );
      part("details").append(line);
      this.values[name] = (text) => {
        line.hidden = !text;
        if ((name === "parent" || name === "forkedFrom") && text)
          value.replaceChildren(h("a", { href: addressOf(text.replace(/@\d+$/, "")) }, text)); // run@step
        else if (name === "thread" && text) value.replaceChildren(talkButton(oneLine(text, 300), () => this.#talk()));
        else tell(value, oneLine(text, 300));
      };
    }
  }

  /** The actions after the end of a run: repeat it, or fork it from a step. */
  #next() {
    const again = button(
      "",
      { id: "again", on: { click: () => this.#again() } },
      icon("again"),
      h("span", { say: "next.again" }),
    );
    const edit = button(
      "",
      { id: "edit-again", on: { click: () => this.context.again(this.#question) } },
      icon("plus"),
      h("span", { say: "next.edit" }),
    );
    const fork = button(
      "",
      { id: "fork", on: { click: () => this.#fork() } },
      icon("fork"),
      h("span", { say: "next.fork" }),
    );
    const evidence = button(
      "",
      { id: "evidence", on: { click: () => this.#evidence() } },
      icon("lock"),
      h("span", { say: "evidence.title" }),
    );
    part("next").append(again, edit, fork, evidence, h("p", { class: "fault", role: "alert" }));
  }

  get #question() {
    const { agent, input } = this.#entry.model;
    return { agent, text: input };
  }

  /** Where the bytes of the shown run's images and files come from. */
  #parts(file) {
    const { run } = this.#entry;
    return { load: () => this.context.part(run, file), explain: this.context.explain };
  }

  #talk() {
    const { run, model } = this.#entry;
    const { messages, part: bytes, explain } = this.context;
    const load = (query) => messages(model.thread, query);
    showConversation({ thread: model.thread, load, bytes: (file) => bytes(run, file), explain });
  }

  #evidence() {
    const { run } = this.#entry;
    showEvidence({ run, load: () => this.context.evidence(run), explain: this.context.explain });
  }

  /** The same question in a run of its own, with the earlier content of its thread: a fork at the beginning. */
  async #again() {
    const { run } = this.#entry;
    const fault = part("next").lastElementChild;
    part("again").disabled = true;
    tell(fault, "");
    try {
      const ack = await this.context.command({ type: "fork", run, step: 0 });
      if (this.#entry?.run === run) this.context.open(ack.run);
    } catch (error) {
      if (this.#entry?.run === run) say(fault, "start.failed", { message: this.context.explain(error) });
    }
    part("again").disabled = false;
  }

  #fork() {
    const { run, model } = this.#entry;
    askFork({
      run,
      steps: model.finished,
      fork: this.context.command,
      onForked: (ack) => this.context.open(ack.run),
      explain: this.context.explain,
    });
  }

  /** The input field: more input for a working run, or the next message of a done run's conversation. */
  #compose(done) {
    const text = part("send-text");
    say(text, done ? "continue.label" : "send.label", {}, "label");
    say(text, done ? "continue.placeholder" : "send.placeholder", {}, "hint");
    say(part("send-go"), done ? "continue.go" : "send.go");
    tell(part("send-fault"), "");
  }

  #composer() {
    const form = part("composer");
    const text = part("send-text");
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    text.addEventListener("input", () => tell(part("send-fault"), ""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  async #send() {
    const [text, go, fault] = [part("send-text"), part("send-go"), part("send-fault")];
    const { run, model } = this.#entry;
    if (this.#sending || !text.value.trim()) return;
    const { active: agent, thread, done } = model;
    const frame = done ? { type: "start", agent, thread, text: text.value } : { type: "send", run, text: text.value };
    this.#sending = text.readOnly = go.disabled = true;
    say(go, "send.sending");
    tell(fault, "");
    let sent = null;
    try {
      sent = await this.context.command(frame);
    } catch (error) {
      if (this.#entry?.run === run) say(fault, "send.failed", { message: this.context.explain(error) });
    }
    this.#sending = text.readOnly = go.disabled = false;
    this.#compose(this.#entry?.model.done ?? false);
    if (!sent || this.#entry?.run !== run) return;
    text.value = "";
    if (done) this.context.open(sent.run);
  }
}

/** The name of a thread, which opens its conversation. */
const talkButton = (name, click) =>
  button("quiet talk-open", { id: "talk", sayTitle: "talk.open", on: { click } }, icon("person"), foreign(name));
