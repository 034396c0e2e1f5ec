"""An instrumented client of the Python SDK 2.x. Arguments: the URL, the API key, the era, the collector. Calls a tool in
a span of its own and prints the id of the trace."""

import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from telling import tell

url, key, era, collector = sys.argv[1:]
tracer = tell("client", collector)


async def main():
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=30) as http:
        mode = "legacy" if era == "legacy" else "auto"
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            with tracer.start_as_current_span("work") as span:
                result = await client.call_tool("add", {"a": 2, "b": 3})
                assert not result.is_error, result
                print(f"{span.get_span_context().trace_id:032x}", flush=True)


asyncio.run(main())
