// Drives `@modelcontextprotocol/sdk`, the first generation of the TypeScript SDK, whose SSE transport is the one of 2024-11-05.
//
// usage: sdk.mjs <http|sse|stdio> <url | command args...>

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

import { answer, finish, step, useEverything } from './steps.mjs';

const [kind, ...target] = process.argv.slice(2);

const client = new Client({ name: 'toolgate-interop', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: answer }));

function open() {
  switch (kind) {
    case 'http':
      return new StreamableHTTPClientTransport(new URL(target[0]));
    case 'sse':
      return new SSEClientTransport(new URL(target[0]));
    default:
      return new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: 'ignore' });
  }
}

if (await step('connect', () => client.connect(open()))) {
  await useEverything(client, (params, options) => client.callTool(params, undefined, options));
  await step('close', () => client.close());
}
finish();
