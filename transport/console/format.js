// Values as text for people: times, sizes, numbers, and text without invisible characters.

import { keptNumber } from "./exact.js";
import { locale, t } from "./words.js";

/** The text for a missing number or time. */
const NONE = "\u2013";

/** A number, including one kept as source text; NaN if it is none. */
const real = (value) => (value === null || value === undefined ? NaN : Number(keptNumber(value) ?? value));

/** 7 ms, 1.4 s, 2 min 5 s, 3 h 10 min, 2 days. */
export function duration(seconds) {
  const given = Math.max(0, real(seconds));
  if (!Number.isFinite(given)) return NONE;
  if (given < 1) return t("unit.ms", { n: Math.round(given * 1000) });
  if (given < 59.95) return t("unit.s", { n: given.toFixed(1) });
  return wholeSeconds(given);
}

/** The same without fractions, for running times: 7 s, 2 min 5 s. */
export function wholeSeconds(seconds) {
  const all = Math.max(0, Math.round(real(seconds)));
  if (!Number.isFinite(all)) return NONE;
  if (all < 60) return t("unit.s", { n: all });
  const minutes = Math.floor(all / 60);
  if (minutes < 60) return t("unit.min", { n: minutes, s: all % 60 });
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return t("unit.h", { n: hours, min: minutes % 60 });
  return t("unit.days", { n: Math.floor(hours / 24) });
}

/** 12 ms into a run as +0.01, later +3.4, +2:05, +1:02:05. */
export function offset(since) {
  const seconds = real(since);
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `+${Math.max(0, seconds).toFixed(1)}`;
  const all = Math.floor(seconds);
  const two = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(all / 60);
  if (minutes < 60) return `+${minutes}:${two(all % 60)}`;
  return `+${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(all % 60)}`;
}

const STEPS = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 30],
  ["month", 12],
  ["year", Infinity],
];

/** The age of a moment (ms): just now, 5 min. ago, yesterday. */
export function ago(moment, now = Date.now()) {
  let left = Math.max(0, (now - moment) / 1000);
  if (!Number.isFinite(left)) return "";
  if (left < 5) return t("unit.just");
  for (const [unit, size] of STEPS) {
    if (left < size) return relative("short").format(-Math.floor(left), unit);
    left /= size;
  }
  return "";
}

const formats = new Map();
const cached = (name, make) => {
  const key = `${locale()} ${name}`;
  if (!formats.has(key)) formats.set(key, make());
  return formats.get(key);
};
const relative = (style) =>
  cached(`relative ${style}`, () => new Intl.RelativeTimeFormat(locale(), { style, numeric: "auto" }));

const FURTHEST_MS = 8.64e15; // from 1970: the range of a Date

const dated = (format, at) => (Math.abs(at) <= FURTHEST_MS ? format.format(at) : "");

/** A moment (ms) as date and time in the reader's time zone; empty if invalid. */
export const moment = (at) =>
  dated(
    cached("moment", () => new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "medium" })),
    at,
  );

/** A moment (ms) as time of the day; empty if it is none. */
export const clock = (at) =>
  dated(
    cached("clock", () => new Intl.DateTimeFormat(locale(), { timeStyle: "medium" })),
    at,
  );

/** A moment (ms) as hour and minute. */
export const hour = (at) =>
  dated(
    cached("hour", () => new Intl.DateTimeFormat(locale(), { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })),
    at,
  );

/** 1,234 */
export const number = (n) => {
  const given = real(n);
  return Number.isNaN(given) ? NONE : cached("number", () => new Intl.NumberFormat(locale())).format(given);
};

/** 980, 1.2K, 3.4M */
export const compact = (n) =>
  real(n) >= 10_000
    ? cached("compact", () => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 })).format(
        real(n),
      )
    : number(n);

/** A cost in the currency of the prices, which have no name: 0.0123, 4.20 */
export const money = (cost) =>
  new Intl.NumberFormat(locale(), {
    minimumFractionDigits: 2,
    maximumFractionDigits: cost > 0 && cost < 1 ? 4 : 2,
  }).format(cost);

/** 40 % */
export const percent = (fraction) =>
  cached("percent", () => new Intl.NumberFormat(locale(), { style: "percent" })).format(
    Math.min(1, Math.max(0, real(fraction) || 0)),
  );

/** 900 bytes, 2.1 kB, 3.4 MB */
export function size(bytes) {
  if (bytes < 1000) return t("unit.bytes", { n: bytes });
  return bytes < 1_000_000 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

const encoder = new TextEncoder();

/** Bytes of a text as UTF-8. */
export const bytesOf = (text) => encoder.encode(text).length;

/** A text cut at `width` characters (whole ones), with an ellipsis. */
export function cut(text, width) {
  if (text.length <= width) return text;
  const end = isHighSurrogate(text, width - 2) ? width - 2 : width - 1;
  return `${text.slice(0, end)}…`;
}

const isHighSurrogate = (text, index) => (text.charCodeAt(index) & 0xfc00) === 0xd800;

/** A text in one line: cut, blanks joined, and invisible characters spelled out. */
export function oneLine(text, width) {
  const joined = String(text ?? "")
    .slice(0, width * 4)
    .replace(/\s+/gu, " ")
    .trim();
  return cut(spelled(joined), width);
}

// Characters that are invisible or change how others are shown: controls, format characters (bidirectional overrides,
// zero-width joiners, tags), line separators, lone surrogates, ignorable letters, and blanks other than the space.
// Line ends and tabs are allowed; an emoji's variation selector is harmless.
const UNSEEN = "\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}";
const BLANKS = "\\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u2800";
const HIDDEN = new RegExp(`(?![\\n\\t\\ufe0e\\ufe0f])[${UNSEEN}${BLANKS}]`, "u");
const EACH_HIDDEN = new RegExp(HIDDEN.source, "gu");

/** True if the text has an invisible character. */
export const hides = (text) => HIDDEN.test(text.replaceAll("\r\n", "\n"));

/** U+202E for a character. */
export const codeOf = (char) => `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** The text with every invisible character as its code. */
export function spelled(text) {
  return text.replaceAll("\r\n", "\n").replace(EACH_HIDDEN, (char) => `⟨${codeOf(char)}⟩`);
}

/** The text in parts: [visible text, null] and ["", invisible character]. */
export function* parts(text) {
  const plain = text.replaceAll("\r\n", "\n");
  let from = 0;
  for (const found of plain.matchAll(EACH_HIDDEN)) {
    if (found.index > from) yield [plain.slice(from, found.index), null];
    yield ["", found[0]];
    from = found.index + found[0].length;
  }
  if (from < plain.length) yield [plain.slice(from), null];
}
