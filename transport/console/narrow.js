// The filters of the list of runs: status, text, agent, the principal that started the run, time of the start.

import { button, h, icon } from "./dom.js";

const PAUSE_MS = 250; // between the last key and the search
const HOUR_S = 3_600;
const SINCE = { hour: HOUR_S, day: 24 * HOUR_S, week: 7 * 24 * HOUR_S, month: 30 * 24 * HOUR_S };
const LONGEST = 200; // characters of a search, the gateway's limit

export class Narrow {
  #status = "";
  #timer = null;
  #agents = null;

  /**
   * @param {{filters, search, toggle, panel}} parts
   * @param {{changed: (status: string, query: object) => void, agents: () => Promise<object[]>,
   *   me: () => string}} context
   */
  constructor(parts, context) {
    Object.assign(this, parts, context);
    this.search.maxLength = LONGEST;
    this.toggle.replaceChildren(icon("filter"));
    this.agent = this.#text("narrow-agent", "narrow.any");
    this.by = this.#text("narrow-by", "narrow.anybody");
    const options = ["ever", ...Object.keys(SINCE)].map((name) =>
      h("option", { value: name, say: `narrow.since.${name}` }),
    );
    this.since = h("select", { id: "narrow-since" }, ...options);
    const clear = button("quiet small", { say: "narrow.clear", on: { click: () => this.clear() } });
    this.panel.append(
      this.#field("narrow.agent", this.agent),
      this.#field("narrow.by", this.by),
      this.#field("narrow.since", this.since),
      clear,
    );
    this.filters.addEventListener("click", (event) => {
      const control = event.target.closest("button");
      if (control) this.#choose(control.value);
    });
    this.search.addEventListener("input", () => this.#later());
    this.search.addEventListener("keydown", (event) => this.#key(event));
    this.panel.addEventListener("input", () => this.#later());
    this.toggle.addEventListener("click", () => this.#open(this.panel.hidden));
  }

  /** The filters as the fields of a query. */
  get query() {
    const query = {};
    const { value: since } = this.since;
    for (const name of ["agent", "by"]) if (this[name].value.trim()) query[name] = this[name].value.trim();
    if (since in SINCE) query.since = new Date(Date.now() - SINCE[since] * 1000).toISOString();
    const text = this.search.value.trim();
    if (text) query.text = text.slice(0, LONGEST);
    return query;
  }

  /** Reset all filters. */
  clear() {
    this.search.value = this.agent.value = this.by.value = "";
    this.since.value = "ever";
    this.#now();
  }

  focus() {
    this.search.focus();
    this.search.select();
  }

  #text(id, hint) {
    return h("input", { id, list: `${id}-known`, autocomplete: "off", spellcheck: "false", sayHint: hint });
  }

  #field(label, control) {
    const known = control.getAttribute("list");
    return h(
      "div",
      { class: "field" },
      h("label", { for: control.id, say: label }),
      control,
      known ? h("datalist", { id: known }) : null,
    );
  }

  #choose(status) {
    this.#status = status;
    for (const control of this.filters.children) control.setAttribute("aria-pressed", String(control.value === status));
    this.#now();
  }

  #key(event) {
    if (event.isComposing) return;
    if (event.key === "Escape" && this.search.value) {
      event.stopPropagation();
      this.search.value = "";
      this.#now();
    } else if (event.key === "Enter") this.#now();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#now(), PAUSE_MS);
  }

  #now() {
    clearTimeout(this.#timer);
    const { query } = this;
    this.toggle.classList.toggle(
      "is-on",
      Object.keys(query).some((name) => name !== "text"),
    );
    const asked = JSON.stringify([
      this.#status,
      this.search.value.trim(),
      this.agent.value,
      this.by.value,
      this.since.value,
    ]);
    if (asked === this.asked) return;
    this.asked = asked;
    this.changed(this.#status, query);
  }

  async #open(open) {
    this.panel.hidden = !open;
    this.toggle.setAttribute("aria-expanded", String(open));
    if (!open) return;
    this.agent.focus();
    this.#offer("narrow-by-known", [this.me()]);
    try {
      this.#agents ??= await this.agents();
      this.#offer(
        "narrow-agent-known",
        this.#agents.map(({ key }) => key),
      );
    } catch {
      // then the user types the name
    }
  }

  #offer(id, names) {
    document.getElementById(id).replaceChildren(...names.filter(Boolean).map((value) => h("option", { value })));
  }
}
