// Drives `@modelcontextprotocol/client`, the second generation of the TypeScript SDK.
//
// usage: client.mjs <http|stdio> <legacy|auto|pinned> <url | command args...>

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { answer, expect, finish, step, useEverything } from './steps.mjs';

const [kind, mode, ...target] = process.argv.slice(2);
const modern = '2026-07-28';

const client = new Client(
  { name: 'toolgate-interop', version: '1.0.0' },
  {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode: mode === 'pinned' ? { pin: modern } : mode },
  },
);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: answer }));

const transport =
  kind === 'http'
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: 'ignore' });

const connected = await step('connect', async () => {
  await client.connect(transport);
  const version = client.getNegotiatedProtocolVersion();
  expect((version === modern) === (mode !== 'legacy'), `the ${mode} revision`, version);
});
if (connected) {
  await useEverything(client, (params, options) => client.callTool(params, options));
  await step('close', () => client.close());
}
finish();
