// "Always" beside an approval: what the answer covers, and what it holds for.

import { h } from "./dom.js";
import { freshId } from "./link.js";

/** True if the answer to a ticket may be remembered. */
export const mayRemember = ({ parameters }) => parameters?.permission?.remember === true;

export class AlwaysChoice {
  /** @param {boolean} placed the run works in a workspace */
  constructor({ parameters }, placed) {
    const forms = parameters.permission.command ? ["argv", "call", "tool"] : ["call", "tool"];
    this.form = select("form", forms);
    this.scope = select("scope", ["thread", "run", ...(placed ? ["workspace"] : [])]);
    this.element = h(
      "div",
      { class: "card-always" },
      field("ask.always.form", this.form),
      field("ask.always.scope", this.scope),
      h("p", { class: "hint", say: "ask.always.about" }),
    );
  }

  read() {
    return { form: this.form.value, scope: this.scope.value };
  }
}

function select(name, values) {
  const options = values.map((value) => h("option", { value, say: `rule.${name}.${value}` }));
  return h("select", { id: `always-${freshId()}` }, ...options);
}

const field = (label, control) => h("div", { class: "field" }, h("label", { for: control.id, say: label }), control);
