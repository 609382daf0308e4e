// Messages of the page itself: reasons of refusals, and notices.

import { announce, button, h, icon } from "./dom.js";
import { size } from "./format.js";
import { knows, t } from "./words.js";

const TOAST_MS = 8_000;

/** A refusal as a sentence: the meaning of the code, and the gateway's message. */
export function explain(error) {
  if (error.code === "too_large")
    return t("error.too_large", { size: size(error.current.size), limit: size(error.current.limit) });
  const meaning = knows(`error.${error.code}`) ? t(`error.${error.code}`) : error.code;
  return [meaning, error.code === "unreachable" ? "" : error.message].filter(Boolean).join(" ");
}

/** Show a sentence at the edge of the page for a while. */
export function toast(key, values = {}, tone = "") {
  const leave = button(
    "icon-only quiet",
    { sayLabel: "dismiss", sayTitle: "dismiss", on: { click: () => element.remove() } },
    icon("close"),
  );
  const element = h("div", { class: `toast${tone ? ` tone-${tone}` : ""}` }, h("p", { say: [key, values] }), leave);
  document.getElementById("toasts").append(element);
  announce(t(key, values));
  setTimeout(() => element.remove(), TOAST_MS);
}
