"""A client of the Python SDK 1.x (legacy). Arguments: API key, era, jobs as JSON. Prints a report per job."""

import asyncio
import json
import sys

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client


async def work(key, job):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with streamablehttp_client(job["url"], headers=headers) as (read, write, _):
        async with ClientSession(read, write) as session:
            hello = await session.initialize()
            tools = await session.list_tools()
            steps = []

            async def progress(done, total, message):
                steps.append(done)

            result = await session.call_tool(job["tool"], job["arguments"], progress_callback=progress)
            report = {
                "version": hello.protocolVersion,
                "server": hello.serverInfo.name,
                "tools": [tool.name for tool in tools.tools],
                "text": " ".join(c.text for c in result.content if c.type == "text"),
                "failed": bool(result.isError),
                "progress": steps,
                "seen": [part.model_dump(mode="json", by_alias=True) for part in (tools, result)],
            }
            report["calls"] = []
            for tool, arguments in job.get("calls", []):
                result = await session.call_tool(tool, arguments)
                text = " ".join(c.text for c in result.content if c.type == "text")
                report["calls"].append([text, bool(result.isError)])
            try:
                await session.call_tool(job["hidden"], {})
                report["hidden"] = "called"
            except McpError as error:
                report["hidden"] = [error.error.code, error.error.message]
            return report


async def main():
    key, _, jobs = sys.argv[1:]
    print(json.dumps([await work(key, job) for job in json.loads(jobs)]))


asyncio.run(main())
