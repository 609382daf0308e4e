// The filters of the list of runs: as the address has them, as a query has them, and saved under a name.

import { keep, recall } from "./prefs.js";

const HOUR_S = 3_600;
const SINCE = { hour: HOUR_S, day: 24 * HOUR_S, week: 7 * 24 * HOUR_S, month: 30 * 24 * HOUR_S };
const STATUSES = ["waiting", "running", "done"];
const OUTCOMES = ["completed", "stopped", "failed", "cancelled"];
const TEXTS = ["text", "agent", "by", "tool", "code"];
const LONGEST = 200; // characters of a filter, the gateway's limit for a text
const MOST = 20; // saved filters

/** No filter: all runs. `show` is a status or an outcome, `since` a span of time up to now. */
export const ALL = Object.freeze({ show: "", since: "ever", text: "", agent: "", by: "", tool: "", code: "" });
/** The names of the spans of time. */
export const SPANS = ["ever", ...Object.keys(SINCE)];

/** The filters that an address names; anything it does not know is left out. */
export function filtersOf(said) {
  const filters = { ...ALL };
  for (const name of TEXTS) filters[name] = (said.get(name) ?? "").trim().slice(0, LONGEST);
  if ([...STATUSES, ...OUTCOMES].includes(said.get("show"))) filters.show = said.get("show");
  if (said.get("since") in SINCE) filters.since = said.get("since");
  return filters;
}

/** The same as the fields of an address. */
export const fieldsOf = (filters) => Object.entries(filters).filter(([name, value]) => value !== ALL[name]);

/** The same as the fields of a query: a span of time ends now. */
export function queryOf(filters, now = Date.now()) {
  const { show, since } = filters;
  const query = Object.fromEntries(TEXTS.filter((name) => filters[name]).map((name) => [name, filters[name]]));
  if (STATUSES.includes(show)) query.status = show;
  if (OUTCOMES.includes(show)) query.outcome = show;
  if (since in SINCE) query.since = new Date(now - SINCE[since] * 1000).toISOString();
  return query;
}

/** True if both are the same filters. */
export const same = (one, other) => Object.keys(ALL).every((name) => one[name] === other[name]);

/** The saved filters: [{name, filters}], the newest last. */
export function saved() {
  try {
    const found = JSON.parse(recall("filters") ?? "[]");
    return found.map(({ name, fields }) => ({ name: String(name), filters: filtersOf(new URLSearchParams(fields)) }));
  } catch {
    return []; // written by another release, or by hand
  }
}

/** Save filters under a name; an older one of this name is replaced. */
export function save(name, filters) {
  const others = saved().filter((one) => one.name !== name);
  write([...others, { name, filters }].slice(-MOST));
}

export const forget = (name) => write(saved().filter((one) => one.name !== name));

const write = (all) =>
  keep("filters", JSON.stringify(all.map(({ name, filters }) => ({ name, fields: fieldsOf(filters) }))));
