// The rules that people have made with "always": what they let pass, who made them, and a button that revokes each.

import { foreign, runLink } from "./blocks.js";
import { dialog, show } from "./dialogs.js";
import { announce, button, h, say } from "./dom.js";
import { moment, oneLine } from "./format.js";
import { knows, t } from "./words.js";

const PAGES = 5; // of 200 rules each; more are for the command line

/** Show the rules. `mayRevoke`: the principal may decide. */
export function showRules({ api, explain, mayRevoke }) {
  const note = h("p", { class: "hint", role: "status", say: "rules.loading" });
  const list = h("ul", { class: "rules" });
  const old = h("input", { type: "checkbox", id: "rules-revoked" });
  const also = h("label", { class: "choice", for: "rules-revoked" }, old, h("span", { say: "rules.revoked.also" }));
  const element = dialog("rules", "rules.title", h("p", { class: "hint", say: "rules.about" }), also, note, list);
  let rules = [];
  const draw = () => {
    const shown = rules.filter((rule) => old.checked || !rule.revokedAt);
    list.replaceChildren(...shown.map((rule) => line(rule, mayRevoke ? revoke : null)));
    note.hidden = shown.length > 0;
    say(note, "rules.none");
  };
  const revoke = async (rule, control) => {
    control.disabled = true;
    try {
      const revoked = await api.revokeRule(rule.ruleId);
      rules = rules.map((one) => (one.ruleId === revoked.ruleId ? revoked : one));
      old.checked = true; // the line stays where it is, and says what has become of it
      draw();
      announce(t("rules.revoked.said"));
      old.focus();
    } catch (error) {
      control.disabled = false;
      note.hidden = false;
      say(note, "rules.unrevoked", { message: explain(error) });
    }
  };
  const read = async () => {
    try {
      rules = await api.rules(PAGES);
      draw();
    } catch (error) {
      say(note, "rules.failed", { message: explain(error) });
    }
  };
  old.addEventListener("change", draw);
  list.addEventListener("click", (event) => event.target.closest("a") && element.close());
  read();
  return show(element, element.querySelector(".dialog-close"));
}

function line(rule, revoke) {
  const { form, tool, about, scope, holder, by, at, runId, revokedAt, revokedBy } = rule;
  const covers = h("span", knows(`rules.covers.${form}`) ? { say: `rules.covers.${form}` } : {});
  const head = h("p", { class: "rule-head" }, foreign(oneLine(tool, 80), "call-tool"), covers);
  const text = about ? h("p", { class: "rule-about" }, h("code", {}, foreign(oneLine(about, 300)))) : null;
  const where = h("p", { class: "rule-facts" });
  if (knows(`rules.for.${scope}`)) where.append(h("span", { say: `rules.for.${scope}` }), " ");
  where.append(scope === "run" ? runLink(holder) : foreign(oneLine(holder, 80)));
  const said = h("span", { say: ["rules.made", { by: person(by), at: when(at) }] });
  const made = h("p", { class: "rule-facts" }, said, " ");
  if (scope !== "run") made.append(runLink(runId));
  const parts = [head, text, where, made];
  if (revokedAt) {
    const values = { by: person(revokedBy), at: when(revokedAt) };
    parts.push(h("p", { class: "rule-facts tone-wait", say: ["rules.revoked", values] }));
  } else if (revoke) {
    const label = ["rules.revoke.what", { what: oneLine(about || tool, 80) }];
    const control = button("small", { say: "rules.revoke", sayLabel: label });
    control.addEventListener("click", () => revoke(rule, control));
    parts.push(control);
  }
  return h("li", { class: revokedAt ? "rule is-revoked" : "rule" }, ...parts);
}

const person = (name) => oneLine(name ?? t("item.unnamed"), 60);
const when = (at) => moment(Date.parse(at)) || oneLine(at, 40);
