// npm @modelcontextprotocol/client, the 2.x line: the modern era where the server speaks it.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { asked, drive, headers, says, server } from './driven.mjs';

const capabilities = server.asks ? { elicitation: { form: {} } } : {};
const client = new Client({ name: 'judge', version: '1' }, { capabilities, versionNegotiation: { mode: 'auto' } });
if (server.asks) client.setRequestHandler('elicitation/create', asked);
await client.connect(
  server.command
    ? new StdioClientTransport({ command: server.command[0], args: server.command.slice(1), env: process.env, stderr: 'ignore' })
    : new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers } }),
);
says({ connected: client.getNegotiatedProtocolVersion() });
await drive(client, (params, options) => client.callTool(params, options));
