// The list of runs: read again every two seconds while somebody looks, newest first, those that wait before all others.

import { foreign } from "./blocks.js";
import { announce, h, say, setRun, sign, tell } from "./dom.js";
import { ago, compact, moment, oneLine } from "./format.js";
import { knows, t } from "./words.js";

const EVERY_MS = 2_000;
const PAGE = 50;
const MOST = 500; // runs that are read again each time; older ones stay as they were
const PINNED = 8; // waiting runs that stand before all others

export class Runs {
  #filter = "";
  #loaded = new Map(); // run id -> summary, in the order of the list
  #waiting = new Map();
  #cursor = null;
  #wanted = PAGE;
  #rows = new Map(); // run id -> {element, ...}
  #timer = null;
  #round = 0;
  #known = null; // ids of the runs that waited last time; null before the first time
  #focused = null;
  selected = null;

  /**
   * @param {{api, me: () => string, allowed: () => boolean, changed: (waiting: number, more: boolean) => void,
   *   onUnauthenticated: () => void, explain: (error: Error) => string}} context
   * @param {{list, filters, more, note}} parts
   */
  constructor(context, parts) {
    Object.assign(this, { context, ...parts });
    this.filters.addEventListener("click", (event) => {
      const control = event.target.closest("button");
      if (control) this.filter(control.value);
    });
    this.more.addEventListener("click", () => this.#more());
    this.list.addEventListener("focusin", (event) => this.#focus(event.target.closest("a")?.dataset.run));
    document.addEventListener("visibilitychange", () => this.refresh());
  }

  /** Read the list now, and then every two seconds. */
  async refresh() {
    clearTimeout(this.#timer);
    if (document.hidden || !this.context.allowed()) return;
    const round = (this.#round += 1);
    try {
      await this.#read(round);
    } catch (error) {
      if (round === this.#round) this.#failed(error);
    }
    if (round === this.#round) this.#timer = setTimeout(() => this.refresh(), EVERY_MS);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#round += 1;
  }

  clear() {
    this.stop();
    this.#loaded.clear();
    this.#waiting.clear();
    this.#known = null;
    this.#cursor = null;
    this.#draw();
    this.note.hidden = true;
  }

  /** Say that the token does not show any runs. */
  forbidden() {
    this.clear();
    this.note.hidden = false;
    const [title, hint] = this.note.children;
    say(title, "runs.forbidden");
    hint.hidden = true;
  }

  filter(name) {
    this.#filter = name;
    this.#loaded.clear();
    this.#cursor = null;
    this.#wanted = PAGE;
    for (const control of this.filters.children) control.setAttribute("aria-pressed", String(control.value === name));
    this.list.classList.add("is-loading");
    this.refresh();
  }

  /** Mark the run that is shown. */
  select(run) {
    this.selected = run;
    for (const [id, row] of this.#rows) setRun(row.link, id === run);
    this.#focus(run ?? this.#focused);
  }

  /** Say everything again in another language. */
  again() {
    this.#rows.clear();
    this.list.replaceChildren();
    this.#draw();
  }

  /** Put the focus `by` rows further; from nowhere on the selected one or the first. */
  move(by) {
    const links = [...this.list.querySelectorAll("a")];
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const start =
      at >= 0
        ? at + by
        : Math.max(
            0,
            links.findIndex((link) => link.dataset.run === this.selected),
          );
    const next = links[Math.min(links.length - 1, Math.max(0, start))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  async #read(round) {
    const { api } = this.context;
    const limit = Math.min(MOST, this.#wanted);
    const asked = [api.runs({ status: "waiting", limit: PAGE })];
    if (this.#filter !== "waiting") asked.push(api.runs({ status: this.#filter, limit }));
    const [waiting, page = waiting] = await Promise.all(asked);
    if (round !== this.#round) return;
    this.#takeWaiting(waiting);
    this.#take(page, limit);
    this.list.classList.remove("is-loading");
    this.note.classList.remove("is-bad");
    this.#draw();
  }

  #takeWaiting({ runs, cursor }) {
    this.#waiting = new Map(runs.map((one) => [one.run, one]));
    const ids = new Set(this.#waiting.keys());
    for (const [id, one] of this.#waiting) {
      if (this.#known && !this.#known.has(id) && id !== this.selected)
        announce(t("runs.said.waiting", { agent: oneLine(one.agent, 60) }));
    }
    this.#known = ids;
    this.context.changed(ids.size, cursor !== null);
  }

  /** The newest so many are as they are now; what is older stays as it was read. */
  #take({ runs, cursor }, limit) {
    const last = runs.at(-1)?.run;
    const kept = [...this.#loaded];
    const after = kept.findIndex(([id]) => id === last);
    this.#loaded = new Map(runs.map((one) => [one.run, one]));
    if (cursor !== null && limit === MOST && after >= 0) {
      for (const [id, one] of kept.slice(after + 1)) this.#loaded.set(id, one);
    } else {
      this.#cursor = cursor;
    }
  }

  async #more() {
    if (this.#wanted < MOST) {
      this.#wanted += PAGE;
      return this.refresh();
    }
    try {
      const page = await this.context.api.runs({ status: this.#filter, limit: PAGE, cursor: this.#cursor });
      for (const one of page.runs) this.#loaded.set(one.run, one);
      this.#cursor = page.cursor;
      this.#draw();
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error) {
    if (error.code === "unauthenticated") return this.context.onUnauthenticated();
    this.list.classList.remove("is-loading");
    this.note.hidden = false;
    this.note.classList.add("is-bad");
    say(this.note.firstElementChild, "runs.failed", { message: this.context.explain(error) });
    say(this.note.lastElementChild, "link.hint.down");
    this.note.lastElementChild.hidden = error.code !== "unreachable";
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  #draw() {
    const pinned = this.#filter === "" ? [...this.#waiting.values()].slice(0, PINNED) : [];
    const above = new Set(pinned.map((one) => one.run));
    const rest = [...this.#loaded.values()].filter((one) => !above.has(one.run));
    const wanted = [];
    if (pinned.length) wanted.push(this.#group("runs.group.waiting"), ...pinned.map((one) => this.#row(one)));
    if (pinned.length && rest.length) wanted.push(this.#group("runs.group.rest"));
    wanted.push(...rest.map((one) => this.#row(one)));
    this.#reconcile(wanted);
    const alive = new Set([...above, ...rest.map((one) => one.run)]);
    for (const id of this.#rows.keys()) if (!alive.has(id)) this.#rows.delete(id);
    this.more.hidden = this.#cursor === null;
    this.#empty(alive.size === 0);
    this.#focus(alive.has(this.#focused) ? this.#focused : alive.has(this.selected) ? this.selected : null);
  }

  /** Let the list hold these elements in this order; an element that stays is not touched, so it keeps the focus. */
  #reconcile(wanted) {
    const stays = new Set(wanted);
    for (const element of [...this.list.children]) if (!stays.has(element)) element.remove();
    let at = this.list.firstElementChild;
    for (const element of wanted) {
      if (element === at) at = at.nextElementSibling;
      else if (element.contains(document.activeElement)) this.#moveOthers(element, at);
      else this.list.insertBefore(element, at);
      if (element.contains(document.activeElement)) at = element.nextElementSibling;
    }
  }

  /** Bring a focused element to its place by moving those before it behind it: moving itself would lose the focus. */
  #moveOthers(element, at) {
    while (at && at !== element) {
      const next = at.nextElementSibling;
      element.after(at);
      at = next;
    }
  }

  #group(key) {
    this.groups ??= new Map();
    if (!this.groups.has(key))
      this.groups.set(key, h("li", { class: "group", role: "presentation" }, h("span", { say: key })));
    return this.groups.get(key);
  }

  #row(one) {
    let row = this.#rows.get(one.run);
    if (!row) this.#rows.set(one.run, (row = this.#made(one)));
    const stage = `${one.stage}`;
    if (row.stage !== stage) {
      row.stage = stage;
      row.sign.replaceWith((row.sign = sign(stage)));
      if (knows(`stage.${stage}`)) say(row.word, `stage.${stage}`);
      else tell(row.word, stage);
      row.link.dataset.stage = stage;
    }
    tell(row.when, ago(Date.parse(one.created_at)));
    tell(row.facts, this.#facts(one));
    return row.element;
  }

  #facts({ step, usage, by }) {
    const tokens = (usage?.input ?? 0) + (usage?.output ?? 0);
    const other = by === this.context.me() ? "" : oneLine(by ?? "", 40);
    return [other, step ? t("runs.step", { n: step }) : "", tokens ? t("runs.tokens", { n: compact(tokens) }) : ""]
      .filter(Boolean)
      .join(" · ");
  }

  #made(one) {
    const mark = sign("stage");
    const word = h("span", { class: "run-stage" });
    const when = h("time", { class: "run-when", title: moment(Date.parse(one.created_at)) });
    const facts = h("span", { class: "run-facts" });
    const link = h(
      "a",
      { class: "run", href: `#${new URLSearchParams({ run: one.run })}`, data: { run: one.run }, tabindex: "-1" },
      h("span", { class: "run-line" }, foreign(oneLine(one.agent, 60), "run-agent"), when),
      h("span", { class: "run-line" }, h("span", { class: "run-state" }, mark, word), facts),
      h("span", { class: "run-id" }, one.run),
    );
    setRun(link, one.run === this.selected);
    return { element: h("li", {}, link), link, sign: mark, word, when, facts, stage: null };
  }

  /** One row is in the tab order; arrows and j, k go on from it. */
  #focus(run) {
    this.#focused = run ?? null;
    const links = this.list.querySelectorAll("a");
    const chosen = (run && this.#rows.get(run)?.link) || links[0];
    for (const link of links) link.tabIndex = link === chosen ? 0 : -1;
  }

  #empty(none) {
    if (this.note.classList.contains("is-bad")) return;
    this.note.hidden = !none;
    if (!none) return;
    const [title, hint] = this.note.children;
    say(title, this.#filter ? "runs.none.filtered" : "runs.none");
    hint.hidden = Boolean(this.#filter);
    say(hint, "runs.none.start");
  }
}
