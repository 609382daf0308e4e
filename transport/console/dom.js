// Elements. Text is inserted as text nodes only: text of runs, models and gateways is never parsed as HTML.

import { t } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 *
 * Properties: `class`; `on` (event -> listener); `say` and `sayLabel`, `sayTitle`, `sayHint` (a key of the words, or
 * [key, values]: text, aria-label, title, placeholder that change with the language); `data`; everything else is an
 * attribute (true: present, false, null and undefined: absent).
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) put(element, name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SAID = { say: "text", sayLabel: "label", sayTitle: "title", sayHint: "hint" };

function put(element, name, value) {
  if (name === "class") element.className = value;
  else if (name === "on")
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name in SAID) sayFirst(element, [value].flat(), SAID[name]);
  else if (value === true) element.setAttribute(name, "");
  else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
}

const sayFirst = (element, [key, values], place) => say(element, key, values, place);

const PLACES = {
  text: (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  },
  label: (element, text) => element.setAttribute("aria-label", text),
  title: (element, text) => element.setAttribute("title", text),
  hint: (element, text) => element.setAttribute("placeholder", text),
};

/** Set a sentence as the element's text, and update it when the language changes. */
export function say(element, key, values = {}, place = "text") {
  const noted = JSON.stringify([key, values]);
  const name = `say${place[0].toUpperCase()}${place.slice(1)}`;
  if (element.dataset[name] === noted && place === "text") return element;
  element.dataset[name] = noted;
  PLACES[place](element, t(key, values));
  return element;
}

/** Set a text that no dictionary has. */
export function tell(element, text) {
  delete element.dataset.sayText;
  PLACES.text(element, text);
  return element;
}

/** Update all sentences after a change of the language. */
export function sayAgain(root = document) {
  for (const [place, put] of Object.entries(PLACES)) {
    const name = `say${place[0].toUpperCase()}${place.slice(1)}`;
    for (const element of root.querySelectorAll(`[data-say-${place}]`)) {
      const [key, values] = JSON.parse(element.dataset[name]);
      put(element, t(key, values));
    }
  }
}

// Icons: 16 x 16, drawn with the text's colour.
const ICONS = {
  plus: ["M8 3v10M3 8h10"],
  close: ["M4 4l8 8M12 4l-8 8"],
  check: ["M3.5 8.5l3 3 6-7"],
  cross: ["M4.5 4.5l7 7M11.5 4.5l-7 7"],
  slash: ["M4 12L12 4"],
  dot: ["M8 8h.01"],
  hand: ["M6 4v8M10 4v8"],
  chevron: ["M6 4l4 4-4 4"],
  back: ["M10 3.5L5.5 8l4.5 4.5"],
  down: ["M8 3v9.5M4 8.8l4 4 4-4"],
  copy: ["M5.5 5.5v-2h7v7h-2", "M3.5 5.5h7v7h-7z"],
  person: ["M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z", "M3.5 13.2c.6-2.3 2.4-3.4 4.5-3.4s3.9 1.1 4.5 3.4"],
  spark: ["M8 2.5l1.3 4.2 4.2 1.3-4.2 1.3L8 13.5l-1.3-4.2L2.5 8l4.2-1.3z"],
  brain: ["M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z", "M8 5.5v3l2 1.2"],
  tool: ["M10.2 3a3 3 0 0 0-3.7 3.9L3 10.4 5.6 13l3.5-3.5A3 3 0 0 0 13 5.8L11.2 7.6 8.9 7 8.4 4.8z"],
  note: ["M8 7.5V11", "M8 5h.01", "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z"],
  file: ["M4 2.5h5l3 3v8H4z", "M9 2.5v3h3"],
  fork: [
    "M5 3.2v9.6M5 9.5c0-3 6-1.6 6-5",
    "M5 4.4a1.2 1.2 0 1 0 0-2.4 1.2 1.2 0 0 0 0 2.4zM5 14a1.2 1.2 0 1 0 0-2.4 1.2 1.2 0 0 0 0 2.4z",
    "M11 4.4A1.2 1.2 0 1 0 11 2a1.2 1.2 0 0 0 0 2.4z",
  ],
  queues: ["M3 4.5h7M3 8h10M3 11.5h5"],
  filter: ["M2.5 4h11M4.5 8h7M6.5 12h3"],
  again: ["M12.8 6.5A5 5 0 1 0 13 9.2", "M13 3.2v3.3H9.7"],
  flag: ["M4 13.5v-11", "M4 3h7.5L10 5.8l1.5 2.7H4"],
  auto: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z", "M8 2.5v11"],
  light: [
    "M8 5.3a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4z",
    "M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3",
    "M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  ],
  dark: ["M13 9.4A5.5 5.5 0 0 1 6.6 3a5.5 5.5 0 1 0 6.4 6.4z"],
  help: [
    "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z",
    "M6.4 6.5a1.6 1.6 0 1 1 2.4 1.4c-.5.3-.8.6-.8 1.1",
    "M8 11h.01",
  ],
  out: ["M6.5 3h-3v10h3", "M10 5l3 3-3 3M13 8H6.5"],
  bell: ["M4.5 11V7.5a3.5 3.5 0 0 1 7 0V11l1 1.2h-9z", "M7 14h2"],
  clock: ["M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z", "M8 5v3.2l2 1.3"],
  lock: ["M4 7.5h8v5.5H4z", "M5.5 7.5v-2a2.5 2.5 0 0 1 5 0v2"],
  warn: ["M8 2.8L14 13H2z", "M8 6.8v2.7", "M8 11.3h.01"],
};

/** An icon; hidden from screen readers. */
export function icon(name, className = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `icon ${className}`.trim());
  for (const line of ICONS[name]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", line);
    svg.append(path);
  }
  return svg;
}

/** A button; `say` or `sayLabel` names it. */
export function button(className, properties, ...children) {
  return h("button", { type: "button", class: `button ${className}`.trim(), ...properties }, ...children);
}

/** The icon of a stage or of a call's status. */
export function sign(name) {
  return h(
    "span",
    { class: `sign sign-${name}`, "aria-hidden": "true" },
    ...(name in SIGNS ? [icon(SIGNS[name])] : []),
  );
}

const SIGNS = {
  completed: "check",
  succeeded: "check",
  failed: "cross",
  cancelled: "slash",
  stopped: "flag",
  degraded: "warn",
  dead: "warn",
  held: "clock",
  needs_approval: "hand",
  suspended: "hand",
};

let announcer;

/** Announce a text to screen readers; `urgent` interrupts. */
export function announce(text, { urgent = false } = {}) {
  announcer ??= {
    calm: document.getElementById("said"),
    urgent: document.getElementById("said-now"),
  };
  const place = urgent ? announcer.urgent : announcer.calm;
  place.textContent = text === place.textContent ? `${text}\u00a0` : text;
}

/** Put a text into the system's clipboard; false if the browser refuses. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text); // absent unless the page came over https or from this machine
    return true;
  } catch {
    return false;
  }
}

/** Mark the link of the shown run, or remove the mark. */
export function setRun(link, shown) {
  if (shown) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}
