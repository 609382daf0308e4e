// Long and foreign values: shown as text, cut with a notice, complete on demand, without invisible characters.

import { announce, button, copyText, h, icon, say, tell } from "./dom.js";
import { isObject, kindOf, pretty } from "./exact.js";
import { bytesOf, codeOf, hides, number, oneLine, parts, size } from "./format.js";
import { addressOf } from "./session.js";
import { t } from "./words.js";

const FEW = { lines: 14, chars: 1_600 }; // limits of a cut block: it fits a phone
const LEEWAY = 4; // this many further lines are shown rather than cut off
const COLOURED = 20_000; // characters of JSON that are coloured; more would cost more than it helps
export const LONGEST_PROSE = 20_000; // characters of a message that are shown initially

const JSON_TOKEN = /("(?:[^"\\\n]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b/gu;

/** Put a text into an element; an invisible character becomes a mark with its code. */
export function fill(element, text, { json = false } = {}) {
  element.replaceChildren(...pieces(text, json));
}

function* pieces(text, json) {
  if (!json || text.length > COLOURED) return yield* marked(text);
  let from = 0;
  for (const found of text.matchAll(JSON_TOKEN)) {
    if (found.index > from) yield* marked(text.slice(from, found.index));
    const [token, string, colon] = found;
    const kind = colon !== undefined ? "key" : string !== undefined ? "string" : "atom";
    yield h("span", { class: `json-${kind}` }, ...marked(string ?? token));
    if (colon !== undefined) yield colon;
    from = found.index + token.length;
  }
  if (from < text.length) yield* marked(text.slice(from));
}

function* marked(text) {
  if (!hides(text)) return yield text.replaceAll("\r\n", "\n");
  for (const [plain, hidden] of parts(text)) yield hidden === null ? plain : mark(hidden);
}

function mark(char) {
  const code = codeOf(char);
  return h("span", { class: "mark", sayTitle: ["block.hidden", { code }] }, code);
}

/** A text, or its beginning (with `tail`, its end) if it is long. */
export function excerpt(text, { lines, chars, tail = false }) {
  const fits = tail ? startOf(text, lines + LEEWAY) === 0 : endOf(text, lines + LEEWAY) === text.length;
  if (fits && text.length <= chars * 1.25) return text;
  if (tail) return unbroken(text.slice(Math.max(startOf(text, lines), text.length - chars)));
  return unbroken(text.slice(0, Math.min(endOf(text, lines), chars)));
}

/** Remove half a surrogate pair at either end. */
const unbroken = (text) => text.replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, "");

/** The index at which the first `lines` lines end. */
function endOf(text, lines) {
  let end = -1;
  for (let line = 0; line < lines; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) return text.length;
  }
  return end;
}

/** The index at which the last `lines` lines start. */
function startOf(text, lines) {
  let start = text.length;
  for (let line = 0; line < lines; line += 1) {
    if (start <= 0) return 0;
    start = text.lastIndexOf("\n", start - 1);
  }
  return start + 1;
}

function measured(text) {
  const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  const bytes = size(bytesOf(text));
  return lines > 1 ? t("block.lines", { lines, size: bytes }) : bytes;
}

/**
 * A value with a head (its title and a copy button) and, if it is long, a button that shows all of it.
 * `set(value)` shows another value. A text is shown unchanged, everything else as JSON; with `quoted`, a short text is
 * shown as JSON, too, to distinguish "7" from 7. `tail` shows the end of a long text instead of its beginning.
 * `whole()` shows all of it; `cut` is true while a part is hidden.
 */
export class Block {
  #text = null;
  #json = false;
  #open = false;
  #options;

  constructor(name, { tail = false, quoted = false, limits = FEW, what = "" } = {}) {
    this.#options = { tail, quoted, limits };
    this.cut = false;
    this.size = h("span", { class: "block-size" });
    this.body = h("pre", { class: "block-body" });
    this.more = button("quiet block-more", { on: { click: () => this.#toggle() }, hidden: true });
    const copied = () => copyFrom(this.copy, this.#text);
    this.copy = button(
      "icon-only quiet block-copy",
      { sayLabel: what ? ["copy.what", { what }] : "copy", sayTitle: "copy", on: { click: copied } },
      icon("copy"),
    );
    this.element = h(
      "div",
      { class: "block" },
      h("div", { class: "block-head" }, name, this.size, this.copy),
      this.body,
      this.more,
    );
  }

  set(value) {
    const plain = typeof value === "string" && !(this.#options.quoted && !value.includes("\n") && value.length <= 200);
    const text = plain ? value : compactly(value);
    if (text === this.#text) return this;
    this.#text = text;
    this.#json = !plain;
    this.#draw();
    return this;
  }

  whole() {
    if (!this.#open && this.cut) this.#toggle();
  }

  #toggle() {
    this.#open = !this.#open;
    this.#draw();
  }

  #draw() {
    const { limits, tail } = this.#options;
    const shown = this.#open ? this.#text : excerpt(this.#text, { ...limits, tail });
    this.cut = shown.length < this.#text.length;
    fill(this.body, shown, { json: this.#json });
    this.body.classList.toggle("is-json", this.#json);
    this.element.classList.toggle("is-cut", this.cut);
    this.element.classList.toggle("is-tail", this.cut && tail);
    this.more.hidden = !this.cut && !this.#open;
    if (!this.more.hidden) {
      if (this.cut) say(this.more, "block.all", { size: measured(this.#text) });
      else say(this.more, "block.less");
      this.more.setAttribute("aria-expanded", String(this.#open));
    }
  }
}

const NARROW = 72; // characters of JSON that fit one line

/** JSON in one line if it is short. */
function compactly(value) {
  const text = pretty(value);
  if (text.length > NARROW * 2) return text;
  const joined = text.replace(/\n\s*/g, " ");
  return joined.length <= NARROW ? joined : text;
}

/** A short description of the kind of a value: text, number, list of 3. */
export function kindWord(value) {
  const kind = kindOf(value);
  if (kind === "array") return `array · ${number(value.length)}`;
  if (isObject(value)) return `object · ${number(Object.keys(value).length)}`;
  return kind;
}

/** Copy, and show on the button whether copying succeeded. */
export async function copyFrom(control, text) {
  const good = await copyText(text);
  announce(t(good ? "copied" : "copy.failed"));
  control.replaceChildren(icon(good ? "check" : "cross"));
  say(control, good ? "copied" : "copy.failed", {}, "title");
  setTimeout(() => {
    control.replaceChildren(icon("copy"));
    say(control, "copy", {}, "title");
  }, 1_600);
}

/** A growing message: appends new text, and shows only the newest part of a very long text. */
export class Prose {
  #text = "";
  #all = false;

  constructor(className) {
    this.body = h("div", { class: `prose ${className}`, dir: "auto" });
    this.more = button("quiet block-more", { hidden: true, on: { click: () => this.#showAll() } });
    this.element = h("div", {}, this.more, this.body);
  }

  set(text) {
    const before = this.#text;
    this.#text = text;
    const only = this.body.childNodes.length === 1 ? this.body.firstChild : null;
    const grown = only?.nodeType === Node.TEXT_NODE && text.length > before.length && text.startsWith(before);
    if (grown && (this.#all || text.length <= LONGEST_PROSE)) only.appendData(text.slice(before.length));
    else if (text !== before || !only) this.#draw();
  }

  #showAll() {
    this.#all = !this.#all;
    this.#draw();
  }

  #draw() {
    const long = this.#text.length > LONGEST_PROSE;
    const shown = long && !this.#all ? unbroken(this.#text.slice(-LONGEST_PROSE)) : this.#text;
    this.body.replaceChildren(document.createTextNode(shown));
    this.more.hidden = !long;
    if (!long) return;
    if (this.#all) say(this.more, "block.less");
    else say(this.more, "block.all", { size: size(this.#text.length) });
  }
}

/** A foreign text in a line of the page: isolated, so that its direction cannot change the line's. */
export const foreign = (text, className = "") => {
  const element = h("bdi", className ? { class: className } : {});
  fill(element, text);
  return element;
};

/** A link to another run, which shows the run's id. */
export const runLink = (run) => h("a", { class: "run-link", href: addressOf(run) }, foreign(oneLine(run, 60)));

/** Let an element contain a foreign text. */
export const setForeign = (element, text) => {
  if (element.textContent !== text) tell(element, text);
};
