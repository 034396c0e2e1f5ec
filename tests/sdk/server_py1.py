"""A server of the Python SDK 1.x over Streamable HTTP (legacy, with sessions). Argument: the port."""

import sys

from mcp.server.fastmcp import FastMCP

server = FastMCP("py1", host="127.0.0.1", port=int(sys.argv[1]), log_level="ERROR")


@server.tool()
def shout(text: str) -> str:
    """Gives a text back in capitals."""
    return text.upper()


@server.tool()
def whisper(text: str) -> str:
    """Gives a text back in small letters."""
    return text.lower()


server.run(transport="streamable-http")
