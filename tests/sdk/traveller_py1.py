"""A client of the Python SDK 1.x (legacy) that can be asked something, for `trips_py1.py` and `trips_py2.py`.

Started as `travelling.py` says. A step is
`{"do": "plan", "url"}`: calls `plan` and reads what it gave a link to;
`{"do": "begin", "url", "folder"}`: calls `research`, writes into the folder where it got to, and waits to be killed;
`{"do": "resume", "url", "folder"}`: goes on with that call where another process left it, and reads what it gave a link to.
"""

import json

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.message import ClientMessageMetadata
from mcp.types import (
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotification, ServerNotification,
)

from travelling import Answering, leave, left, run

VERSION = "2025-11-25"


class Traveller(Answering):
    """The same in one session."""

    def __init__(self, headers, url):
        super().__init__()
        self.headers, self.url = headers, url

    async def told(self, message):
        if isinstance(message, ServerNotification) and isinstance(message.root, ProgressNotification):
            self.steps.append(message.root.params.progress)

    def connect(self):
        return streamablehttp_client(self.url, headers=self.headers, terminate_on_close=False)

    def session(self, read, write):
        return ClientSession(
            read, write, elicitation_callback=self.user, sampling_callback=self.model, message_handler=self.told)


async def ignored(done, total, message):
    """Progress is only reported to who gives a callback; what the session is told counts here."""


async def plan(headers, step):
    traveller = Traveller(headers, step["url"])
    async with traveller.connect() as (read, write, _), traveller.session(read, write) as session:
        await session.initialize()
        result = await session.call_tool("plan", {"city": "Porto"}, progress_callback=ignored)
        return await traveller.report(session, result)


def request(step):
    arguments = {"city": "Porto", "folder": step["folder"]}
    return ClientRequest(CallToolRequest(params=CallToolRequestParams(name="research", arguments=arguments)))


async def begin(headers, step):
    traveller, events = Traveller(headers, step["url"]), []

    async def reached(event):
        events.append(event)
        # The first event says nothing but its id; the second is the first step.
        if len(events) == 2:
            leave(step, json.dumps({"session": session_id(), "event": event}))

    async with traveller.connect() as (read, write, session_id), traveller.session(read, write) as session:
        await session.initialize()
        await session.send_request(
            request(step), CallToolResult, progress_callback=ignored,
            metadata=ClientMessageMetadata(on_resumption_token_update=reached))


async def resume(headers, step):
    kept = json.loads(left(step))
    headers = {**headers, "mcp-session-id": kept["session"], "mcp-protocol-version": VERSION}
    traveller = Traveller(headers, step["url"])
    async with traveller.connect() as (read, write, _), traveller.session(read, write) as session:
        result = await session.send_request(
            request(step), CallToolResult,
            metadata=ClientMessageMetadata(resumption_token=kept["event"]))
        return await traveller.report(session, result)


async def work(key, _, step):
    do = {"plan": plan, "begin": begin, "resume": resume}
    return await do[step["do"]]({"Authorization": f"Bearer {key}"}, step)


run(work)
