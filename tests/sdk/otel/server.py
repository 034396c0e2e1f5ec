"""An instrumented server of the Python SDK 2.x. Arguments: the collector. Prints its port."""

import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from telling import tell

tell("server", sys.argv[1])
server = MCPServer("traced")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
