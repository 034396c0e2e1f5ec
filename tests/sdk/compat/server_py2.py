"""A server of the Python SDK 2.x. Arguments: the port, and the eras it speaks (modern, legacy or both)."""

import sys
import warnings
from contextlib import suppress
from typing import Annotated

import anyio
import uvicorn
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, ListRoots, MCPServer, Resolve, Sample
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    Completion,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    EmptyResult,
    InputRequiredResult,
    ListRootsResult,
    PromptReference,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    ToolListChangedNotification,
    UnsubscribeRequestParams,
)
from one_era import one_era
from pydantic import BaseModel

warnings.simplefilter("ignore", MCPDeprecationWarning)

PORT = int(sys.argv[1])
ERA = sys.argv[2] if len(sys.argv) > 2 else "both"
BOARD = "note://board"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
ENDED = (anyio.ClosedResourceError, anyio.BrokenResourceError)  # what a session that has ended raises

# What is kept for a legacy session, by its id.
sessions = {}
subscribers = {}
levels = {}


def session_id(ctx):
    return ctx.request.headers.get("mcp-session-id") if ctx.request else None


async def remember(ctx, call_next):
    if session_id(ctx):
        sessions[session_id(ctx)] = ctx.session
    return await call_next(ctx)


server = MCPServer("py2", instructions="be kind", log_level="CRITICAL", middleware=[remember])
low = server._lowlevel_server
tool = server.tool(structured_output=False)


class Person(BaseModel):
    name: str
    age: int | None = None


class Value(BaseModel):
    value: str


async def ask_person() -> Elicit[Person]:
    return Elicit("who are you?", Person)


async def ask_first() -> Elicit[Value]:
    return Elicit("first?", Value)


async def ask_second(first: Annotated[Value, Resolve(ask_first)]) -> Elicit[Value]:
    return Elicit("second?", Value)


async def ask_model() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="say hi"))
    return Sample([message], max_tokens=20)


async def ask_roots() -> ListRoots:
    return ListRoots()


@tool
def echo(text: str) -> str:
    """Gives a text back."""
    return text


@tool
async def ask_form(answer: Annotated[ElicitationResult[Person], Resolve(ask_person)]) -> str:
    """Asks who the user is."""
    if answer.action != "accept":
        return answer.action
    return f"accept:{answer.data.name}:{answer.data.age}"


@tool
async def ask_url(ctx: Context) -> str | InputRequiredResult:
    """Sends the user to a page."""
    text, url = "please consent", "https://example.com/consent"
    if ctx.protocol_version < "2026-07-28":
        answer = await ctx.elicit_url(text, url, f"consent-{ctx.request_id}")
    elif not ctx.input_responses:
        request = ElicitRequest(params=ElicitRequestURLParams(message=text, url=url))
        return InputRequiredResult(input_requests={"consent": request})
    else:
        answer = ctx.input_responses["consent"]
    return f"url:{answer.action}"


@tool
async def ask_twice(
    first: Annotated[Value, Resolve(ask_first)], second: Annotated[Value, Resolve(ask_second)]
) -> str:
    """Asks two things one after the other."""
    return f"{first.value}+{second.value}"


@tool
async def sample(answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Lets the client's model say hi."""
    return f"sampled:{answer.content.text}"


@tool
async def roots(answer: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    """Lists the client's roots."""
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
    floor = LEVELS.index(levels.get(session_id(ctx.request_context), "debug"))
    for level, text in ("debug", "d"), ("info", "i"), ("error", "e"):
        if LEVELS.index(level) >= floor:
            await ctx.log(level, text, logger_name="t")
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
async def grow(ctx: Context) -> str:
    """Adds a tool."""
    server.add_tool(grown, structured_output=False)  # without effect the second time
    await ctx.notify_tools_changed()
    for session in list(sessions.values()):
        with suppress(*ENDED):
            await session.send_notification(ToolListChangedNotification())
    return "grown"


@tool
async def touch(ctx: Context) -> str:
    """Changes the board."""
    await ctx.notify_resource_updated(BOARD)
    for session in list(subscribers.values()):
        with suppress(*ENDED):
            await session.send_resource_updated(BOARD)
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


# The legacy methods that MCPServer has no decorator for.
async def subscribe(ctx, params):
    if params.uri == BOARD:
        subscribers[session_id(ctx)] = ctx.session
    return EmptyResult()


async def unsubscribe(ctx, params):
    subscribers.pop(session_id(ctx), None)
    return EmptyResult()


async def set_level(ctx, params):
    levels[session_id(ctx)] = params.level
    return EmptyResult()


low.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
low.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)
low.create_initialization_options = lambda *_: type(low).create_initialization_options(
    low, NotificationOptions(tools_changed=True)
)


app = server.streamable_http_app()
uvicorn.run(app if ERA == "both" else one_era(app, ERA), host="127.0.0.1", port=PORT, log_level="error")
