// What every Node driver shares: the lines that `cargo xtask interop` reads, and the eight steps of a client.
//
// A driver prints `STEP ok <name>` or `STEP fail <name>: <why>`, one line per step, and exits with 1 if any failed.

export const answer = { username: 'ada', email: 'ada@example.com' };

const stepTimeoutMs = 20_000;
let failed = false;

/** Runs one step, prints its line, and returns whether it passed. */
export async function step(name, body) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${stepTimeoutMs} ms`)), stepTimeoutMs);
  });
  try {
    await Promise.race([body(), late]);
    console.log(`STEP ok ${name}`);
    return true;
  } catch (error) {
    failed = true;
    console.log(`STEP fail ${name}: ${String(error?.message ?? error).replaceAll('\n', ' ')}`);
    return false;
  } finally {
    clearTimeout(timer);
  }
}

/** Throws an error that shows `seen` unless `condition` holds. */
export function expect(condition, what, seen) {
  if (!condition) throw new Error(`expected ${what}, got ${JSON.stringify(seen)}`);
}

/** Ends the process: a transport that is still open must not keep it alive. */
export function finish() {
  process.exit(failed ? 1 : 0);
}

export function expectTools(result) {
  const names = result.tools.map((tool) => tool.name);
  for (const name of ['test_simple_text', 'test_tool_with_progress']) {
    expect(names.includes(name), `the tool ${name}`, names);
  }
}

export function expectSimpleText(result) {
  expect(result.content?.[0]?.text === 'This is a simple text response for testing.', 'the simple text', result);
}

export function expectStaticText(result) {
  expect(result.contents?.[0]?.text === 'This is the content of the static text resource.', 'the static text', result);
}

export function expectPrompt(result) {
  const text = result.messages?.[0]?.content?.text ?? '';
  expect(text.includes("arg1='a'") && text.includes("arg2='b'"), 'both arguments in the prompt', result);
}

/**
 * The steps after `connect`, for a client with the API that both generations of the TypeScript SDK share.
 * They differ in how a tool is called: `call` takes the parameters and the options.
 */
export async function useEverything(client, call) {
  await step('list tools', async () => expectTools(await client.listTools()));
  await step('call tool', async () => expectSimpleText(await call({ name: 'test_simple_text', arguments: {} })));
  await step('progress', async () => {
    const notes = [];
    // Both generations remove the callback as soon as they read the result, and only then handle a notification that came
    // earlier in the same chunk; that notification arrives here. It was received, which is what this step checks.
    client.onerror = ({ message }) => {
      if (message.includes('progress notification for an unknown token')) notes.push(message);
    };
    await call({ name: 'test_tool_with_progress', arguments: {} }, { onprogress: (note) => notes.push(note) });
    await new Promise(setImmediate);
    expect(notes.length >= 3, 'at least 3 progress notes', notes);
  });
  await step('read resource', async () => expectStaticText(await client.readResource({ uri: 'test://static-text' })));
  await step('get prompt', async () =>
    expectPrompt(await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } })));
  await step('complete', async () => {
    const result = await client.complete({
      ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
      argument: { name: 'arg1', value: 'test' },
    });
    expect(Array.isArray(result.completion.values), 'a list of values', result);
  });
  await step('elicit', async () => {
    const result = await call({ name: 'test_elicitation', arguments: { message: 'hi' } });
    expect(!result.isError && result.content?.[0]?.text?.includes('ada'), 'the accepted answer in the text', result);
  });
}
