"""Takes one era away from a server of the Python SDK 2.x, which itself always serves both."""

import json


def one_era(app, era):
    """The same app, refusing the other era."""

    async def refuse(send, status, error, request_id=None):
        body = {"jsonrpc": "2.0", "id": request_id, "error": error}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    async def filtered(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if era == "legacy" and version == "2026-07-28":
            return await refuse(send, 400, {"code": -32600, "message": f"Unsupported protocol version: {version}"})
        if era == "modern" and version != "2026-07-28":
            if scope["method"] != "POST":
                return await refuse(send, 405, {"code": -32600, "message": "Method not allowed"})
            body, more = b"", True
            while more:
                part = await receive()
                body, more = body + part.get("body", b""), part.get("more_body", False)
            try:
                request = json.loads(body)
                requested = request.get("params", {}).get("protocolVersion", version)
            except (ValueError, AttributeError):
                return await refuse(send, 400, {"code": -32700, "message": "Parse error"})
            data = {"supported": ["2026-07-28"], "requested": requested}
            error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
            return await refuse(send, 400, error, request.get("id"))
        await app(scope, receive, send)

    return filtered
