// The live list of runs: waiting ones first, oldest first, then the newest. The gateway sends changes; this page keeps
// the pages that were read, and draws the visible rows.

import { Feed } from "./feed.js";
import { announce, h, say } from "./dom.js";
import { clock, oneLine } from "./format.js";
import { RunRow } from "./runrow.js";
import { getLanguage, t } from "./words.js";

const PAGE = 50;
const DEEP = 1_000; // rows that are read again after a lost connection
const ALONE = 25; // pages of a search, each of some thousand runs, that are read before the user has to ask for more
const PINNED = 8; // waiting runs at the top of the list
const HEIGHTS = { row: 56, asking: 78, group: 32 }; // pixels; as in style.css
const BESIDE = 600; // pixels outside of the viewport in which rows are drawn, and the next page is requested

let asked = 0;

export class Runs {
  #query = {}; // agent, by, since, text, tool, code, status, outcome
  #status = ""; // a status or an outcome; "" for all
  #searched = 0; // pages of a search that were read without being asked for
  #lists = { waiting: null, rest: null }; // {id, query, feed, next: the feed that is being filled to replace it}
  #counts = null;
  #lines = []; // {key, top, height, row | group}, all of them, in their order
  #drawn = new Map(); // key -> RunRow of the lines that are in the document
  #announced = new Set(); // runs that were announced as waiting, and still wait
  #focused = null;
  #shown = null; // the page's own state of the selected run
  #reading = false;
  #asOf = null; // ms: time of the last frame before the connection was lost
  #scheduled = false;
  #changes = true; // the rows differ from the laid-out ones
  selected = null;

  /**
   * @param {{api, link, me: () => string, changed: (waiting: number) => void, onUnauthenticated: () => void,
   *   explain: (error: Error) => string}} context
   * @param {{list, scroller, more, note, asOf}} parts
   */
  constructor(context, parts) {
    Object.assign(this, { context, ...parts });
    this.more.addEventListener("click", () => this.#more());
    this.list.addEventListener("focusin", (event) => this.#focus(event.target.closest("a")?.dataset.run));
    this.scroller.addEventListener("scroll", () => this.#schedule({ same: true }), { passive: true });
    new ResizeObserver(() => this.#schedule({ same: true })).observe(this.scroller);
    setInterval(() => document.hidden || this.#tick(), 1_000);
  }

  // --- --- requests --------------------------------------------------------------------------------------------------

  /** Start, or continue after a lost connection: the link repeats the watches. */
  open() {
    this.#asOf = null;
    if (!this.#lists.waiting) this.#ask();
    this.#stale();
  }

  /** The connection is lost; the shown list stays. */
  offline() {
    this.#asOf ??= this.#lists.waiting ? Date.now() : null;
    this.#stale();
  }

  clear() {
    this.#drop();
    this.#lines = [];
    this.#counts = this.#asOf = null;
    this.#stale();
    this.#changes = true;
    this.#draw();
    this.note.hidden = true;
  }

  /** Show that the token may not see any runs. */
  forbidden() {
    this.clear();
    this.note.hidden = false;
    const [title, hint] = this.note.children;
    say(title, "runs.forbidden");
    hint.hidden = true;
  }

  /** Show the runs of a status or an outcome ("" for all) that fit a query. */
  filter(status, query) {
    this.#status = status;
    this.#query = query;
    this.#searched = 0;
    if (!this.#lists.waiting) return;
    this.#ask();
    this.list.classList.add("is-loading");
    this.scroller.scrollTop = 0;
  }

  #ask() {
    this.#drop();
    const { outcome, ...query } = this.#query;
    this.#lists.waiting = this.#watch({ ...query, status: "waiting", order: "waiting_longest" });
    if (this.#status !== "waiting") this.#lists.rest = this.#watch(this.#query);
  }

  #watch(query) {
    const id = `runs-${(asked += 1)}`;
    this.context.link.watch(id, { ...query, limit: PAGE });
    return { id, query, feed: null, next: new Feed(query.order ?? "newest") };
  }

  #drop() {
    for (const name of Object.keys(this.#lists)) {
      if (this.#lists[name]) this.context.link.unwatch(this.#lists[name].id);
      this.#lists[name] = null;
    }
  }

  // --- --- frames of the gateway -------------------------------------------------------------------------------------

  /** Handle gw.runs or gw.run of one of the watches. */
  listed(watch, frame) {
    const list = Object.values(this.#lists).find((one) => one?.id === watch);
    if (!list) return;
    if (frame.type === "gw.runs") this.#replaced(list, frame);
    else this.#changed(list, frame);
    this.#schedule();
  }

  counted(counts) {
    this.#counts = counts;
    this.context.changed(counts.waiting);
    this.#schedule();
  }

  unlisted(watch, error) {
    if (Object.values(this.#lists).some((one) => one?.id === watch)) this.#failed(error);
  }

  /** Handle a first page. Rows read beyond it are read again before they replace the shown ones. */
  #replaced(list, { runs, cursor, counts }) {
    const depth = list.feed?.rows.length ?? 0;
    list.next = new Feed(list.query.order ?? "newest");
    list.next.replace(runs, cursor);
    this.#fine();
    if (counts) this.counted(counts);
    if (cursor !== null && depth > runs.length) this.#refill(list, list.next, depth);
    else this.#swap(list);
  }

  #swap(list) {
    const before = list.feed;
    if (before && list === this.#lists.waiting)
      for (const row of list.next.rows) if (!before.get(row.run)) this.#sayWaiting(row);
    list.feed = list.next;
    list.next = null;
    this.list.classList.remove("is-loading");
    this.#schedule();
  }

  async #refill(list, next, depth) {
    while (list.next === next && next.cursor !== null && next.rows.length < depth)
      if (!(await this.#page(list, next, DEEP))) break;
    if (list.next === next) this.#swap(list);
  }

  #changed(list, { run, matches, row }) {
    for (const feed of [list.feed, list.next]) {
      if (!feed) continue;
      const known = feed.get(run);
      if (matches) feed.change(row);
      else feed.remove(run);
      if (!matches) this.#announced.delete(run);
      if (feed === list.feed && list === this.#lists.waiting && matches && !known) this.#sayWaiting(row);
    }
  }

  #sayWaiting({ run, agent }) {
    if (this.#announced.has(run)) return;
    this.#announced.add(run);
    if (run !== this.selected) announce(t("runs.said.waiting", { agent: oneLine(agent, 60) }));
  }

  // --- pages ---------------------------------------------------------------------------------------------------------

  get #main() {
    return this.#lists[this.#status === "waiting" ? "waiting" : "rest"];
  }

  async #more() {
    const list = this.#main;
    if (this.#reading || !list?.feed || list.feed.cursor === null || this.#asOf !== null) return;
    this.#reading = true;
    await this.#page(list, list.feed, PAGE * 2);
    this.#reading = false;
    this.#schedule();
  }

  /** Read one more page; false if that failed. */
  async #page(list, feed, limit) {
    const { cursor } = feed;
    feed.expect();
    try {
      const page = await this.context.api.runs(list.query, cursor, limit);
      if (feed.cursor === cursor) feed.add(page.runs, page.cursor);
      return true;
    } catch (error) {
      if (Object.values(this.#lists).includes(list)) this.#failed(error);
      return false;
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

  #fine() {
    this.note.classList.remove("is-bad");
  }

  // --- --- the set of rows -------------------------------------------------------------------------------------------

  /** The page may be ahead of the list for the selected run: its row never contradicts its head. */
  overlay(model) {
    this.#shown = model;
    this.#schedule();
  }

  #current(row) {
    const model = this.#shown;
    if (!model || model.run !== row.run || model.last <= row.sequence || model.stage === null) return row;
    const open = model.open;
    const since = open.length ? new Date(open[0].requestedAt).toISOString() : row.waitingSince;
    return {
      ...row,
      stage: model.stage,
      status: model.done ? "done" : model.stage === "needs_approval" ? "waiting" : row.status,
      waitingSince: model.stage === "needs_approval" ? since : null,
      asked: open.slice(0, 3),
      askedCount: open.length,
      step: model.step,
      termination: model.end ? { kind: model.end.termination } : null,
      held: false,
      degraded: null,
      dead: null,
    };
  }

  #layOut() {
    const waiting = this.#lists.waiting?.feed?.rows ?? [];
    const rest = this.#lists.rest?.feed?.rows ?? [];
    const lines = [];
    const add = (height, line) => {
      const last = lines.at(-1);
      lines.push({ ...line, height, top: last ? last.top + last.height : 0 });
    };
    const row = (found) => {
      const one = this.#current(found);
      add(one.asked?.length || one.dead ? HEIGHTS.asking : HEIGHTS.row, { key: one.run, row: one });
    };
    if (this.#status === "waiting") waiting.forEach(row);
    else {
      const pinned = this.#status === "" ? waiting.filter((one) => this.#waits(one)).slice(0, PINNED) : [];
      const above = new Set(pinned.map((one) => one.run));
      if (pinned.length) add(HEIGHTS.group, { key: "group waiting", group: "runs.group.waiting" });
      pinned.forEach(row);
      if (pinned.length && rest.length > above.size)
        add(HEIGHTS.group, { key: "group rest", group: "runs.group.rest" });
      for (const one of rest) if (!above.has(one.run)) row(one);
    }
    this.#lines = lines;
  }

  /** False for the selected run if the page knows that it no longer waits. */
  #waits(row) {
    return this.#current(row).status === "waiting";
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  /** Draw before the next frame; `same`: the rows are unchanged and only their position differs. */
  #schedule({ same = false } = {}) {
    this.#changes ||= !same;
    if (this.#scheduled) return;
    this.#scheduled = true;
    const draw = () => {
      this.#scheduled = false;
      this.#draw();
    };
    if (document.hidden) setTimeout(draw, 500);
    else requestAnimationFrame(draw);
  }

  #draw() {
    if (this.#changes) this.#layOut();
    this.#changes = false;
    const last = this.#lines.at(-1);
    const height = last ? last.top + last.height : 0;
    this.list.style.height = `${height}px`;
    const wanted = this.#inSight().map((line) => this.#element(line));
    reconcile(this.list, wanted);
    const alive = new Set(wanted);
    for (const [key, one] of this.#drawn) if (!alive.has(one.element)) this.#drawn.delete(key);
    this.#tabStop();
    const { feed } = this.#main ?? {};
    this.more.hidden = !feed || feed.cursor === null || this.#searching;
    say(this.more, this.#query.text === undefined ? "runs.more" : "runs.more.search");
    this.#empty();
    const { scrollTop, clientHeight } = this.scroller;
    if (scrollTop + clientHeight > height - BESIDE && scrollTop > 0) this.#more();
    else if (this.#searching && height < clientHeight) this.#goOn();
  }

  /** True while a search has hits to find in older runs: one of its pages may be short, or empty. */
  get #searching() {
    return this.#query.text !== undefined && this.#main?.feed?.cursor != null && this.#searched < ALONE;
  }

  /** Search further without being asked, until the list fills the page. */
  #goOn() {
    if (this.#reading) return;
    this.#searched += 1;
    this.#more();
  }

  /** The lines in and near the viewport, and the focused one, in order. */
  #inSight() {
    const { scrollTop, clientHeight } = this.scroller;
    const from = this.#lineAt(scrollTop - BESIDE);
    const to = this.#lineAt(scrollTop + clientHeight + BESIDE) + 1;
    const lines = this.#lines.slice(from, to);
    const focused = this.#holder();
    const at = focused === null ? -1 : this.#lines.findIndex((line) => line.key === focused);
    if (at >= 0 && at < from) lines.unshift(this.#lines[at]);
    if (at >= to) lines.push(this.#lines[at]);
    return lines;
  }

  /** The run whose row has the focus, or null. */
  #holder() {
    return this.list.contains(document.activeElement) ? (document.activeElement.dataset.run ?? null) : null;
  }

  #lineAt(top) {
    let [low, high] = [0, Math.max(0, this.#lines.length - 1)];
    while (low < high) {
      const middle = (low + high) >> 1;
      const line = this.#lines[middle];
      if (line.top + line.height > top) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #element(line) {
    let one = this.#drawn.get(line.key);
    if (!one) this.#drawn.set(line.key, (one = line.group ? groupRow(line.group) : new RunRow(line.row)));
    const { element } = one;
    const place = `translateY(${line.top}px)`;
    if (element.style.transform !== place) element.style.transform = place;
    element.style.height = `${line.height}px`;
    if (line.row) {
      const selected = line.key === this.selected;
      one.show(line.row, { me: this.context.me(), selected, language: getLanguage() });
    }
    return element;
  }

  #tick() {
    for (const one of this.#drawn.values()) one.tick?.();
  }

  #stale() {
    const stale = this.#asOf !== null;
    this.asOf.hidden = !stale;
    this.list.classList.toggle("is-stale", stale);
    if (stale) say(this.asOf, "runs.asof", { at: clock(this.#asOf) });
  }

  #empty() {
    if (this.note.classList.contains("is-bad")) return;
    const known = this.#main?.feed;
    const [title, hint] = this.note.children;
    if (this.#main && !known) {
      // waiting rows may be loaded already: there are more rows below them
      this.note.hidden = false;
      hint.hidden = true;
      return say(title, "runs.loading");
    }
    this.note.hidden = !known || (this.#lines.length > 0 && !this.#searching);
    if (this.note.hidden) return;
    if (known.cursor !== null) {
      hint.hidden = true;
      return say(title, this.#searching ? "runs.searching" : "runs.none.yet");
    }
    const searched = Object.keys(this.#query).length > 0;
    say(title, searched ? "runs.none.found" : this.#status ? "runs.none.filtered" : "runs.none");
    hint.hidden = searched || Boolean(this.#status);
    say(hint, "runs.none.start");
  }

  // --- the keyboard --------------------------------------------------------------------------------------------------

  /** Mark the shown run. */
  select(run) {
    this.selected = run;
    this.#shown = null;
    this.#focused = run ?? this.#focused;
    this.#schedule();
  }

  /** Redraw all texts in another language. */
  again() {
    this.#stale();
    this.#draw();
  }

  /** Move the focus by `by` rows; without a focus, to the selected or the first row. */
  move(by) {
    const rows = this.#lines.filter((line) => line.row);
    if (!rows.length) return;
    const holder = this.#holder();
    const at = holder === null ? -1 : rows.findIndex((line) => line.key === holder);
    const start =
      at >= 0
        ? at + by
        : Math.max(
            0,
            rows.findIndex((line) => line.key === this.selected),
          );
    const line = rows[Math.min(rows.length - 1, Math.max(0, start))];
    this.#bring(line);
    this.#drawn.get(line.key)?.link.focus({ preventScroll: true });
  }

  /** Scroll until a line is completely visible, and draw the visible rows. */
  #bring({ top, height }) {
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + height > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = top + height - scroller.clientHeight + 8;
    this.#draw();
  }

  #focus(run) {
    this.#focused = run ?? this.#focused;
    this.#tabStop();
  }

  /** One row is in the tab order; arrows and j, k move from it. */
  #tabStop() {
    const rows = [...this.#drawn.values()].filter((one) => one.link);
    const chosen =
      [this.#focused, this.selected].map((run) => this.#drawn.get(run)).find((one) => one?.link) ?? rows[0];
    for (const one of rows) one.link.tabIndex = one === chosen ? 0 : -1;
  }
}

const groupRow = (key) => ({
  element: h("li", { class: "group" }, h("span", { say: key })),
});

/** Make a list contain these elements in this order; an unmoved element is not touched, so it keeps the focus. */
function reconcile(list, wanted) {
  const stays = new Set(wanted);
  for (const element of [...list.children]) if (!stays.has(element)) element.remove();
  let at = list.firstElementChild;
  for (const element of wanted) {
    if (element === at) at = at.nextElementSibling;
    else if (element.contains(document.activeElement)) moveOthers(element, at);
    else list.insertBefore(element, at);
    if (element.contains(document.activeElement)) at = element.nextElementSibling;
  }
}

/** Move a focused element by moving its predecessors behind it: moving the element itself would lose the focus. */
function moveOthers(element, at) {
  while (at && at !== element) {
    const next = at.nextElementSibling;
    element.after(at);
    at = next;
  }
}
