// The one connection to the gateway: it follows runs, sends commands, and reconnects automatically.
// Theory of operation. A followed run has a cursor (the sequence that was applied last, and the epoch of its log).
// Cursors and commands outlive connections: each new connection subscribes from the cursors, and sends unacknowledged
// commands again, with the same ids. Therefore every event is applied exactly once and in order, and every command acts
// at most once. The cursor moves after the event has been applied. docs/gateway.md specifies the protocol.

import { encoded, parseEvent } from "./exact.js";
import { bytesOf } from "./format.js";

export const SUBPROTOCOL = "greenroom.v1";
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 15_000;
const SILENCE_MS = 45_000; // without any frame the connection counts as lost; the gateway ticks every 20 s
const TAIL_MS = 3_000; // a tick overtakes no event, but a slow page may still be applying the events it names
const PATIENCE_MS = 10_000; // for the answer to a request
const STEADY_MS = 10_000; // after a connection of at least this duration, the next delay is the first one again
const TRIES = 6; // of a command that the gateway could not accept yet

/** Close codes after which the same page and token will not be admitted. */
const FINAL = new Set([1009, 4400, 4403, 4406]);
const NAMES = {
  1000: "done",
  1001: "going_away",
  1006: "lost",
  1009: "too_big",
  1011: "internal",
  1012: "restart",
  1013: "overloaded",
  4400: "bad_message",
  4401: "unauthenticated",
  4403: "forbidden",
  4406: "wrong_protocol",
  4408: "hello_timeout",
  4429: "too_fast",
};

/** A command that the gateway refused. */
export class Refused extends Error {
  constructor({ code, message = "", current }) {
    super(message);
    this.code = code;
    this.current = current;
  }
}

/** Close a connection. One that is still connecting is closed once open: browsers log an error otherwise. */
function leave(socket) {
  if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close(1000);
  else socket.close(1000);
}

/** A new id; crypto.randomUUID is missing on pages from another machine over plain http. */
export function freshId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/**
 * The notifications of a link, each a method of `listener`:
 *   state({name, ...})          idle | connecting | live | waiting {until, failures, lived, why} | refused {why} |
 *                               unauthenticated {refused}; why is {code, name, reason}
 *   event(run, event)           in order, each exactly once
 *   subscribed(run, frame), live(run), reset(run, frame), ended(run, frame), refused(run, error)
 *   listed(watch, frame)        gw.runs: the whole list; gw.run: one row of it
 *   asked(frame)                gw.tickets: the open questions of all runs; gw.asked: those of one run
 *   counted(counts)             the numbers of unfinished runs
 *   unlisted(watch, error)      a watch was refused
 */
export class Link {
  #listener;
  #token;
  #socket = null;
  #follows = new Map(); // run -> {after, epoch, asked: id of the pending subscribe or null, closed}
  #watches = new Map(); // id -> frame
  #outbox = new Map(); // id -> {frame, resolve, reject, tries, timer}
  #failures = 0;
  #timer = null;
  #watch = null;
  #receivedAt = 0;
  #retryAfter = null;
  #bye = null;
  #asked = 0;
  #proxied = false;
  state = { name: "idle" };
  welcome = null;

  /** @param {{url: string, token: () => string | null, listener: object}} options */
  constructor({ url, token, listener }) {
    this.url = url;
    this.#token = token;
    this.#listener = listener;
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.#hurry());
  }

  /** Connect, for example with a new token. An existing connection is dropped. */
  open() {
    this.#drop();
    this.#connect();
  }

  /** Disconnect without reconnecting. */
  close() {
    this.#drop();
    this.#set({ name: "idle" });
  }

  /** Reconnect without waiting. */
  now() {
    if (this.state.name !== "live" && this.state.name !== "connecting") this.open();
  }

  /** Follow a run's events from a cursor. */
  follow(run, cursor = { after: 0, epoch: null }) {
    this.#follows.set(run, { ...cursor, asked: null, closed: false });
    this.#subscribe(run);
  }

  /** Stop following a run; returns its cursor. */
  leave(run) {
    const follow = this.#follows.get(run);
    this.#follows.delete(run);
    if (follow && !follow.closed) this.#send({ type: "unsubscribe", run });
    return follow ? { after: follow.after, epoch: follow.epoch } : null;
  }

  /** Watch a list of runs, on this connection and on each later one. An id is used once. */
  watch(id, query) {
    this.#keep({ type: "watch", id, ...query });
  }

  /** Watch the open questions of all runs, on this connection and on each later one. */
  watchTickets(id, query) {
    this.#keep({ type: "watchTickets", id, ...query });
  }

  #keep(frame) {
    this.#watches.set(frame.id, frame);
    this.#send(frame);
  }

  /** Stop watching a list. */
  unwatch(id) {
    if (this.#watches.delete(id)) this.#send({ type: "unwatch", id });
  }

  /**
   * Send a command until it is acknowledged, across connections; the command acts at most once.
   * @returns {Promise<object>} the gw.ack
   * @throws {Refused}
   */
  command(frame) {
    const id = frame.id ?? freshId();
    const whole = { ...frame, id };
    const limit = this.welcome?.limits?.messageBytes;
    const size = bytesOf(encoded(whole));
    if (limit && size > limit) return Promise.reject(new Refused({ code: "too_large", current: { size, limit } }));
    return new Promise((resolve, reject) => {
      this.#outbox.set(id, { frame: whole, resolve, reject, tries: 0, timer: null });
      this.#send(whole);
    });
  }

  // --- the connection ------------------------------------------------------------------------------------------------

  #connect() {
    const token = this.#token();
    if (!token && !this.#proxied) return this.#findProxy();
    this.#set({ name: "connecting" });
    this.#bye = this.#retryAfter = null;
    const socket = new WebSocket(this.url, SUBPROTOCOL);
    const mine = (handle) => (event) => this.#socket === socket && handle(event);
    socket.onopen = mine(
      () => token && socket.send(encoded({ type: "hello", token, client: "console", protocol: SUBPROTOCOL })),
    );
    socket.onmessage = mine((event) => this.#hear(event.data));
    socket.onclose = mine((event) => this.#closed(event.code, event.reason));
    this.#socket = socket;
    this.#receivedAt = Date.now();
    this.#watch = setInterval(() => this.#listen(), 5_000);
  }

  /** Ask who the page is: if a proxy in front of the gateway has signed the person in, no token is needed. */
  async #findProxy() {
    this.#set({ name: "connecting" });
    try {
      const response = await fetch(new URL("v1/me", document.baseURI), { signal: AbortSignal.timeout(PATIENCE_MS) });
      this.#proxied = response.ok && (await response.json()).principal !== null;
    } catch {
      this.#proxied = false;
    }
    if (this.state.name !== "connecting" || this.#socket) return; // a token came meanwhile, or the page was closed
    if (this.#proxied) this.#connect();
    else this.#set({ name: "unauthenticated", refused: false });
  }

  /** Abandon the connection without waiting for its close, which takes minutes over a broken network. */
  #drop() {
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    for (const follow of this.#follows.values()) follow.asked = null;
    for (const entry of this.#outbox.values()) clearTimeout(entry.timer);
    const socket = this.#socket;
    this.#socket = this.welcome = null;
    if (socket) leave(socket);
  }

  #listen() {
    const silence = Math.max(SILENCE_MS, (this.welcome?.heartbeatSeconds ?? 0) * 2_250);
    if (Date.now() - this.#receivedAt >= silence) this.#closed(1006, "silence");
  }

  #closed(code, reason) {
    const lived = this.welcome !== null && Date.now() - this.welcome.at;
    const bye = this.#bye;
    this.#drop();
    if (code === 4401) {
      this.#proxied = false;
      return this.#set({ name: "unauthenticated", refused: true });
    }
    const why = { code, name: bye?.name || NAMES[code] || "closed", reason: bye?.reason || reason };
    if (FINAL.has(code)) return this.#set({ name: "refused", why });
    this.#failures = lived >= STEADY_MS ? 1 : this.#failures + 1;
    const most = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (this.#failures - 1));
    const delay = this.#retryAfter ?? Math.random() * most;
    this.#timer = setTimeout(() => this.#connect(), delay);
    this.#set({ name: "waiting", until: Date.now() + delay, failures: this.#failures, lived: lived !== false, why });
  }

  #hurry() {
    if (this.state.name === "waiting" && this.#retryAfter === null) this.open();
  }

  #set(state) {
    this.state = state;
    this.#listener.state(state);
  }

  #send(frame) {
    if (this.welcome && this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(encoded(frame));
  }

  // --- --- incoming frames -------------------------------------------------------------------------------------------

  #hear(text) {
    this.#receivedAt = Date.now();
    const frame = parseEvent(text);
    if (frame.type.startsWith("gw.")) this.#frame(frame);
    else this.#event(frame);
  }

  #event(event) {
    const follow = this.#follows.get(event.runId);
    if (!follow || follow.asked !== null || event.sequence <= follow.after) return;
    if (event.sequence > follow.after + 1) return this.#subscribe(event.runId); // a gap
    this.#listener.event(event.runId, event);
    follow.after = event.sequence;
  }

  #frame(frame) {
    switch (frame.type) {
      case "gw.welcome":
        return this.#welcomed(frame);
      case "gw.renamed": // gw.reset follows for every run
        this.welcome = { ...this.welcome, epoch: frame.epoch };
        return;
      case "gw.subscribed":
      case "gw.reset":
        return this.#answered(frame);
      case "gw.live":
        return this.#following(frame.run) && this.#listener.live(frame.run);
      case "gw.unsubscribed":
        return this.#ended(frame);
      case "gw.tick":
        return this.#ticked(frame.heads ?? {});
      case "gw.runs":
      case "gw.run":
        return this.#watches.has(frame.watch) && this.#listener.listed(frame.watch, frame);
      case "gw.tickets":
      case "gw.asked":
        return this.#watches.has(frame.watch) && this.#listener.asked(frame);
      case "gw.counts":
        return this.#listener.counted(frame.counts);
      case "gw.ack":
        return this.#settle(frame.id, (entry) => entry.resolve(frame));
      case "gw.error":
        return this.#failed(frame);
      case "gw.bye":
        this.#bye = frame;
        this.#retryAfter = frame.retryAfterMs ?? null;
    }
  }

  #welcomed(frame) {
    this.welcome = { ...frame, at: Date.now() };
    const watches = [...this.#watches.values()]; // later watches have been sent already
    this.#set({ name: "live" });
    for (const frame of watches) this.#send(frame);
    for (const [run, follow] of this.#follows) if (!follow.closed) this.#subscribe(run);
    for (const { frame: unanswered } of this.#outbox.values()) this.#send(unanswered);
  }

  /** Subscribe from the cursor. Until the answer arrives, events belong to the previous subscription. */
  #subscribe(run) {
    if (!this.welcome) return;
    const follow = this.#follows.get(run);
    follow.asked = `follow-${(this.#asked += 1)}`;
    const epoch = follow.after > 0 && follow.epoch ? { epoch: follow.epoch } : {};
    this.#send({ type: "subscribe", run, after: follow.after, id: follow.asked, ...epoch });
  }

  /** A follow without a pending answer. */
  #following(run) {
    const follow = this.#follows.get(run);
    return follow && follow.asked === null ? follow : null;
  }

  #answered(frame) {
    const follow = this.#follows.get(frame.run);
    if (!follow || (frame.id ?? follow.asked) !== follow.asked) return;
    follow.asked = null;
    follow.epoch = this.welcome.epoch;
    if (frame.type === "gw.subscribed") return this.#listener.subscribed(frame.run, frame);
    // Another log than the known one: the shown events are invalid. The snapshot has no history; the page reads it.
    follow.after = 0;
    this.#listener.reset(frame.run, frame);
    this.#subscribe(frame.run);
  }

  #ended(frame) {
    const follow = this.#follows.get(frame.run);
    if (!follow || frame.reason === "asked") return;
    follow.closed = true;
    follow.asked = null;
    this.#listener.ended(frame.run, frame);
  }

  /** A tick has the newest sequence of each run: an event that is still missing a little later was lost. */
  #ticked(heads) {
    for (const [run, head] of Object.entries(heads)) {
      const follow = this.#following(run);
      if (!follow || follow.closed || follow.after >= head) continue;
      const before = follow.after;
      setTimeout(() => {
        const still = this.#following(run) === follow && follow.after === before && !follow.closed;
        if (still) this.#subscribe(run);
      }, TAIL_MS);
    }
  }

  // --- commands ------------------------------------------------------------------------------------------------------

  #settle(id, act) {
    const entry = this.#outbox.get(id);
    if (!entry) return;
    this.#outbox.delete(id);
    clearTimeout(entry.timer);
    act(entry);
  }

  #failed(frame) {
    const entry = this.#outbox.get(frame.id);
    if (entry && frame.retry && entry.tries < TRIES) {
      entry.tries += 1;
      entry.timer = setTimeout(() => this.#send(entry.frame), Math.min(8_000, 500 * 2 ** entry.tries));
    } else if (entry) {
      this.#settle(frame.id, ({ reject }) => reject(new Refused(frame)));
    } else if (this.#watches.has(frame.id)) {
      this.#listener.unlisted(frame.id, new Refused(frame));
    } else {
      this.#refusedFollow(frame);
    }
  }

  #refusedFollow(frame) {
    const found = [...this.#follows].find(([, follow]) => follow.asked !== null && follow.asked === frame.id);
    if (!found) return;
    const [run, follow] = found;
    follow.closed = true;
    follow.asked = null;
    this.#listener.refused(run, new Refused(frame));
  }
}
