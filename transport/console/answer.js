// Form fields for the values of a decision: a form for simple schemas, otherwise JSON.

import { button, h, say, tell } from "./dom.js";
import { isObject, kindOf, pretty, readTyped, sameJson } from "./exact.js";
import { oneLine } from "./format.js";

/** @typedef {(value: any) => [string, object] | null} Check */

const SCALARS = new Set(["string", "number", "integer", "boolean"]);
const MOST_FIELDS = 16;
let made = 0;

const freshName = () => `field-${(made += 1)}`;

/** The one type of a schema that a simple field supports; undefined if the schema is not simple. */
function simple(schema) {
  if (!isObject(schema)) return undefined;
  for (const name of ["$ref", "oneOf", "anyOf", "allOf", "if", "not"]) if (name in schema) return undefined;
  if (Array.isArray(schema.enum))
    return schema.enum.every((one) => kindOf(one) !== "object" && kindOf(one) !== "array") ? "enum" : undefined;
  return SCALARS.has(schema.type) ? schema.type : undefined;
}

/** True for an object of simple fields, or a simple value. */
export function hasForm(schema) {
  if (simple(schema)) return true;
  if (!isObject(schema) || schema.type !== "object" || !isObject(schema.properties)) return false;
  const fields = Object.values(schema.properties);
  return fields.length > 0 && fields.length <= MOST_FIELDS && fields.every(simple);
}

/** The state of a field: {value}, {absent: true}, or {fault: [key, values]}. */
const fault = (key, values = {}) => ({ fault: [key, values] });

/** One simple value. */
class Field {
  constructor(name, schema, { required, label }) {
    const id = freshName();
    this.kind = simple(schema);
    Object.assign(this, { name, schema, required });
    this.control = this.#control(id);
    const title = h("span", {}, schema.title ? String(schema.title) : label ? h("span", { say: label }) : name);
    const more = schema.description ? h("span", { class: "hint", id: `${id}-hint` }, String(schema.description)) : null;
    if (more) this.control.setAttribute("aria-describedby", more.id);
    this.element = h(
      "div",
      { class: "field" },
      h("label", { for: id }, title, required ? h("span", { class: "needed", "aria-hidden": "true" }, "*") : null),
      this.control,
      more,
    );
  }

  #control(id) {
    const initial = this.schema.default;
    if (this.kind === "enum" || this.kind === "boolean") {
      const values = this.kind === "enum" ? this.schema.enum : [true, false];
      this.values = [undefined, ...values];
      const options = this.values.map((value, index) => this.#option(value, index));
      const select = h("select", { id, required: this.required }, ...options);
      const chosen = values.findIndex((value) => initial !== undefined && sameJson(value, initial));
      select.selectedIndex = chosen + 1;
      return select;
    }
    const text =
      initial === undefined || initial === null ? "" : typeof initial === "string" ? initial : JSON.stringify(initial);
    const control =
      this.kind === "string"
        ? h("textarea", { id, rows: "1", required: this.required })
        : h("input", { id, inputmode: "decimal", autocomplete: "off", required: this.required });
    control.defaultValue = text;
    return control;
  }

  #option(value, index) {
    const option = h("option", { value: String(index) });
    if (value === undefined) return say(option, "ask.form.unset");
    if (value === true || value === false) return say(option, value ? "ask.yes" : "ask.no");
    return tell(option, typeof value === "string" ? value : JSON.stringify(value));
  }

  read() {
    if (this.values) {
      const value = this.values[this.control.selectedIndex];
      if (value !== undefined) return { value };
      return this.#missing();
    }
    const text = this.control.value;
    if (text === "") return this.#missing();
    if (this.kind === "string") return { value: text };
    const read = readTyped(text.trim());
    if (kindOf(read.value) !== "number") return fault("ask.form.number", { name: this.name });
    if (this.kind === "integer" && !/^-?\d+(\.0+)?$/.test(text.trim()))
      return fault("ask.form.integer", { name: this.name });
    return read;
  }

  #missing() {
    return this.required ? fault("ask.form.required", { name: this.name }) : { absent: true };
  }
}

/** The fields of an object schema. */
class Form {
  constructor(schema, label) {
    const needed = new Set(schema.required ?? []);
    this.single = simple(schema) !== undefined;
    const listed = this.single ? [["", schema]] : Object.entries(schema.properties);
    this.fields = listed.map(
      ([name, one]) =>
        new Field(name, one, { required: this.single || needed.has(name), label: this.single ? label : null }),
    );
    this.element = h("div", { class: "fields" }, ...this.fields.map((field) => field.element));
  }

  /** The first field that was found invalid, if it still is; other fields are not marked before submission. */
  recheck() {
    const wrong = this.fields.find((field) => field.control.getAttribute("aria-invalid") === "true");
    const read = wrong?.read() ?? {};
    if (wrong && !read.fault) wrong.control.removeAttribute("aria-invalid");
    return read;
  }

  read() {
    const value = {};
    for (const field of this.fields) {
      const read = field.read();
      if (read.fault) {
        field.control.focus();
        field.control.setAttribute("aria-invalid", "true");
        return read;
      }
      field.control.removeAttribute("aria-invalid");
      if (this.single) return read;
      if (!read.absent) Object.defineProperty(value, field.name, { value: read.value, enumerable: true });
    }
    return { value };
  }

  focus() {
    this.fields[0].control.focus();
  }
}

/** JSON typed by the user; errors are shown during typing. */
export class JsonEditor {
  /**
   * @param {{label: string, text?: string, onInput?: (read: object) => void, check?: Check}} options `check` returns
   *   the error of a value (a key of the words and its values), or null
   */
  constructor({ label, text = "", onInput = () => {}, check = () => null }) {
    const id = freshName();
    this.check = check;
    this.area = h("textarea", {
      id,
      class: "json",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      "aria-describedby": `${id}-fault`,
    });
    this.area.defaultValue = text;
    this.area.rows = Math.min(18, Math.max(3, text.split("\n").length));
    this.fault = h("p", { class: "fault", id: `${id}-fault`, "aria-live": "polite" });
    this.element = h("div", { class: "field" }, h("label", { for: id, say: label }), this.area, this.fault);
    this.area.addEventListener("input", () => onInput(this.#say(this.#read())));
  }

  read() {
    return this.#say(this.#read());
  }

  focus() {
    this.area.focus();
  }

  #read() {
    const text = this.area.value.trim();
    if (!text) return fault("ask.json.empty");
    const read = readTyped(text);
    if (read.message) return fault("ask.json.fault", { ...read, message: oneLine(read.message, 160) });
    const wrong = this.check(read.value);
    return wrong ? { fault: wrong } : read;
  }

  #say(read) {
    this.area.setAttribute("aria-invalid", String(Boolean(read.fault)));
    if (read.fault) say(this.fault, ...read.fault);
    else tell(this.fault, "");
    return read;
  }
}

/** A value that a ticket requests. `read()` returns {value} or {fault}. */
export class Answer {
  /** @param {{schema?: object, label: string, initial?: any, check?: Check}} options */
  constructor({ schema, label, initial, check }) {
    const text = initial === undefined ? "" : pretty(initial);
    this.json = new JsonEditor({ label, text, check });
    this.form = hasForm(schema) && initial === undefined ? new Form(schema, label) : null;
    this.fault = h("p", { class: "fault", "aria-live": "polite" });
    this.switch = button("quiet small", { on: { click: () => this.#show(!this.asForm) } });
    this.element = h("div", { class: "answer" });
    this.form?.element.addEventListener("input", () => this.#sayFault(this.form.recheck()));
    this.#show(this.form !== null);
  }

  read() {
    const read = this.asForm ? this.form.read() : this.json.read();
    this.#sayFault(this.asForm ? read : {});
    return read;
  }

  #sayFault(read) {
    if (read.fault) say(this.fault, ...read.fault);
    else tell(this.fault, "");
  }

  focus() {
    (this.asForm ? this.form : this.json).focus();
  }

  get touched() {
    const fields = this.asForm ? this.form.fields.map(({ control }) => control) : [this.json.area];
    return fields.some(
      (control) => control.value !== control.defaultValue && control.value !== "" && control.tagName !== "SELECT",
    );
  }

  #show(asForm) {
    if (this.form && !asForm && this.asForm) this.#carryOver();
    this.asForm = asForm;
    this.element.replaceChildren(
      ...(asForm ? [this.form.element, this.fault] : [this.json.element]),
      ...(this.form ? [this.switch] : []),
    );
    say(this.switch, asForm ? "ask.form.json" : "ask.form.fields");
  }

  /** The present content of the form becomes the initial JSON. */
  #carryOver() {
    const read = this.form.read();
    if (!read.fault && this.json.area.value === "") this.json.area.value = pretty(read.value);
  }
}
