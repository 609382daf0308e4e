// Arguments and results of calls for people: a long text is shown as text, not as JSON with \n in it.

import { Block } from "./blocks.js";
import { h } from "./dom.js";
import { isObject } from "./exact.js";
import { oneLine } from "./format.js";

const LONG = 72; // characters: a longer text gets lines of its own
const MOST = 30; // fields; a larger object is shown as JSON

/** Like a Block; an object with long texts is shown field by field. */
export class Values {
  #fields = new Map(); // name -> Block

  constructor(name, options) {
    this.name = name;
    this.block = new Block(name, options);
    this.list = h("dl", { class: "fields", hidden: true });
    this.element = h("div", { class: "values" }, this.block.element, this.list);
  }

  set(value) {
    this.block.set(value);
    const fields = isObject(value) ? Object.entries(value) : [];
    const long = ([, one]) => typeof one === "string" && (one.includes("\n") || one.length > LONG);
    const spread = fields.length > 0 && fields.length <= MOST && fields.some(long);
    this.element.classList.toggle("has-fields", spread);
    this.list.hidden = !spread;
    if (spread) this.#draw(fields);
    return this;
  }

  #draw(fields) {
    const names = fields.map(([name]) => name);
    if (names.join("\n") !== [...this.#fields.keys()].join("\n")) {
      this.#fields = new Map(names.map((name) => [name, new Block("")]));
      this.list.replaceChildren(...[...this.#fields].flatMap(([name, block]) => line(name, block)));
    }
    for (const [name, value] of fields) this.#fields.get(name).set(value);
  }
}

function line(name, block) {
  block.element.classList.add("is-plain");
  return [h("dt", {}, h("bdi", {}, oneLine(name, 60))), h("dd", {}, block.element)];
}
