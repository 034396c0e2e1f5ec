"""A server over stdio that does one thing at a time: while it works on a call it reads nothing. One era, which is its first argument; nothing
but Python's own library.

`hold` says so in a file of the folder that is the second argument, says in another one when something has been written to it meanwhile, which it
does not read, and goes on when a third file is there; with a progress token it says that it is at work. `take` is told something long. `seen` gives back which process this is, and what has come so far."""

import json
import os
import select
import sys
import threading
import time

ERA, FOLDER = sys.argv[1:]
# Short, so that nothing takes it for a number of a card.
BORN = time.time_ns() % 1000003
TOOLS = [{"name": name, "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}, "text": {"type": "string"}}}}
         for name in ("hold", "take", "seen")]
writing = threading.Lock()
seen = {"born": str(BORN), "hold": 0, "take": 0, "cancelled": 0}


def say(message):
    with writing:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(call, members):
    if ERA == "modern":
        members = {"resultType": "complete", **members}
    say({"id": call, "result": members})


def beat(token, done):
    count = 0
    while not done.wait(0.2):
        count += 1
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": count}})


def hold(params):
    who = params["arguments"]["who"]
    token, done = params.get("_meta", {}).get("progressToken"), threading.Event()
    if token is not None:
        threading.Thread(target=beat, args=(token, done), daemon=True).start()
    open(os.path.join(FOLDER, who + ".holds"), "w").close()
    deadline = time.monotonic() + 120
    while not os.path.exists(os.path.join(FOLDER, who + ".go")) and time.monotonic() < deadline:
        if select.select([0], [], [], 0)[0]:
            open(os.path.join(FOLDER, who + ".unread"), "w").close()
        time.sleep(0.01)
    done.set()
    return "held"


def call(params):
    name = params["name"]
    if name in seen:
        seen[name] += 1
    if name == "hold":
        return hold(params)
    return json.dumps(seen) if name == "seen" else "taken"


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "notifications/cancelled":
        seen["cancelled"] += 1
    if "id" not in message:
        continue
    if method == "tools/call":
        result(message["id"], {"content": [{"type": "text", "text": call(params)}]})
    elif method == "tools/list":
        result(message["id"], {"tools": TOOLS, "ttlMs": 60000, "cacheScope": "public"})
    elif method == "initialize" and ERA == "legacy":
        result(message["id"], {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "single", "version": "1"}})
    elif method == "server/discover" and ERA == "modern":
        result(message["id"], {
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 60000, "cacheScope": "public",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "single", "version": "1"}}})
    else:
        say({"id": message["id"], "error": {"code": -32601, "message": "method not found"}})
