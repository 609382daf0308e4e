// The runs whose events this page keeps, and what it asks about the shown one while nothing is heard of it.

import { RunModel } from "./model.js";
import { readRow } from "./runrow.js";

const KEPT = 5; // runs whose events stay in memory, so that returning to one costs only the new events
const AGAIN_MS = 4_000; // between two attempts to follow a run without an owner
const ANSWER_MS = 3_000; // time without a refusal after which such an attempt succeeded: the run has an owner

export class Entries {
  #kept = new Map(); // run id -> {run, model, live, head, cursor, notice, degraded}; the run shown last comes last

  /** The entry of a run; a new one replaces the one that was shown longest ago. */
  take(run) {
    const entry = this.#kept.get(run) ?? { run, model: new RunModel(run), live: false, head: 0, cursor: undefined };
    this.#kept.delete(run);
    this.#kept.set(run, entry);
    for (const old of this.#kept.keys()) if (this.#kept.size > KEPT) this.#kept.delete(old);
    return entry;
  }

  get(run) {
    return this.#kept.get(run);
  }

  drop(run) {
    this.#kept.delete(run);
  }

  clear() {
    this.#kept.clear();
  }
}

/** Look after the shown run: `follow(run)` asks for its events again, `drawn` is called with news. */
export function lookAfter(entry, api, follow, drawn) {
  if (entry.degraded) askAgain(entry, follow, drawn);
  readRow(entry, api, drawn);
}

/** A run without an owner may get one later. The notice stays until an answer would have arrived. */
function askAgain(entry, follow, drawn) {
  const { asked, at } = entry.degraded;
  if (asked === null && Date.now() - at >= AGAIN_MS) {
    entry.degraded.asked = Date.now();
    follow(entry.run);
  } else if (asked !== null && Date.now() - asked >= ANSWER_MS) {
    entry.degraded = null;
    drawn();
  }
}
