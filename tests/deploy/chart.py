"""Renders the chart with Helm itself.

There is no package of the program `helm`, but one of its library: helm-sdkpy carries Helm 4 with bindings
for Python. It can install and not render, so there is a Kubernetes API here that says yes to everything and keeps what
it is sent: the release, as Helm stores it, has the manifests, the hooks and the notes. As a program it does one chart:

    chart.py CHART RELEASE NAMESPACE < values.json > release.json
"""

import asyncio
import base64
import gzip
import http.server
import json
import sys
import tempfile
import threading

# What the chart makes, and what Helm keeps its releases in: (group, version) -> kind -> plural.
KINDS = {
    ("", "v1"): {
        "ConfigMap": "configmaps", "Namespace": "namespaces", "Pod": "pods", "Secret": "secrets",
        "Service": "services", "ServiceAccount": "serviceaccounts",
    },
    ("apps", "v1"): {"Deployment": "deployments"},
    ("autoscaling", "v2"): {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
    ("monitoring.coreos.com", "v1"): {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"},
    ("networking.k8s.io", "v1"): {"NetworkPolicy": "networkpolicies"},
    ("policy", "v1"): {"PodDisruptionBudget": "poddisruptionbudgets"},
}
VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}


def discovery(path):
    """What there is, in the words of the discovery API; None if `path` asks for something else."""
    def resources(group, version):
        kinds = KINDS[(group, version)]
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        return {
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [
                {"name": plural, "singularName": kind.lower(), "kind": kind, "verbs": verbs, "namespaced": kind != "Namespace"}
                for kind, plural in kinds.items()
            ],
        }

    def group(name, version):
        version = {"groupVersion": f"{name}/{version}", "version": version}
        return {"name": name, "versions": [version], "preferredVersion": version}

    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(*known) for known in KINDS if known[0]]}
    if path == "/api/v1":
        return resources("", "v1")
    parts = path.strip("/").split("/")
    if len(parts) == 3 and parts[0] == "apis" and (parts[1], parts[2]) in KINDS:
        return resources(parts[1], parts[2])
    return None


def fields(data):
    """The fields of a message of protobuf: number and bytes, of those that have a length."""
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            length = varint()
            yield tag >> 3, data[at:at + length]
            at += length
        elif tag & 7 == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[tag & 7]


def secret(body):
    """A Secret as Helm sends it: in the protobuf of Kubernetes, `runtime.Unknown` around `core.v1.Secret`."""
    raw = dict(fields(body[4:]))[2]
    metadata = next(value for number, value in fields(raw) if number == 1)
    entries = [dict(fields(value)) for number, value in fields(raw) if number == 2]
    return {
        "kind": "Secret", "apiVersion": "v1",
        "metadata": {"name": dict(fields(metadata))[1].decode()},
        "data": {entry[1].decode(): base64.b64encode(entry[2]).decode() for entry in entries},
    }


class Api(http.server.BaseHTTPRequestHandler):
    """Takes everything, has nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        known = discovery(path)
        kept = self.server.kept.get(path)
        plurals = {plural: kind for kinds in KINDS.values() for kind, plural in kinds.items()}
        last = path.rsplit("/", 1)[-1]
        if known is not None:
            self.answer(200, known)
        elif kept is not None:
            self.answer(200, kept)
        elif last in plurals:
            version = path.split("/namespaces/")[0].removeprefix("/apis/").removeprefix("/api/")
            self.answer(200, {"kind": plurals[last] + "List", "apiVersion": version, "metadata": {}, "items": []})
        else:
            self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

    def keep(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = secret(body) if body.startswith(b"k8s\0") else json.loads(body)
        path = self.path.split("?")[0]
        if self.command == "POST":
            path += "/" + body["metadata"]["name"]
        self.server.kept[path] = body
        self.answer(201 if self.command == "POST" else 200, body)

    do_POST = do_PUT = keep


def render(chart, release, namespace, values):
    """The release that Helm makes of `chart`."""
    import helm_sdkpy

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.kept = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{"name": "none", "cluster": {"server": url}}],
        "users": [{"name": "none", "user": {}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none", "namespace": namespace}}],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        helm = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=file.name)
        lint = asyncio.run(helm_sdkpy.Lint(helm).run(chart))
        asyncio.run(helm_sdkpy.Install(helm).run(release, chart, values=values, wait=False, timeout=20))
    stored = server.kept[f"/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{release}.v1"]
    stored = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(stored["data"]["release"]))))
    return {
        "manifest": stored["manifest"],
        "hooks": [hook["manifest"] for hook in stored.get("hooks") or []],
        "notes": stored["info"].get("notes", ""),
        "lint": lint,
    }


if __name__ == "__main__":
    try:
        print(json.dumps(render(sys.argv[1], sys.argv[2], sys.argv[3], json.load(sys.stdin))))
    except Exception as error:  # What Helm says is the message; a trace of this program would hide it.
        sys.exit(f"{type(error).__name__}: {error}")
