"""Drives the client of PyPI `fastmcp-slim`.

usage: fast.py <http|stdio> <legacy|auto> <url | command args...>
"""

import sys

import steps
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp_types import PromptReference

KIND, MODE, *TARGET = sys.argv[1:]


async def answer(_message: str, _type: object, _params: object, _context: object) -> dict[str, str]:
    return steps.ANSWER


async def session() -> None:
    if KIND == "http":
        transport = StreamableHttpTransport(TARGET[0])
    else:
        transport = StdioTransport(TARGET[0], TARGET[1:], keep_alive=False)
    async with Client(transport, mode=MODE, elicitation_handler=answer) as client:
        await use(client)


async def use(client: Client) -> None:
    async def connect() -> None:
        steps.expect_version(MODE, client.session.protocol_version)

    async def list_tools() -> None:
        steps.expect_tools([tool.name for tool in await client.list_tools()])

    async def call_tool() -> None:
        result = await client.call_tool("test_simple_text", {})
        steps.expect_simple_text(result.content[0].text)

    async def progress() -> None:
        notes: list[float] = []

        async def note(progress: float, _total: float | None, _message: str | None) -> None:
            notes.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_handler=note)
        steps.expect_progress(notes)

    async def read_resource() -> None:
        contents = await client.read_resource("test://static-text")
        steps.expect_static_text(contents[0].text)

    async def get_prompt() -> None:
        result = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        steps.expect_prompt(result.messages[0].content.text)

    async def complete() -> None:
        prompt = PromptReference(name="test_prompt_with_arguments")
        completion = await client.complete(prompt, {"name": "arg1", "value": "test"})
        steps.expect_values(completion.values)

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
