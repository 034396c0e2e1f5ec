"""A server over stdio whose tool asks the client something when it is told to. Legacy era, nothing but Python's own library.

Each call says so in a file when it waits, goes on when another file is there, and gives back what it was answered."""

import json
import os
import sys
import threading
import time

TOOL = {"name": "ask", "inputSchema": {"type": "object", "properties": {
    "who": {"type": "string"}, "folder": {"type": "string"}}}}
writing = threading.Lock()
answers = {}


def say(message):
    with writing:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def work(call, who, folder):
    open(os.path.join(folder, who + ".waits"), "w").close()
    deadline = time.monotonic() + 20
    while not os.path.exists(os.path.join(folder, who + ".go")) and time.monotonic() < deadline:
        time.sleep(0.01)
    say({"method": "notifications/message", "params": {"level": "error", "data": "a word to " + who}})
    told = threading.Event()
    answers[who] = [told, None]
    say({"id": who, "method": "elicitation/create", "params": {
        "message": "the PIN of " + who, "requestedSchema": {"type": "object", "properties": {"pin": {"type": "string"}}}}})
    told.wait(20)
    say({"id": call, "result": {"content": [{"type": "text", "text": who + ": " + json.dumps(answers[who][1])}]}})


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        told = answers[message["id"]]
        told[1] = message.get("result", message.get("error"))
        told[0].set()
    elif message["method"] == "initialize":
        say({"id": message["id"], "result": {
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "asker", "version": "1"}}})
    elif message["method"] == "tools/list":
        say({"id": message["id"], "result": {"tools": [TOOL]}})
    elif message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        threading.Thread(target=work, args=(message["id"], arguments["who"], arguments["folder"]), daemon=True).start()
    elif "id" in message:
        say({"id": message["id"], "error": {"code": -32601, "message": "method not found"}})
