// Streams through the pipeline of AG-UI's own client: enforceEvents, transformChunks, verifyEvents, and its reducer.
//
//   node streams.mjs            reads {messages, state, thread, run, events}, one a line, and answers each with one
//
// The answer: {error, messages, state, pending, warnings}; error: what the pipeline refused the stream for.

import { createInterface } from 'node:readline';
import { AbstractAgent } from '@ag-ui/client';
import { from } from 'rxjs';

let warnings = [];
console.warn = console.error = (...words) => warnings.push(words.map(String).join(' '));

class Recorded extends AbstractAgent {
  run() { return from(this.events); }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { messages, state, thread, run, events } = JSON.parse(line);
  warnings = [];
  const agent = new Recorded({ threadId: thread, initialMessages: messages, initialState: state ?? {} });
  agent.events = events;
  let error;
  try {
    await agent.runAgent({ runId: run });
  } catch (thrown) {
    error = String(thrown.message ?? thrown);
  }
  const answer = { error, messages: agent.messages, state: agent.state, pending: agent.pendingInterrupts, warnings };
  process.stdout.write(JSON.stringify(answer) + '\n');
}
