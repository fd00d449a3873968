// Drives what people use to try a server that asks for a password: `mcp-remote` before a client that knows only programs,
// and the command line of `@modelcontextprotocol/inspector`. Both are told the header by hand.
//
// usage: community.mjs <bridge|inspector> <url> <authorization>

import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { expect, finish, step } from './steps.mjs';

const [way, url, authorization] = process.argv.slice(2);
const find = (name, ...path) =>
  join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), ...path);

function expectCommunity(tools) {
  const names = tools.map((tool) => tool.name);
  expect(names.length === 65 && names.includes('buddyboss_list_members'), 'all tools', names);
}

function expectMembers(result) {
  const members = JSON.parse(result.content[0].text);
  expect(members.length === 3 && !result.isError, 'three members', result);
}

const inspector = async (...method) => {
  const cli = find('@modelcontextprotocol/inspector', 'clients', 'launcher', 'build', 'index.js');
  const header = ['--header', `Authorization: ${authorization}`];
  const args = [cli, '--cli', url, '--transport', 'http', ...header, '--format', 'json', '--quiet', ...method];
  const ran = promisify(execFile)(process.execPath, args, { timeout: 20_000 });
  const { stdout } = await ran.catch((error) => {
    throw new Error(error.stderr?.trim() || error.message);
  });
  return JSON.parse(stdout).result;
};

if (way === 'inspector') {
  await step('list tools', async () => expectCommunity((await inspector('--method', 'tools/list')).tools));
  await step('call tool', async () => {
    const call = ['--method', 'tools/call', '--tool-name', 'buddyboss_list_members', '--tool-arg', 'per_page=3'];
    expectMembers(await inspector(...call));
  });
} else {
  const client = new Client({ name: 'toolgate-interop', version: '1.0.0' });
  const args = [find('mcp-remote', 'dist', 'proxy.js'), url, '--header', 'Authorization:${AUTHORIZATION}'];
  const env = { ...process.env, AUTHORIZATION: authorization };
  const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' });
  if (await step('connect', () => client.connect(transport))) {
    await step('list tools', async () => expectCommunity((await client.listTools()).tools));
    await step('call tool', async () =>
      expectMembers(await client.callTool({ name: 'buddyboss_list_members', arguments: { per_page: 3 } })));
    await step('close', () => client.close());
  }
}
finish();
