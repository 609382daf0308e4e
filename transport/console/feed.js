// A list of runs as the gateway tells it: a first page, more pages on demand, and each row that changes. No page, no
// clock and no network in here; runs.js draws it. docs/gateway.md says what a row holds.

/** Order of a list -> what its rows are sorted by, ascending. */
const KEYS = {
  newest: (row) => -Date.parse(row.created_at),
  waiting_longest: (row) => Date.parse(row.waiting_since ?? row.created_at),
};

export class Feed {
  #key;
  #known = new Map(); // run id -> row
  #gone = null; // ids that left while a page was on its way: the page is older than that
  rows = []; // sorted
  cursor = null; // of the next page; null if there is none

  /** @param {"newest" | "waiting_longest"} order */
  constructor(order) {
    this.#key = KEYS[order];
  }

  /** The row of a run, or undefined. */
  get(run) {
    return this.#known.get(run);
  }

  /** Take a first page: whatever was known is forgotten. */
  replace(rows, cursor) {
    this.#known.clear();
    this.rows = [];
    this.add(rows, cursor);
  }

  /** A page is on its way: what leaves the list until it comes does not come back with it. */
  expect() {
    this.#gone = new Set();
  }

  /** Take one more page. Rows that are known as newer ones stay. */
  add(rows, cursor) {
    for (const row of rows) if (!this.#gone?.has(row.run)) this.#put(row);
    this.#gone = null;
    this.cursor = cursor;
  }

  /** A row that has changed; true if the list is another one now. */
  change(row) {
    const known = this.#known.get(row.run);
    if (known && row.sequence < known.sequence) return false;
    if (known) return this.#put(row);
    const last = this.rows.at(-1);
    const behind = this.cursor !== null && (!last || this.#key(row) > this.#key(last));
    return behind ? false : this.#put(row); // one that is behind comes with its page
  }

  /** A run that is not in the list any more; true if it was. */
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

  /** Index of the first row of which this is true; it is true of all after it. */
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
