// What both programs do: a JSON line on standard input is a task, and each thing that happens is a JSON line on output.
import { createInterface } from 'node:readline';

export const server = JSON.parse(process.argv[2]);
export const headers = { Authorization: `Bearer ${server.token}` };
export const says = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

let answer = null; // resolves the open question
let call = null; // cancels the open call

export function asked(request) {
  says({ asked: request.params });
  return new Promise((resolve) => { answer = resolve; });
}

export async function drive(client, callTool) {
  for await (const line of createInterface({ input: process.stdin })) {
    const task = JSON.parse(line);
    if (task.do === 'list') {
      says({ tools: (await client.listTools()).tools });
    } else if (task.do === 'call') {
      call = new AbortController();
      const options = { timeout: server.patience ?? 60000, signal: call.signal, onprogress: (progress) => says({ progress }) };
      const params = { name: task.name, arguments: task.arguments, ...(task.meta ? { _meta: task.meta } : {}) };
      callTool(params, options).then((result) => says({ result }), (error) => says({ error: String(error) }));
    } else if (task.do === 'answer') {
      answer(task.result);
    } else if (task.do === 'cancel') {
      call.abort('the user has changed their mind');
    }
  }
  await client.close();
}
