"""Drives the client of PyPI `mcp`, the official Python SDK.

usage: official.py <http|stdio> <legacy|auto> <url | command args...>
"""

import sys

import steps
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult, PromptReference

KIND, MODE, *TARGET = sys.argv[1:]


async def answer(_context: object, _params: object) -> ElicitResult:
    return ElicitResult(action="accept", content=steps.ANSWER)


async def session() -> None:
    server = TARGET[0] if KIND == "http" else StdioServerParameters(command=TARGET[0], args=TARGET[1:])
    async with Client(server, mode=MODE, elicitation_callback=answer) as client:
        await use(client)


async def use(client: Client) -> None:
    async def connect() -> None:
        steps.expect_version(MODE, client.protocol_version)

    async def list_tools() -> None:
        steps.expect_tools([tool.name for tool in (await client.list_tools()).tools])

    async def call_tool() -> None:
        result = await client.call_tool("test_simple_text", {})
        steps.expect_simple_text(result.content[0].text)

    async def progress() -> None:
        notes: list[float] = []

        async def note(progress: float, _total: float | None, _message: str | None) -> None:
            notes.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=note)
        steps.expect_progress(notes)

    async def read_resource() -> None:
        result = await client.read_resource("test://static-text")
        steps.expect_static_text(result.contents[0].text)

    async def get_prompt() -> None:
        result = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        steps.expect_prompt(result.messages[0].content.text)

    async def complete() -> None:
        prompt = PromptReference(name="test_prompt_with_arguments")
        result = await client.complete(prompt, {"name": "arg1", "value": "test"})
        steps.expect_values(result.completion.values)

    async def elicit() -> None:
        result = await client.call_tool("test_elicitation", {"message": "hi"})
        steps.expect_answer(result.content[0].text)

    await steps.step("connect", connect)
    await steps.step("list tools", list_tools)
    await steps.step("call tool", call_tool)
    await steps.step("progress", progress)
    await steps.step("read resource", read_resource)
    await steps.step("get prompt", get_prompt)
    await steps.step("complete", complete)
    await steps.step("elicit", elicit)


steps.run(session)
