"""A server of the Python SDK 1.x (legacy, with sessions). Argument: the port."""

import sys
import weakref
from contextlib import suppress

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from mcp.types import Completion, PromptReference, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

BOARD = "note://board"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
ENDED = (anyio.ClosedResourceError, anyio.BrokenResourceError)  # what a session that has ended raises

sessions = weakref.WeakSet()  # every session that has listed the tools
subscribers = weakref.WeakSet()  # the sessions that follow the board
levels = weakref.WeakKeyDictionary()  # the log level of a session


class Peer(FastMCP):
    async def list_tools(self):
        sessions.add(self.get_context().session)
        return await super().list_tools()


server = Peer("py1", instructions="be kind", host="127.0.0.1", port=int(sys.argv[1]), log_level="CRITICAL")
low = server._mcp_server
tool = server.tool(structured_output=False)


class Person(BaseModel):
    name: str
    age: int = 0  # None would give a schema that the protocol does not allow


class Value(BaseModel):
    value: str


@tool
def echo(text: str) -> str:
    """Gives a text back."""
    return text


@tool
async def ask_form(ctx: Context) -> str:
    """Asks who the user is."""
    answer = await ctx.elicit("who are you?", Person)
    if answer.action != "accept":
        return answer.action
    return f"accept:{answer.data.name}:{answer.data.age}"


@tool
async def ask_url(ctx: Context) -> str:
    """Sends the user to a page."""
    answer = await ctx.elicit_url("please consent", "https://example.com/consent", f"consent-{ctx.request_id}")
    return f"url:{answer.action}"


@tool
async def ask_twice(ctx: Context) -> str:
    """Asks two things one after the other."""
    first = await ctx.elicit("first?", Value)
    if first.action != "accept":
        return first.action
    second = await ctx.elicit("second?", Value)
    if second.action != "accept":
        return second.action
    return f"{first.data.value}+{second.data.value}"


@tool
async def sample(ctx: Context) -> str:
    """Lets the client's model say hi."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="say hi"))
    answer = await ctx.session.create_message([message], max_tokens=20, related_request_id=ctx.request_id)
    return f"sampled:{answer.content.text}"


@tool
async def roots(ctx: Context) -> str:
    """Lists the client's roots."""
    answer = await ctx.session.list_roots()
    return "roots:" + ",".join(str(root.uri) for root in answer.roots)


@tool
async def progress(ctx: Context) -> str:
    """Reports three steps."""
    for step in 1, 2, 3:
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@tool
async def log(ctx: Context) -> str:
    """Logs at three levels."""
    floor = LEVELS.index(levels.get(ctx.session, "debug"))
    for level, text in ("debug", "d"), ("info", "i"), ("error", "e"):
        if LEVELS.index(level) >= floor:
            await ctx.session.send_log_message(level, text, logger="t", related_request_id=ctx.request_id)
    return "logged"


@tool
async def slow(marker: str) -> str:
    """Waits up to 20 s and keeps a diary in a file."""

    def note(line):
        with open(marker, "a") as file:
            file.write(line + "\n")

    note("started")
    try:
        await anyio.sleep(20)
    except anyio.get_cancelled_exc_class():
        note("cancelled")
        raise
    note("finished")
    return "finished"


def grown() -> str:
    """The tool that `grow` adds."""
    return "grown"


@tool
async def grow() -> str:
    """Adds a tool."""
    server.add_tool(grown, structured_output=False)  # without effect the second time
    for session in list(sessions):
        with suppress(*ENDED):
            await session.send_tool_list_changed()
    return "grown"


@tool
async def touch() -> str:
    """Changes the board."""
    for session in list(subscribers):
        with suppress(*ENDED):
            await session.send_resource_updated(AnyUrl(BOARD))
    return "touched"


@server.resource(BOARD, mime_type="text/plain")
def board() -> str:
    return "board"


@server.resource("note://{name}", mime_type="text/plain")
def note(name: str) -> str:
    return f"note {name}"


@server.prompt()
def greet(name: str) -> str:
    return f"greet {name}"


@server.completion()
async def complete(ref, argument, context):
    words = ["ana", "anton", "bob"] if isinstance(ref, PromptReference) else ["board", "other"]
    return Completion(values=[word for word in words if word.startswith(argument.value)])


@low.subscribe_resource()
async def subscribe(uri):
    if str(uri) == BOARD:
        subscribers.add(low.request_context.session)


@low.unsubscribe_resource()
async def unsubscribe(uri):
    if str(uri) == BOARD:
        subscribers.discard(low.request_context.session)


@low.set_logging_level()
async def set_level(level):
    levels[low.request_context.session] = level


# FastMCP has no parameter to declare that its list of tools can change.
def options(*_, **__):
    options = type(low).create_initialization_options(low, NotificationOptions(tools_changed=True))
    options.capabilities.resources.subscribe = True
    return options


low.create_initialization_options = options

server.run(transport="streamable-http")
