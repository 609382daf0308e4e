// The page of docs/frontends.md for CopilotKit, as a bundle for a browser.
//
//   node page.mjs FOLDER    prints the port at which it serves the page, and serves it until it is killed
//
// FOLDER has Copilot.jsx, and node_modules. The page's address says what to show: /?runtime=URL&agent=KEY&thread=ID

import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { build } from 'esbuild';

const [folder] = process.argv.slice(2);
const entry = join(folder, 'entry.jsx');
writeFileSync(entry, `
  import { createRoot } from 'react-dom/client';
  import { Copilot } from './Copilot.jsx';
  const shown = Object.fromEntries(new URLSearchParams(location.search));
  createRoot(document.body.appendChild(document.createElement('main'))).render(<Copilot {...shown} />);
`);
const { outputFiles: [script] } = await build({
  entryPoints: [entry], bundle: true, write: false, format: 'iife', jsx: 'automatic', loader: { '.css': 'empty' },
  define: { 'process.env.NODE_ENV': '"production"' }, logLevel: 'error',
});
const page = '<!doctype html><meta charset="utf-8"><body></body><script src="/page.js"></script>';

const server = createServer(({ url }, response) => {
  const isScript = url === '/page.js';
  response.setHeader('Content-Type', isScript ? 'text/javascript' : 'text/html');
  response.end(isScript ? script.contents : page);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
