// The agent of python_server.py on the official JavaScript server of A2A: node js_server.mjs PORT COUNT_FILE [BINDING]
import { appendFileSync } from 'node:fs';
import express from 'express';
import { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } from '@a2a-js/sdk/server';
import { restHandler, jsonRpcHandler, agentCardHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import { TaskState, Role } from '@a2a-js/sdk';

const [port, count, binding = 'HTTP+JSON'] = process.argv.slice(2);
const url = `http://127.0.0.1:${port}`;
const part = ($case, value, mediaType = 'text/plain', filename = '') => ({ content: { $case, value }, metadata: undefined, filename, mediaType });
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cancelled = new Set();

class Work {
  async execute(context, bus) {
    const said = context.userMessage.parts.map((one) => (one.content?.$case === 'text' ? one.content.value : '')).join('');
    appendFileSync(count, `${context.userMessage.messageId} ${JSON.stringify(said)}\n`);
    const { taskId, contextId } = context;
    const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
    const history = context.task?.history ?? [context.userMessage];
    // a stream begins with the task, also that of an answer: this SDK refuses any other beginning
    const task = context.task ?? { id: taskId, contextId, history, artifacts: [], metadata: undefined };
    bus.publish(AgentEvent.task({ ...task, status: status(TaskState.TASK_STATE_SUBMITTED) }));
    const words = (text) => ({ messageId: `${taskId}-${history.length}`, role: Role.ROLE_AGENT, parts: [part('text', text)], taskId, contextId, extensions: [], referenceTaskIds: [], metadata: undefined });
    const move = (state, text) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, text && words(text)), metadata: undefined }));
    const put = (artifactId, parts, append = false) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact: { artifactId, name: '', description: '', parts, metadata: undefined, extensions: [] }, append, lastChunk: false, metadata: undefined }));
    move(TaskState.TASK_STATE_WORKING);
    const asked = history.filter((one) => one.role === Role.ROLE_USER && one.messageId !== context.userMessage.messageId).length;
    const first = history[0].parts[0].content?.value;
    if (said.startsWith('ask') || (first === 'ask twice' && asked < 2)) move(TaskState.TASK_STATE_INPUT_REQUIRED, 'which order?');
    else if (said === 'auth') move(TaskState.TASK_STATE_AUTH_REQUIRED, 'log in there');
    else if (said === 'fail') move(TaskState.TASK_STATE_FAILED, 'no tea left');
    else if (said === 'reject') move(TaskState.TASK_STATE_REJECTED, 'not my work');
    else {
      if (said.startsWith('slow')) {
        for (let n = 0; n < Number(said.split(' ')[1]) * 10 && !cancelled.has(taskId); n += 1) {
          put('out', [part('text', `${n} `)], n > 0);
          await wait(100);
        }
      } else if (said === 'files') {
        const got = context.userMessage.parts.filter((one) => one.content?.$case === 'raw');
        put('out', [part('text', `got: ${got.map((one) => `${one.filename} ${one.mediaType} ${one.content.value.length}`).join(', ')}`)]);
        put('menu', [part('raw', Buffer.from('tea,3\n'), 'text/csv', 'menu.csv'), part('url', 'https://shop.example/tea.png', 'image/png')]);
      } else if (said.endsWith('data')) put('out', [part('data', { tea: 3 }, 'application/json')]);
      else put('out', [part('text', `done: ${said}`)]);
      move(cancelled.has(taskId) ? TaskState.TASK_STATE_CANCELED : TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async cancelTask(taskId) {
    appendFileSync(count, `cancel ${taskId}\n`);
    cancelled.add(taskId);
  }
}

const addresses = [
  { url, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' },
  { url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' },
];
const supportedInterfaces = addresses.sort((one) => (one.protocolBinding === binding ? -1 : 1));
const card = { name: 'work', description: 'test', version: '1', provider: undefined, documentationUrl: '', iconUrl: '', capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: false, extensions: [] }, supportedInterfaces, defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], skills: [], securitySchemes: {}, securityRequirements: [], signatures: [] };
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Work());
const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.use('/', restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(port), '127.0.0.1');
