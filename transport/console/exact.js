// JSON without loss. A number such as 12345678901234567890 does not fit a JavaScript number, and 1.0 would be shown as
// 1. A person who approves a call must see, and send back, the exact value, so such numbers are kept as source text.

const CAN_KEEP = typeof JSON.rawJSON === "function";

/** JSON data in which a number that JavaScript would print differently is kept as its source text. */
export function parseExact(text) {
  if (!CAN_KEEP) return JSON.parse(text);
  return JSON.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? JSON.rawJSON(context.source)
      : value,
  );
}

// Fields of a payload with values of tools and models. People read these values, decide about them and send them back.
const VALUES = new Set(["arguments", "result", "output", "parameters", "responseSchema"]);
const HAS_VALUES = new RegExp(`"(?:${[...VALUES].join("|")})":`);

const TICKETS = /^\{\s*"type":\s*"gw\.(?:tickets|asked)"/;

/**
 * Parse an event (or a frame of the gateway). The values of tools and models in its payload are exact; all other
 * numbers are JavaScript numbers, for the page's counting and formatting.
 */
export function parseEvent(text) {
  if (!HAS_VALUES.test(text)) return JSON.parse(text);
  if (TICKETS.test(text)) return parseTickets(text);
  const event = parseExact(text);
  for (const name of Object.keys(event)) if (name !== "payload") event[name] = plain(event[name]);
  const { payload } = event;
  if (isObject(payload))
    for (const name of Object.keys(payload)) if (!VALUES.has(name)) payload[name] = plain(payload[name]);
  return event;
}

/** Parse a list of tickets, or a frame with one: the values of each ticket are exact, as in an event. */
export function parseTickets(text) {
  const said = parseExact(text);
  for (const name of Object.keys(said)) if (name !== "tickets") said[name] = plain(said[name]);
  for (const ticket of said.tickets)
    for (const name of Object.keys(ticket)) if (!VALUES.has(name)) ticket[name] = plain(ticket[name]);
  return said;
}

/** Data in which every kept number is a JavaScript number again. */
function plain(value) {
  const kept = keptNumber(value);
  if (kept !== undefined) return Number(kept);
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  for (const name of Object.keys(value)) value[name] = plain(value[name]);
  return value;
}

/** The source text of a kept number, otherwise undefined. */
export function keptNumber(value) {
  return CAN_KEEP && JSON.isRawJSON(value) ? value.rawJSON : undefined;
}

/** The JSON type of a value: null, boolean, number, string, array or object. */
export function kindOf(value) {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "object") return keptNumber(value) === undefined ? "object" : "number";
  return typeof value;
}

/** True for plain JSON objects. */
export const isObject = (value) => kindOf(value) === "object";

// JSON.stringify escapes a surrogate without a partner, and no other one.
const LONE = /(?<=(?:^|[^\\])(?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

/**
 * JSON text for the gateway. A surrogate without a partner becomes U+FFFD: the surrogate has no form in UTF-8, and the
 * gateway closes the whole connection for such a text.
 */
export const encoded = (value) => JSON.stringify(value).replace(LONE, "\ufffd");

/** JSON text with two blanks per level. */
export const pretty = (value) => JSON.stringify(value ?? null, null, 2);

/** True if two values are the same JSON, regardless of the order of keys. */
export function sameJson(one, other) {
  return JSON.stringify(ordered(one)) === JSON.stringify(ordered(other));
}

function ordered(value) {
  if (Array.isArray(value)) return value.map(ordered);
  if (!isObject(value)) return value ?? null;
  return Object.keys(value)
    .sort()
    .map((name) => [name, ordered(value[name])]);
}

/**
 * Parse typed JSON.
 * @returns {{value: any} | {line: number, column: number, message: string}}
 */
export function readTyped(text) {
  try {
    return { value: parseExact(text) };
  } catch (error) {
    return { ...placeOf(error.message, text), message: error.message.split(/ in JSON at| \(/)[0] };
  }
}

function placeOf(message, text) {
  const said = /line (\d+) column (\d+)/.exec(message);
  if (said) return { line: Number(said[1]), column: Number(said[2]) };
  const position = /position (\d+)/.exec(message);
  const before = text.slice(0, position ? Number(position[1]) : text.length).split("\n");
  return { line: before.length, column: before.at(-1).length + 1 };
}
