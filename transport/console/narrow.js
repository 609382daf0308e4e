// The controls of the filters of the list of runs: text, status or outcome, tool, agent, starter, time, and saved ones.

import { button, h, icon, say } from "./dom.js";
import { ALL, fieldsOf, forget, same, save, saved, SPANS } from "./filters.js";
import { oneLine } from "./format.js";

const PAUSE_MS = 250; // between the last key and the search
const LONGEST = 200; // characters of a search, the gateway's limit
const PARTS = { filters: "filters", search: "search", toggle: "narrow", panel: "narrowing", saved: "saved" };
const FIELDS = ["tool", "agent", "by", "code"];

export class Narrow {
  #show = "";
  #timer = null;
  #agents = null;
  #now = ALL;

  /** @param {{changed: (filters: object) => void, agents: () => Promise<object[]>, me: () => string}} context */
  constructor(context) {
    Object.assign(this, context);
    for (const [name, id] of Object.entries(PARTS)) this[name] = document.getElementById(id);
    this.search.maxLength = LONGEST;
    this.toggle.replaceChildren(icon("filter"));
    this.fields = Object.fromEntries(FIELDS.map((name) => [name, field(name)]));
    this.since = h(
      "select",
      { id: "narrow-since" },
      ...SPANS.map((name) => h("option", { value: name, say: `narrow.since.${name}` })),
    );
    this.name = h("input", { id: "narrow-name", maxlength: "40", autocomplete: "off", sayHint: "narrow.name.hint" });
    this.#panel();
    this.filters.addEventListener("click", (event) => {
      const control = event.target.closest("button");
      if (control) this.#choose(control.value);
    });
    this.search.addEventListener("input", () => this.#later());
    this.search.addEventListener("keydown", (event) => this.#key(event));
    this.toggle.addEventListener("click", () => this.#open(this.panel.hidden));
    this.#drawSaved();
  }

  /** Show these filters, and use them. */
  set(filters) {
    this.search.value = filters.text;
    this.since.value = filters.since;
    for (const name of FIELDS) this.fields[name].value = filters[name];
    this.#press(filters.show);
    this.#use();
  }

  /** Reset all filters. */
  clear() {
    this.set(ALL);
  }

  focus() {
    this.search.focus();
    this.search.select();
  }

  get #filters() {
    const texts = Object.fromEntries(FIELDS.map((name) => [name, this.fields[name].value.trim()]));
    const text = this.search.value.trim().slice(0, LONGEST);
    return { ...ALL, show: this.#show, since: this.since.value, text, ...texts };
  }

  #panel() {
    const clear = button("quiet small", { say: "narrow.clear", on: { click: () => this.clear() } });
    const kept = h("button", { class: "button small", type: "submit", say: "narrow.save" });
    const keeping = h(
      "form",
      { class: "narrow-save", novalidate: true },
      h("label", { class: "unseen", for: this.name.id, say: "narrow.name" }),
      this.name,
      kept,
    );
    keeping.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
    const rows = FIELDS.map((name) => labelled(`narrow.${name}`, this.fields[name]));
    const fields = h("div", { class: "narrow-fields" }, ...rows, labelled("narrow.since", this.since));
    fields.addEventListener("input", () => this.#later());
    this.panel.append(fields, h("div", { class: "narrow-end" }, keeping, clear));
  }

  #choose(show) {
    this.#press(show);
    this.#use();
  }

  #press(show) {
    this.#show = show;
    for (const control of this.filters.children) control.setAttribute("aria-pressed", String(control.value === show));
  }

  #key(event) {
    if (event.isComposing) return;
    if (event.key === "Escape" && this.search.value) {
      event.stopPropagation();
      this.search.value = "";
      this.#use();
    } else if (event.key === "Enter") this.#use();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#use(), PAUSE_MS);
  }

  #use() {
    clearTimeout(this.#timer);
    const filters = this.#filters;
    const narrowed = fieldsOf(filters).some(([name]) => name !== "text" && name !== "show");
    this.toggle.classList.toggle("is-on", narrowed);
    if (same(filters, this.#now)) return;
    this.#now = filters;
    this.#drawSaved();
    this.changed(filters);
  }

  // --- saved filters -------------------------------------------------------------------------------------------------

  #save() {
    const name = oneLine(this.name.value, 40);
    if (!name) return this.name.focus();
    save(name, this.#filters);
    this.name.value = "";
    return this.#drawSaved();
  }

  #drawSaved() {
    const all = saved();
    this.saved.hidden = all.length === 0;
    this.saved.replaceChildren(...all.map((one) => this.#chip(one)));
  }

  #chip({ name, filters }) {
    const use = () => this.set(same(filters, this.#now) ? ALL : filters);
    const chosen = button("saved-use", { "aria-pressed": String(same(filters, this.#now)), on: { click: use } }, name);
    const remove = button(
      "icon-only quiet saved-forget",
      {
        sayLabel: ["narrow.forget", { name }],
        sayTitle: ["narrow.forget", { name }],
        on: {
          click: () => {
            forget(name);
            this.#drawSaved();
            this.search.focus();
          },
        },
      },
      icon("close"),
    );
    return h("li", { class: "saved-filter" }, chosen, remove);
  }

  // --- names to choose from ------------------------------------------------------------------------------------------

  async #open(open) {
    this.panel.hidden = !open;
    this.toggle.setAttribute("aria-expanded", String(open));
    if (!open) return;
    this.fields.tool.focus();
    this.#offer("by", [this.me()]);
    try {
      this.#agents ??= await this.agents();
      this.#offer(
        "agent",
        this.#agents.map(({ key }) => key),
      );
      this.#offer("tool", [...new Set(this.#agents.flatMap(({ tools = [] }) => tools))].sort());
    } catch {
      // then the user types the name
    }
  }

  #offer(name, names) {
    const options = names.filter(Boolean).map((value) => h("option", { value }));
    document.getElementById(`narrow-${name}-known`).replaceChildren(...options);
  }
}

const field = (name) =>
  h("input", {
    id: `narrow-${name}`,
    list: `narrow-${name}-known`,
    maxlength: String(LONGEST),
    autocomplete: "off",
    spellcheck: "false",
    sayHint: name === "by" ? "narrow.anybody" : "narrow.any",
  });

function labelled(label, control) {
  const known = control.getAttribute("list");
  return h(
    "div",
    { class: "field" },
    h("label", { for: control.id, say: label }),
    control,
    known ? h("datalist", { id: known }) : null,
  );
}
