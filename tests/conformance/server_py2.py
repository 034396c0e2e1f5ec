"""The everything-server of the Python SDK 2.x in one era only. Arguments: the port, and the era (modern or legacy)."""

import sys

import uvicorn
from mcp_everything_server.server import event_store, mcp
from one_era import one_era

PORT, ERA = int(sys.argv[1]), sys.argv[2]

app = mcp.streamable_http_app(event_store=event_store, retry_interval=100)
uvicorn.run(one_era(app, ERA), host="127.0.0.1", port=PORT, log_level="error")
