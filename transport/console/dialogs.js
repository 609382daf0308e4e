// The dialogs: sign in, start a run, cancel or pause a run, help.

import { button, h, icon, say, tell } from "./dom.js";
import { oneLine } from "./format.js";
import { freshId } from "./link.js";
import { keep, recall } from "./prefs.js";

/** A dialog that closes on Escape and on an outside click, and restores the focus. */
export function dialog(className, title, ...children) {
  const heading = h("h2", { id: `title-${freshId()}`, say: title });
  const leave = button(
    "icon-only quiet dialog-close",
    { sayLabel: "close", sayTitle: "close", on: { click: () => element.close() } },
    icon("close"),
  );
  const element = h(
    "dialog",
    { class: `dialog ${className}`, "aria-labelledby": heading.id },
    h("div", { class: "dialog-head" }, heading, leave),
    ...children,
  );
  element.addEventListener("mousedown", (event) => event.target === element && element.close());
  element.addEventListener("close", () => element.remove());
  return element;
}

export function show(element, focus) {
  document.body.append(element);
  element.showModal();
  focus?.focus();
  return element;
}

/** True while a dialog is open. */
export const dialogOpen = () => document.querySelector("dialog[open]") !== null;

export const submitting = (go) => ({
  submit: (event) => {
    event.preventDefault();
    go();
  },
});

/** Ask for the token; `refused` is true if the previous one was unknown. */
export function askToken({ refused, onToken }) {
  document.querySelector("dialog.sign-in")?.close();
  const field = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    class: "json",
    required: true,
  });
  const fault = h("p", { class: "fault", role: "alert" });
  if (refused) say(fault, "token.refused");
  const go = () => {
    const token = field.value.trim();
    if (!token) return say(fault, "token.empty");
    element.dataset.done = "yes";
    element.close();
    return onToken(token);
  };
  const form = h(
    "form",
    { novalidate: true, on: { ...submitting(go), input: () => tell(fault, "") } },
    h("p", { class: "hint", say: "token.why" }),
    h("div", { class: "field" }, h("label", { for: "token", say: "token.label" }), field, fault),
    h("p", { class: "hint", say: "token.kept" }),
    h("div", { class: "dialog-buttons" }, h("button", { class: "button primary", type: "submit", say: "token.go" })),
  );
  const element = dialog("sign-in", "token.title", form);
  element.querySelector(".dialog-close").remove(); // without a token there is no page behind the dialog
  element.addEventListener("cancel", (event) => event.preventDefault());
  element.addEventListener("mousedown", (event) => event.stopImmediatePropagation(), true);
  return show(element, field);
}

/** Cancel a run. `cancel(frame)` returns the acknowledgement. */
export function askCancel({ run, cancel, onCancelled, onClosed, explain }) {
  const choice = (value, checked) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "mode", value, checked }),
      h("span", {}, h("strong", { say: `cancel.${value}` }), h("span", { class: "hint", say: `cancel.${value}.hint` })),
    );
  const when = h(
    "fieldset",
    { class: "field" },
    h("legend", { say: "cancel.mode" }),
    choice("now", true),
    choice("after_step", false),
  );
  const mode = () => when.querySelector(":checked").value;
  const send = (why) => cancel({ type: "cancel", id: freshId(), run, mode: mode(), ...why });
  const word = (key) => `cancel.${key}`;
  const way = { name: "cancel", tone: "danger", choices: [when] };
  return askCommand({ word, ...way, send, onSent: onCancelled, onClosed, explain });
}

/** Pause a run. `pause(frame)` returns the acknowledgement. */
export function askPause({ run, pause, onPaused, onClosed, explain }) {
  const send = (why) => pause({ type: "pause", id: freshId(), run, ...why });
  const word = (key) => `pause.${key}`;
  const way = { name: "pause", tone: "primary", choices: [] };
  return askCommand({ word, ...way, send, onSent: onPaused, onClosed, explain });
}

/**
 * Ask for confirmation and a reason before a command. `send(reason)` returns the acknowledgement; `onClosed` restores
 * the focus, because the button that opened the dialog may no longer exist.
 */
function askCommand({ word, name, tone, choices, send, onSent, onClosed, explain }) {
  const reason = h("input", { id: `${name}-reason`, autocomplete: "off", maxlength: "2000" });
  const fault = h("p", { class: "fault", role: "alert" });
  const go = h("button", { class: `button ${tone}`, type: "submit", say: word("go") });
  const submit = async () => {
    go.disabled = true;
    try {
      await send(reason.value.trim() ? { reason: reason.value.trim() } : {});
    } catch (error) {
      go.disabled = false;
      return say(fault, word("failed"), { message: explain(error) });
    }
    element.close();
    return onSent();
  };
  const keepIt = button("quiet", { say: word("keep"), on: { click: () => element.close() } });
  const form = h(
    "form",
    { novalidate: true, on: { ...submitting(submit), input: () => tell(fault, "") } },
    h("p", { class: "hint", say: word("why") }),
    ...choices,
    h("div", { class: "field" }, h("label", { for: reason.id, say: word("reason") }), reason),
    fault,
    h("div", { class: "dialog-buttons" }, keepIt, go),
  );
  const element = dialog(name, word("title"), form);
  element.addEventListener("close", onClosed);
  return show(element, reason);
}

/**
 * Fork a run that is done: start again after one of its steps, in a thread of its own. `steps` are {step, tools};
 * `fork(frame)` returns the acknowledgement.
 */
export function askFork({ run, steps, fork, onForked, explain }) {
  const frameId = { value: freshId() };
  const options = [{ step: 0, tools: [] }, ...steps].map(({ step, tools }) =>
    h("option", { value: String(step), say: forkPoint(step, tools) }),
  );
  const select = h("select", { id: "fork-step" }, ...options);
  select.selectedIndex = Math.max(0, options.length - 2); // an error most likely occurred in the last step
  const fault = h("p", { class: "fault", role: "alert" });
  const go = h("button", { class: "button primary", type: "submit", say: "fork.go" });
  const submit = async () => {
    if (go.disabled) return;
    go.disabled = true;
    try {
      const ack = await fork({ type: "fork", id: frameId.value, run, step: Number(select.value) });
      element.close();
      onForked(ack);
    } catch (error) {
      go.disabled = false;
      say(fault, "start.failed", { message: explain(error) });
    }
  };
  const changed = () => {
    frameId.value = freshId();
    tell(fault, "");
  };
  const form = h(
    "form",
    { novalidate: true, on: { ...submitting(submit), input: changed } },
    h("p", { class: "hint", say: "fork.why" }),
    h("div", { class: "field" }, h("label", { for: "fork-step", say: "fork.step" }), select),
    fault,
    h("div", { class: "dialog-buttons" }, go),
  );
  const element = dialog("fork", "fork.title", form);
  return show(element, select);
}

function forkPoint(step, tools) {
  if (!step) return "fork.beginning";
  const named = oneLine([...new Set(tools)].join(", "), 60);
  return [named ? "fork.after.tools" : "fork.after", { n: step, tools: named }];
}

const KEYS = [
  [["j", "k", "↓", "↑"], "help.list"],
  [["Enter"], "help.open"],
  [["/"], "help.search"],
  [["w"], "help.next"],
  [["i"], "help.inbox"],
  [["x"], "help.tick"],
  [["⇧↓", "⇧↑"], "help.range"],
  [["⇧A"], "help.all"],
  [["a"], "help.approve"],
  [["d"], "help.deny"],
  [["e"], "help.edit"],
  [["n"], "help.start"],
  [["l"], "help.latest"],
  [["?"], "help.help"],
  [["Esc"], "help.close"],
];

/** The keyboard shortcuts, and whether single letters are enabled. */
export function showHelp() {
  const rows = KEYS.flatMap(([keys, text]) => [
    h("dt", {}, ...keys.map((key) => h("kbd", {}, key))),
    h("dd", { say: text }),
  ]);
  const single = h("input", { type: "checkbox", checked: singleKeys() });
  single.addEventListener("change", () => keep("keys", single.checked ? null : "off"));
  const element = dialog(
    "help",
    "help.title",
    h("p", { class: "hint", say: "help.about" }),
    h("h3", { say: "help.keys" }),
    h("dl", { class: "keys" }, ...rows),
    h("label", { class: "choice" }, single, h("span", { say: "help.single" })),
  );
  return show(element, element.querySelector(".dialog-close"));
}

/** False if the user has disabled single-letter shortcuts (for speech input, for example). */
export const singleKeys = () => recall("keys") !== "off";
