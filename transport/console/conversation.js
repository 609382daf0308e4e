// The conversation that a run belongs to: all messages of its thread, page by page, and what is said while it is open.

import { Block, foreign, Prose, runLink } from "./blocks.js";
import { dialog, show } from "./dialogs.js";
import { button, h, icon, say } from "./dom.js";
import { number, oneLine } from "./format.js";
import { Rich } from "./markdown.js";
import { pictureOf } from "./pictures.js";

const PAGE = 50; // messages that are read together
const AGAIN_MS = 2_000; // between two looks for new messages
const SIGNS = { user: "person", assistant: "spark", tool: "tool", system: "note" };

/**
 * Show the conversation of a thread. `load(query)` returns a page of its messages, and `bytes(part)` those of an image
 * or a file.
 */
export function showConversation({ thread, load, bytes, explain }) {
  return new Conversation({ thread, load, bytes, explain }).open();
}

class Conversation {
  #before = null;
  #after = 0;
  #run = ""; // of the newest message that is shown
  #tools = new Map(); // call id -> its tool
  #timer = null;

  constructor(context) {
    this.context = context;
    this.note = h("p", { class: "hint", role: "status", say: "talk.loading" });
    this.earlier = button(
      "quiet",
      { hidden: true, on: { click: () => this.#earlier() } },
      h("span", { say: "talk.earlier" }),
    );
    this.list = h("ol", { class: "talk", tabindex: "0", "aria-live": "polite" });
    this.works = h("p", { class: "talk-works", hidden: true });
    const name = h("p", { class: "artifact-facts" }, foreign(oneLine(context.thread, 130)));
    const parts = [name, this.note, this.earlier, this.list, this.works];
    this.element = dialog("artifact talk-dialog", "talk.title", ...parts);
    this.element.addEventListener("part", ({ detail }) =>
      detail.found({ load: () => context.bytes(detail.part), explain: context.explain }),
    );
    this.element.addEventListener("click", (event) => event.target.closest("a.run-link") && this.element.close());
    this.element.addEventListener("close", () => clearTimeout(this.#timer));
  }

  open() {
    this.#first();
    return show(this.element, this.element.querySelector(".dialog-close"));
  }

  async #first() {
    const page = await this.#page({ limit: PAGE });
    if (!page) return;
    this.#take(page.messages, false);
    this.#before = page.before;
    this.#seen(page);
    this.list.scrollTop = this.list.scrollHeight;
    this.#later();
  }

  async #earlier() {
    this.earlier.disabled = true;
    const page = await this.#page({ before: this.#before, limit: PAGE });
    this.earlier.disabled = false;
    if (!page) return;
    const height = this.list.scrollHeight;
    this.#take(page.messages, true);
    this.#before = page.before;
    this.earlier.hidden = this.#before === null;
    this.list.scrollTop += this.list.scrollHeight - height; // what was read stays where it is
  }

  /** Look for new messages until the dialog is closed. */
  #later() {
    this.#timer = setTimeout(async () => {
      const page = document.hidden ? null : await this.#page({ after: this.#after, limit: PAGE });
      if (page) {
        const atEnd = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 40;
        this.#take(page.messages, false);
        this.#seen(page);
        if (atEnd && page.messages.length) this.list.scrollTop = this.list.scrollHeight;
      }
      if (this.element.open) this.#later();
    }, AGAIN_MS);
  }

  async #page(query) {
    try {
      const page = await this.context.load(query);
      this.note.hidden = true;
      return page;
    } catch (error) {
      this.note.hidden = false;
      say(this.note, "talk.failed", { message: this.context.explain(error) });
      return null;
    }
  }

  #seen({ after, messages, newest, runs }) {
    this.#after = messages.length ? after : Math.max(after, this.#after);
    this.earlier.hidden = this.#before === null;
    if (!newest) {
      this.note.hidden = false;
      say(this.note, "talk.none");
    }
    this.works.hidden = !runs.length;
    if (!runs.length) return;
    const words = h("span", { say: ["talk.works", { n: number(runs.length) }] });
    const links = runs.slice(0, 3).flatMap(({ run }) => [" ", runLink(run)]);
    this.works.replaceChildren(icon("clock"), words, ...links);
  }

  #take(messages, first) {
    for (const { calls = [] } of messages) for (const { callId, tool } of calls) this.#tools.set(callId, tool);
    let run = first ? "" : this.#run;
    const rows = messages.flatMap((message) => {
      const begins = message.run && message.run !== run;
      run = message.run || run;
      return begins ? [runRow(run), this.#row(message)] : [this.#row(message)];
    });
    if (first) this.list.prepend(...rows);
    else {
      this.list.append(...rows);
      this.#run = run;
    }
  }

  #row(message) {
    const { role, kind = "text", calls = [], parts = [], cut } = message;
    const known = Object.hasOwn(SIGNS, role) ? role : "system";
    const word = kind === "text" ? `talk.${known}` : "talk.task";
    const head = h("div", { class: "row-head" }, h("span", { say: word }));
    const tool = this.#tools.get(message.callId);
    if (tool) head.append(foreign(oneLine(tool, 80), "call-tool"));
    const content = [
      textOf(message, known),
      ...calls.map((call) => callOf(call)),
      ...parts.map((part) => pictureOf(part)),
    ];
    if (cut) content.push(h("p", { class: "gone-note", say: "item.message.cut" }));
    if (message.excerpted) content.push(h("p", { class: "hint", say: "talk.excerpt" }));
    const main = h("div", { class: "row-main" }, head, ...content);
    return h("li", { class: `talk-row is-${known}` }, h("span", { class: "row-sign" }, icon(SIGNS[known])), main);
  }
}

const runRow = (run) => h("li", { class: "talk-run" }, h("span", { say: "talk.run" }), " ", runLink(run));

function textOf({ text }, role) {
  if (!text) return null;
  if (role === "tool") return new Block("", { limits: { lines: 6, chars: 800 } }).set(text).element;
  const prose = role === "assistant" ? new Rich("is-message") : new Prose("is-input");
  prose.set(text);
  return prose.element;
}

function callOf({ tool, arguments: values }) {
  const title = h("summary", {}, icon("chevron", "turns"), icon("tool"), foreign(oneLine(tool, 80), "call-tool"));
  const details = h("details", { class: "talk-call" }, title);
  const draw = () => details.append(new Block("", { limits: { lines: 14, chars: 1_600 } }).set(values).element);
  details.addEventListener("toggle", draw, { once: true });
  return details;
}
