// Drives the command line of `@modelcontextprotocol/inspector`: one process, and so one connection, per step.
// It has no flag for completion, elicitation or progress.
//
// usage: inspector.mjs <http|sse|stdio> <legacy|modern> <url | command args...>

import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

import { expectPrompt, expectSimpleText, expectStaticText, expectTools, finish, step } from './steps.mjs';

const [kind, era, ...target] = process.argv.slice(2);

const home = dirname(createRequire(import.meta.url).resolve('@modelcontextprotocol/inspector/package.json'));
const cli = join(home, 'clients', 'launcher', 'build', 'index.js');

async function run(...method) {
  const options = ['--protocol-era', era, '--format', 'json', '--quiet', ...method];
  const server = kind === 'stdio' ? target : [target[0], '--transport', kind];
  // The command to start comes last, so that its flags are not parsed as flags of the Inspector.
  const args = kind === 'stdio' ? [...options, '--', ...server] : [...server, ...options];
  const ran = promisify(execFile)(process.execPath, [cli, '--cli', ...args], { timeout: 20_000 });
  const { stdout } = await ran.catch((error) => {
    // The error message is the whole command line; the Inspector's own output is more useful.
    throw new Error(error.stderr?.trim() || error.message);
  });
  return JSON.parse(stdout).result;
}

await step('list tools', async () => expectTools(await run('--method', 'tools/list')));
await step('call tool', async () => expectSimpleText(await run('--method', 'tools/call', '--tool-name', 'test_simple_text')));
await step('read resource', async () => expectStaticText(await run('--method', 'resources/read', '--uri', 'test://static-text')));
await step('get prompt', async () =>
  expectPrompt(
    await run('--method', 'prompts/get', '--prompt-name', 'test_prompt_with_arguments', '--prompt-args', 'arg1=a', 'arg2=b'),
  ));
finish();
