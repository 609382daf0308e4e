// An editor on the official client of ACP. A test speaks to it line by line on stdin: orders, answers to questions.
//
//   node client.mjs COMMAND WORDS...
//
// It says: {"type": "line"} each line of the agent as it came, "answer" to an order, "asked" and "withdrawn" for a
// request of the agent, "update", and "exit" when the agent has ended.

import { spawn } from "node:child_process";
import readline from "node:readline";
import { Readable, Writable } from "node:stream";
import { client, ndJsonStream } from "@agentclientprotocol/sdk";

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const agent = spawn(process.argv[2], process.argv.slice(3), { stdio: ["pipe", "pipe", "inherit"] });
agent.on("exit", (code, signal) => say({ type: "exit", code, signal }));

// the lines of the agent, as they come
let rest = "";
const lines = new TransformStream({
  transform(chunk, controller) {
    rest += Buffer.from(chunk).toString("utf8");
    const whole = rest.split("\n");
    rest = whole.pop();
    whole.forEach((line) => say({ type: "line", line }));
    controller.enqueue(chunk);
  },
});

const waiting = new Map();
const asked = (method) => (context) =>
  new Promise((resolve) => {
    const key = waiting.size + 1;
    waiting.set(key, resolve);
    context.signal.addEventListener("abort", () => {
      say({ type: "withdrawn", key });
      resolve(method === "elicitation/create" ? { action: "cancel" } : { outcome: { outcome: "cancelled" } });
    });
    say({ type: "asked", key, method, params: context.params });
  });

const app = client({ name: "judge" })
  .onNotification("session/update", (context) => say({ type: "update", params: context.params }))
  .onRequest("session/request_permission", asked("session/request_permission"))
  .onRequest("elicitation/create", asked("elicitation/create"));
const connection = app.connect(
  ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout).pipeThrough(lines)),
);

readline.createInterface({ input: process.stdin }).on("line", async (text) => {
  const order = JSON.parse(text);
  if (order.do === "kill") {
    agent.kill("SIGKILL");
  } else if (order.do === "end") {
    agent.stdin.end();
  } else if (order.do === "reply") {
    waiting.get(order.key)(order.result);
  } else if (order.do === "notify") {
    await connection.agent.notify(order.method, order.params);
  } else {
    try {
      say({ type: "answer", order: order.order, result: await connection.agent.request(order.method, order.params) });
    } catch (error) {
      say({ type: "answer", order: order.order, error: { code: error.code, message: error.message, data: error.data } });
    }
  }
});
