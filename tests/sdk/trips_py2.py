"""A server of the Python SDK 2.x over Streamable HTTP (both eras) that works with its client in mid-call: it asks the user and
the client's model, in the way of the era that the client speaks, reports progress, and gives a link to what it has made, which
its resource template stands for. Argument: the port."""

import os
import sys
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import ContentBlock, CreateMessageResult, ResourceLink, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("trips", instructions="Plan a trip before you book it.", log_level="ERROR")
kept = {}


class Stay(BaseModel):
    nights: int


def nights(city: str) -> Elicit[Stay]:
    return Elicit(f"How many nights in {city}?", Stay)


def word(city: str) -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"A word on {city}?"))
    return Sample([question], max_tokens=20)


def made(text):
    name = str(len(kept) + 1)
    kept[name] = text
    return [TextContent(type="text", text="done"), ResourceLink(type="resource_link", uri=f"trip://made/{name}", name=f"trip-{name}")]


@server.resource("trip://made/{name}")
def trip(name: str) -> str:
    """A trip that was planned."""
    return kept[name]


@server.tool(structured_output=False)
async def plan(
    city: str, stay: Annotated[Stay, Resolve(nights)], said: Annotated[CreateMessageResult, Resolve(word)], ctx: Context
) -> list[ContentBlock]:
    """Plans a trip to a city."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
    return made(f"{stay.nights} nights in {city}: {said.content.text}")


@server.tool(structured_output=False)
async def research(city: str, folder: str, ctx: Context) -> list[ContentBlock]:
    """Looks for what there is in a city."""
    await ctx.report_progress(1, 3)
    # The test says when it goes on.
    with anyio.fail_after(20):
        while not os.path.exists(os.path.join(folder, "go")):
            await anyio.sleep(0.01)
    await ctx.report_progress(2, 3)
    answer = await ctx.elicit(f"How many nights in {city}?", Stay)
    await ctx.report_progress(3, 3)
    return made(f"{answer.data.nights} nights in {city}")


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
