// npm @modelcontextprotocol/sdk, the 1.x line: the handshake era.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, LATEST_PROTOCOL_VERSION } from '@modelcontextprotocol/sdk/types.js';
import { asked, drive, headers, says, server } from './driven.mjs';

const patient = { initialReconnectionDelay: 200, maxReconnectionDelay: 1000, reconnectionDelayGrowFactor: 1.5, maxRetries: 30 };
const client = new Client({ name: 'judge', version: '1' }, { capabilities: server.asks ? { elicitation: {} } : {} });
if (server.asks) client.setRequestHandler(ElicitRequestSchema, asked);
const transport = server.command
  ? new StdioClientTransport({ command: server.command[0], args: server.command.slice(1), env: process.env, stderr: 'ignore' })
  : new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers }, reconnectionOptions: patient });
await client.connect(transport);
says({ connected: LATEST_PROTOCOL_VERSION }); // it speaks no newer one
await drive(client, (params, options) => client.callTool(params, undefined, options));
