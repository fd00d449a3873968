"""Checks one order desk over stdio: every item must do what the other two servers do.

Prints `STEP ok <name>` or `STEP fail <name>: <why>`, one line per step, for `cargo xtask compare` to read.

usage: client.py <legacy|auto> <command args...>
"""

import json
import sys
from typing import Any

import steps
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, CreateMessageRequestParams, CreateMessageResult, ElicitResult, TextContent

MODE, *COMMAND = sys.argv[1:]

VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}

TOOLS = {"find_order", "list_orders", "cancel_order", "export_orders", "summarize"}
ORDER_25 = {"id": 25, "customer": "Grace", "cents": 6250, "status": "open", "note": "gift wrap"}
ORDER_21 = {"id": 21, "customer": "Grace", "cents": 5250, "status": "shipped", "note": None}

# The user of this client confirms the first question, and declines the second.
answers = [ElicitResult(action="accept", content={"reason": "duplicate"}), ElicitResult(action="decline")]
questions: list[str] = []


async def answer(_context: object, params: Any) -> ElicitResult:
    questions.append(params.message)
    return answers.pop(0)


async def sample(_context: object, params: CreateMessageRequestParams) -> CreateMessageResult:
    content = params.messages[0].content
    block = content[0] if isinstance(content, list) else content
    steps.expect("Summarize this order" in block.text, "the question about the order", block)
    return CreateMessageResult(
        role="assistant", content=TextContent(type="text", text="A small order."), model="none"
    )


def text_of(result: CallToolResult) -> str:
    text = result.content[0].text
    steps.expect(not result.is_error, "a result", text)
    return text


async def is_refused(client: Client, name: str, arguments: dict[str, Any]) -> bool:
    try:
        return (await client.call_tool(name, arguments)).is_error
    except Exception:  # a protocol error refuses the call too
        return True


async def check(client: Client) -> None:
    async def connect() -> None:
        version = client.protocol_version
        steps.expect(version == VERSIONS[MODE], f"version {VERSIONS[MODE]}", version)

    async def tools() -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        steps.expect(set(tools) == TOOLS, "five tools", sorted(tools))
        steps.expect(all(tool.description for tool in tools.values()), "descriptions", tools)
        find = tools["find_order"].input_schema
        steps.expect(find["required"] == ["customer"], "one required argument", find)
        limit = tools["list_orders"].input_schema["properties"]["limit"]
        bounds = (limit["default"], limit["minimum"], limit["maximum"])
        steps.expect(bounds == (10, 1, 50), "a default and a range", limit)
        steps.expect(tools["cancel_order"].annotations.destructive_hint, "a destructive hint", tools)

    async def output_schemas() -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, field in (("find_order", "note"), ("list_orders", "next_offset")):
            schema = tools[name].output_schema
            steps.expect(schema and field in schema["properties"], "an output schema", schema)

    async def find_order() -> None:
        result = await client.call_tool("find_order", {"customer": "Grace"})
        steps.expect(result.structured_content == ORDER_25, "order 25", result)

    async def find_order_without_note() -> None:
        result = await client.call_tool("find_order", {"customer": "Grace", "status": "shipped"})
        steps.expect(result.structured_content == ORDER_21, "order 21", result)

    async def find_order_error() -> None:
        result = await client.call_tool("find_order", {"customer": "Nobody"})
        steps.expect(result.is_error and "Nobody" in result.content[0].text, "an error for the model", result)

    async def list_orders() -> None:
        page = (await client.call_tool("list_orders", {})).structured_content
        seen = ([order["id"] for order in page["orders"]], page["total"], page["next_offset"])
        steps.expect(seen == (list(range(1, 11)), 25, 10), "the first page", seen)

    async def list_orders_last_page() -> None:
        page = (await client.call_tool("list_orders", {"offset": 20, "limit": 50})).structured_content
        seen = ([order["id"] for order in page["orders"]], page["total"], page["next_offset"])
        steps.expect(seen == (list(range(21, 26)), 25, None), "the last page", seen)

    async def range_of_limit() -> None:
        for limit in (0, 51):
            steps.expect(await is_refused(client, "list_orders", {"limit": limit}), "an error", limit)

    async def cancel_order() -> None:
        text = text_of(await client.call_tool("cancel_order", {"id": 7}))
        steps.expect(text == "order 7 is cancelled", "a cancelled order", text)
        steps.expect(questions == ["Cancel order 7 of Margaret?"], "one question", questions)
        contents = (await client.read_resource("order://7")).contents
        order = json.loads(contents[0].text)
        steps.expect((order["status"], order["note"]) == ("cancelled", "duplicate"), "its reason", order)

    async def cancel_order_declined() -> None:
        text = text_of(await client.call_tool("cancel_order", {"id": 8}))
        steps.expect(text == "order 8 is kept", "an order that is kept", text)

    async def export_orders() -> None:
        notes: list[tuple[float, float | None]] = []

        async def note(progress: float, total: float | None, _message: str | None) -> None:
            notes.append((progress, total))

        text = text_of(await client.call_tool("export_orders", {}, progress_callback=note))
        lines = text.splitlines()
        steps.expect(len(lines) == 26 and lines[1] == "1,Grace,250", "26 lines", lines)
        steps.expect(notes == [(5.0 * n, 25.0) for n in range(1, 6)], "five notifications", notes)

    async def summarize() -> None:
        text = text_of(await client.call_tool("summarize", {"id": 3}))
        steps.expect(text == "A small order.", "the text of the model", text)

    async def resource_template() -> None:
        templates = (await client.list_resource_templates()).resource_templates
        seen = [(template.uri_template, template.mime_type) for template in templates]
        steps.expect(seen == [("order://{id}", "application/json")], "one template", seen)
        contents = (await client.read_resource("order://25")).contents
        steps.expect(json.loads(contents[0].text) == ORDER_25, "order 25", contents)

    async def missing_resource() -> None:
        try:
            result = await client.read_resource("order://99")
        except Exception:
            return
        steps.expect(False, "an error", result)

    async def prompt() -> None:
        prompts = (await client.list_prompts()).prompts
        seen = [(prompt.name, [(a.name, a.required) for a in prompt.arguments]) for prompt in prompts]
        steps.expect(seen == [("follow_up", [("customer", True)])], "one prompt with an argument", seen)
        result = await client.get_prompt("follow_up", {"customer": "Ada"})
        text = result.messages[0].content.text
        steps.expect("message to Ada" in text, "the name in the text", text)

    await steps.step("connect", connect)
    await steps.step("list tools", tools)
    await steps.step("output schemas", output_schemas)
    await steps.step("find_order", find_order)
    await steps.step("find_order, a field is null", find_order_without_note)
    await steps.step("find_order, nothing found", find_order_error)
    await steps.step("list_orders", list_orders)
    await steps.step("list_orders, last page", list_orders_last_page)
    await steps.step("list_orders, limit out of range", range_of_limit)
    await steps.step("cancel_order, the user accepts", cancel_order)
    await steps.step("cancel_order, the user declines", cancel_order_declined)
    await steps.step("export_orders, progress", export_orders)
    await steps.step("summarize, sampling", summarize)
    await steps.step("resource template", resource_template)
    await steps.step("missing resource", missing_resource)
    await steps.step("prompt", prompt)


async def session() -> None:
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
    async with Client(server, mode=MODE, elicitation_callback=answer, sampling_callback=sample) as client:
        await check(client)


steps.run(session)
