// A run's timeline on the page: one row per item of the model, drawn at most once per frame.
// Only a window of a long run is in the document. The scroll position is stable: it follows the end only while the
// reader is at the end, and otherwise keeps the text being read in place, whatever grows above it.

import { say, tell } from "./dom.js";
import { oneLine, wholeSeconds } from "./format.js";
import { BrokenRow, ROWS } from "./rows.js";
import { t } from "./words.js";

const PAGE = 150; // rows that are added at once
const MOST = 450; // rows in the document
const NEAR = 40; // pixels from the end that still count as the end

export class Timeline {
  #rows = new Map(); // item -> Row
  #start = 0; // the rows are those of items[start:end]
  #end = 0;
  #known = 0; // items at the last drawing; the model may have more by now
  #seen = 0; // items at the time when the reader left the end
  #top = 0; // the last known scroll position
  #model = null;
  following = true;

  /**
   * @param {object} parts scroller (an element), list (the ol), earlier, later (buttons), activity (a line), jump (a
   *   button), and tail: () => the element after the list with an open decision, or null
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.scroller.addEventListener("click", () => this.#look()); // an opened row has grown
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

  /** Recreate the rows in another language. */
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

  /** Update the page from the model. */
  draw() {
    const model = this.#model;
    if (!model) return;
    const count = model.items.length;
    this.#keeping(() => {
      for (const item of model.changed) this.#update(item);
      model.changed.clear();
      this.#extend(count);
      this.#buttons();
      this.tick();
    });
  }

  /** Scroll to the end, or to the open decision there. */
  toLatest() {
    if (!this.#model) return;
    const count = this.#model.items.length;
    this.#known = count;
    this.#place(Math.max(0, count - PAGE), count);
    this.following = true;
    this.#buttons();
    this.#toEnd();
  }

  /** Scroll to an item, and give its row the focus. */
  reveal(item) {
    const index = this.#model?.items.indexOf(item) ?? -1;
    if (index < 0) return;
    this.following = false;
    if (index < this.#start || index >= this.#end)
      this.#place(Math.max(0, index - PAGE / 2), Math.min(this.#known, index + PAGE / 2));
    const { element } = this.#rows.get(item) ?? {};
    if (!element) return;
    element.tabIndex = -1;
    element.scrollIntoView({ block: "center" });
    element.focus({ preventScroll: true });
    this.#top = this.scroller.scrollTop;
    this.#buttons();
  }

  /** The present activity, with its duration. */
  tick(now = Date.now()) {
    const [text, since] = this.#activity();
    this.activity.classList.toggle("is-busy", Boolean(text) && this.#model.waitingSince === null);
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
    if (model.waitingSince !== null) return [t("run.waiting"), model.waitingSince - this.skew()];
    if (model.thinking)
      return [t("run.thinking", { agent: oneLine(model.active, 60) }), model.thinking.since - this.skew()];
    return ["", null];
  }

  /** The offset of the gateway's clock, in ms. */
  skew = () => 0;

  /** Called with the error of a row that failed to draw. */
  failed = (error) => reportError(error);

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

  /** Make the rows those of items[start:end]; existing ones stay unchanged. */
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
    let row;
    try {
      row = new ROWS[item.kind](item, this.#model.startedAt, item.agent || this.#model.agent);
      row.update(item);
    } catch (error) {
      row = this.#broken(item, error);
    }
    this.#rows.set(item, row);
    return row.element;
  }

  #update(item) {
    const row = this.#rows.get(item);
    try {
      row?.update(item);
    } catch (error) {
      const broken = this.#broken(item, error);
      row.element.replaceWith(broken.element);
      this.#rows.set(item, broken);
    }
  }

  #broken(item, error) {
    this.failed(error);
    return new BrokenRow(item, this.#model.startedAt);
  }

  #remove(item) {
    this.#rows.get(item)?.element.remove();
    this.#rows.delete(item);
  }

  /** Change the document, and keep the text being read in place. */
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

  /** The reader's anchor: the focused decision, otherwise the first visible row. */
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
    this.#top = scroller.scrollTop; // in every case: rows removed above have reduced it, too
  }

  /** The event fires after its cause, and the page may have grown since: only scrolling up leaves the end. */
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

  /** True at the target of #toEnd if the open decision is higher than the page. */
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
