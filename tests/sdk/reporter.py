"""A server over stdio that reports progress in four ways before it ends a call: under the token of the call, under the
same as a text, without a token, and under a token that is nobody's. Legacy era, nothing but Python's own library."""

import json
import sys


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, name = message.get("method"), message.get("id")
    if method == "initialize":
        say({"id": name, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                    "serverInfo": {"name": "reporter", "version": "1"}}})
    elif method == "tools/list":
        say({"id": name, "result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        token = message["params"]["_meta"]["progressToken"]
        ways = [{"progressToken": token}, {"progressToken": str(token)}, {}, {"progressToken": "x"}]
        for done, way in enumerate(ways, 1):
            say({"method": "notifications/progress", "params": {"progress": done, **way}})
        say({"id": name, "result": {"content": [{"type": "text", "text": "done"}]}})
    elif name is not None:
        say({"id": name, "error": {"code": -32601, "message": "no"}})
