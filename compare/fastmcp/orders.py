"""The orders of the desk, as in orders.rs. It knows nothing of MCP."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["open", "shipped", "cancelled"]

CUSTOMERS = ("Ada", "Grace", "Linus", "Margaret")


@dataclass
class Order:
    id: int
    customer: str
    cents: int
    status: Status
    note: str | None

    def csv_row(self) -> str:
        return f"{self.id},{self.customer},{self.cents}\n"


@dataclass
class Page:
    orders: list[Order]
    total: int
    next_offset: int | None


class Orders:
    def __init__(self) -> None:
        self.all = [
            Order(
                id=id,
                customer=CUSTOMERS[id % len(CUSTOMERS)],
                cents=id * 250,
                status="shipped" if id % 3 == 0 else "open",
                note="gift wrap" if id % 5 == 0 else None,
            )
            for id in range(1, 26)
        ]

    def get(self, id: int) -> Order | None:
        return next((order for order in self.all if order.id == id), None)

    def find(self, customer: str, status: Status | None) -> Order | None:
        """The newest order of a customer."""
        fits = (
            order
            for order in reversed(self.all)
            if order.customer == customer and status in (None, order.status)
        )
        return next(fits, None)

    def page(self, offset: int, limit: int) -> Page:
        end = offset + limit
        return Page(self.all[offset:end], len(self.all), end if end < len(self.all) else None)

    def cancel(self, id: int, reason: str) -> None:
        if order := self.get(id):
            order.status = "cancelled"
            order.note = reason
