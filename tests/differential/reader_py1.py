"""Reads messages as a server of the Python SDK 1.x does: over HTTP, and line by line from its input."""
import json

from mcp.types import ClientNotification, ClientRequest, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, \
    PromptReference

from reading import LOCATED, NAMED, line, serve


def read(message):
    """What `mcp.shared.session` makes of a message."""
    root = message.root
    if isinstance(root, JSONRPCRequest):
        typed = ClientRequest.model_validate(root.model_dump(by_alias=True, mode="json", exclude_none=True)).root
        method, params = typed.method, typed.params
        if method in NAMED:
            return line("request", method, root.id, params.name, params.arguments)
        if method in LOCATED:
            return line("request", method, root.id, uri=str(params.uri))
        if method == "completion/complete":
            ref = params.ref
            return line("request", method, root.id, ref.name if isinstance(ref, PromptReference) else str(ref.uri))
        if method.startswith("tasks/"):
            return line("request", method, root.id, getattr(params, "taskId", None))
        return line("request", method, root.id)
    if isinstance(root, JSONRPCNotification):
        typed = ClientNotification.model_validate(root.model_dump(by_alias=True, mode="json", exclude_none=True)).root
        return line("notification", typed.method)
    return line("response", None, root.id)


def over_http(source, message):
    return read(JSONRPCMessage.model_validate(json.loads(message)))


def by_line(source, message):
    return read(JSONRPCMessage.model_validate_json(message.decode("utf-8", "replace")))


serve([over_http, by_line])
