// The rows of the inbox: those in sight are in the document, and one of them is the current one, whose question is
// shown beside the list. A listbox: the list has the focus, and names the current row.

import { h } from "./dom.js";
import { InboxRow } from "./inboxrow.js";
import { getLanguage } from "./words.js";

const WIDE = matchMedia("(min-width: 761px)"); // as in inbox.css
const HEIGHTS = { wide: 60, narrow: 98 }; // pixels of a row; as in inbox.css
const BESIDE = 8; // rows that are drawn above and below the visible ones

export class InboxRows {
  #drawn = new Map(); // ticket id -> InboxRow
  #scheduled = false;
  current = null;

  /** @param {{chosen: (question) => void, ticked: (question, event) => void, opened: () => void}} context */
  constructor(list, context) {
    Object.assign(this, { list, context });
    this.rows = h("ul", {
      class: "inbox-rows",
      role: "listbox",
      id: "inbox-rows",
      tabindex: "0",
      "aria-multiselectable": "true",
      sayLabel: "inbox.list",
    });
    this.element = h("div", { class: "inbox-scroll" }, this.rows);
    this.element.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.rows.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.#schedule()).observe(this.element);
  }

  get #height() {
    return WIDE.matches ? HEIGHTS.wide : HEIGHTS.narrow;
  }

  /** The number of rows in sight. */
  get page() {
    return Math.max(1, Math.floor(this.element.clientHeight / this.#height) - 1);
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.draw();
    });
  }

  draw() {
    const { rows } = this.list;
    const height = this.#height;
    this.rows.style.height = `${rows.length * height}px`;
    const from = Math.max(0, Math.floor(this.element.scrollTop / height) - BESIDE);
    const to = Math.min(rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / height) + BESIDE);
    const language = getLanguage();
    const wanted = new Map();
    const at = this.current ? rows.indexOf(this.current) : -1;
    const indexes = Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
    if (at >= 0 && at < from) indexes.unshift(at);
    if (at >= to) indexes.push(at);
    for (const index of indexes) wanted.set(rows[index].id, this.#row(rows[index], index, language, height));
    for (const [id, row] of this.#drawn)
      if (wanted.get(id) !== row) {
        row.element.remove();
        this.#drawn.delete(id);
      }
    let place = this.rows.firstElementChild;
    for (const row of wanted.values()) {
      if (row.element === place) place = place.nextElementSibling;
      else this.rows.insertBefore(row.element, place);
    }
    const active = this.current && this.#drawn.get(this.current.id);
    if (active) this.rows.setAttribute("aria-activedescendant", active.element.id);
    else this.rows.removeAttribute("aria-activedescendant");
  }

  #row(question, index, language, height) {
    let row = this.#drawn.get(question.id);
    if (row?.question !== question) {
      row?.element.remove();
      this.#drawn.set(question.id, (row = new InboxRow(question)));
    }
    const place = `translateY(${index * height}px)`;
    if (row.element.style.transform !== place) row.element.style.transform = place;
    row.show({
      current: question === this.current,
      ticked: this.list.ticked.has(question.id),
      tickable: this.list.tickable(question),
      place: index + 1,
      count: this.list.rows.length,
      language,
    });
    return row;
  }

  /** What changes with the time. */
  age() {
    for (const row of this.#drawn.values()) row.age();
  }

  // --- the current row -----------------------------------------------------------------------------------------------

  focus() {
    if (this.element.hidden) return;
    this.rows.focus({ preventScroll: true });
  }

  top() {
    this.element.scrollTop = 0;
  }

  /** Make a question the current one; `quiet`: without scrolling to it. */
  choose(question, { quiet = false } = {}) {
    this.current = question;
    this.context.chosen(question);
    if (question && !quiet) this.#bring(this.list.rows.indexOf(question));
    this.#schedule();
  }

  /** Move the current row by so many rows; returns it. */
  step(by) {
    const { rows } = this.list;
    if (!rows.length) return null;
    const at = rows.indexOf(this.current);
    const to = Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by));
    this.choose(rows[to]);
    this.draw();
    return rows[to];
  }

  /** The next open question behind another one, else the first open one of the list; null if there is none. */
  next(question) {
    const { rows } = this.list;
    const at = rows.indexOf(question);
    const open = (one) => one.open && one !== question;
    return rows.slice(at + 1).find(open) ?? rows.find(open) ?? null;
  }

  #bring(index) {
    if (index < 0) return;
    const [top, height] = [index * this.#height, this.#height];
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + height > scrollTop + clientHeight) this.element.scrollTop = top + height - clientHeight;
  }

  #click(event) {
    const row = event.target.closest("[data-ticket]");
    const question = row && this.list.get(row.dataset.ticket);
    if (!question) return;
    const tick = event.target.closest(".ask-tick") || event.ctrlKey || event.metaKey;
    if (event.shiftKey) return this.context.ticked(question, { range: true });
    if (tick) return this.context.ticked(question, {});
    this.choose(question, { quiet: true });
    this.context.opened();
  }
}
