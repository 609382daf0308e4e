// Images and files of messages: a picture is read with the token when it comes into view, and scaled by the page.
// Everything else is a line that opens the file. Nothing of a file is ever a page: no HTML, no SVG, no script.

import { foreign } from "./blocks.js";
import { formOf, showArtifact } from "./artifacts.js";
import { button, h, icon } from "./dom.js";
import { oneLine, size } from "./format.js";

const MOST = 2; // pictures that are read together: the gateway sends few files to one principal
const AHEAD = "200px"; // below the visible part

const queue = [];
let reading = 0;

/** One line about an image or a file: its type, its size or address, its name. */
export function lineOf(part) {
  const known = part !== null && typeof part === "object" ? part : {};
  const bytes = Number.isFinite(known.size) ? size(known.size) : known.url;
  const said = [known.mediaType, bytes, known.name].filter((word) => typeof word === "string" && word);
  return oneLine(said.join(" · ") || JSON.stringify(part), 300);
}

/**
 * An image or a file. An ancestor hears the event "part" with `{part, read, explain}` and calls `detail.found` with
 * `{load, explain}`: `load(part)` returns the bytes as a Blob. Without such an ancestor it is a line of text.
 */
export function pictureOf(part) {
  const line = h("div", { class: "input-part" }, foreign(lineOf(part)));
  if (!part?.sha256) return line;
  const file = { ...part, kind: "file", name: part.name || part.mediaType };
  const open = button("quiet picture", { sayTitle: "artifact.open" }, icon("file"), foreign(lineOf(part)));
  const ask = () => {
    let answer = null;
    const detail = { part: file, found: (given) => (answer = given) };
    open.dispatchEvent(new CustomEvent("part", { detail, bubbles: true }));
    return answer;
  };
  open.addEventListener("click", () => {
    const source = ask();
    if (source) showArtifact({ artifact: file, ...source });
  });
  if (formOf(file) === "picture") whenVisible(open, () => later(() => draw(open, file, ask())));
  return open;
}

function whenVisible(element, then) {
  const watch = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      then();
    },
    { rootMargin: AHEAD },
  );
  watch.observe(element);
}

async function draw(open, file, source) {
  if (!source || !open.isConnected) return;
  const url = URL.createObjectURL(await source.load(file));
  const image = h("img", { class: "picture-image", src: url, alt: oneLine(lineOf(file), 120) });
  try {
    await image.decode();
    open.replaceChildren(image);
  } finally {
    URL.revokeObjectURL(url); // the decoded picture stays
  }
}

/** Read few pictures together; one that cannot be read stays a line. */
function later(work) {
  queue.push(work);
  next();
}

function next() {
  if (reading >= MOST || !queue.length) return;
  reading += 1;
  queue
    .shift()()
    .catch(() => {})
    .finally(() => {
      reading -= 1;
      next();
    });
}
