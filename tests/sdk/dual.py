"""A server of the Python SDK 2.x over stdio, which speaks both eras. Its tool asks the user something in mid-call."""

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Answer(BaseModel):
    word: str


server = MCPServer("dual", instructions="Ask for a word.", log_level="CRITICAL")


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Asks the user for a word and gives it back."""
    answer = await ctx.elicit("which word?", Answer)
    return f"{answer.action}: {answer.data.word if answer.data else ''}"


server.run("stdio")
