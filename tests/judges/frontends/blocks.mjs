// The blocks of docs/frontends.md without React, run as a page of another origin would run them.
//
//   node blocks.mjs FOLDER URL NAME '{"gateway": ..., "token": ...}'   prints what the conversation of that name came to
//
// FOLDER has the blocks as files, and node_modules. URL is the address of the page: its fetch and its WebSocket say it
// as Origin, and fetch asks for leave as a browser does.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { GlobalRegistrator } from '@happy-dom/global-registrator';

const [folder, url, name, given] = process.argv.slice(2);
const { gateway, token } = JSON.parse(given);
setTimeout(() => process.exit(3), 120_000).unref();
if (name !== 'conversation') {  // a stream that is aborted ends this DOM's fetch with another error than a browser's
  GlobalRegistrator.register({ url });
  globalThis.fetch = window.fetch.bind(window);
}

const block = file => import(pathToFileURL(join(folder, file)));

async function conversation() {
  const { Conversation } = await block('conversation.js');
  const open = (agent, threadId, messages) => new Conversation({ gateway, agent, token, threadId, messages });
  const tools = ({ agent }) => agent.messages.filter(one => one.role === 'tool').map(one => one.content);
  const told = {};

  const desk = open('desk', 'approved');
  const asked = [];
  let text = '';
  const ends = [await desk.ask('Refund order 7', {
    decide: interrupt => { asked.push(interrupt); return { approved: true }; },
    onText: delta => { text += delta; },
  })];
  told.approved = { ends, asked, text, tools: tools(desk) };

  const other = open('desk', 'denied');
  const end = await other.ask('Refund order 7', { decide: () => ({ approved: false, reason: 'paid already' }) });
  told.denied = { end, tools: tools(other) };

  const wrong = open('desk', 'wrong');
  let times = 0;
  const errors = [];
  console.error = (...words) => errors.push(words.map(String).join(' '));  // the client catches what its watchers throw
  const answers = [{ yes: true }, { approved: true }];
  const decide = () => { times += 1; return answers.shift(); };
  const refused = await wrong.ask('Refund order 7', { decide });
  told.wrong = { end: refused, then: await wrong.follow({ decide }), asked: times, errors };

  const writer = open('writer', 'left');
  const left = await writer.ask('Tell me a story', { onText: () => writer.leave() });
  const status = async () => (await (await fetch(`${gateway}/v1/runs/${writer.run}`, {
    headers: { Authorization: `Bearer ${token}` },
  })).json()).status;
  told.left = { end: left, status: await status() };

  const again = open('writer', 'left', writer.agent.messages.filter(one => one.role === 'user'));
  text = '';
  const cancelled = again.follow({ onText: delta => { text += delta; void again.cancel(); } });
  told.cancelled = { end: await cancelled, text, sameRun: again.run === writer.run, status: await status() };

  const first = open('writer', 'queue'), behind = open('writer', 'queue');
  const notices = [];
  const begun = deferred();
  const one = first.ask('A story', { onText: () => begun.resolve() });
  await begun.promise;
  const two = behind.ask('Another', {
    onNotice: (event, value) => { if (event === 'greenroom.queued') { notices.push(value.behind === first.run); void first.cancel(); } },
    onText: () => void behind.cancel(),
  });
  told.queued = { ends: await Promise.all([one, two]), notices };
  return told;
}

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

async function runs() {
  const { runs: connect } = await block('runs.js');
  const api = connect({ gateway, token });
  const told = {};
  for (const [how, agent] of [['approve', 'desk'], ['deny', 'desk'], ['cancel', 'writer']]) {
    const { run } = await api.start(agent, 'Go');
    told[how] = await new Promise(resolve => {
      const events = [];
      api.follow(run, event => {
        events.push(event);
        if (event.type === 'run.approval.requested') void api[how](run, event.payload, 'paid already');
        if (how === 'cancel' && event.type === 'run.message.delta') void api.cancel(run);
        if (['run.completed', 'run.failed', 'run.cancelled'].includes(event.type)) resolve(events);
      });
    });
  }
  told.refused = await api.start('nobody', 'Go').catch(error => ({ code: error.code, message: error.message }));
  return told;
}

async function socket() {
  const { runs: connect } = await block('runs.js');
  const { follow } = await block('socket.js');
  const sockets = [], Real = window.WebSocket;
  globalThis.WebSocket = function (...words) { const made = new Real(...words); sockets.push(made); return made; };
  const api = connect({ gateway, token });
  const told = {};
  for (const [how, agent] of [['approve', 'desk'], ['deny', 'desk'], ['cancel', 'writer']]) {
    const { run } = await api.start(agent, 'Go');
    told[how] = await new Promise(resolve => {
      const events = [];
      const followed = follow({ gateway, token, run, onEvent(event) {
        events.push(event);
        const lost = ['run.step.started', 'run.approval.requested'].includes(event.type);
        if (lost) sockets.at(-1).close();  // the connection is lost: in the middle, and just before the decision
        if (event.type === 'run.approval.requested') followed[how](event.payload, 'paid already');
        if (event.type === 'run.message.delta' && how === 'cancel') followed.cancel();
        if (['run.completed', 'run.failed', 'run.cancelled'].includes(event.type)) resolve(events);
      } });
    });
  }
  const { run } = await api.start('writer', 'Go');
  told.reset = await new Promise(resolve => {
    const cursor = { after: 7, epoch: 'of another log' };
    const followed = follow({ gateway, token, run, cursor, onEvent() {}, onReset(snapshot) {
      followed.close();
      resolve([snapshot.run === run, cursor.after > 0]);
    } });
  });
  await api.cancel(run);
  told.stranger = await new Promise(resolve => {
    follow({ gateway, token: 'of nobody at all', run, onEvent() {}, onRefused: resolve });
  });
  told.sockets = sockets.length;
  return told;
}

async function history() {
  const { history: connect } = await block('history.js');
  const { follow } = await block('socket.js');
  const api = connect({ gateway, token }), thread = crypto.randomUUID();
  const attachments = [{ mediaType: 'image/png', data: 'iVBORw0KGgoAAAANSUhEUg==' }];
  const started = await fetch(`${gateway}/v1/runs`, {
    method: 'POST', headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ agent: 'desk', text: 'Refund order 7', thread, attachments }),
  });
  if (!started.ok) throw new Error(await started.text());
  const { run } = await started.json();
  await new Promise(resolve => {
    const first = follow({ gateway, token, run, onEvent({ type }) { if (type === 'run.waiting') { first.close(); resolve(); } } });
  });
  const page = await api.messages(thread);
  const [{ after }] = page.runs, live = [];
  const made = [];
  URL.createObjectURL = blob => { made.push([blob.type, blob.size]); return 'blob:here'; };
  const image = await api.image(page.messages[0].parts[0]);
  await new Promise(resolve => {
    const second = follow({ gateway, token, run, cursor: { after: 0 }, onEvent(event) {
      if (event.sequence > after) live.push(event.sequence);
      if (event.type === 'run.approval.requested') second.approve(event.payload);
      if (event.type === 'run.completed') resolve();
    } });
  });
  const rest = [], told = page.messages.map(({ text }) => text);
  await new Promise(resolve => {
    follow({ gateway, token, run, cursor: { after, epoch: page.epoch }, onEvent(event) {
      rest.push(event.sequence);
      if (event.type === 'run.message.completed') told.push(event.payload.text);
      if (event.type === 'run.completed') resolve();
    } });
  });
  const whole = await api.messages(thread), list = await api.threads();
  const last = whole.messages.at(-1), said = ({ role }) => role !== 'tool';
  return {
    listed: list.threads.find(line => line.thread === thread)?.run.status,
    image: [image, ...made],
    same: rest.length > 0 && JSON.stringify(rest) === JSON.stringify(live),
    told, whole: whole.messages.filter(said).map(({ text }) => text),
    older: (await api.messages(thread, last.position)).messages.length === whole.messages.length - 1,
    refused: await api.messages('of nobody').catch(error => ({ code: error.code, message: error.message })),
  };
}

process.stdout.write(`${JSON.stringify(await { conversation, runs, socket, history }[name]())}\n`);
process.exit(0);
