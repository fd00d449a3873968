"""The small server of the benchmarks on FastMCP: JSON responses, no sessions.

`--listen ADDR` serves HTTP, `--sessions --listen ADDR` keeps sessions, `--stdio` serves standard input and output.
"""

import socket
import sys

import uvicorn
from fastmcp import FastMCP

USAGE = "usage: server.py [--sessions] --listen ADDR | --stdio"


def echo(message: str) -> str:
    """Says it again"""
    return message


def add(a: int, b: int) -> str:
    """Adds two numbers"""
    return str(a + b)


def bench() -> FastMCP:
    server = FastMCP("bench", version="1.0.0")
    # Text only, as in the other servers.
    server.tool(echo, output_schema=None)
    server.tool(add, output_schema=None)
    for number in range(1, 51):
        server.tool(echo, name=f"dummy_{number}", description="One of many", output_schema=None)
    server.resource("bench://text", mime_type="text/plain")(lambda: "A short text")
    return server


def listen(address: str, stateless: bool) -> None:
    host, port = address.split(":")
    # With the protocol: asyncio only sets TCP_NODELAY on sockets whose protocol is TCP.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, int(port)))
    app = bench().http_app(path="/mcp", stateless_http=stateless, json_response=True)
    config = uvicorn.Config(app, log_level="error", access_log=False)
    bound.listen(1024)
    print(f"listening on http://{host}:{bound.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(config).run(sockets=[bound])


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--help"]:
            print(USAGE)
        case ["--stdio"]:
            bench().run(transport="stdio", show_banner=False)
        case ["--listen", address]:
            listen(address, stateless=True)
        case ["--sessions", "--listen", address]:
            listen(address, stateless=False)
        case _:
            sys.exit(USAGE)


main(sys.argv[1:])
