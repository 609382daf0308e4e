// A small chart of counts by hour: stacked bars in SVG, with the same figures as a table for those who do not see it.

import { h } from "./dom.js";
import { hour, number } from "./format.js";
import { t } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const KINDS = ["completed", "stopped", "failed", "cancelled"]; // from the bottom of a bar to its top
const [WIDTH, HEIGHT, GAP, LEAST] = [720, 120, 6, 3]; // units of the drawing; a bar with a run in it is seen
const LABELS = 6; // hours with a label

/** Make an element of a drawing. */
export function draw(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

const total = (line) => KINDS.reduce((sum, kind) => sum + line[kind], 0);

/** The sum of the hours, by outcome. */
export const sums = (hours) =>
  Object.fromEntries(KINDS.map((kind) => [kind, hours.reduce((sum, line) => sum + line[kind], 0)]));

/** The chart of hours, {hour, completed, stopped, failed, cancelled} each, the oldest first. */
export function hourlyChart(hours) {
  const most = Math.max(1, ...hours.map(total));
  const step = WIDTH / hours.length;
  const bars = hours.map((line, index) => bar(line, index * step + GAP / 2, step - GAP, most));
  const every = Math.ceil(hours.length / LABELS);
  const labels = hours
    .map((line, index) => ({ line, index }))
    .filter(({ index }) => (hours.length - 1 - index) % every === 0)
    .map(({ line, index }) => place(index, hours.length, line));
  const figures = Object.fromEntries(KINDS.map((kind) => [kind, number(sums(hours)[kind])]));
  const picture = draw(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": t("overview.chart.said", figures),
    },
    draw("line", { class: "chart-ground", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    ...bars,
  );
  const axis = h("div", { class: "chart-axis", "aria-hidden": "true" }, ...labels);
  const peak = h("span", { class: "chart-peak", "aria-hidden": "true" }, number(most));
  return h("div", { class: "chart" }, h("div", { class: "chart-plot" }, peak, picture), axis, legend(), table(hours));
}

function bar(line, x, width, most) {
  const group = draw("g", { class: "chart-bar" });
  let y = HEIGHT;
  for (const kind of KINDS) {
    if (!line[kind]) continue;
    const height = Math.max(LEAST, (line[kind] / most) * (HEIGHT - 4));
    y -= height;
    group.append(draw("rect", { class: `chart-${kind}`, x, y, width, height, rx: 1.5 }));
  }
  group.append(draw("title", {}, said(line)));
  return group;
}

const said = (line) =>
  [
    hour(Date.parse(line.hour)),
    ...KINDS.filter((kind) => line[kind]).map((kind) => `${t(`stage.${kind}`)} ${number(line[kind])}`),
  ].join(" · ");

const place = (index, count, line) => {
  const label = h("span", {}, hour(Date.parse(line.hour)));
  label.style.left = `${((index + 0.5) / count) * 100}%`;
  return label;
};

const legend = () =>
  h(
    "ul",
    { class: "chart-legend" },
    ...KINDS.map((kind) =>
      h(
        "li",
        {},
        h("span", { class: `chart-key chart-${kind}`, "aria-hidden": "true" }),
        h("span", { say: `stage.${kind}` }),
      ),
    ),
  );

function table(hours) {
  const head = h(
    "tr",
    {},
    h("th", { scope: "col", say: "overview.chart.hour" }),
    ...KINDS.map((kind) => h("th", { scope: "col", say: `stage.${kind}` })),
  );
  const rows = hours
    .filter(total)
    .reverse()
    .map((line) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, hour(Date.parse(line.hour))),
        ...KINDS.map((kind) => h("td", {}, number(line[kind]))),
      ),
    );
  const lines = h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows));
  return h("details", { class: "chart-table" }, h("summary", { say: "overview.chart.table" }), lines);
}
