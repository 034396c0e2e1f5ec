"""A server over stdio that speaks 2026-07-28 alone. Nothing but Python's own library."""

import json
import sys

TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "server/discover":
        answer["result"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                            "ttlMs": 0, "cacheScope": "private"}
    elif message["method"] == "tools/list":
        answer["result"] = {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"}
    elif message["method"] == "tools/call":
        text = message["params"]["arguments"]["text"]
        answer["result"] = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    else:
        answer["error"] = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
    print(json.dumps(answer), flush=True)
