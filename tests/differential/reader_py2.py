"""Reads messages as a server of the Python SDK 2.x does: over HTTP in either era, and line by line from its input."""
import json

import pydantic_core
from mcp_types import PromptReference
from mcp_types.jsonrpc import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.methods import SPEC_CLIENT_METHODS, parse_client_request

from reading import LOCATED, NAMED, line, serve

VERSION = "io.modelcontextprotocol/protocolVersion"


def read(message):
    """What `mcp.server.runner` makes of a message."""
    if isinstance(message, JSONRPCRequest):
        method, params = message.method, message.params
        if method not in SPEC_CLIENT_METHODS:
            return line("request", method, message.id)
        meta = (params or {}).get("_meta")
        version = "2026-07-28" if isinstance(meta, dict) and VERSION in meta else "2025-11-25"
        params = parse_client_request(method, version, params).params
        if method in NAMED:
            return line("request", method, message.id, params.name, params.arguments)
        if method in LOCATED:
            return line("request", method, message.id, uri=str(params.uri))
        if method == "completion/complete":
            ref = params.ref
            return line("request", method, message.id, ref.name if isinstance(ref, PromptReference) else str(ref.uri))
        if method.startswith("tasks/"):
            return line("request", method, message.id, params.task_id)
        return line("request", method, message.id)
    if isinstance(message, JSONRPCNotification):
        return line("notification", message.method)
    return line("response", None, message.id)


def modern(source, message):
    decoded = json.loads(message)
    if isinstance(decoded, dict) and "id" not in decoded:
        return read(JSONRPCNotification.model_validate(decoded))
    return read(JSONRPCRequest.model_validate(decoded))


def legacy(source, message):
    return read(jsonrpc_message_adapter.validate_python(pydantic_core.from_json(message), by_name=False))


def by_line(source, message):
    return read(jsonrpc_message_adapter.validate_json(message.decode("utf-8", "replace"), by_name=False))


serve([modern, legacy, by_line])
