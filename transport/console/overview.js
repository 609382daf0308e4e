// The start page: what needs a person, what failed, what runs, and how many runs ended in each hour of a day.
// Its lists are watched like the list of runs, so nothing is polled; the chart is read when the page is shown, and
// again after runs have ended.

import { hourlyChart, sums } from "./chart.js";
import { h, icon, say, tell } from "./dom.js";
import { Feed } from "./feed.js";
import { ALL, queryOf } from "./filters.js";
import { number } from "./format.js";
import { RunRow } from "./runrow.js";
import { getLanguage } from "./words.js";

const ROWS = 6; // of each list
const AGAIN_MS = 10_000; // between two readings of the chart
const LISTS = {
  waiting: {
    filters: { ...ALL, show: "waiting" },
    order: "waiting_longest",
    empty: "overview.waiting.none",
    icon: "hand",
  },
  failed: { filters: { ...ALL, show: "failed", since: "day" }, empty: "overview.failed.none", icon: "cross" },
  running: { filters: { ...ALL, show: "running" }, empty: "overview.running.none", icon: "spark" },
};

let asked = 0;

export class Overview {
  #lists = {}; // name -> {id, feed, rows: run id -> RunRow, ...parts}
  #counts = null;
  #open = false;
  #readAt = 0;
  #timer = null;
  #hours = null;

  /** @param {{api, link, me: () => string, show: (filters: object) => void}} context */
  constructor(element, context) {
    this.context = context;
    this.element = element;
    this.tiles = Object.fromEntries([...Object.keys(LISTS), "ended"].map((name) => [name, this.#tile(name)]));
    this.chart = h("div", {});
    this.fault = h("p", { class: "hint", hidden: true });
    const charted = h(
      "section",
      { class: "overview-card overview-chart", "aria-labelledby": "overview-chart" },
      h("h2", { id: "overview-chart", say: "overview.chart" }),
      this.chart,
      this.fault,
    );
    element.append(
      h("h1", { say: "overview.page", tabindex: "-1" }),
      h("ul", { class: "tiles" }, ...Object.values(this.tiles).map(({ item }) => item)),
      h("div", { class: "overview-lists" }, ...Object.keys(LISTS).map((name) => this.#section(name)), charted),
    );
    setInterval(() => document.hidden || this.#tick(), 1_000);
  }

  /** Show or hide the page; its lists are watched while it is shown. */
  show(shown) {
    this.element.hidden = !shown;
    this.#watch();
  }

  /** The connection lives, and the principal may read; or not any more. */
  connected(live) {
    this.live = live;
    this.#watch();
  }

  listed(watch, frame) {
    const list = Object.values(this.#lists).find((one) => one.id === watch);
    if (!list) return;
    if (frame.type === "gw.runs") list.feed.replace(frame.runs, frame.cursor);
    else if (frame.matches) list.feed.change(frame.row);
    else list.feed.remove(frame.run);
    list.known = true;
    this.#later();
    this.#schedule();
  }

  counted(counts) {
    this.#counts = counts;
    this.#schedule();
  }

  /** Redraw in another language. */
  again() {
    if (this.#hours) this.chart.replaceChildren(hourlyChart(this.#hours));
    this.#schedule();
  }

  // --- watching ------------------------------------------------------------------------------------------------------

  #watch() {
    const open = Boolean(this.live) && !this.element.hidden;
    if (open === this.#open) return;
    this.#open = open;
    for (const [name, { filters, order }] of Object.entries(LISTS)) {
      const list = this.#lists[name];
      if (open) {
        list.id = `overview-${(asked += 1)}`;
        list.feed = new Feed(order ?? "newest");
        this.context.link.watch(list.id, { ...queryOf(filters), ...(order ? { order } : {}), limit: ROWS });
      } else if (list.id) {
        this.context.link.unwatch(list.id);
        list.id = null;
      }
    }
    if (open) this.#read();
  }

  /** Read the chart some seconds after the last run has changed. */
  #later() {
    if (this.#timer !== null) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        if (this.#open && !document.hidden) this.#read();
      },
      Math.max(500, this.#readAt + AGAIN_MS - Date.now()),
    );
  }

  async #read() {
    this.#readAt = Date.now();
    try {
      const { hours, complete } = await this.context.api.throughput();
      this.#hours = hours;
      this.chart.replaceChildren(hourlyChart(hours));
      this.fault.hidden = complete;
      say(this.fault, "overview.chart.part");
    } catch {
      this.fault.hidden = false;
      say(this.fault, "overview.chart.failed");
    }
    this.#draw();
  }

  // --- parts ---------------------------------------------------------------------------------------------------------

  #tile(name) {
    const figure = h("span", { class: "tile-figure" }, "–");
    const control = h(
      "button",
      { type: "button", class: `tile tile-${name}` },
      figure,
      h("span", { class: "tile-name", say: `overview.tile.${name}` }),
    );
    const filters = LISTS[name]?.filters ?? { ...ALL, show: "done", since: "day" };
    control.addEventListener("click", () => this.context.show(filters));
    return { item: h("li", {}, control), figure };
  }

  #section(name) {
    const list = h("ul", { class: "overview-runs" });
    const empty = h("p", { class: "hint", hidden: true, say: LISTS[name].empty });
    const all = h("button", { type: "button", class: "button quiet small", hidden: true, say: "overview.all" });
    say(all, `overview.all.${name}`, {}, "label");
    all.addEventListener("click", () => this.context.show(LISTS[name].filters));
    this.#lists[name] = { id: null, feed: new Feed("newest"), rows: new Map(), known: false, list, empty, all };
    return h(
      "section",
      { class: `overview-card overview-${name}`, "aria-labelledby": `overview-${name}` },
      h(
        "div",
        { class: "overview-head" },
        h("h2", { id: `overview-${name}` }, icon(LISTS[name].icon), h("span", { say: `overview.${name}` })),
        all,
      ),
      list,
      empty,
    );
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  #scheduled = false;

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    for (const list of Object.values(this.#lists)) this.#drawList(list);
    const { waiting = null, running = null } = this.#counts ?? {};
    const ended = this.#hours && sums(this.#hours);
    const figures = {
      waiting,
      running,
      failed: ended?.failed ?? null,
      ended: ended && Object.values(ended).reduce((sum, n) => sum + n, 0),
    };
    for (const [name, { figure, item }] of Object.entries(this.tiles)) {
      if (figures[name] !== null) tell(figure, number(figures[name]));
      item.classList.toggle("is-none", !figures[name]);
    }
  }

  #drawList({ feed, rows, known, list, empty, all }) {
    const shown = feed.rows.slice(0, ROWS);
    const wanted = shown.map((row) => {
      const one = rows.get(row.run) ?? new RunRow(row);
      rows.set(row.run, one);
      one.link.tabIndex = 0;
      one.show(row, { me: this.context.me(), selected: false, language: getLanguage() });
      return one.element;
    });
    const stays = new Set(shown.map((row) => row.run));
    for (const run of rows.keys()) if (!stays.has(run)) rows.delete(run);
    if (wanted.length !== list.children.length || wanted.some((element, index) => list.children[index] !== element))
      list.replaceChildren(...wanted);
    empty.hidden = !known || shown.length > 0;
    list.hidden = shown.length === 0;
    all.hidden = feed.rows.length < ROWS;
  }

  #tick() {
    if (!this.#open) return;
    for (const { rows } of Object.values(this.#lists)) for (const row of rows.values()) row.tick();
  }
}
