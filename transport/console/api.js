// The HTTP side: lists of runs and agents. The WebSocket (link.js) has subscriptions and commands.

import { parseTickets } from "./exact.js";

/** A request that was refused or got no response. `code` is one of the gateway's, or "unreachable". */
export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const sending = (sent) => (sent === undefined ? {} : { "content-type": "application/json" });

const PATIENCE_MS = 10_000;
const LARGE_MS = 60_000; // for the bytes of an artifact, 8 MiB at most

export class Api {
  /** @param {() => string | null} token */
  constructor(token) {
    this.token = token;
  }

  /** Read one more page of a list: `{runs, cursor, counts}`. The query is that of its watch. */
  runs(query, cursor, limit) {
    return this.#get(`v1/runs?${new URLSearchParams({ ...query, limit: String(limit), cursor })}`);
  }

  /** Read one more page of the open questions: `{tickets, cursor}`. */
  tickets(cursor, limit) {
    return this.#exact(`v1/tickets?${new URLSearchParams({ limit: String(limit), cursor })}`);
  }

  /** The open questions of a run, whole. */
  async ticketsOf(run) {
    return (await this.#exact(`v1/runs/${encodeURIComponent(run)}`)).tickets;
  }

  #exact(path) {
    return this.#ask(path, "GET", async (response) => parseTickets(await response.text()), PATIENCE_MS);
  }

  /** The agents that can be started. */
  async agents() {
    return (await this.#get("v1/agents")).agents;
  }

  /** The row of one run, as in a list; null if there is none. */
  async row(run) {
    const { runs } = await this.#get(`v1/runs?${new URLSearchParams({ prefix: run, limit: "2" })}`);
    return runs.find((row) => row.run === run) ?? null;
  }

  /** Start a run: over HTTP, whose requests may be larger than messages. The same order starts it once. */
  start(order) {
    return this.#ask("v1/runs", "POST", (response) => response.json(), LARGE_MS, order);
  }

  /** Model name -> its price per million tokens: {input, output, cached, stored}. */
  async prices() {
    return (await this.#get("v1/prices")).prices;
  }

  /** How many runs ended in each hour of the last day: `{hours, complete}`. */
  throughput() {
    return this.#get("v1/throughput");
  }

  /** The queues of the store, with their lengths. */
  async queues() {
    return (await this.#get("v1/queues")).queues;
  }

  /** The remembered rules that the principal may see, the newest first; of a long list, those on so many pages. */
  async rules(pages) {
    const rules = [];
    let query = "";
    for (let page = 0; page < pages && query !== null; page += 1) {
      const found = await this.#get(`v1/rules${query}`);
      rules.push(...found.rules);
      query = found.cursor === null ? null : `?${new URLSearchParams({ cursor: found.cursor })}`;
    }
    return rules.sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  }

  /** Revoke a remembered rule; returns it. */
  revokeRule(rule) {
    return this.#get(`v1/rules/${encodeURIComponent(rule)}/revoke`, "POST");
  }

  /** Who allowed what in a run, and what came of it. */
  evidence(run) {
    return this.#get(`v1/runs/${encodeURIComponent(run)}/evidence`);
  }

  /** Let a dead letter be claimed again. */
  revive(run) {
    return this.#get(`v1/runs/${encodeURIComponent(run)}/revive`, "POST");
  }

  /** A page of a thread's messages; without a position the newest one. */
  messages(thread, query) {
    return this.#get(`v1/threads/${encodeURIComponent(thread)}/messages?${new URLSearchParams(query)}`);
  }

  /** The bytes of an artifact. */
  artifact(run, artifact) {
    return this.bytes(`v1/runs/${encodeURIComponent(run)}/artifacts/${encodeURIComponent(artifact.artifactId)}`);
  }

  /** The bytes of an image or a file of a message (`href`), or of a run's own input. */
  part(run, { href, sha256 }) {
    return this.bytes(href ? href.slice(1) : `v1/runs/${encodeURIComponent(run)}/parts/${encodeURIComponent(sha256)}`);
  }

  /** Some bytes, as a Blob without a type that a browser would open. */
  async bytes(path) {
    const blob = await this.#ask(path, "GET", (response) => response.blob(), LARGE_MS);
    return new Blob([blob], { type: "application/octet-stream" });
  }

  #get(path, method = "GET") {
    return this.#ask(path, method, (response) => response.json(), PATIENCE_MS);
  }

  async #ask(path, method, read, patience, sent) {
    const token = this.token();
    let response;
    let body;
    try {
      response = await fetch(new URL(path, document.baseURI), {
        method,
        headers: { ...(token && { authorization: `Bearer ${token}` }), accept: "application/json", ...sending(sent) },
        body: sent === undefined ? undefined : JSON.stringify(sent),
        cache: "no-store",
        credentials: token ? "omit" : "same-origin", // without a token a proxy knows the person by its cookie
        signal: AbortSignal.timeout(patience),
      });
      body = response.ok ? await read(response) : await response.json();
    } catch (error) {
      throw new ApiError("unreachable", String(error?.message ?? error));
    }
    if (response.ok) return body;
    throw new ApiError(body?.error?.code ?? `http_${response.status}`, body?.error?.message ?? response.statusText);
  }
}
