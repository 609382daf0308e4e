// The AI SDK's own chat client, told what to do line by line.
//
//   node client.mjs v6|v7       reads JSON objects, one a line, and answers each with one
//
// {do: "open", api, token, chat, messages?}   first; messages: what a page has kept of the chat
// {do: "send", id, text} {do: "again"} {do: "regenerate"} {do: "resume"} {do: "stop"}
// {do: "respond", approval, approved, reason?} {do: "output", call, tool, output?, error?}
// {do: "settled"}             waits until nothing is under way, and nothing is sent by itself any more
// {do: "text", words}         waits until the last message has these words
// {do: "answered", requests}  waits until so many requests have been answered, or have begun to be
//
// The answer: {status, error, messages, bodies, requests, calls, data, finished, legal}. bodies: of all streams so far;
// requests: method and status of all requests; calls: of onToolCall; legal: what validateUIMessages says.

import { createInterface } from 'node:readline';

const ai = await import(`ai-${process.argv[2]}`);

class Kept {
  status = 'ready';
  error = undefined;
  messages;
  constructor(messages) { this.messages = messages; }
  pushMessage = message => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((one, at) => (at === index ? structuredClone(message) : one));
  };
  snapshot = thing => structuredClone(thing);
}

class Page extends ai.AbstractChat {
  constructor(messages, options) { super({ ...options, state: new Kept(messages) }); }
}

const seen = { bodies: [], requests: [], calls: [], data: [], finished: [] };
let page, open = 0;

async function watched(url, options) {
  open += 1;
  try {
    const response = await fetch(url, options);
    const method = options?.method ?? 'GET';
    const more = method === 'POST' ? { answers: JSON.parse(options.body).messages.at(-1).role } : {};
    seen.requests.push({ method, status: response.status, headers: Object.fromEntries(response.headers), ...more });
    if (!response.ok || response.status === 204) return response;
    const [mine, theirs] = response.body.tee();
    open += 1;
    new Response(mine).text().then(text => seen.bodies.push(text), () => seen.bodies.push(null)).finally(() => { open -= 1; });
    return new Response(theirs, { status: response.status, headers: response.headers });
  } finally {
    open -= 1;
  }
}

const rest = () => new Promise(resolve => setTimeout(resolve, 20));

async function until(what) {
  for (let calm = 0; calm < 3; ) {
    await rest();
    calm = what() ? calm + 1 : 0;
  }
}

async function legal() {
  if (page.messages.length === 0) return 'empty';
  const found = await ai.safeValidateUIMessages({ messages: page.messages });
  return found.success ? 'legal' : String(found.error);
}

async function told() {
  return {
    status: page.status, error: page.error && String(page.error.message), messages: page.messages,
    ...seen, legal: await legal(),
  };
}

const words = message => message?.parts.map(part => part.text ?? '').join('') ?? '';

const orders = {
  async open({ api, token, chat, messages = [] }) {
    const headers = { authorization: `Bearer ${token}` };
    page = new Page(messages, {
      id: chat,
      transport: new ai.DefaultChatTransport({ api, headers, fetch: watched }),
      sendAutomaticallyWhen: options =>
        ai.lastAssistantMessageIsCompleteWithApprovalResponses(options)
        || ai.lastAssistantMessageIsCompleteWithToolCalls(options),
      onToolCall: ({ toolCall }) => { seen.calls.push(toolCall.toolCallId); },
      onData: part => { seen.data.push(part); },
      onFinish: ({ finishReason, isAbort, isError, isDisconnect }) => {
        seen.finished.push({ finishReason: finishReason ?? null, isAbort, isError, isDisconnect });
      },
    });
  },
  // what is under way is not waited for: "settled" does that
  async send({ id, text }) { void page.sendMessage({ id, role: 'user', parts: [{ type: 'text', text }] }); },
  async again() { void page.sendMessage(); },
  async regenerate() { void page.regenerate(); },
  async resume() { void page.resumeStream(); },
  async stop() { await page.stop(); },
  async respond({ approval, approved, reason }) {
    await page.addToolApprovalResponse({ id: approval, approved, reason: reason ?? undefined });
  },
  async output({ call, tool, output, error }) {
    const more = error === undefined ? { output } : { state: 'output-error', errorText: error };
    await page.addToolOutput({ tool, toolCallId: call, ...more });
  },
  async settled() { await until(() => open === 0 && !['submitted', 'streaming'].includes(page.status)); },
  async answered({ requests }) { await until(() => seen.requests.length >= requests); },
  async text({ words: wanted }) { await until(() => words(page.messages.at(-1)).includes(wanted)); },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  await orders[order.do](order);
  if (['open', 'send', 'again', 'regenerate', 'resume'].includes(order.do)) await rest();
  process.stdout.write(`${JSON.stringify(await told())}\n`);
}
process.exit(0);
