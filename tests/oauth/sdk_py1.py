"""A client of the Python SDK 1.x (legacy) that gets its own token. Argument: the endpoint. Prints a report."""

import asyncio
import json
import sys
from urllib.parse import parse_qsl, urlsplit

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata

REDIRECT = "http://127.0.0.1:1/callback"  # nothing listens there


class Storage:
    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Follows the redirects of the authorization server up to the one to the client."""

    async def open(self, url):
        async with httpx.AsyncClient(timeout=30) as http:
            while url.partition("?")[0] != REDIRECT:
                response = await http.get(url)
                if not response.has_redirect_location:
                    raise RuntimeError(f"{url} answered {response.status_code}: {response.text}")
                url = str(response.url.join(response.headers["location"]))
        self.answer = dict(parse_qsl(urlsplit(url).query))

    async def wait(self):
        if "code" not in self.answer:
            raise RuntimeError(f"no code: {self.answer}")
        return self.answer["code"], self.answer.get("state")


async def main():
    (url,) = sys.argv[1:]
    storage, browser = Storage(), Browser()
    about = OAuthClientMetadata(client_name="py1", redirect_uris=[REDIRECT], token_endpoint_auth_method="none")
    auth = OAuthClientProvider(url, about, storage, browser.open, browser.wait)
    async with streamablehttp_client(url, auth=auth) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            result = await session.call_tool("echo", {"text": "hello"})
    if result.isError:
        raise RuntimeError(f"echo failed: {result.content}")
    report = {
        "tools": [tool.name for tool in tools.tools],
        "said": " ".join(c.text for c in result.content if c.type == "text"),
        "registered": storage.client is not None and storage.tokens is not None,
    }
    print(json.dumps(report))


asyncio.run(asyncio.wait_for(main(), 60))
