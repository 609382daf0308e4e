// A run as a fold of its events, without DOM, clock or network. timeline.js and approvals.js draw it.

import { NOTES } from "./notes.js";
import { Spans } from "./spans.js";

const MOST_OUTPUT = 1_000_000; // characters of a call's output that are kept: the newest ones
const TERMINAL = new Set(["completed", "failed", "cancelled"]);

/** A timestamp of an event in milliseconds. */
const millis = (timestamp) => Date.parse(timestamp);

/** True if a ticket asks whether an interrupted call took effect: also the mirror of a child run's ticket. */
export const asksOutcome = ({ reason, action }) =>
  reason === "outcome_unknown" || (reason === "child_approval" && action === "outcome_unknown");

export class RunModel {
  constructor(run) {
    this.run = run;
    this.agent = this.active = this.by = this.thread = this.model = this.input = this.title = "";
    this.stage = null;
    this.facts = {}; // workspace, deadline, parent, forkedFrom
    this.startedAt = this.endedAt = null;
    this.last = 0; // sequence of the newest event
    this.step = 0;
    this.tools = []; // of the current step
    this.finished = []; // {step, tools}: the steps after which a fork can start
    this.usage = { input: 0, output: 0 };
    this.end = null; // the item of the terminal event
    this.cancelling = this.pausing = false; // requested, but not effective yet
    this.waited = 0; // ms of waiting for decisions
    this.waitingSince = null; // ms, while waiting
    this.items = []; // the timeline, in order of the items' starts
    this.tickets = new Map(); // ticket id -> ticket, as approvals.js shows it
    this.changed = new Set(); // items that must be redrawn
    this.thinking = null; // {since} while a model request runs
    this.running = new Map(); // call id -> {item, since}
    this.messages = new Map();
    this.calls = new Map();
    this.spans = new Spans();
    this.artifacts = []; // as their events say, oldest first
    this.proposals = new Map(); // proposal -> the payload of run.diff.ready, with its status
  }

  get done() {
    return TERMINAL.has(this.stage);
  }

  /** The displayed state: the stage; a run ended by a stop condition is "stopped", not completed. */
  get shown() {
    return this.stage === "completed" && this.end?.termination === "stopped" ? "stopped" : this.stage;
  }

  /** The time of waiting for decisions up to a moment, in ms. */
  waitedAt(now) {
    return this.waited + (this.waitingSince === null ? 0 : Math.max(0, now - this.waitingSince));
  }

  /** The tickets that can be decided, oldest first. */
  get open() {
    return this.done ? [] : [...this.tickets.values()].filter((ticket) => ticket.status === "open");
  }

  /** True if a pause would take effect: none is requested, and another step may follow. */
  get pausable() {
    const held = this.open.some((ticket) => ticket.reason === "manual_pause");
    return this.stage !== null && !(this.done || this.cancelling || this.pausing || held);
  }

  /** Apply the next event. */
  apply(event) {
    const at = millis(event.timestamp);
    this.last = event.sequence;
    this.agent ||= event.agentId;
    this.active ||= this.agent; // another one after a handoff
    this.startedAt ??= at;
    this.#finishStages(event.type);
    this.spans.apply(event, at);
    const handler = HANDLERS[event.type];
    if (handler) handler.call(this, event.payload, at, event);
    else this.add({ kind: "unknown", type: event.type, payload: event.payload, at });
  }

  add(item) {
    item.number = this.items.push(item);
    item.agent = this.active;
    this.changed.add(item);
    return item;
  }

  touch(item) {
    this.changed.add(item);
    return item;
  }

  /** The item of a row of the waterfall, or undefined. */
  itemOf({ kind, id }) {
    if (kind === "call") return this.calls.get(id);
    if (kind === "model") return this.messages.get(`message ${id}`) ?? this.messages.get(`reasoning ${id}`);
    return this.items.find((item) => item.kind === kind && item.step === id);
  }

  note(text, values, at, more = {}) {
    return this.add({ kind: "note", text, values, at, ...more });
  }

  // --- --- one method per event type ---------------------------------------------------------------------------------

  /** Consecutive transitions become one line. */
  #finishStages(type) {
    if (this.stages && !(type in STAGE_EVENTS)) this.stages = null;
  }

  moved(payload, at) {
    this.#reach(payload.to, at);
    // the start of a run is one line; later transitions are visible in its calls and decisions
    if (!this.stages && payload.from !== "created") return;
    if (!this.stages) this.stages = this.add({ kind: "stages", at, path: payload.from ? [payload.from] : [] });
    this.stages.path.push(payload.to);
    this.stages.took = at - this.startedAt;
    this.touch(this.stages);
  }

  #reach(stage, at) {
    if (stage === "needs_approval") this.waitingSince ??= at;
    else if (this.waitingSince !== null) {
      this.waited = this.waitedAt(at);
      this.waitingSince = null;
    }
    this.stage = stage;
  }

  created(payload, at) {
    const { agent, by, threadId: thread, input, title = "" } = payload;
    Object.assign(this, { agent, active: agent, by, thread, input, title });
    for (const name of ["workspace", "deadline", "parent", "forkedFrom"])
      if (payload[name]) this.facts[name] = payload[name];
    this.stage = payload.to;
    const { attachments } = payload;
    this.add({ kind: "input", text: payload.input, attachments, by: payload.by, at, first: true });
  }

  stepStarted({ step }, at) {
    this.step = step;
    this.tools = [];
    this.add({ kind: "step", step, at });
  }

  stepFinished({ step, usage }) {
    this.usage = { ...this.usage, ...usage };
    this.finished.push({ step, tools: this.tools });
  }

  asked({ messageId: id }, at) {
    this.thinking = { since: at, id };
  }

  answered({ messageId: id, model, usage, durationMs: took }) {
    this.thinking = null;
    this.model = model;
    for (const name of ["input", "output"]) this.usage[name] += usage?.[name] ?? 0;
    for (const kind of ["message", "reasoning"]) {
      const item = this.messages.get(`${kind} ${id}`);
      if (item) this.touch(Object.assign(item, { took, live: false }));
    }
  }

  retried({ messageId: id, code, detail, usage, delayMs: delay, mode, model }, at) {
    this.thinking = null;
    for (const name of ["input", "output"]) this.usage[name] += usage?.[name] ?? 0;
    const continued = mode === "continue"; // the shown text stays, and the answer continues it
    if (!continued) for (const kind of ["message", "reasoning"]) this.#discard(`${kind} ${id}`, code);
    const wait = delay ? { wait: delay / 1000 } : {};
    const text = model ? "item.fallback" : continued ? "item.continued" : "item.retried";
    this.note(text, { code, model, ...wait }, at, { icon: "again", detail });
  }

  delta(kind, { messageId: id, text, callId }, at) {
    const item = this.#message(kind, id, at, callId);
    item.text += text;
    item.live = true;
    this.touch(item);
  }

  completed({ messageId: id, role, text, large, cut = false, callId }, at) {
    if (large) text = this.messages.get(`message ${id}`)?.text || text; // an excerpt: the deltas hold all of it
    if (role === "user") return; // an item of the kind input has this text already
    if (!text && !this.messages.has(`message ${id}`)) return; // a message of tool calls only
    const item = this.#message("message", id, at, callId);
    if (!callId) this.said = text; // a text of a program is not the answer of the agent
    this.touch(Object.assign(item, { text, role, cut, live: false }));
  }

  discarded({ messageId: id, reason }) {
    for (const kind of ["message", "reasoning"]) this.#discard(`${kind} ${id}`, reason);
  }

  #message(kind, id, at, callId) {
    const key = `${kind} ${id}`;
    let item = this.messages.get(key);
    if (!item) this.messages.set(key, (item = this.add({ kind, id, text: "", at, live: true })));
    if (callId) item.agent = this.#tool(callId); // the body of the call says this
    return item;
  }

  #tool(callId) {
    return this.calls.get(callId)?.tool ?? callId;
  }

  #discard(key, reason) {
    const item = this.messages.get(key);
    if (item && !item.discarded) this.touch(Object.assign(item, { discarded: reason, live: false }));
  }

  called(payload, at) {
    const { callId: id, tool, arguments: given, effect, status, parentCallId: parent } = payload;
    const item = this.#call(id, tool, at);
    this.tools.push(tool);
    const caller = parent && (this.calls.get(parent)?.tool ?? parent); // the call whose body makes this one
    this.touch(Object.assign(item, { tool: caller ? `${caller} › ${tool}` : tool, caller, given, effect, status }));
  }

  toolStarted({ callId: id, attempt, status }, at) {
    const item = this.#call(id, "", at);
    item.outputs.push({ attempt, text: "", dropped: false });
    Object.assign(item, { status, attempt, progress: null, since: at });
    this.running.set(id, { item, since: at });
    this.touch(item);
  }

  suspended({ callId: id, status }, at) {
    this.#stopped(id, status, at);
  }

  resumed({ callId: id, status, mode, arguments: given }, at) {
    const item = this.#call(id, "", at);
    if (given) Object.assign(item, { given, changed: "decision" }); // the decision has given it others
    this.touch(Object.assign(item, { status, mode }));
  }

  edited(id, given, by, at) {
    const item = this.touch(Object.assign(this.#call(id, "", at), { given, changed: "plugin" }));
    this.note("item.edited", { tool: item.tool, by }, at);
  }

  progressed({ callId: id, fraction, text }, at) {
    this.touch(Object.assign(this.#call(id, "", at), { progress: { fraction, text: text ?? "" } }));
  }

  printed({ callId: id, attempt, text }, at) {
    const item = this.#call(id, "", at);
    let output = item.outputs.at(-1);
    if (!output || output.attempt !== attempt) item.outputs.push((output = { attempt, text: "", dropped: false }));
    output.text += text;
    if (output.text.length > MOST_OUTPUT * 1.5) {
      output.text = output.text.slice(-MOST_OUTPUT);
      output.dropped = true;
    }
    this.touch(item);
  }

  result({ callId: id, tool, status, result, code, attempts, durationMs: took }, at) {
    const item = this.#stopped(id, status, at);
    Object.assign(item, { tool: item.tool || tool, code, attempts, took, ended: true, progress: null });
    if (result !== undefined) item.result = result;
  }

  /** A background task is drawn like a call, under its own id. */
  taskStarted({ taskId: id, tool, arguments: given, attempt }, at) {
    Object.assign(this.#call(id, tool, at), { tool, given, task: true });
    this.toolStarted({ callId: id, attempt, status: "running" }, at);
  }

  #call(id, tool, at) {
    let item = this.calls.get(id);
    if (!item) {
      item = this.add({ kind: "call", id, tool: tool || id, given: {}, status: "new", outputs: [], attempt: 0, at });
      this.calls.set(id, item);
    }
    return item;
  }

  #stopped(id, status, at) {
    const item = this.#call(id, "", at);
    this.running.delete(id);
    return this.touch(Object.assign(item, { status, since: null }));
  }

  requested(payload, at) {
    const ticket = { ...payload, requestedAt: at, status: "open" };
    this.tickets.set(payload.ticketId, ticket);
    this.#ask(payload.callId, ticket);
    const paused = payload.reason === "manual_pause";
    if (paused) this.pausing = false;
    const text = asksOutcome(payload) ? "item.asked.unknown" : paused ? "item.paused" : "item.asked";
    this.note(text, { tool: payload.tool }, at, { icon: "hand", tone: "wait" });
  }

  /** The card of an open ticket shows the arguments of its call. */
  #ask(callId, ticket) {
    const item = this.calls.get(callId);
    if (item) this.touch(Object.assign(item, { asked: ticket !== null }));
  }

  resolved({ ticketId: id, resolution, by, reason, edited }, at) {
    const ticket = this.tickets.get(id);
    const after = ticket ? Math.max(0, at - ticket.requestedAt) : undefined;
    const tool = ticket?.tool ?? id;
    if (ticket) Object.assign(ticket, { status: resolution, by, why: reason, edited, resolvedAt: at });
    this.#ask(ticket?.callId, null);
    const how = resolution === "approved" && edited ? "edited" : resolution;
    const text = ticket?.callId === null ? `item.run.${resolution}` : `item.resolved.${how}`;
    const good = resolution === "approved";
    const tone = good ? "good" : "bad";
    this.note(text, { tool, by }, at, { icon: good ? "check" : "slash", tone, detail: reason, after });
  }

  published(artifact, at) {
    this.artifacts.push(artifact);
    const tool = this.calls.get(artifact.callId)?.tool ?? artifact.callId;
    this.add({ kind: "artifact", artifact, tool, at });
  }

  proposed(proposal, at) {
    this.proposals.set(proposal.proposal, proposal);
    const difference = this.artifacts.find(({ artifactId: id }) => id === proposal.artifact) ?? null;
    this.add({ kind: "proposal", proposal, difference, at });
  }

  /** A proposal has another status; its row and a line say so. */
  patched({ proposal: id, files = [], status, conflicts = [] }, at) {
    const proposal = this.proposals.get(id);
    if (proposal) proposal.status = status;
    for (const item of this.items) if (item.kind === "proposal" && item.proposal === proposal) this.touch(item);
    if (status === "proposed") return; // its row says that
    const tone = status === "conflicted" ? "bad" : status === "discarded" ? "" : "good";
    const names = (conflicts.length ? conflicts : files).join("\n");
    this.note(`item.patch.${status}`, { n: files.length }, at, { icon: "file", tone, detail: names });
  }

  /** What the body of a call says that it wants to do. */
  planned({ callId: id, entries }, at) {
    const tool = this.calls.get(id)?.tool ?? id;
    const list = Array.isArray(entries) ? entries : [];
    const detail = list.map(({ text, status }) => `${MARKS[status] ?? "○"} ${text ?? ""}`).join("\n");
    this.note("item.plan", { tool }, at, { icon: "queues", detail });
  }

  received({ text, attachments, by }, at) {
    this.add({ kind: "input", text, attachments, by, at, first: false });
  }

  cancelAsked({ mode, by, reason }, at) {
    this.cancelling = true;
    this.note(`item.cancel.${mode}`, { by }, at, { icon: "slash", tone: "bad", detail: reason });
  }

  pauseAsked({ by, reason, joins }, at) {
    this.pausing ||= !joins;
    this.note("item.pause", { by }, at, { icon: "hand", tone: "wait", detail: reason });
  }

  terminal(payload, at, { type }) {
    this.#reach(payload.to, at);
    this.endedAt = at;
    this.thinking = null;
    this.cancelling = this.pausing = false;
    this.running.clear();
    this.step = payload.steps ?? this.step;
    if (payload.usage) this.usage = { input: 0, output: 0, ...payload.usage };
    for (const ticket of this.tickets.values()) if (ticket.status === "open") ticket.status = "withdrawn";
    for (const item of this.calls.values()) if (item.asked) this.#ask(item.id, null);
    for (const item of this.messages.values()) if (item.live) this.touch(Object.assign(item, { live: false }));
    const said = payload.output !== undefined && payload.output === this.said; // the last message is the output
    this.end = this.add({ kind: "end", type, ...payload, said, waited: this.waited, at });
  }
}

const STAGE_EVENTS = Object.fromEntries(
  ["planned", "accepted", "preparing", "started", "applying", "resumed", "waiting"].map((name) => [
    `run.${name}`,
    true,
  ]),
);

const it = RunModel.prototype;
const MARKS = { completed: "●", in_progress: "◐" }; // of the entries of a plan; any other is not begun

const HANDLERS = {
  ...NOTES,
  ...Object.fromEntries(Object.keys(STAGE_EVENTS).map((type) => [type, it.moved])),
  "run.created": it.created,
  "run.completed": it.terminal,
  "run.failed": it.terminal,
  "run.cancelled": it.terminal,
  "run.input.received": it.received,
  "run.cancel.requested": it.cancelAsked,
  "run.pause.requested": it.pauseAsked,
  "run.plan.changed": it.planned,
  "run.step.started": it.stepStarted,
  "run.step.finished": it.stepFinished,
  "run.inference.started": it.asked,
  "run.inference.completed": it.answered,
  "run.inference.retried": it.retried,
  "run.inference.cut"({ messageId: id, usage }) {
    this.thinking = null;
    for (const name of ["input", "output"]) this.usage[name] += usage?.[name] ?? 0;
    const item = this.messages.get(`reasoning ${id}`);
    if (item) this.touch(Object.assign(item, { live: false }));
  },
  "run.usage.spent"({ usage }) {
    for (const name of ["input", "output"]) this.usage[name] += usage?.[name] ?? 0;
  },
  "run.message.delta"(payload, at) {
    this.delta("message", payload, at);
  },
  "run.reasoning.delta"(payload, at) {
    this.delta("reasoning", payload, at);
  },
  "run.message.completed": it.completed,
  "run.message.discarded": it.discarded,
  "run.tool.call": it.called,
  "run.tool.edited"({ callId: id, arguments: given, by }, at) {
    this.edited(id, given, by, at);
  },
  "run.tool.started": it.toolStarted,
  "run.tool.suspended": it.suspended,
  "run.tool.resumed": it.resumed,
  "run.tool.progress": it.progressed,
  "run.tool.output.delta": it.printed,
  "run.tool.result": it.result,
  "run.task.started": it.taskStarted,
  "run.task.progress"(payload, at) {
    this.progressed({ ...payload, callId: payload.taskId }, at);
  },
  "run.task.output.delta"(payload, at) {
    this.printed({ ...payload, callId: payload.taskId }, at);
  },
  "run.task.finished"(payload, at) {
    this.result({ ...payload, callId: payload.taskId }, at);
  },
  "run.handoff"({ fromAgent: from, toAgent: to }, at) {
    this.active = to;
    this.note("item.handoff", { from, to }, at, { icon: "dot" });
  },
  "run.diff.ready": it.proposed,
  "run.patch.proposed": it.patched,
  "run.patch.applied": it.patched,
  "run.patch.conflicted": it.patched,
  "run.patch.discarded": it.patched,
  "run.artifact.ready": it.published,
  "run.preview.ready": it.published,
  "run.approval.requested": it.requested,
  "run.approval.resolved": it.resolved,
};

/** The event types that this page knows; a test compares them with the catalogue. */
export const KNOWN_TYPES = Object.keys(HANDLERS);
