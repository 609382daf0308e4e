// The official A2A client in JavaScript as a judge: node js_client.mjs URL BINDING TOKEN
//
// Reads a JSON line {do, params} and writes lines: {item} for each item of a stream, then {end: null}; {result}; or
// {error: {name, message}}. Requests and answers are the JSON of the protocol: the client's own codec is between.
import { createInterface } from 'node:readline';
import {
  AgentCard, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest,
  StreamResponse, SubscribeToTaskRequest, Task,
} from '@a2a-js/sdk';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';

const [url, binding, token] = process.argv.slice(2);
const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${token}` }),
  shouldRetryWithHeaders: async () => undefined,
});
const transports = binding === 'JSONRPC' ? [new JsonRpcTransportFactory({ fetchImpl })] : [new RestTransportFactory({ fetchImpl })];
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const factory = new ClientFactory({ transports, cardResolver: new DefaultAgentCardResolver({ fetchImpl }) });
let client;
const open = async () => (client ??= await factory.createFromUrl(`${url}/`, '.well-known/agent-card.json'));

const calls = {
  card: async () => AgentCard.toJSON(await (await open()).getAgentCard()),
  send: async (params) => ({ task: Task.toJSON(await (await open()).sendMessage(SendMessageRequest.fromJSON(params))) }),
  get: async (params) => Task.toJSON(await (await open()).getTask(GetTaskRequest.fromJSON(params))),
  list: async (params) => ListTasksResponse.toJSON(await (await open()).listTasks(ListTasksRequest.fromJSON(params))),
  cancel: async (params) => Task.toJSON(await (await open()).cancelTask(CancelTaskRequest.fromJSON(params))),
};
const streams = {
  stream: async (params) => (await open()).sendMessageStream(SendMessageRequest.fromJSON(params)),
  subscribe: async (params) => (await open()).resubscribeTask(SubscribeToTaskRequest.fromJSON(params)),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, params } = JSON.parse(line);
  try {
    if (name in calls) {
      say({ result: await calls[name](params ?? {}) });
    } else {
      for await (const item of await streams[name](params)) say({ item: StreamResponse.toJSON(item) });
      say({ end: null });
    }
  } catch (error) {
    say({ error: { name: error.constructor.name, message: String(error.message) } });
  }
}
