// A list of runs from the gateway's frames: a first page, further pages on demand, and each changed row. Without DOM,
// clock and network; runs.js draws the list. docs/gateway.md specifies a row.

/** Order of a list -> sort key of its rows, ascending. */
const KEYS = {
  newest: (row) => -Date.parse(row.createdAt),
  waiting_longest: (row) => Date.parse(row.waitingSince ?? row.createdAt),
};

export class Feed {
  #key;
  #known = new Map(); // run id -> row
  #gone = null; // ids that left while a page was in flight: the page is older than that
  rows = []; // sorted
  cursor = null; // cursor of the next page; null if there is none

  /** @param {"newest" | "waiting_longest"} order */
  constructor(order) {
    this.#key = KEYS[order];
  }

  /** The row of a run, or undefined. */
  get(run) {
    return this.#known.get(run);
  }

  /** Replace everything by a first page. */
  replace(rows, cursor) {
    this.#known.clear();
    this.rows = [];
    this.add(rows, cursor);
  }

  /** A page is in flight: rows that leave the list meanwhile must not return with the page. */
  expect() {
    this.#gone = new Set();
  }

  /** Add one more page. Newer known rows are kept. */
  add(rows, cursor) {
    for (const row of rows) if (!this.#gone?.has(row.run)) this.#put(row);
    this.#gone = null;
    this.cursor = cursor;
  }

  /** Apply a changed row; true if the list has changed. */
  change(row) {
    const known = this.#known.get(row.run);
    if (known && row.sequence < known.sequence) return false;
    if (known) return this.#put(row);
    const last = this.rows.at(-1);
    const behind = this.cursor !== null && (!last || this.#key(row) > this.#key(last));
    return behind ? false : this.#put(row); // a row beyond the loaded pages comes with its page
  }

  /** Remove a run that left the list; true if it was there. */
  remove(run) {
    this.#gone?.add(run);
    const known = this.#known.get(run);
    if (!known) return false;
    this.#known.delete(run);
    this.rows.splice(this.#placeOf(known), 1);
    return true;
  }

  #put(row) {
    const known = this.#known.get(row.run);
    if (known && row.sequence < known.sequence) return false;
    if (known && this.#key(known) === this.#key(row)) this.rows[this.#placeOf(known)] = row;
    else {
      if (known) this.rows.splice(this.#placeOf(known), 1);
      this.rows.splice(
        this.#first((other) => this.#compare(other, row) > 0),
        0,
        row,
      );
    }
    this.#known.set(row.run, row);
    return true;
  }

  #compare(one, other) {
    return this.#key(one) - this.#key(other) || (one.run < other.run ? -1 : Number(one.run > other.run));
  }

  #placeOf(row) {
    return this.#first((other) => this.#compare(other, row) >= 0);
  }

  /** Index of the first row for which the predicate holds; it holds for all later rows. */
  #first(is) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (is(this.rows[middle])) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
