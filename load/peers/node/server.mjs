// The small server of the benchmarks on the TypeScript SDK, as its documentation shows: a factory per request.
//
// `--listen ADDR` serves HTTP (JSON where the SDK can), `--stdio` standard input and output.

import { createServer } from 'node:http';

import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const message = z.object({ message: z.string().describe('What to say') });
const numbers = z.object({
  a: z.number().int().describe('The first number'),
  b: z.number().int().describe('The second number'),
});
const text = (value) => ({ content: [{ type: 'text', text: value }] });

function bench() {
  const server = new McpServer({ name: 'bench', version: '1.0.0' });
  const echo = async ({ message }) => text(message);
  server.registerTool('echo', { description: 'Says it again', inputSchema: message }, echo);
  server.registerTool('add', { description: 'Adds two numbers', inputSchema: numbers }, async ({ a, b }) =>
    text(String(a + b)));
  for (let number = 1; number <= 50; number += 1) {
    server.registerTool(`dummy_${number}`, { description: 'One of many', inputSchema: message }, echo);
  }
  server.registerResource('text', 'bench://text', { mimeType: 'text/plain' }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'A short text' }],
  }));
  return server;
}

const usage = 'usage: server.mjs --listen ADDR | --stdio';
const [mode, address] = process.argv.slice(2);
switch (mode) {
  case '--help':
    console.log(usage);
    break;
  case '--stdio':
    serveStdio(bench);
    break;
  case '--listen': {
    const [host, port] = address.split(':');
    const handler = toNodeHandler(createMcpHandler(bench, { responseMode: 'json', maxSubscriptions: 10_000 }));
    const server = createServer((request, response) => handler(request, response));
    server.listen(Number(port), host, () => {
      console.error(`listening on http://${host}:${server.address().port}/mcp`);
    });
    break;
  }
  default:
    console.error(usage);
    process.exit(2);
}
