// Calls every tool of the example `shapes` with both generations of the TypeScript SDK, which validate structured output
// against the output schema.
//
// usage: shapes.mjs <sdk|legacy|auto> <url>

import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { expect, finish, step } from './steps.mjs';

const [mode, url] = process.argv.slice(2);
const info = { name: 'toolgate-interop', version: '1.0.0' };
const client =
  mode === 'sdk' ? new Client(info) : new ModernClient(info, { versionNegotiation: { mode } });
const transport =
  mode === 'sdk' ? new StreamableHTTPClientTransport(new URL(url)) : new ModernTransport(new URL(url));

/** The reason why the client rejects the result of a tool, if it does. */
async function rejection(name) {
  try {
    const result = await client.callTool({ name, arguments: {} });
    return result.isError ? JSON.stringify(result) : undefined;
  } catch (error) {
    return String(error?.message ?? error);
  }
}

if (await step('connect', () => client.connect(transport))) {
  let names = [];
  await step('list tools', async () => {
    names = (await client.listTools()).tools.map((tool) => tool.name);
    expect(names.length > 40, 'all tools', names);
  });
  await step('accept every shape', async () => {
    const rejected = [];
    for (const name of names.filter((name) => name !== 'mislabeled')) {
      const why = await rejection(name);
      if (why) rejected.push(`${name}: ${why}`);
    }
    expect(rejected.length === 0, 'no rejected result', rejected);
  });
  await step('reject another shape', async () => {
    const why = await rejection('mislabeled');
    expect(why?.includes('schema'), 'a rejected result', why);
  });
  await step('close', () => client.close());
}
finish();
