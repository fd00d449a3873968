"""Shared by both Python drivers: the output that `cargo xtask interop` reads, and the checks of results.

A driver prints `STEP ok <name>` or `STEP fail <name>: <why>`, one line per step, and exits with 1 if any failed.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

ANSWER = {"username": "ada", "email": "ada@example.com"}
MODERN = "2026-07-28"
STEP_TIMEOUT_SECONDS = 20

_failed = False


async def step(name: str, body: Callable[[], Awaitable[None]]) -> None:
    """Runs one step and prints its line."""
    try:
        with anyio.fail_after(STEP_TIMEOUT_SECONDS):
            await body()
    except Exception as error:  # every failure of a client is a finding, whatever its type
        fail(name, error)
    else:
        print(f"STEP ok {name}", flush=True)


def fail(name: str, error: BaseException) -> None:
    """Prints the line of a step that failed."""
    global _failed
    _failed = True
    why = " ".join(f"{type(error).__name__}: {error}".split())
    print(f"STEP fail {name}: {why}", flush=True)


def expect(condition: object, what: str, seen: object) -> None:
    """Raises an error that shows `seen` unless `condition` holds."""
    if not condition:
        raise AssertionError(f"expected {what}, got {seen!r}")


def expect_version(mode: str, version: str) -> None:
    """`auto` negotiates the newest protocol version, `legacy` an older one."""
    expect((version == MODERN) == (mode == "auto"), f"the {mode} revision", version)


def expect_tools(names: list[str]) -> None:
    for name in ("test_simple_text", "test_tool_with_progress"):
        expect(name in names, f"the tool {name}", names)


def expect_simple_text(text: str) -> None:
    expect(text == "This is a simple text response for testing.", "the simple text", text)


def expect_static_text(text: str) -> None:
    expect(text == "This is the content of the static text resource.", "the static text", text)


def expect_prompt(text: str) -> None:
    expect("arg1='a'" in text and "arg2='b'" in text, "both arguments in the prompt", text)


def expect_progress(notes: list[float]) -> None:
    expect(len(notes) >= 3, "at least 3 progress notes", notes)


def expect_values(values: Any) -> None:
    expect(isinstance(values, list), "a list of values", values)


def expect_answer(text: str) -> None:
    expect("ada" in text, "the accepted answer in the text", text)


def run(session: Callable[[], Awaitable[None]]) -> None:
    """Runs a driver. An exception that escapes from it is a failure to connect or to close."""

    async def guarded() -> None:
        try:
            await session()
        except Exception as error:
            fail("session", error)

    anyio.run(guarded)
    sys.exit(1 if _failed else 0)
