"""The order desk on FastMCP."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.exceptions import NotFoundError, ToolError
from mcp_types import SamplingMessage, TextContent
from pydantic import Field

from orders import Order, Orders, Page, Status

CHUNK = 5

orders = Orders()
mcp = FastMCP(
    "order-desk",
    version="1.0.0",
    instructions="The orders of a shop. `list_orders` shows all of them.",
)


@dataclass
class Confirmation:
    reason: Annotated[str, Field(description="Why the order is cancelled")]


def get_order(id: int) -> Order:
    if order := orders.get(id):
        return order
    raise ToolError(f"there is no order {id}")


@mcp.tool(annotations={"readOnlyHint": True})
async def find_order(
    customer: Annotated[str, Field(description="The name of the customer")],
    status: Annotated[Status | None, Field(description="Only an order in this status")] = None,
) -> Order:
    """Find the newest order of a customer"""
    if order := orders.find(customer, status):
        return order
    raise ToolError(f"no such order of {customer}")


@mcp.tool(annotations={"readOnlyHint": True})
async def list_orders(
    offset: Annotated[int, Field(description="How many orders to skip", ge=0)] = 0,
    limit: Annotated[int, Field(description="How many orders to return", ge=1, le=50)] = 10,
) -> Page:
    """List orders, oldest first"""
    return orders.page(offset, limit)


@mcp.tool(annotations={"destructiveHint": True})
async def cancel_order(
    id: Annotated[int, Field(description="The number of the order")],
    ctx: Context,
) -> str:
    """Cancel an order; the user is asked for the reason"""
    order = get_order(id)
    answer = await ctx.elicit(f"Cancel order {id} of {order.customer}?", response_type=Confirmation)
    if answer.action != "accept":
        return f"order {id} is kept"
    orders.cancel(id, answer.data.reason)
    return f"order {id} is cancelled"


@mcp.tool(annotations={"readOnlyHint": True})
async def export_orders(ctx: Context) -> str:
    """Export all orders as CSV"""
    csv = "id,customer,cents\n"
    for done, order in enumerate(orders.all, start=1):
        csv += order.csv_row()
        if done % CHUNK == 0:
            await ctx.report_progress(done, len(orders.all), "exporting")
    return csv


@mcp.tool(annotations={"readOnlyHint": True})
async def summarize(
    id: Annotated[int, Field(description="The number of the order")],
    ctx: Context,
) -> str:
    """Summarize an order with the client's model"""
    order = json.dumps(asdict(get_order(id)))
    question = TextContent(type="text", text=f"Summarize this order in one sentence: {order}")
    message = SamplingMessage(role="user", content=question)
    result = await ctx.session.create_message([message], max_tokens=200)
    return result.content.text


@mcp.resource("order://{id}", mime_type="application/json")
async def order(id: int) -> str:
    """One order"""
    if found := orders.get(id):
        return json.dumps(asdict(found))
    raise NotFoundError(f"there is no order://{id}")


@mcp.prompt
async def follow_up(
    customer: Annotated[str, Field(description="The name of the customer")],
) -> str:
    """Write to a customer about their orders"""
    return f"Write a short, friendly message to {customer} about the state of their orders."


if __name__ == "__main__":
    mcp.run(show_banner=False)
