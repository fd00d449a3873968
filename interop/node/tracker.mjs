// Drives both generations of the TypeScript SDK against the example `tracker`. Both validate structured results against the
// output schemas of the tools that they listed.
//
// usage: tracker.mjs <sdk|legacy|auto> <url>

import * as modern from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

import { expect, finish, step } from './steps.mjs';

const [mode, url] = process.argv.slice(2);
const info = { name: 'toolgate-interop', version: '1.0.0' };
const capabilities = { elicitation: {}, sampling: {} };
const elicited = async () => ({ action: 'accept', content: { name: 'ada', sure: true } });
const sampled = async () => ({ role: 'assistant', model: 'test', content: { type: 'text', text: 'It is broken.' } });

let client;
let transport;
let call;
if (mode === 'sdk') {
  client = new Client(info, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, elicited);
  client.setRequestHandler(CreateMessageRequestSchema, sampled);
  transport = new StreamableHTTPClientTransport(new URL(url));
  call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
} else {
  client = new modern.Client(info, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', elicited);
  client.setRequestHandler('sampling/createMessage', sampled);
  transport = new modern.StreamableHTTPClientTransport(new URL(url));
  call = (name, args, options) => client.callTool({ name, arguments: args }, options);
}

/** Calls a tool that must succeed and returns its structured result. */
async function structured(name, args, options) {
  const result = await call(name, args, options);
  expect(!result.isError && result.structuredContent, `a structured result of ${name}`, result);
  return result.structuredContent;
}

let id;
async function useTracker() {
  await step('list tools', async () => {
    const { tools } = await client.listTools();
    expect(tools.length === 16, '16 tools', tools.map((tool) => tool.name));
  });
  await step('empty options', async () => {
    const issue = await structured('open_issue', { title: 'The door squeaks' });
    id = issue.id;
    expect(issue.body === null && issue.assignedTo === null && !('dueDate' in issue), 'null and no due date', issue);
    const page = await structured('list_issues', { limit: 1 });
    expect(page.items.length === 1 && page.next !== undefined, 'one page', page);
  });
  await step('all types', async () => {
    await structured('label_issue', { id, add: ['house'] });
    await structured('start_issue', { id });
    const issue = await structured('update_issue', { id, body: 'Oil it', due_date: '2026-12-31', priority: 'high' });
    expect(issue.dueDate === '2026-12-31' && issue.history.length >= 2, 'the changed issue', issue);
    await structured('add_comment', { id, text: 'At night' });
    // Lists are structured content only in the newest version.
    for (const [name, args] of [['list_comments', { id }], ['search_issues', { text: 'squeak' }]]) {
      const result = await call(name, args);
      expect(!result.isError && JSON.parse(result.content[0].text).length >= 1, `a list of ${name}`, result);
    }
    const totals = await structured('count_issues', {});
    expect(totals.by_status.in_progress >= 1 && totals.ids.length === 2, 'totals', totals);
  });
  await step('elicit', async () => {
    const issue = await structured('assign_issue', { id });
    expect(issue.assignedTo === 'ada', 'the answer of the user', issue);
  });
  await step('sample', async () => {
    const result = await call('summarize_issue', { id });
    expect(result.content?.[0]?.text === 'It is broken.', 'the answer of the model', result);
  });
  await step('blocking', async () => {
    const result = await call('import_issues', { titles: 'One\nTwo\n\nThree' });
    expect(!result.isError && JSON.stringify(result).includes('3'), '3 imported', result);
  });
  await step('report', async () => {
    const result = await report();
    expect(result.content?.[0]?.text?.includes('The door squeaks'), 'the report', result);
  });
  await step('unknown argument', async () => {
    const result = await call('get_issue', { id, titel: 'x' });
    expect(result.isError && result.content[0].text.includes('titel'), 'an error that names it', result);
  });
  await step('protocol error', async () => {
    const error = await call('list_comments', { id: 999_999 }).then(() => undefined, (error) => error);
    expect(error?.code === -32602, 'the code -32602', error);
  });
  await step('read resource', async () => {
    const result = await client.readResource({ uri: `issue://${id}` });
    expect(JSON.parse(result.contents[0].text).id === id, 'the issue', result);
  });
  await step('get prompt', async () => {
    const result = await client.getPrompt({ name: 'triage', arguments: {} });
    expect(result.messages[0].content.text.includes('team'), 'the prompt', result);
  });
  await step('delete', async () => {
    const result = await call('delete_issue', { id });
    expect(!result.isError && JSON.stringify(result).includes('true'), 'deleted', result);
  });
}

/** The report, as a task where the client supports it. */
async function report() {
  if (mode !== 'sdk') return call('write_report', {});
  let created = false;
  for await (const message of client.experimental.tasks.callToolStream({ name: 'write_report', arguments: {} })) {
    created ||= message.type === 'taskCreated';
    if (message.type === 'error') throw message.error;
    if (message.type === 'result') {
      expect(created, 'a task', message);
      return message.result;
    }
  }
  throw new Error('the stream ended without a result');
}

if (await step('connect', () => client.connect(transport))) {
  await useTracker();
  await step('close', () => client.close());
}
finish();
