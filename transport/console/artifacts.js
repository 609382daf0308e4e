// Artifacts: what a run has published. Bytes come from the gateway with the token, and are shown as a picture, a text
// or a difference; everything else can be saved. Nothing of an artifact is ever a page: no HTML, no SVG, no script.

import { Block, foreign } from "./blocks.js";
import { dialog, show } from "./dialogs.js";
import { Difference } from "./difference.js";
import { button, h, icon, say } from "./dom.js";
import { isObject } from "./exact.js";
import { moment, oneLine, size } from "./format.js";
import { knows } from "./words.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]); // an SVG may have scripts
const TEXTS = /^(text\/|application\/(json|xml|.*\+(json|xml))$|image\/svg\+xml$)/;
const WIDE = matchMedia("(min-width: 1180px)"); // as in style.css: the list is then beside the timeline
const MOST_TEXT = 2_000_000; // bytes of a text that are shown; a longer one can be saved

/** How an artifact is shown: "picture", "difference", "text", or null. */
export function formOf({ kind, mediaType = "", size: bytes = 0, sha256 = "", metadata }) {
  if (!sha256 || metadata?.privacy_review === "blocked") return null; // an address, or bytes that are not stored
  if (PICTURES.has(mediaType)) return "picture";
  if (bytes > MOST_TEXT) return null;
  if (kind === "diff") return "difference";
  return TEXTS.test(mediaType) || ["transcript", "raw"].includes(kind) ? "text" : null;
}

/** True if the gateway has bytes of it. */
export const hasBytes = ({ sha256, metadata }) => Boolean(sha256) && metadata?.privacy_review !== "blocked";

/** The word for a kind; an unknown one is shown as it is. */
export function kindOf({ kind }) {
  const word = h("span", { class: "artifact-kind" });
  if (knows(`artifact.${kind}`)) say(word, `artifact.${kind}`);
  else word.append(foreign(oneLine(kind, 40)));
  return word;
}

/** Type and size, or the address. */
export function aboutOf({ mediaType, size: bytes, url, path }) {
  const facts = url ? [url] : [mediaType, Number.isFinite(bytes) ? size(bytes) : "", path];
  return oneLine(facts.filter((fact) => typeof fact === "string" && fact).join(" · "), 300);
}

/** A button that asks the page to show an artifact. */
export function opener(artifact, ...content) {
  const control = button("quiet artifact-open", { sayTitle: "artifact.open" }, ...content);
  const detail = { detail: artifact, bubbles: true };
  control.addEventListener("click", () => control.dispatchEvent(new CustomEvent("artifact", detail)));
  return control;
}

/** Show one artifact. `load(artifact)` returns its bytes as a Blob. */
export function showArtifact({ artifact, load, explain }) {
  const content = h("div", { class: "artifact-content" });
  const note = h("p", { class: "hint", role: "status" });
  const facts = h("p", { class: "artifact-facts" }, kindOf(artifact), h("bdi", {}, aboutOf(artifact)));
  const save = button("", { disabled: true }, icon("down"), h("span", { say: "artifact.save" }));
  const buttons = h("div", { class: "dialog-buttons" }, save);
  const parts = [name(artifact), facts, ...metadata(artifact), note, content, buttons];
  const element = dialog("artifact", "artifact.title", ...parts);
  const urls = [];
  element.addEventListener("close", () => urls.forEach((url) => URL.revokeObjectURL(url)));
  const read = async () => {
    say(note, "artifact.loading");
    try {
      const blob = await load(artifact);
      urls.push(URL.createObjectURL(blob));
      save.disabled = false;
      save.addEventListener("click", () => saved(urls[0], artifact.name));
      content.replaceChildren(await drawn(artifact, blob, urls[0]));
      note.hidden = true;
    } catch (error) {
      say(note, "artifact.failed", { message: explain(error) });
    }
  };
  if (hasBytes(artifact)) read();
  else {
    buttons.hidden = true;
    say(note, artifact.url ? "artifact.address" : "artifact.blocked");
  }
  return show(element, element.querySelector(".dialog-close"));
}

const name = (artifact) => h("h3", { class: "artifact-name" }, foreign(oneLine(artifact.name, 255)));

function* metadata({ readAt, metadata: given }) {
  const entries = Object.entries(isObject(given) ? given : {});
  const read = readAt ? [[{ say: "artifact.read" }, moment(Date.parse(readAt)) || oneLine(readAt, 40)]] : [];
  const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const lines = [...read, ...entries.map(([key, value]) => [key, said(value)])];
  if (!lines.length) return;
  const items = lines.flatMap(([key, value]) => [
    typeof key === "string" ? h("dt", {}, foreign(oneLine(key, 60))) : h("dt", key),
    h("dd", {}, foreign(oneLine(value, 300))),
  ]);
  yield h("dl", { class: "artifact-metadata" }, ...items);
}

async function drawn(artifact, blob, url) {
  const form = formOf(artifact);
  if (form === "picture") return h("img", { class: "artifact-picture", src: url, alt: oneLine(artifact.name, 255) });
  if (form === "difference") return new Difference(await blob.text()).element;
  if (form === "text") return new Block("", { limits: { lines: 200, chars: 20_000 } }).set(await blob.text()).element;
  return h("p", { class: "hint", say: "artifact.unshown" });
}

function saved(url, name) {
  const link = h("a", { href: url, download: oneLine(name, 255) });
  document.body.append(link);
  link.click();
  link.remove();
}

/** The artifacts of a run beside its details, the newest first; hidden if there are none. */
export class ArtifactList {
  #shown = -1;

  constructor() {
    this.title = h("span");
    this.list = h("ul", { class: "artifact-list" });
    const summary = h("summary", {}, icon("chevron", "turns"), h("h2", {}, this.title));
    this.element = h("details", { class: "artifacts", open: WIDE.matches, hidden: true }, summary, this.list);
  }

  /** Draw the artifacts of a model, if there are more than before. */
  draw({ artifacts }) {
    if (artifacts.length === this.#shown) return;
    this.#shown = artifacts.length;
    this.element.hidden = !artifacts.length;
    say(this.title, "artifact.list", { n: artifacts.length });
    this.list.replaceChildren(...artifacts.toReversed().map(line));
  }

  /** Forget what is drawn: another run, or another language. */
  again() {
    this.#shown = -1;
  }
}

const line = (artifact) =>
  h(
    "li",
    {},
    opener(artifact, foreign(oneLine(artifact.name, 80))),
    h("span", { class: "row-meta" }, kindOf(artifact), " · ", h("bdi", {}, aboutOf(artifact))),
  );
