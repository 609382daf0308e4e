// Proposals: what a worktree has changed, file by file with counts, in the timeline and on the card that asks whether
// they are applied. The text of the difference is an artifact, and is read when it is opened.

import { hasBytes, opener } from "./artifacts.js";
import { foreign } from "./blocks.js";
import { changeWord, counts, Difference } from "./difference.js";
import { button, h, icon, say, tell } from "./dom.js";
import { isObject } from "./exact.js";
import { number, oneLine } from "./format.js";
import { knows } from "./words.js";

const LISTED = 20; // files that are listed at once

/** The tool that applies proposals, whose card shows one. */
export const APPLY = "apply_changes";

/** The artifact with the text of a proposal's difference; null without one. */
export function differenceOf(proposal, artifacts) {
  if (typeof proposal?.artifact !== "string") return null;
  const known = artifacts.find((artifact) => artifact.artifactId === proposal.artifact);
  const name = `${oneLine(proposal.proposal, 40)}.diff`;
  return known ?? { artifactId: proposal.artifact, kind: "diff", name, mediaType: "text/x-diff", size: 0, sha256: "-" };
}

/** The files of a proposal with what happens to each; the first ones, and a button for the others. */
export function fileList(files) {
  const known = (Array.isArray(files) ? files : []).filter(isObject);
  const list = h("ul", { class: "proposal-files" }, ...known.slice(0, LISTED).map(fileLine));
  if (known.length <= LISTED) return list;
  const rest = known.length - LISTED;
  const more = button("quiet block-more", { say: ["proposal.more", { n: number(rest) }] });
  more.addEventListener("click", () => {
    list.append(...known.slice(LISTED).map(fileLine));
    more.remove();
  });
  return h("div", {}, list, more);
}

function fileLine({ path, change = "modified", fromPath: from, added, removed, binary }) {
  const name = h("span", { class: "diff-path" });
  if (from) name.append(foreign(oneLine(from, 300)), " → ");
  name.append(foreign(oneLine(path, 300)));
  const word = change === "modified" ? null : h("span", { class: `diff-change is-${change}`, ...changeWord(change) });
  if (word?.dataset.raw) tell(word, word.dataset.raw);
  return h("li", {}, name, word, counts({ added, removed, binary }));
}

/** What is no part of a proposal, although the worktree has it. */
function* leftOut(given) {
  const known = (Array.isArray(given) ? given : []).filter(isObject);
  if (!known.length) return;
  const names = known.map(({ path, reason }) => `${oneLine(path, 120)} (${oneLine(reason, 60)})`).join(", ");
  const said = { say: ["proposal.left", { names: oneLine(names, 600) }] };
  yield h("p", { class: "proposal-left" }, icon("warn"), h("span", said));
}

/** The content of a proposal in the timeline. */
export function* proposalBody({ proposal, difference }) {
  yield fileList(proposal.files);
  yield* leftOut(proposal.leftOut);
  if (proposal.truncated) yield h("p", { class: "hint", say: "proposal.truncated" });
  if (difference && hasBytes(difference)) yield opener(difference, icon("file"), h("span", { say: "proposal.show" }));
}

/** The word for what became of a proposal. */
export function statusOf(proposal) {
  const key = `proposal.${proposal.status}`;
  return knows(key) ? { say: key } : { say: "proposal.ready" };
}

/**
 * The proposal on the card that asks about it: files with counts, and the difference itself. `cut` is true while the
 * difference is not shown whole, and `whole()` shows it, as a Block has them.
 */
export class ProposedChanges {
  #load;
  #difference = null;
  #failed = false;

  /** @param {object} proposal @param {(() => Promise<Blob>) | null} load reads the text of the difference */
  constructor(proposal, load) {
    this.#load = load;
    this.note = h("p", { class: "hint", role: "status", hidden: true });
    this.place = h("div", { class: "card-diff" });
    this.element = h(
      "section",
      { class: "card-values card-proposal" },
      h("h4", { say: "proposal.files" }),
      fileList(proposal.files),
      ...leftOut(proposal.leftOut),
      this.place,
      this.note,
    );
    if (load) this.#read();
    else this.#say("proposal.nodiff");
  }

  get cut() {
    if (this.#failed || !this.#load) return false; // the card says that it cannot be shown
    return this.#difference === null || this.#difference.cut;
  }

  whole() {
    this.#difference?.whole();
  }

  async #read() {
    this.note.hidden = false;
    say(this.note, "proposal.loading");
    try {
      const text = await (await this.#load()).text();
      this.#difference = new Difference(text);
      this.place.replaceChildren(this.#difference.element);
      this.note.hidden = true;
    } catch {
      this.#failed = true;
      this.#say("proposal.unread");
    }
  }

  #say(key) {
    this.note.hidden = false;
    this.note.className = "card-warn";
    say(this.note, key);
  }
}

/** A choice among the files of a proposal; `read()` returns the chosen paths. */
export class FileChoice {
  constructor(files) {
    const known = (Array.isArray(files) ? files : []).filter(isObject).map(({ path }) => String(path));
    this.boxes = known.map((path) => h("input", { type: "checkbox", value: path, checked: true }));
    const lines = this.boxes.map((box) => h("label", { class: "choice" }, box, foreign(oneLine(box.value, 300))));
    const legend = h("legend", { say: "proposal.choose" });
    this.element = h("fieldset", { class: "proposal-choice" }, legend, ...lines);
  }

  read() {
    return this.boxes.filter((box) => box.checked).map((box) => box.value);
  }
}
