// Text of models as Markdown. The library returns tokens, and elements are created for the tokens on the list below:
// there is no HTML in between, so a model's text cannot become a program, a style or a request to another site.
// A picture becomes a link to it; a link leads to http, https or mail only, and shows its target.

import { copyFrom } from "./blocks.js";
import { button, h, icon, say } from "./dom.js";
import { oneLine, size } from "./format.js";
import MarkdownIt from "./markdown-it-15.0.3.min.js";

const LONGEST = 20_000; // characters that are shown initially; parsing the worst of them takes some 0.1 s
const MOST = 200_000; // characters that are parsed as Markdown at most; a longer text is shown unparsed
const OPEN = 8_000; // of a block that is still growing: a longer one is shown unparsed until it is complete

const parser = new MarkdownIt({ html: false, breaks: true, linkify: true, maxNesting: 40 });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });

const ELEMENTS = new Set(
  "p h3 h4 h5 h6 ul ol li blockquote table thead tbody tr th td em strong s pre code hr br".split(" "),
);
const ALIGNED = { "text-align:center": "is-centered", "text-align:right": "is-right" };

/** The target of a link, or null: an address of this page could sign in another principal. */
function destination(href) {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null; // relative, or not a URL
  }
}

/** The elements of a text. */
export function elementsOf(text) {
  return build(parser.parse(text, {}));
}

function build(tokens) {
  const root = h("div");
  const open = [root];
  for (const token of tokens) {
    const parent = open.at(-1);
    if (token.nesting < 0) open.pop();
    else if (token.nesting > 0) open.push(opened(token, parent));
    else parent.append(...leaf(token));
  }
  return [...root.childNodes];
}

/** The element of a token, in its parent; the children of a hidden one are placed in its parent. */
function opened(token, parent) {
  if (token.hidden) return parent;
  if (token.type === "link_open") return link(token.attrGet("href"), parent);
  const tag = token.tag.replace(/^h([1-6])$/, (_, level) => `h${Math.min(6, Number(level) + 2)}`); // h1 is the page's
  const element = h(ELEMENTS.has(tag) ? tag : "span");
  const aligned = ALIGNED[token.attrGet("style")];
  if (aligned) element.classList.add(aligned);
  if (tag === "ol" && /^\d{1,9}$/.test(token.attrGet("start") ?? "")) element.start = Number(token.attrGet("start"));
  parent.append(tag === "table" ? h("div", { class: "table" }, element) : element);
  return element;
}

function link(href, parent) {
  const to = destination(href);
  if (!to) {
    parent.append(h("span"));
    return parent.lastChild;
  }
  const element = h("a", { href: to.href, target: "_blank", rel: "noopener noreferrer nofollow", title: to.href });
  const where = oneLine(to.protocol === "mailto:" ? to.pathname : to.host, 60);
  parent.append(element, h("span", { class: "leads" }, ` (${where})`));
  return element;
}

function* leaf(token) {
  if (token.type === "inline") yield* build(token.children);
  else if (token.type === "text" || token.type === "html_inline" || token.type === "html_block") yield token.content;
  else if (token.type === "code_inline") yield h("code", {}, token.content);
  else if (token.type === "fence" || token.type === "code_block") yield code(token);
  else if (token.type === "softbreak" || token.type === "hardbreak") yield h("br");
  else if (token.type === "hr") yield h("hr");
  else if (token.type === "image") yield picture(token);
  else yield token.content;
}

function code({ content, info }) {
  const copy = button("icon-only quiet code-copy", { sayLabel: "copy", sayTitle: "copy" }, icon("copy"));
  copy.addEventListener("click", () => copyFrom(copy, content));
  const body = h("pre", { dir: "ltr" }, h("code", {}, content));
  const language = oneLine((info ?? "").split(/\s/, 1)[0], 30);
  return h("div", { class: "code" }, language ? h("span", { class: "code-name" }, language) : null, copy, body);
}

function picture(token) {
  const place = h("span", { class: "picture" });
  const named = oneLine(token.content || "", 120);
  link(token.attrGet("src") ?? "", place).append(
    h("span", { say: named ? ["md.picture", { named }] : "md.picture.any" }),
  );
  return place;
}

/**
 * A growing message. Complete blocks are drawn once and only the last one repeatedly; a complete message is drawn as a
 * whole, because a definition at its end may name a link at its beginning.
 */
export class Rich {
  #text = "";
  #live = false;
  #all = false;
  #settled = 0; // characters whose blocks are in `done`

  constructor(className) {
    this.done = h("div", { class: "md" });
    this.last = h("div", { class: "md md-last" });
    this.body = h("div", { class: `prose ${className}`, dir: "auto" }, this.done, this.last);
    this.more = button("quiet block-more", { hidden: true, on: { click: () => this.#showAll() } });
    this.element = h("div", {}, this.more, this.body);
  }

  set(text, { live = false } = {}) {
    if (text === this.#text && live === this.#live) return;
    const grown = this.#live && live && text.length > this.#text.length && text.startsWith(this.#text);
    this.#text = text;
    this.#live = live;
    if (grown && (this.#all || text.length <= LONGEST)) this.#grow();
    else this.#draw();
  }

  #showAll() {
    this.#all = !this.#all;
    this.#draw();
  }

  #draw() {
    const long = this.#text.length > LONGEST;
    this.#settled = long && !this.#all ? startOfEnd(this.#text) : 0;
    this.done.replaceChildren();
    this.last.replaceChildren();
    if (this.#live) this.#grow();
    else this.done.append(...shown(this.#text.slice(this.#settled)));
    this.more.hidden = !long;
    if (!long) return;
    if (this.#all) say(this.more, "block.less");
    else say(this.more, "block.all", { size: size(this.#text.length) });
  }

  /** Draw new text: newly complete blocks for good, and the growing block. */
  #grow() {
    const rest = this.#text.slice(this.#settled);
    if (rest.length > OPEN) return this.#asItIs(rest);
    const tokens = parser.parse(rest, {});
    const start = tokens.findLastIndex((token) => token.level === 0 && token.nesting >= 0);
    const line = tokens[start]?.map?.[0] ?? 0;
    if (start > 0 && line > 0) {
      this.done.append(...build(tokens.slice(0, start)));
      this.#settled += offsetOfLine(rest, line);
    }
    this.last.replaceChildren(...build(tokens.slice(Math.max(0, start))));
  }

  /** Show the growing block unparsed: it is too long to be parsed again for each new word. */
  #asItIs(rest) {
    const shown = this.last.firstElementChild;
    const node = shown?.classList.contains("as-it-is") ? shown.firstChild : null;
    if (node && rest.startsWith(node.data)) node.appendData(rest.slice(node.length));
    else this.last.replaceChildren(asItIs(rest));
  }
}

const asItIs = (text) => h("p", { class: "as-it-is" }, text);

/** The elements of a text; an overlong text is shown unparsed. */
const shown = (text) => (text.length > MOST ? [asItIs(text)] : elementsOf(text));

/** The start of the newest part of a long text: at a paragraph, if there is one. */
function startOfEnd(text) {
  const from = text.length - LONGEST;
  const paragraph = text.indexOf("\n\n", from);
  if (paragraph >= 0 && paragraph < text.length - LONGEST / 2) return paragraph + 2;
  return /^[\udc00-\udfff]/.test(text.slice(from, from + 1)) ? from + 1 : from;
}

function offsetOfLine(text, line) {
  let at = 0;
  for (let n = 0; n < line; n += 1) at = text.indexOf("\n", at) + 1;
  return at;
}
