"""A client of the Python SDK 2.x (both eras) that can be asked something, for `trips_py1.py` and `trips_py2.py`.

Started as `travelling.py` says. A step is
`{"do": "plan", "url"}`: calls `plan` and reads what it gave a link to;
`{"do": "begin", "url", "folder"}`: calls `plan`, writes into the folder what it was asked, and waits to be killed (modern);
`{"do": "resume", "url", "folder"}`: answers what another process was asked, and reads what it gave a link to (modern).
"""

import asyncio

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import InputRequiredResult

from travelling import Answering, leave, left, run


class Traveller(Answering):
    """The same by the SDK 2.x."""

    async def progress(self, done, total, message):
        self.steps.append(done)

    def client(self, http, step, era):
        mode = "legacy" if era == "legacy" else "auto"
        transport = streamable_http_client(step["url"], http_client=http)
        return Client(transport, mode=mode, elicitation_callback=self.user, sampling_callback=self.model)

    async def plan(self, client, **seed):
        result = await client.call_tool("plan", {"city": "Porto"}, progress_callback=self.progress, **seed)
        return await self.report(client, result)


async def begin(traveller, client, step):
    asked = await client.session.call_tool(
        "plan", {"city": "Porto"}, progress_callback=traveller.progress, allow_input_required=True)
    leave(step, asked.model_dump_json(by_alias=True))
    await asyncio.Event().wait()


async def resume(traveller, client, step):
    asked = InputRequiredResult.model_validate_json(left(step))
    inputs = {}
    for name, request in asked.input_requests.items():
        answer = traveller.user if request.method == "elicitation/create" else traveller.model
        inputs[name] = await answer(None, request.params)
    return await traveller.plan(client, input_responses=inputs, request_state=asked.request_state)


async def work(key, era, step):
    traveller = Traveller()
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http, traveller.client(http, step, era) as client:
        if step["do"] == "begin":
            await begin(traveller, client, step)
        report = await (traveller.plan(client) if step["do"] == "plan" else resume(traveller, client, step))
        return {"version": client.protocol_version, **report}


run(work)
