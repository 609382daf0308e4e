// The dialog that starts a run: the agent, the task with images and files, and options.

import { AttachmentList } from "./attaching.js";
import { dialog, show, submitting } from "./dialogs.js";
import { h, icon, say, tell } from "./dom.js";
import { freshId } from "./link.js";
import { keep, recall } from "./prefs.js";

/**
 * Start a run. `start(order)` returns the acknowledgement; `given` fills the fields: {agent, text}. `may("admin")`
 * offers the options that decide about the runs of others.
 */
export function askStart(context) {
  return new NewRun(context).show();
}

class NewRun {
  #id = freshId(); // the same for repeated attempts with the same values: they start one run
  #known = [];

  constructor({ agents, start, onStarted, explain, may, most, given = {} }) {
    Object.assign(this, { start, onStarted, explain, given });
    this.agent = h("select", { id: "start-agent", required: true });
    this.hint = h("p", { class: "hint" });
    this.text = h("textarea", { id: "start-text", rows: "6", required: true }, given.text ?? "");
    this.attachments = new AttachmentList({ changed: () => this.#changed(), most });
    this.fault = h("p", { class: "fault", role: "alert" });
    this.go = h("button", { class: "button primary", type: "submit", say: "start.go", disabled: true });
    this.options = {
      title: h("input", { id: "start-title", autocomplete: "off", maxlength: "80" }),
      thread: h("input", { id: "start-thread", autocomplete: "off" }),
      at: h("input", { id: "start-at", type: "datetime-local" }),
      deadline: h("input", { id: "start-deadline", type: "datetime-local" }),
    };
    if (may("admin")) {
      this.options.queue = h("input", { id: "start-queue", autocomplete: "off" });
      this.options.priority = h("input", { id: "start-priority", type: "number", min: "-100", max: "100" });
    }
    this.element = dialog("start", "start.title", this.#form());
    this.#attach();
    this.#agents(agents());
  }

  show() {
    return show(this.element, this.text);
  }

  #form() {
    const rows = Object.entries(this.options).map(([name, field]) => option(name, field));
    const more = h("summary", {}, icon("chevron", "turns"), h("span", { say: "start.more" }));
    return h(
      "form",
      { novalidate: true, on: { ...submitting(() => this.#submit()), input: () => this.#changed() } },
      h("div", { class: "field" }, h("label", { for: "start-agent", say: "start.agent" }), this.agent, this.hint),
      h(
        "div",
        { class: "field" },
        h("label", { for: "start-text", say: "start.text" }),
        this.text,
        this.attachments.element,
      ),
      h("details", { class: "field" }, more, h("div", { class: "start-options" }, ...rows)),
      this.fault,
      h("div", { class: "dialog-buttons" }, this.go),
    );
  }

  /** Files come by the button, by paste, and by drop anywhere on the dialog. */
  #attach() {
    const { element, attachments } = this;
    element.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      attachments.add(files);
    });
    element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      element.classList.add("is-over");
    });
    element.addEventListener("dragleave", (event) => {
      if (!element.contains(event.relatedTarget)) element.classList.remove("is-over");
    });
    element.addEventListener("drop", (event) => {
      element.classList.remove("is-over");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      attachments.add([...event.dataTransfer.files]);
    });
    element.addEventListener("close", () => attachments.clear());
    this.text.addEventListener(
      "keydown",
      (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && this.#submit(),
    );
    this.agent.addEventListener("change", () => {
      this.#describe();
      keep("agent", this.agent.value);
    });
  }

  async #agents(reading) {
    try {
      this.#known = await reading;
    } catch (error) {
      say(this.fault, "start.agents.failed", { message: this.explain(error) });
      return;
    }
    this.agent.replaceChildren(...this.#known.map(({ key }) => h("option", { value: key }, key)));
    const last = this.#known.findIndex(({ key }) => key === (this.given.agent ?? recall("agent")));
    this.agent.selectedIndex = Math.max(0, last);
    this.go.disabled = this.#known.length === 0;
    if (!this.#known.length) say(this.fault, "start.noagents");
    this.#describe();
  }

  #describe() {
    const { description, tools = [] } = this.#known[this.agent.selectedIndex] ?? {};
    if (description) tell(this.hint, description);
    else if (tools.length) say(this.hint, "start.tools", { tools: tools.join(", ") });
    else tell(this.hint, "");
  }

  #changed() {
    this.#id = freshId();
    if (this.#known.length) tell(this.fault, "");
  }

  #order() {
    const values = Object.entries(this.options).map(([name, field]) => [name, field.value.trim()]);
    const given = Object.fromEntries(values.filter(([, value]) => value));
    for (const name of ["at", "deadline"]) if (given[name]) given[name] = new Date(given[name]).toISOString();
    if (given.priority) given.priority = Number(given.priority);
    const { order: attachments } = this.attachments;
    const sent = attachments.length ? { attachments } : {};
    return { id: this.#id, agent: this.agent.value, text: this.text.value, ...given, ...sent };
  }

  async #submit() {
    const { go, text, fault } = this;
    if (go.disabled) return;
    if (!text.value.trim() && !this.attachments.order.length) {
      say(fault, "start.empty");
      text.focus();
      return;
    }
    go.disabled = true;
    say(go, "start.starting");
    tell(fault, "");
    try {
      const ack = await this.start(this.#order());
      this.element.close();
      this.onStarted(ack);
    } catch (error) {
      say(fault, "start.failed", { message: this.explain(error) });
      go.disabled = false;
      say(go, "start.go");
    }
  }
}

function option(name, field) {
  return h(
    "div",
    { class: "start-option" },
    h("label", { for: field.id, say: `start.${name === "title" ? "name" : name}` }),
    field,
    h("p", { class: "hint", say: `start.${name === "title" ? "name" : name}.hint` }),
  );
}
