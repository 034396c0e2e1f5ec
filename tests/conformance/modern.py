"""The everything-server of the Python SDK 2.x in the modern era only. Argument: the port."""

import sys

import uvicorn
from mcp_everything_server.server import event_store, mcp
from one_era import one_era

app = mcp.streamable_http_app(event_store=event_store, retry_interval=100)
uvicorn.run(one_era(app, "modern"), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
