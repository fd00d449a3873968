"""Calls every tool of the example `shapes` with PyPI `mcp` or `fastmcp-slim`, which validate structured output against the output
schema.

usage: shapes.py <official|fast> <legacy|auto> <url>
"""

import sys
from typing import Any

import fastmcp
import mcp
import steps
from fastmcp.client.transports import StreamableHttpTransport

CLIENT, MODE, URL = sys.argv[1:]


async def session() -> None:
    if CLIENT == "official":
        async with mcp.Client(URL, mode=MODE) as client:
            await use(client)
    else:
        async with fastmcp.Client(StreamableHttpTransport(URL), mode=MODE) as client:
            await use(client)


async def use(client: Any) -> None:
    names: list[str] = []

    async def rejection(name: str) -> str | None:
        """The reason why the client rejects the result of a tool, if it does."""
        try:
            await client.call_tool(name, {})
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
        return None

    async def list_tools() -> None:
        listed = await client.list_tools()
        names.extend(tool.name for tool in getattr(listed, "tools", listed))
        steps.expect(len(names) > 40, "all tools", names)

    async def accept() -> None:
        rejected = [await rejection(name) for name in names if name != "mislabeled"]
        rejected = [why for why in rejected if why]
        steps.expect(not rejected, "no rejected result", rejected)

    async def reject() -> None:
        why = await rejection("mislabeled")
        steps.expect(why and "seven" in why, "a rejected result", why)

    await steps.step("list tools", list_tools)
    await steps.step("accept every shape", accept)
    await steps.step("reject another shape", reject)


steps.run(session)
