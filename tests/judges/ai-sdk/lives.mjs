// Streams through the AI SDK's own schema and reader.
//
//   node lives.mjs v6|v7        reads JSON objects, one a line: {message?, parts}, answers each with {message, error, legal}
//
// message: the assistant message that the stream continues. error: of the schema or the reader; an `error` part counts.

import { createInterface } from 'node:readline';

const ai = await import(`ai-${process.argv[2]}`);

async function read({ message, parts }) {
  const body = parts.map(part => `data: ${JSON.stringify(part)}\n\n`).join('') + 'data: [DONE]\n\n';
  const stream = ai.parseJsonEventStream({ stream: new Response(body).body, schema: ai.uiMessageChunkSchema });
  const chunks = stream.pipeThrough(new TransformStream({
    transform(chunk, controller) {
      if (!chunk.success) throw chunk.error;
      controller.enqueue(chunk.value);
    },
  }));
  let last, error;
  const onError = problem => { error ??= String(problem?.message ?? problem); };
  for await (const one of ai.readUIMessageStream({ message, stream: chunks, onError })) last = one;
  const found = await ai.safeValidateUIMessages({ messages: [last] });
  return { message: last, error, legal: found.success ? 'legal' : String(found.error) };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await read(JSON.parse(line)))}\n`);
}
