"""A server over stdio of 2025-11-25 that reports more about a call than anybody reads: as many messages as its first argument says, of as many
bytes as its second; nothing but Python's own library.

`flood` is never answered. `ask` asks the user first, and is answered, after one more report, when the user was. `last` is answered at once: whoever
has its answer knows that all reports of the calls before it have been written."""

import json
import sys

COUNT, BYTES = (int(argument) for argument in sys.argv[1:])
# Blanks are no text, so it costs little to look at them.
BLANKS = " " * BYTES
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("flood", "ask", "last")]
# The calls that wait for the user, by the id of the question: the id of the call and its progress token.
asked = {}


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def report(token, count, blanks):
    params = '{"progressToken":%s,"progress":%d%s}' % (json.dumps(token), count, blanks)
    sys.stdout.write('{"jsonrpc":"2.0","method":"notifications/progress","params":%s}\n' % params)


def answered(call, text):
    say({"id": call, "result": {"content": [{"type": "text", "text": text}]}})


def called(call, params):
    token = params.get("_meta", {}).get("progressToken")
    if params["name"] == "last":
        return answered(call, "last")
    if params["name"] == "ask":
        question = "q%d" % len(asked)
        asked[question] = (call, token)
        form = {"type": "object", "properties": {"colour": {"type": "string"}}}
        say({"id": question, "method": "elicitation/create", "params": {
            "mode": "form", "message": "which one?", "requestedSchema": form, "_meta": {"progressToken": token}}})
    for count in range(1, COUNT + 1):
        report(token, count, BLANKS)


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method is None and message.get("id") in asked:
        call, token = asked[message["id"]]
        report(token, COUNT + 1, "")
        answered(call, message["result"]["action"])
    elif method is None or "id" not in message:
        continue
    elif method == "tools/call":
        called(message["id"], params)
    elif method == "tools/list":
        say({"id": message["id"], "result": {"tools": TOOLS}})
    elif method == "initialize":
        say({"id": message["id"], "result": {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "flood", "version": "1"}}})
    else:
        say({"id": message["id"], "error": {"code": -32601, "message": "method not found"}})
    sys.stdout.flush()
