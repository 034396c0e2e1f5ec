"""A client of the Python SDK 2.x (both eras). Arguments: API key, era, jobs as JSON. Prints a report per job."""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError


async def work(key, era, job):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        mode = "legacy" if era == "legacy" else "auto"
        async with Client(streamable_http_client(job["url"], http_client=http), mode=mode) as client:
            tools = await client.list_tools()
            steps = []

            async def progress(done, total, message):
                steps.append(done)

            result = await client.call_tool(job["tool"], job["arguments"], progress_callback=progress)
            report = {
                "version": client.protocol_version,
                "server": client.server_info.name if client.server_info else None,
                "tools": [tool.name for tool in tools.tools],
                "text": " ".join(c.text for c in result.content if c.type == "text"),
                "failed": bool(result.is_error),
                "progress": steps,
                "seen": [part.model_dump(mode="json", by_alias=True) for part in (tools, result)],
            }
            report["calls"] = []
            for tool, arguments in job.get("calls", []):
                result = await client.call_tool(tool, arguments)
                text = " ".join(c.text for c in result.content if c.type == "text")
                report["calls"].append([text, bool(result.is_error)])
            try:
                await client.call_tool(job["hidden"], {})
                report["hidden"] = "called"
            except MCPError as error:
                report["hidden"] = [error.error.code, error.error.message]
            return report


async def main():
    key, era, jobs = sys.argv[1:]
    print(json.dumps([await work(key, era, job) for job in json.loads(jobs)]))


asyncio.run(main())
