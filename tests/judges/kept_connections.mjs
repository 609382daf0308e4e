// Node's own HTTP clients against a gateway, each with its kept connections: `fetch` (undici) and http.Agent.
// tests/e2e/test_judge_kept_connections.py runs: node kept_connections.mjs CLIENT URL TOKEN REQUESTS
// It prints what was lost as one JSON object, as kept_connections.py does, and plays the same requests.
import http from "node:http";

const [client, url, token, count] = process.argv.slice(2);
const AT_ONCE = 4;
const agent = new http.Agent({ keepAlive: true, maxSockets: AT_ONCE });

function wanted(number) {
  const headers = { authorization: `Bearer ${token}` };
  if (number % 4 === 0) {
    return ["GET", "/v1/runs/done/events", { ...headers, accept: "text/event-stream" }, undefined, "\n\n"];
  }
  if (number % 4 === 2) {
    const said = { id: `m${number}`, role: "user", parts: [{ type: "text", text: "hi" }] };
    const body = JSON.stringify({ id: `chat-${number}`, trigger: "submit-message", messages: [said] });
    const typed = { ...headers, "content-type": "application/json" };
    return ["POST", "/v1/ai-sdk/v6/agents/echo/chat", typed, body, "data: [DONE]\n\n"];
  }
  return ["POST", "/v1/runs/done/revive", headers, undefined, '"revived":false}'];
}

async function byFetch(method, path, headers, body) {
  const answer = await fetch(url + path, { method, headers, body });
  return [answer.status, await answer.text()];
}

function byAgent(method, path, headers, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(url + path, { method, headers, agent }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (piece) => (text += piece));
      answer.on("end", () => (answer.complete ? resolve([answer.statusCode, text]) : reject(new Error("torn"))));
      answer.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

const ask = client === "fetch" ? byFetch : byAgent;
const lost = [];
let next = 0;

async function some() {
  while (next < Number(count)) {
    const number = next++;
    const [method, path, headers, body, end] = wanted(number);
    try {
      const [status, text] = await ask(method, path, headers, body);
      if (status !== 200 || !text.endsWith(end)) lost.push(`request ${number}: ${status} ${text.slice(-200)}`);
    } catch (error) {
      lost.push(`request ${number}: ${error} ${error.cause ?? ""}`);
    }
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, some));
agent.destroy();
console.log(JSON.stringify({ lost: lost.length, some: lost.slice(0, 5) }));
