// The events that are one line of the timeline each. A function is called with the model as `this`.

/** Type of an event -> the line that it adds. */
export const NOTES = {
  "run.degraded"(payload, at) {
    this.note("item.degraded", { reason: payload.reason }, at, { icon: "warn", tone: "wait", detail: payload.detail });
  },
  "run.decision.refused"(payload, at) {
    this.note("item.refused", { code: payload.code }, at, { icon: "warn", tone: "bad", detail: payload.detail });
  },
  "run.gate.allowed"({ callId: id, plugin, note }, at) {
    this.note("item.allowed", { plugin, tool: this.calls.get(id)?.tool ?? id }, at, { icon: "dot", detail: note });
  },
  "run.file.read"({ callId: id, path, lines }, at) {
    const tool = this.calls.get(id)?.tool ?? id;
    this.note(lines === undefined ? "item.read" : "item.read.lines", { tool, path, lines }, at, { icon: "dot" });
  },
  "runtime.unavailable"({ runtime, reason, hint }, at) {
    const detail = [reason, hint].filter(Boolean).join("\n");
    this.note("item.unavailable", { runtime }, at, { icon: "warn", tone: "bad", detail });
  },
  "runtime.timeout"({ runtime, which, seconds }, at) {
    this.note(`item.timeout.${which}`, { runtime, wait: seconds }, at, { icon: "warn", tone: "bad" });
  },
  "schema.validation_failed"({ source, from, line, rule, sample }, at) {
    const detail = [rule, sample].filter(Boolean).join("\n");
    this.note("item.unfit", { source: source ?? from, line }, at, { icon: "warn", tone: "wait", detail });
  },
  "run.gate.overruled"({ callId: id, plugin, verdict, by }, at) {
    const tool = this.calls.get(id)?.tool ?? id;
    this.note("item.overruled", { plugin, verdict, by, tool }, at, { icon: "dot" });
  },
  "run.guardrail.tripped"({ callId: id, guardrail, kind, verdict, info }, at) {
    const subject = this.calls.get(id)?.tool ?? id ?? this.active;
    const detail = info === undefined || info === null || typeof info === "string" ? info : JSON.stringify(info);
    const judged = kind.startsWith("tool_") ? verdict : "trip"; // only a guardrail of a tool rejects
    const tone = judged === "trip" ? "bad" : "wait";
    this.note(`item.${judged}.${kind}`, { guardrail, subject }, at, { icon: "warn", tone, detail });
  },
  "run.state.changed"({ keys, by }, at) {
    const writer = this.calls.get(by)?.tool ?? by;
    this.note("item.state", { keys, by: writer }, at, { icon: "dot" });
  },
  "run.state.conflict"({ writer, detail, retried }, at) {
    const tool = this.calls.get(writer)?.tool ?? writer;
    const text = retried ? "item.conflict.retried" : "item.conflict";
    this.note(text, { tool }, at, { icon: "warn", tone: "wait", detail });
  },
  "run.cleanup.overrun"({ tool, graceSeconds: grace, stack }, at) {
    this.note("item.overrun", { tool: tool ?? this.active, grace }, at, { icon: "warn", tone: "wait", detail: stack });
  },
  "run.context.trimmed"({ messages, by }, at) {
    this.note("item.trimmed", { messages, by }, at, { icon: "again" });
  },
  "run.child.started"({ callId: id, childRunId: child, agent }, at) {
    this.note("item.child", { agent, tool: this.calls.get(id)?.tool ?? id }, at, { icon: "dot", run: child });
  },
  "run.child.finished"({ callId: id, stage, code }, at) {
    const end = ["completed", "cancelled"].includes(stage) ? stage : "failed"; // a run ends in one of the three
    const tone = end === "completed" ? "good" : "bad";
    const tool = this.calls.get(id)?.tool ?? id;
    this.note(`item.child.${end}`, { tool }, at, { icon: "dot", tone, detail: code });
  },
};
