"""What `traveller_py1.py` and `traveller_py2.py` have in common: how they answer what they are asked, how one process leaves to
another where it got to, and how they are started and report.

Arguments: API key, era, the steps as JSON. A step is `{"do", "url", "folder"}`. Prints a report per step.
"""

import asyncio
import json
import os
import sys

try:
    from mcp_types import CreateMessageResult, ElicitResult, TextContent
except ModuleNotFoundError:
    from mcp.types import CreateMessageResult, ElicitResult, TextContent


class Answering:
    """A client, and what it was told and asked."""

    def __init__(self):
        self.steps, self.asked = [], []

    async def user(self, context, params):
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"nights": 3})

    async def model(self, context, params):
        self.asked.append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="lovely"), model="m")

    async def report(self, client, result):
        link = next(block for block in result.content if block.type == "resource_link")
        read = await client.read_resource(link.uri)
        return {"steps": self.steps, "asked": self.asked, "read": read.contents[0].text}


def leave(step, text):
    """Writes where the call got to; the file is there when it is whole."""
    file = os.path.join(step["folder"], "begun")
    with open(file + ".next", "w") as out:
        out.write(text)
    os.rename(file + ".next", file)


def left(step):
    """What another process has left."""
    with open(os.path.join(step["folder"], "begun")) as file:
        return file.read()


def run(work):
    """Does each step with `work(key, era, step)`."""
    key, era, steps = sys.argv[1:]

    async def main():
        print(json.dumps([await work(key, era, step) for step in json.loads(steps)]))

    asyncio.run(main())
