// A unified difference: read into files and hunks, and drawn by file, with the number of lines added and removed.
// Reading is linear in the text. A file is drawn when it is opened, and a long one in pieces.

import { fill, foreign } from "./blocks.js";
import { button, h, icon, say } from "./dom.js";
import { number, oneLine } from "./format.js";
import { knows } from "./words.js";

const OPEN_LINES = 400; // files are open from the start as long as they have fewer lines together
const DRAWN = 1_000; // lines of a file that are drawn at once

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/;
const OCTAL = /\\([0-7]{3}|.)/g;
const ESCAPES = { n: "\n", t: "\t", r: "\r", a: "\x07", b: "\b", f: "\f", v: "\v" };

/** The files of a difference, as `git diff` and `diff -u` print it. */
export function readDifference(text) {
  const reader = new Reader();
  let from = 0;
  while (from < text.length) {
    const end = text.indexOf("\n", from);
    reader.take(text.slice(from, end < 0 ? text.length : end));
    from = end < 0 ? text.length : end + 1;
  }
  return reader.files;
}

class Reader {
  files = [];
  #file = null;
  #hunk = null;
  #left = { old: 0, new: 0 };

  take(line) {
    const { old: before, new: after } = this.#left;
    if ((before > 0 || after > 0) && this.#content(line)) return;
    if (line.startsWith("\\") && this.#hunk) this.#hunk.lines.push({ sign: "\\", text: line.slice(2) });
    else if (line.startsWith("diff --git ")) this.#begin(...headOf(line.slice(11)));
    else if (line.startsWith("--- ")) this.#old(pathOf(line.slice(4)));
    else if (line.startsWith("@@ ")) this.#enter(HUNK.exec(line));
    else if (this.#file) this.#fact(line);
  }

  #begin(from, path) {
    this.#left = { old: 0, new: 0 };
    this.#hunk = null;
    const facts = { path, from, change: "modified", mode: null, binary: false, named: false };
    this.files.push((this.#file = { ...facts, added: 0, removed: 0, hunks: [] }));
  }

  #old(path) {
    if (!this.#file || this.#file.named || this.#file.hunks.length) this.#begin(path, path); // without "diff --git"
    this.#file.named = true;
    if (path === null) this.#file.change = "added";
    else this.#file.from = path;
  }

  #fact(line) {
    const file = this.#file;
    if (line.startsWith("+++ ")) {
      const path = pathOf(line.slice(4));
      if (path === null) Object.assign(file, { change: "deleted", path: file.from });
      else file.path = path;
    } else if (line.startsWith("new file mode ")) Object.assign(file, { change: "added", mode: line.slice(14) });
    else if (line.startsWith("deleted file mode ")) file.change = "deleted";
    else if (line.startsWith("new mode ")) file.mode = line.slice(9);
    else if (line.startsWith("rename from "))
      Object.assign(file, { change: "renamed", from: unquoted(line.slice(12)) });
    else if (line.startsWith("rename to ")) file.path = unquoted(line.slice(10));
    else if (line.startsWith("Binary files ") || line === "GIT binary patch") file.binary = true;
  }

  #enter(found) {
    if (!found || !this.#file) return;
    const [, old, oldCount = "1", fresh, newCount = "1", section] = found;
    this.#left = { old: Number(oldCount), new: Number(newCount) };
    this.#hunk = { old: Number(old), new: Number(fresh), section, lines: [] };
    this.#file.hunks.push(this.#hunk);
  }

  /** Take a line of a hunk; false if it is none: the text was cut. */
  #content(line) {
    const sign = line === "" ? " " : line[0];
    if (sign !== " " && sign !== "+" && sign !== "-") {
      if (sign !== "\\") this.#left = { old: 0, new: 0 };
      return false;
    }
    if (sign !== "+") this.#left.old -= 1;
    if (sign !== "-") this.#left.new -= 1;
    if (sign === "+") this.#file.added += 1;
    if (sign === "-") this.#file.removed += 1;
    this.#hunk.lines.push({ sign, text: line.slice(1) });
    return true;
  }
}

/** A path of "---" or "+++": without "a/" or "b/" and a time after a tab; null for /dev/null. */
function pathOf(text) {
  const name = text.startsWith('"') ? unquoted(text) : text.split("\t")[0];
  return name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** Both paths of "diff --git": equal but for "a/" and "b/", unless the lines that follow name others. */
function headOf(text) {
  const half = (text.length - 1) / 2;
  const [from, to] = Number.isInteger(half) ? [text.slice(0, half), text.slice(half + 1)] : [text, text];
  return [pathOf(from), pathOf(to)];
}

/** A path that git has put in quotes, because of a letter that is not ASCII or cannot be seen. */
function unquoted(text) {
  if (!(text.startsWith('"') && text.endsWith('"') && text.length > 1)) return text;
  const bytes = [];
  const encoder = new TextEncoder();
  let from = 1;
  const inner = text.slice(0, -1);
  for (const found of inner.matchAll(OCTAL)) {
    bytes.push(...encoder.encode(inner.slice(from, found.index)));
    const [whole, code] = found;
    if (code.length === 3) bytes.push(parseInt(code, 8) & 255);
    else bytes.push(...encoder.encode(ESCAPES[code] ?? code));
    from = found.index + whole.length;
  }
  bytes.push(...encoder.encode(inner.slice(from)));
  return new TextDecoder().decode(new Uint8Array(bytes));
}

/**
 * A difference on the page. `cut` is true while a part of it is hidden, and `whole()` shows all of it, as a Block has
 * them: what a person approves was shown.
 */
export class Difference {
  constructor(text) {
    const files = readDifference(text);
    let room = OPEN_LINES;
    this.files = files.map((file) => {
      const lines = file.hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
      room -= lines;
      return new FilePart(file, lines, { open: room >= 0 });
    });
    this.element = h("div", { class: "diff" }, ...this.files.map((part) => part.element));
    if (!files.length) this.element.append(h("p", { class: "hint", say: "diff.none" }));
  }

  get cut() {
    return this.files.some((part) => part.cut);
  }

  whole() {
    for (const part of this.files) part.whole();
  }
}

class FilePart {
  #file;
  #lines;
  #drawn = 0;
  #opened = false;

  constructor(file, lines, { open }) {
    this.#file = file;
    this.#lines = lines;
    this.body = h("div", { class: "diff-body" });
    const more = { hidden: true, on: { click: () => this.#more() } };
    this.more = button("quiet block-more", more);
    const summary = h("summary", {}, icon("chevron", "turns"), ...facts(file), counts(file));
    this.element = h("details", { class: "diff-file" }, summary, this.body, this.more);
    this.element.addEventListener("toggle", () => this.element.open && this.#open());
    if (open) {
      this.element.open = true;
      this.#open();
    }
  }

  get cut() {
    return !this.#opened || this.#drawn < this.#lines;
  }

  whole() {
    this.element.open = true;
    this.#open();
    while (this.#drawn < this.#lines) this.#more();
  }

  #open() {
    if (this.#opened) return;
    this.#opened = true;
    if (this.#lines) this.#more();
    else this.body.append(h("p", { class: "diff-note", say: this.#file.binary ? "diff.binary" : "diff.nolines" }));
  }

  #more() {
    const end = Math.min(this.#lines, this.#drawn + DRAWN);
    this.body.append(...drawn(this.#file, this.#drawn, end));
    this.#drawn = end;
    this.more.hidden = end >= this.#lines;
    if (!this.more.hidden) say(this.more, "diff.more", { n: number(this.#lines - end) });
  }
}

function* facts({ path, from, change, mode }) {
  const renamed = change === "renamed" && from !== path;
  const name = h("span", { class: "diff-path" });
  if (renamed) name.append(foreign(oneLine(from ?? "", 300)), h("span", { class: "diff-to" }, " → "));
  name.append(foreign(oneLine(path ?? "", 300)));
  yield name;
  if (change !== "modified") yield h("span", { class: `diff-change is-${change}`, say: `diff.${change}` });
  if (mode) yield h("span", { class: "row-meta", say: ["diff.mode", { mode: oneLine(mode, 12) }] });
}

/** The lines added and removed, as a person reads and hears them. */
export function counts({ added = 0, removed = 0, binary = false }) {
  if (binary) return h("span", { class: "diff-counts", say: "diff.binary" });
  const values = { added: number(added), removed: number(removed) };
  return h(
    "span",
    { class: "diff-counts", role: "img", sayLabel: ["diff.counts", values] },
    h("span", { class: "diff-plus" }, `+${values.added}`),
    " ",
    h("span", { class: "diff-minus" }, `−${values.removed}`),
  );
}

/** The word for a change of a file; an unknown one is shown as it is. */
export const changeWord = (change) =>
  knows(`diff.${change}`) ? { say: `diff.${change}` } : { data: { raw: oneLine(change, 20) } };

const CLASSES = { "+": "is-added", "-": "is-removed", " ": "", "\\": "is-note" };

/** The lines from `start` to `end` of a file, each with its numbers; the head of a hunk before its first line. */
function* drawn(file, start, end) {
  let index = 0;
  for (const hunk of file.hunks) {
    let { old: before, new: after } = hunk;
    for (const [place, line] of hunk.lines.entries()) {
      if (index >= end) return;
      if (index >= start) {
        if (place === 0) yield h("div", { class: "diff-hunk" }, place0(hunk), " ", foreign(oneLine(hunk.section, 120)));
        yield drawnLine(line, before, after);
      }
      index += 1;
      if (line.sign === " " || line.sign === "-") before += 1;
      if (line.sign === " " || line.sign === "+") after += 1;
    }
  }
}

const place0 = (hunk) => h("span", { say: ["diff.line", { n: number(hunk.new || hunk.old) }] });

function drawnLine({ sign, text }, before, after) {
  if (sign === "\\") return h("div", { class: "diff-line is-note" }, h("span", { class: "diff-text" }, text));
  const shown = h("span", { class: "diff-text", dir: "ltr" });
  fill(shown, text);
  return h(
    "div",
    { class: `diff-line ${CLASSES[sign]}` },
    h("span", { class: "diff-no", "aria-hidden": "true" }, sign === "+" ? "" : String(before)),
    h("span", { class: "diff-no", "aria-hidden": "true" }, sign === "-" ? "" : String(after)),
    h("span", { class: "diff-sign" }, sign === "-" ? "−" : sign),
    shown,
  );
}
