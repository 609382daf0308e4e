// The page of docs/frontends.md in a DOM, moved by orders: what a person at a browser would do, and see.
//
//   node page.mjs FOLDER URL    reads JSON objects, one a line, and answers each with one
//
// FOLDER has the blocks of the page as files, and node_modules. URL is the address that the page was loaded from: the
// DOM's fetch asks the gateway as a browser does, with an Origin and a preflight.
//
// {do: "open", window, chat: {gateway, agent, token, id}}   a window with the chat in it; all have one localStorage
// {do: "reload", window} {do: "close", window}   its React root is taken down (and made again): useChat stops its stream
// {do: "type", window, label, text}   into the input with that aria-label
// {do: "click", window, button}       the button with that text, once it is enabled
// {do: "rest", window}                waits until its streams have been read
// {do: "see", window, text}           waits until the window has the text (`gone: true`: until it has it no more)
//
// The answer: {text, buttons: [...], requests: [[method, path, status] ...], sent: [...],
// errors: [...]}. sent: how many messages each request of the chat had; errors: what the console said.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { GlobalRegistrator } from '@happy-dom/global-registrator';
import { transform } from 'sucrase';

const [folder, url] = process.argv.slice(2);
setTimeout(() => process.exit(3), 300_000).unref();
// what a DOM has of streams here is another class than what its responses are made of
const { ReadableStream, WritableStream, TransformStream, TextDecoderStream } = globalThis;
GlobalRegistrator.register({ url });
Object.assign(globalThis, { ReadableStream, WritableStream, TransformStream, TextDecoderStream });

const errors = [], requests = [], sent = [];
let open = 0;
console.error = console.warn = (...words) => errors.push(words.map(String).join(' '));
process.on('unhandledRejection', error => errors.push(`unhandled: ${error?.stack ?? error}`));
const asDOM = window.fetch.bind(window);
globalThis.fetch = async (where, init) => {
  open += 1;
  const response = await asDOM(where, init).finally(() => { open -= 1; });
  const messages = init?.body === undefined ? undefined : JSON.parse(init.body).messages;
  if (messages !== undefined) sent.push(messages.length);
  requests.push([init?.method ?? 'GET', new URL(where).pathname, response.status]);
  return response;
};

const source = readFileSync(join(folder, 'Chat.jsx'), 'utf8');
const { code } = transform(source, { transforms: ['jsx'], jsxRuntime: 'automatic', production: true });
writeFileSync(join(folder, 'Chat.mjs'), code);
const { createElement, StrictMode } = await import('react');
const { createRoot } = await import('react-dom/client');
const { Chat } = await import(pathToFileURL(join(folder, 'Chat.mjs')));

const windows = new Map();
const rest = () => new Promise(resolve => setTimeout(resolve, 10));

async function until(what) {
  for (const end = Date.now() + 60_000; Date.now() < end; await rest()) {
    const found = what();
    if (found) return found;
  }
  return null;
}

function show(name) {
  const one = windows.get(name);
  one.place = document.body.appendChild(document.createElement('div'));
  one.root = createRoot(one.place);
  one.root.render(createElement(StrictMode, null, createElement(Chat, one.chat)));
}

function take(name) {
  const one = windows.get(name);
  one.root.unmount();
  one.place.remove();
}

const buttons = place => [...place.querySelectorAll('button')];

const orders = {
  async open({ window: name, chat }) { windows.set(name, { chat }); show(name); },
  async reload({ window: name }) { take(name); show(name); },
  async close({ window: name }) { take(name); },
  async type({ window: name, label, text }) {
    const input = await until(() => windows.get(name).place.querySelector(`input[aria-label="${label}"]`));
    // React overrides the property on the element: a person's typing goes past that
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, text);
    input.dispatchEvent(new Event('input', { bubbles: true }));
  },
  async click({ window: name, button }) {
    const found = await until(() => buttons(windows.get(name).place).find(one => one.textContent === button && !one.disabled));
    if (found === null) throw new Error(`no button ${button} that is enabled`);
    found.click();
  },
  async rest({ window: name }) {
    let calm = 0;
    const still = () => open === 0 && !windows.get(name).place.textContent.endsWith('Stop');
    if (await until(() => { calm = still() ? calm + 1 : 0; return calm > 3; }) === null) throw new Error('no rest');
  },
  async see({ window: name, text, gone = false }) {
    if (await until(() => windows.get(name).place.textContent.includes(text) !== gone) === null) throw new Error(`not seen: ${text}`);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  let failed;
  try {
    await orders[order.do](order);
  } catch (error) {
    failed = String(error.stack ?? error);
  }
  await rest();
  const place = windows.get(order.window).place;
  process.stdout.write(`${JSON.stringify({
    failed, text: place.textContent, buttons: buttons(place).filter(one => !one.disabled).map(one => one.textContent), requests, sent, errors,
  })}\n`);
}
process.exit(0);
