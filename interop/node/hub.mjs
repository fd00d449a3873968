// Drives `@modelcontextprotocol/sdk` against a catalogue of tools behind `mcp-remote`: the way of a desktop client that
// knows nothing but the URL.
//
// usage: hub.mjs <command args...>

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { expect, finish, step } from './steps.mjs';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'toolgate-interop', version: '1.0.0' });
const token = '0x0000000000000000000000000000000000000001';

if (await step('connect', () => client.connect(new StdioClientTransport({ command, args, stderr: 'ignore' })))) {
  await step('list tools', async () => {
    const { tools } = await client.listTools();
    const names = tools.map((tool) => tool.name);
    expect(names.length >= 46 && names.includes('honeypot_check'), 'the whole catalogue', names);
    expect(!names.includes('honeypot-check'), 'no alias', names);
  });
  await step('call tool', async () => {
    const result = await client.callTool({ name: 'blue_registry', arguments: { query: 'honeypot' } });
    const found = JSON.parse(result.content[0].text);
    expect(found.total === 1 && found.tools[0].price.usd === '0.05', 'one entry with its price', found);
  });
  await step('call by alias', async () => {
    const result = await client.callTool({ name: 'honeypot-check', arguments: { token } });
    expect(result.isError && result.content[0].text.includes('0.05 USD'), 'its price instead of a result', result);
  });
  await step('close', () => client.close());
}
finish();
