// What a run spent its time on, as a fold of its events: steps, requests to models, calls, and waiting for people.
// Without DOM and clock; waterfall.js draws it.

const WAITS = "run.waiting";
const STAGES = new Set(
  ["planned", "accepted", "preparing", "started", "applying", "resumed"].map((name) => `run.${name}`),
);

export class Spans {
  // {kind: step | model | call | pause, name, id, nested, segments: [{kind: run | wait, from, to}], usage, bad}
  rows = [];
  waits = []; // {from, to}: the whole run waited; `to` is null while it does
  #rows = new Map(); // key -> row

  /** Apply an event; `at` is its time in ms. */
  apply({ type, payload }, at) {
    HANDLERS[type]?.call(this, payload, at);
    if (ENDS.has(type)) for (const key of this.#rows.keys()) this.end(key, at);
    const waiting = this.waits.at(-1);
    if (type === WAITS) this.waits.push({ from: at, to: null });
    else if (waiting?.to === null && (STAGES.has(type) || ENDS.has(type))) waiting.to = at;
  }

  row(key, given) {
    let row = this.#rows.get(key);
    if (!row) {
      row = { segments: [], usage: null, bad: false, ...given };
      this.#rows.set(key, row);
      this.rows.push(row);
    }
    return row;
  }

  step(number, at) {
    this.row(`step ${number}`, { kind: "step", name: String(number), id: number });
    this.begin(`step ${number}`, "run", at);
  }

  /** Begin a segment of a row; the one before ends. */
  begin(key, kind, at) {
    const row = this.#rows.get(key);
    if (!row) return;
    this.end(key, at);
    row.segments.push({ kind, from: at, to: null });
  }

  end(key, at, { bad = false } = {}) {
    const row = this.#rows.get(key);
    if (!row) return null;
    const last = row.segments.at(-1);
    if (last?.to === null) last.to = at;
    row.bad ||= bad;
    return row;
  }
}

const ENDS = new Set(["run.completed", "run.failed", "run.cancelled"]);

const HANDLERS = {
  "run.step.started"({ step }, at) {
    this.step(step, at);
  },
  "run.step.finished"({ step }, at) {
    this.end(`step ${step}`, at);
  },
  "run.inference.started"({ messageId: id }, at) {
    this.row(`model ${id}`, { kind: "model", name: "", id });
    this.begin(`model ${id}`, "run", at);
  },
  "run.inference.completed"({ messageId: id, model, usage }, at) {
    const row = this.end(`model ${id}`, at);
    if (row) Object.assign(row, { name: model, usage });
  },
  "run.inference.retried"({ messageId: id, usage }, at) {
    const row = this.end(`model ${id}`, at, { bad: true });
    if (row && usage) row.usage = usage;
  },
  "run.inference.cut"({ messageId: id, usage }, at) {
    const row = this.end(`model ${id}`, at, { bad: true });
    if (row && usage) row.usage = usage;
  },
  "run.tool.call"({ callId: id, tool, parentCallId: parent }) {
    this.row(`call ${id}`, { kind: "call", name: tool, id, nested: Boolean(parent) });
  },
  "run.tool.started"({ callId: id }, at) {
    this.row(`call ${id}`, { kind: "call", name: id, id });
    this.begin(`call ${id}`, "run", at);
  },
  "run.tool.suspended"({ callId: id }, at) {
    this.begin(`call ${id}`, "wait", at);
  },
  "run.tool.resumed"({ callId: id }, at) {
    this.end(`call ${id}`, at);
  },
  "run.tool.result"({ callId: id, status }, at) {
    this.end(`call ${id}`, at, { bad: status === "failed" });
  },
  "run.task.started"({ taskId: id, tool }, at) {
    this.row(`call ${id}`, { kind: "call", name: tool, id });
    this.begin(`call ${id}`, "run", at);
  },
  "run.task.finished"({ taskId: id, status }, at) {
    this.end(`call ${id}`, at, { bad: status === "failed" });
  },
  "run.approval.requested"({ ticketId: id, callId, reason }, at) {
    if (callId !== null && callId !== undefined) return; // the row of its call has the wait
    this.row(`pause ${id}`, { kind: "pause", name: reason, id });
    this.begin(`pause ${id}`, "wait", at);
  },
  "run.approval.resolved"({ ticketId: id }, at) {
    this.end(`pause ${id}`, at);
  },
};

/** A row's duration in ms, and the part of it that was waiting. */
export function timesOf({ segments }, now) {
  let [took, waited] = [0, 0];
  for (const { kind, from, to } of segments) {
    const length = Math.max(0, (to ?? now) - from);
    took += length;
    if (kind === "wait") waited += length;
  }
  return { took, waited };
}

const LONGEST_WAIT = 0.12; // of the time of work: what a longer wait of the whole run takes of the drawing

/**
 * A function from a moment to its place, 0 to 1, in a drawing of the run. Waiting for people may take days: a wait of
 * the whole run takes a small part of the drawing at most, and all work keeps its proportions.
 */
export function scaleOf({ waits }, from, to) {
  const bounded = waits.map((wait) => ({ from: wait.from, to: Math.min(to, wait.to ?? to) }));
  const idle = bounded.reduce((sum, wait) => sum + Math.max(0, wait.to - wait.from), 0);
  const most = Math.max(1, (to - from - idle) * LONGEST_WAIT);
  const pieces = bounded.map((wait) => ({ ...wait, drawn: Math.min(most, wait.to - wait.from) }));
  const drawn = (at) => {
    let place = at - from;
    for (const piece of pieces) {
      if (at <= piece.from) break;
      const inside = Math.min(at, piece.to) - piece.from;
      const length = piece.to - piece.from;
      if (length > 0) place -= inside * (1 - piece.drawn / length);
    }
    return place;
  };
  const whole = Math.max(1, drawn(to));
  return (at) => Math.min(1, Math.max(0, drawn(at) / whole));
}
