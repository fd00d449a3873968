"""Drives the client of PyPI `mcp` against the example `tracker`. It validates structured results by their schemas.

usage: tracker.py <legacy|auto> <url>
"""

import json
import sys
from typing import Any

import steps
from mcp import Client, MCPError
from mcp_types import CreateMessageResult, ElicitResult, TextContent

MODE, URL = sys.argv[1:]


async def elicited(_context: object, _params: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "ada", "sure": True})


async def sampled(_context: object, _params: object) -> CreateMessageResult:
    text = TextContent(type="text", text="It is broken.")
    return CreateMessageResult(role="assistant", model="test", content=text)


async def session() -> None:
    async with Client(URL, mode=MODE, elicitation_callback=elicited, sampling_callback=sampled) as client:
        await use(client)


async def use(client: Client) -> None:
    ids: list[int] = []

    async def structured(name: str, arguments: dict[str, Any]) -> Any:
        result = await client.call_tool(name, arguments)
        steps.expect(not result.is_error and result.structured_content, f"a structured result of {name}", result)
        return result.structured_content

    async def text_of(name: str, arguments: dict[str, Any]) -> str:
        result = await client.call_tool(name, arguments)
        steps.expect(not result.is_error, f"a result of {name}", result)
        return result.content[0].text

    async def connect() -> None:
        steps.expect_version(MODE, client.protocol_version)

    async def list_tools() -> None:
        tools = (await client.list_tools()).tools
        steps.expect(len(tools) == 16, "16 tools", [tool.name for tool in tools])

    async def empty_options() -> None:
        issue = await structured("open_issue", {"title": "The door squeaks"})
        ids.append(issue["id"])
        is_empty = issue["body"] is None and issue["assignedTo"] is None and "dueDate" not in issue
        steps.expect(is_empty, "null and no due date", issue)
        page = await structured("list_issues", {"limit": 1})
        steps.expect(len(page["items"]) == 1, "one page", page)

    async def all_types() -> None:
        await structured("label_issue", {"id": ids[0], "add": ["house"]})
        await structured("start_issue", {"id": ids[0]})
        changes = {"id": ids[0], "body": "Oil it", "due_date": "2026-12-31", "priority": "high"}
        issue = await structured("update_issue", changes)
        steps.expect(issue["dueDate"] == "2026-12-31", "the changed issue", issue)
        await structured("add_comment", {"id": ids[0], "text": "At night"})
        # Lists are structured content only in the newest version.
        for name, arguments in (("list_comments", {"id": ids[0]}), ("search_issues", {"text": "squeak"})):
            found = json.loads(await text_of(name, arguments))
            steps.expect(len(found) >= 1, f"a list of {name}", found)
        totals = await structured("count_issues", {})
        steps.expect(totals["by_status"]["in_progress"] >= 1, "totals", totals)

    async def elicit() -> None:
        issue = await structured("assign_issue", {"id": ids[0]})
        steps.expect(issue["assignedTo"] == "ada", "the answer of the user", issue)

    async def sample() -> None:
        text = await text_of("summarize_issue", {"id": ids[0]})
        steps.expect(text == "It is broken.", "the answer of the model", text)

    async def blocking() -> None:
        text = await text_of("import_issues", {"titles": "One\nTwo\n\nThree"})
        steps.expect("3" in text, "3 imported", text)

    async def report() -> None:
        text = await text_of("write_report", {})
        steps.expect("The door squeaks" in text, "the report", text)

    async def unknown_argument() -> None:
        result = await client.call_tool("get_issue", {"id": ids[0], "titel": "x"})
        steps.expect(result.is_error and "titel" in result.content[0].text, "an error that names it", result)

    async def protocol_error() -> None:
        try:
            result = await client.call_tool("list_comments", {"id": 999_999})
        except MCPError as error:
            steps.expect(error.error.code == -32602, "the code -32602", error)
        else:
            steps.expect(False, "an error", result)

    async def read_resource() -> None:
        result = await client.read_resource(f"issue://{ids[0]}")
        issue = json.loads(result.contents[0].text)
        steps.expect(issue["id"] == ids[0], "the issue", issue)

    async def get_prompt() -> None:
        result = await client.get_prompt("triage", {})
        text = result.messages[0].content.text
        steps.expect("team" in text, "the prompt", text)

    async def delete() -> None:
        text = await text_of("delete_issue", {"id": ids[0]})
        steps.expect("true" in text, "deleted", text)

    await steps.step("connect", connect)
    await steps.step("list tools", list_tools)
    await steps.step("empty options", empty_options)
    await steps.step("all types", all_types)
    await steps.step("elicit", elicit)
    await steps.step("sample", sample)
    await steps.step("blocking", blocking)
    await steps.step("report", report)
    await steps.step("unknown argument", unknown_argument)
    await steps.step("protocol error", protocol_error)
    await steps.step("read resource", read_resource)
    await steps.step("get prompt", get_prompt)
    await steps.step("delete", delete)


steps.run(session)
