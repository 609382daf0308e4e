// The queues of a store: how many runs wait or are scheduled, how many work, and how old the oldest waiting run is.

import { dialog, show } from "./dialogs.js";
import { foreign } from "./blocks.js";
import { h, say, tell } from "./dom.js";
import { number, oneLine, wholeSeconds } from "./format.js";

const AGAIN_MS = 2_000; // between two reads while the dialog is open

/** Show the queues, and keep them up to date until the dialog is closed. */
export function showQueues(api, explain) {
  const note = h("p", { class: "hint", say: "queues.loading" });
  const body = h("tbody");
  const heads = ["name", "ready", "working", "oldest"].map((name) => h("th", { scope: "col", say: `queues.${name}` }));
  const table = h("table", { class: "queues", hidden: true }, h("thead", {}, h("tr", {}, ...heads)), body);
  const element = dialog("queues", "queues.title", h("p", { class: "hint", say: "queues.about" }), note, table);
  const read = async () => {
    try {
      const found = await api.queues();
      body.replaceChildren(...found.map(line));
      table.hidden = !found.length;
      note.hidden = found.length > 0;
      say(note, "queues.none");
    } catch (error) {
      note.hidden = false;
      say(note, "queues.failed", { message: explain(error) });
    }
  };
  const timer = setInterval(() => document.hidden || read(), AGAIN_MS);
  element.addEventListener("close", () => clearInterval(timer));
  read();
  return show(element, element.querySelector(".dialog-close"));
}

function line({ name, ready, scheduled = 0, working, maxRunning: limit, paused, oldest }) {
  const state = paused ? h("span", { class: "queue-paused", say: "queues.paused" }) : null;
  const later = scheduled ? h("span", { class: "queue-later" }) : null;
  if (later) say(later, "queues.scheduled", { n: number(scheduled) });
  const works = h("td");
  if (limit === null) tell(works, number(working));
  else say(works, "queues.of", { n: number(working), limit: number(limit) });
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, foreign(oneLine(name, 60)), state, later),
    h("td", {}, number(ready)),
    works,
    h("td", {}, oldest ? wholeSeconds(Math.max(0, Date.now() - Date.parse(oldest)) / 1000) : "–"),
  );
}
