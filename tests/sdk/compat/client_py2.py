"""A client of the Python SDK 2.x (both eras). Arguments: URL, era, API key, checks (separated by commas), a file for `cancel`.

Prints a line of JSON per check. The exit code is 0 when all hold, 1 when one does not, 3 when one cannot be done.
"""

import asyncio
import json
import sys
import warnings
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)

URL, ERA, KEY, CHECKS = sys.argv[1:5]
EXTRA = sys.argv[5] if len(sys.argv) > 5 else None
MODERN = ERA == "modern"
BOARD = "note://board"
CANNOT = {"ping": "the modern era has no ping"} if MODERN else {}


@asynccontextmanager
async def connect(action="accept", asks=True, approves=True, log_level=None):
    """A client, and what the user at this client saw. With `asks` false it declares no elicitation."""
    seen = SimpleNamespace(logs=[], urls=[], asked=[], tools_changed=asyncio.Event(), updated=asyncio.Queue())
    stream_open = asyncio.Event()

    async def elicit(_, params):
        if params.mode == "url":
            seen.urls.append(params.url)
            return types.ElicitResult(action=action)
        if "approve" in params.requested_schema["properties"]:
            seen.asked.append(params.message)
            return types.ElicitResult(action=action, content={"approve": approves})
        answers = {"who are you?": {"name": "ana", "age": 7}, "first?": {"value": "1"}, "second?": {"value": "2"}}
        return types.ElicitResult(action=action, content=answers[params.message] if action == "accept" else None)

    async def sample(_, params):
        return types.CreateMessageResult(
            role="assistant", model="test", content=types.TextContent(type="text", text="hi")
        )

    async def roots(_):
        return types.ListRootsResult(roots=[types.Root(uri="file:///a"), types.Root(uri="file:///b")])

    async def log(params):
        seen.logs.append((params.level, params.data))

    async def message(message):
        if isinstance(message, types.ToolListChangedNotification):
            seen.tools_changed.set()
        if isinstance(message, types.ResourceUpdatedNotification):
            seen.updated.put_nowait(message.params.uri)

    async def response(response):
        if response.request.method == "GET":
            stream_open.set()

    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=httpx2.Timeout(30, read=300),
            event_hooks={"response": [response]},
        ) as http,
        Client(
            streamable_http_client(URL, http_client=http),
            mode="auto" if MODERN else "legacy",
            elicitation_callback=elicit if asks else None,
            sampling_callback=sample,
            list_roots_callback=roots,
            logging_callback=log,
            log_level=log_level,
            message_handler=message,
        ) as client,
    ):
        if MODERN != (client.protocol_version >= "2026-07-28"):
            raise RuntimeError(f"the connection speaks {client.protocol_version}")
        try:  # until the GET stream is open, what a server sends there is lost
            await asyncio.wait_for(stream_open.wait(), 0 if MODERN else 5)
        except TimeoutError:
            pass
        yield client, seen


def text(result):
    return " ".join(part.text for part in result.content if part.type == "text")


async def until(condition, seconds=10):
    for _ in range(seconds * 20):
        if condition():
            return
        await asyncio.sleep(0.05)


async def call(tool, arguments=None, **options):
    async with connect(**options) as (client, _):
        return text(await client.call_tool(tool, arguments or {}))


async def url():
    async with connect() as (client, seen):
        return [text(await client.call_tool("ask_url", {})), *seen.urls]


async def approval(approves):
    """What comes of a call that the gateway asks this user about, and whether the question shows its arguments."""
    said = f"careful {approves} {EXTRA}"
    async with connect(approves=approves) as (session, seen):
        result = text(await session.call_tool("echo", {"text": said}))
    shown = [said in question for question in seen.asked]
    return ["called" if result == said else result.split(" ")[0], *shown]


async def tools():
    async with connect() as (client, _):
        return "echo" in [tool.name for tool in (await client.list_tools()).tools]


async def progress():
    steps = []

    async def step(done, total, message):
        steps.append(done)

    async with connect() as (client, _):
        await client.call_tool("progress", {}, progress_callback=step)
        await until(lambda: len(steps) >= 3)
    return steps


async def log():
    async with connect(log_level="info" if MODERN else None) as (client, seen):
        if not MODERN:
            await client.set_logging_level("info")
        await client.call_tool("log", {})
        await until(lambda: len(seen.logs) >= 2)
        await asyncio.sleep(0.2)  # for one too many
        return seen.logs


async def cancel():
    def diary():
        try:
            return open(EXTRA).read().split()
        except FileNotFoundError:
            return []

    async with connect() as (client, _):
        job = asyncio.create_task(client.call_tool("slow", {"marker": EXTRA}))
        await until(lambda: "started" in diary())
        job.cancel()
        await until(lambda: len(diary()) > 1)
    return diary()


async def list_changed():
    async with connect() as (client, seen):
        await client.list_tools()
        if MODERN:
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("grow", {})
                await asyncio.wait_for(anext(changes), 10)
        else:
            await client.call_tool("grow", {})
            await asyncio.wait_for(seen.tools_changed.wait(), 10)
        return "grown" in [tool.name for tool in (await client.list_tools()).tools]


async def loads():
    """With `discovery.loads`: the client is told that its list has what it has found, and calls it."""
    async with connect() as (client, seen):
        before = [tool.name for tool in (await client.list_tools()).tools]
        wanted = {"query": "read a text file", "limit": 1}
        if MODERN:
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("find_tools", wanted)
                await asyncio.wait_for(anext(changes), 10)
        else:
            await client.call_tool("find_tools", wanted)
            await asyncio.wait_for(seen.tools_changed.wait(), 10)
        after = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("read_file", {"path": "a"})
        return ["read_file" in before, "read_file" in after, result.content[0].text]


async def updated():
    async with connect() as (client, seen):
        if MODERN:
            async with client.listen(resource_subscriptions=[BOARD]) as changes:
                await client.call_tool("touch", {})
                return (await asyncio.wait_for(anext(changes), 10)).uri
        await client.subscribe_resource(BOARD)
        await client.call_tool("touch", {})
        return await asyncio.wait_for(seen.updated.get(), 10)


async def resources():
    async with connect() as (client, _):
        return BOARD in [resource.uri for resource in (await client.list_resources()).resources]


async def read():
    async with connect() as (client, _):
        return (await client.read_resource(BOARD)).contents[0].text


async def template():
    async with connect() as (client, _):
        templates = (await client.list_resource_templates()).resource_templates
        note = await client.read_resource("note://x")
        return [*(template.uri_template for template in templates), note.contents[0].text]


async def prompts():
    async with connect() as (client, _):
        return "greet" in [prompt.name for prompt in (await client.list_prompts()).prompts]


async def prompt():
    async with connect() as (client, _):
        return (await client.get_prompt("greet", {"name": "ana"})).messages[0].content.text


async def complete(ref, value):
    async with connect() as (client, _):
        return (await client.complete(ref, {"name": "name", "value": value})).completion.values


async def ping():
    async with connect() as (client, _):
        await client.send_ping()
        return True


async def instructions():
    async with connect() as (client, _):
        return client.instructions


async def no_capability():
    async with connect(asks=False) as (client, _):
        try:
            result = await client.call_tool("ask_form", {})
        except MCPError as error:
            return error.error.code
        return "error result" if result.is_error else text(result)


PROMPT = types.PromptReference(type="ref/prompt", name="greet")
TEMPLATE = types.ResourceTemplateReference(type="ref/resource", uri="note://{name}")

# What each check does and what it has to see.
CHECK = {
    "echo": (lambda: call("echo", {"text": "hello"}), "hello"),
    "tools": (tools, True),
    "form": (lambda: call("ask_form"), "accept:ana:7"),
    "decline": (lambda: call("ask_form", action="decline"), "decline"),
    "approve": (lambda: approval(True), ["called", True]),
    "disapprove": (lambda: approval(False), ["denied:", True]),
    "url": (url, ["url:accept", "https://example.com/consent"]),
    "twice": (lambda: call("ask_twice"), "1+2"),
    "sample": (lambda: call("sample"), "sampled:hi"),
    "roots": (lambda: call("roots"), "roots:file:///a,file:///b"),
    "progress": (progress, [1, 2, 3]),
    "log": (log, [("info", "i"), ("error", "e")]),
    "cancel": (cancel, ["started", "cancelled"]),
    "list_changed": (list_changed, True),
    "loads": (loads, [False, True, '{"path":"a"}']),
    "updated": (updated, "note://board"),
    "resources": (resources, True),
    "read": (read, "board"),
    "template": (template, ["note://{name}", "note x"]),
    "prompts": (prompts, True),
    "prompt": (prompt, "greet ana"),
    "complete": (lambda: complete(PROMPT, "an"), ["ana", "anton"]),
    "complete_template": (lambda: complete(TEMPLATE, "bo"), ["board"]),
    "ping": (ping, True),
    "instructions": (instructions, "be kind"),
    "no_capability": (no_capability, lambda got: isinstance(got, int) or got == "error result"),
}


def innermost(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


async def main():
    code = 0
    for name in CHECKS.split(","):
        if name in CANNOT:
            ok, got = None, CANNOT[name]
        else:
            check, want = CHECK[name]
            try:
                got = await asyncio.wait_for(check(), 30)
                ok = want(got) if callable(want) else got == want
            except Exception as error:
                ok, got = False, innermost(error)
        print(json.dumps({"cap": name, "ok": ok, "got": got}), flush=True)
        code = {True: code, False: 1, None: code or 3}[ok]
    sys.exit(code)


asyncio.run(main())
