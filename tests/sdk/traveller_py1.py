"""A client of the Python SDK 1.x (legacy) that can be asked something, for `trips_py1.py` and `trips_py2.py`.

Arguments: API key, era, the steps as JSON. A step is
`{"do": "plan", "url"}`: calls `plan` and reads what it gave a link to;
`{"do": "begin", "url", "folder"}`: calls `research`, writes into the folder where it got to, and waits to be killed;
`{"do": "resume", "url", "folder"}`: goes on with that call where another process left it, and reads what it gave a link to.
Prints a report per step.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.message import ClientMessageMetadata
from mcp.types import (
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, CreateMessageResult, ElicitResult, ProgressNotification,
    ServerNotification, TextContent,
)

VERSION = "2025-11-25"


class Traveller:
    """One session, and what it was told and asked."""

    def __init__(self, headers, url):
        self.headers, self.url, self.steps, self.asked = headers, url, [], []

    async def user(self, context, params):
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"nights": 3})

    async def model(self, context, params):
        self.asked.append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="lovely"), model="m")

    async def told(self, message):
        if isinstance(message, ServerNotification) and isinstance(message.root, ProgressNotification):
            self.steps.append(message.root.params.progress)

    def connect(self):
        return streamablehttp_client(self.url, headers=self.headers, terminate_on_close=False)

    def session(self, read, write):
        return ClientSession(
            read, write, elicitation_callback=self.user, sampling_callback=self.model, message_handler=self.told)

    async def report(self, session, result):
        link = next(block for block in result.content if block.type == "resource_link")
        read = await session.read_resource(link.uri)
        return {"steps": self.steps, "asked": self.asked, "read": read.contents[0].text}


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
            file = os.path.join(step["folder"], "begun")
            with open(file + ".next", "w") as out:
                json.dump({"session": session_id(), "event": event}, out)
            os.rename(file + ".next", file)

    async with traveller.connect() as (read, write, session_id), traveller.session(read, write) as session:
        await session.initialize()
        await session.send_request(
            request(step), CallToolResult, progress_callback=ignored,
            metadata=ClientMessageMetadata(on_resumption_token_update=reached))


async def resume(headers, step):
    with open(os.path.join(step["folder"], "begun")) as file:
        kept = json.load(file)
    headers = {**headers, "mcp-session-id": kept["session"], "mcp-protocol-version": VERSION}
    traveller = Traveller(headers, step["url"])
    async with traveller.connect() as (read, write, _), traveller.session(read, write) as session:
        result = await session.send_request(
            request(step), CallToolResult,
            metadata=ClientMessageMetadata(resumption_token=kept["event"]))
        return await traveller.report(session, result)


async def main():
    key, _, steps = sys.argv[1:]
    headers = {"Authorization": f"Bearer {key}"}
    do = {"plan": plan, "begin": begin, "resume": resume}
    print(json.dumps([await do[step["do"]](headers, step) for step in json.loads(steps)]))


asyncio.run(main())
