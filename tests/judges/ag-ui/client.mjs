// AG-UI's own HTTP client, told what to do line by line.
//
//   node client.mjs             reads JSON objects, one a line, and answers each with one
//
// {do: "open", url, token, thread, messages?, state?}   first; messages and state: what a page has kept
// {do: "say", id, text}       a user message is added
// {do: "run", run, answers?, resume?, words?}
//                             runAgent; answers: interrupt id -> {status, payload?}, made a resume by buildResumeArray;
//                             words: the run is aborted as soon as the text of a message has them
// {do: "forget"}              the pending interrupts are forgotten, as after a reload of the page
//
// The answer: {error, status, messages, state, pending, outcome, result, code, runs, events, body, posts, warnings} of the
// newest run. error: what runAgent threw; body: the response as it came; posts: requests so far; warnings: all so far.

import { createInterface } from 'node:readline';
import { HttpAgent, buildResumeArray, getRunOutcome } from '@ag-ui/client';

const warnings = [];
console.warn = console.error = (...words) => warnings.push(words.map(String).join(' '));
setTimeout(() => process.exit(3), 120_000).unref();

let agent, posts = 0, seen = {};

async function watched(url, options) {
  posts += 1;
  const response = await fetch(url, options);
  if (!response.ok) return response;
  const [mine, theirs] = response.body.tee();
  const here = seen;
  here.copy = new Response(mine).text().then(text => { here.body = text; }, () => { here.body = null; });
  return new Response(theirs, { status: response.status, headers: response.headers });
}

const acts = {
  open({ url, token, thread, messages = [], state = {} }) {
    const headers = { authorization: `Bearer ${token}` };
    agent = new HttpAgent({ url, threadId: thread, headers, initialMessages: messages, initialState: state, fetch: watched });
  },

  say({ id, text }) { agent.addMessage({ id, role: 'user', content: text }); },

  forget() { agent.pendingInterrupts = []; },

  async run({ run, answers, resume, words }) {
    seen = { events: [] };
    const parameters = { runId: run };
    if (answers) parameters.resume = buildResumeArray(agent.pendingInterrupts, answers);
    if (resume) parameters.resume = resume;
    const watcher = {
      onEvent({ event }) { seen.events.push(event.type); },
      onRunFinishedEvent({ event, outcome }) { seen.outcome = outcome; seen.said = getRunOutcome(event)?.type; },
      onRunErrorEvent({ event }) { seen.outcome = 'error'; seen.code = event.code; },
      onTextMessageContentEvent({ textMessageBuffer, event }) {
        if (words && (textMessageBuffer + event.delta).includes(words)) agent.abortRun();
      },
    };
    try {
      const { result, newMessages } = await agent.runAgent(parameters, watcher);
      Object.assign(seen, { result, added: newMessages.map(message => message.id) });
    } catch (error) {
      Object.assign(seen, { error: String(error.message ?? error), status: error.status });
    }
    await seen.copy;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  await acts[asked.do](asked);
  const { copy, ...told } = seen;
  const { messages, state, pendingInterrupts: pending } = agent;
  process.stdout.write(JSON.stringify({ ...told, messages, state, pending, posts, warnings }) + '\n');
}
