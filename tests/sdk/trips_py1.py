"""A server of the Python SDK 1.x over Streamable HTTP (legacy, with sessions) that works with its client in mid-call: it asks
the user, asks the client's model, reports progress on the stream of the call and on that of the session, and gives a link to
what it has made, which it lists from then on. Argument: the port."""

import os
import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.resources import TextResource
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp.shared.message import ServerMessageMetadata
from mcp.types import ContentBlock, EmptyResult, PingRequest, ResourceLink, SamplingMessage, ServerRequest, TextContent
from pydantic import BaseModel

server = FastMCP("trips", instructions="Plan a trip before you book it.", host="127.0.0.1", port=int(sys.argv[1]), log_level="ERROR")


class Stay(BaseModel):
    nights: int


async def nights(ctx, city):
    answer = await ctx.elicit(f"How many nights in {city}?", Stay)
    return answer.data.nights if answer.action == "accept" else 0


async def listened(ctx):
    """Waits until somebody reads the stream of the session: what is said on it before is lost."""
    session = ctx.request_context.request.headers["mcp-session-id"]
    transport = server.session_manager._server_instances[session]
    with anyio.fail_after(20):
        while GET_STREAM_KEY not in transport._request_streams:
            await anyio.sleep(0.01)


def made(text):
    count = len(server._resource_manager.list_resources())
    uri = f"trip://made/{count + 1}"
    server.add_resource(TextResource(uri=uri, name=f"trip-{count + 1}", text=text))
    return [TextContent(type="text", text="done"), ResourceLink(type="resource_link", uri=uri, name=f"trip-{count + 1}")]


@server.tool(structured_output=False)
async def plan(city: str, ctx: Context) -> list[ContentBlock]:
    """Plans a trip to a city."""
    token = ctx.request_context.meta.progressToken
    await ctx.report_progress(1, 3)
    # Progress goes forward: what is said on the other stream comes after what was said on this one was read.
    ping, on_this = ServerRequest(PingRequest(method="ping")), ServerMessageMetadata(related_request_id=ctx.request_id)
    await ctx.session.send_request(ping, EmptyResult, metadata=on_this)
    # Without a request that it belongs to it goes over the stream of the session.
    await listened(ctx)
    await ctx.session.send_progress_notification(token, 2, 3)
    # It is answered when what was said before it on the same stream was read: the question below takes another one.
    await ctx.session.send_ping()
    stay = await nights(ctx, city)
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"A word on {city}?"))
    word = await ctx.session.create_message([question], max_tokens=20, related_request_id=ctx.request_id)
    await ctx.report_progress(3, 3)
    return made(f"{stay} nights in {city}: {word.content.text}")


@server.tool(structured_output=False)
async def research(city: str, folder: str, ctx: Context) -> list[ContentBlock]:
    """Looks for what there is in a city."""
    await ctx.report_progress(1, 3)
    # The test says when it goes on.
    with anyio.fail_after(20):
        while not os.path.exists(os.path.join(folder, "go")):
            await anyio.sleep(0.01)
    await ctx.report_progress(2, 3)
    stay = await nights(ctx, city)
    await ctx.report_progress(3, 3)
    return made(f"{stay} nights in {city}")


server.run(transport="streamable-http")
