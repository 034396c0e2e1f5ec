#!/usr/bin/env python3
"""Runs the official MCP conformance suite and scores it strictly.

    run.py server --spec 2026-07-28 --url http://localhost:8080/mcp [--url ...] [--direct http://localhost:3000/mcp]
    run.py client --spec 2026-07-28 [--command 'gateway --port {port} --upstream {upstream}']

`server` lets the suite be the client of each URL; `client` lets it be the server of the SDK's client, with the command
between the two. Prints a line per URL: {scenario: {passed, direct, checks, succeeded, failed, lost}}.

The suite's own tally is kind to a proxy: of a server that does not answer, several scenarios pass. So what is run is
also run without the proxy (`--direct`; always for `client`), and a scenario has passed only if no check failed and
every check that succeeded directly, as often as it did, succeeded again: `checks` is how many these are, `lost` those
that did not. `direct` is whether the scenario passes without the proxy. Where client and server race each other or the
clock without any proxy (`RACES`), a failure is tried again, with the proxy and without.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile

PEERS = pathlib.Path(__file__).resolve().parents[1] / ".peers"
MODULES = PEERS / "conformance/node_modules"
SUITE = [MODULES / ".bin/node", MODULES / "@modelcontextprotocol/conformance/dist/index.js"]
CLIENT = [PEERS / "py2/bin/python", PEERS / "conformance/py2/client.py"]
PATIENCE = 30  # seconds for a scenario
# Here a failure says nothing until it comes again.
RACES = {
    # The suite gives its calls 600 ms to the answer, which a machine that is busy exceeds.
    "server-stateless",
    # The server asks this on the stream that the client opens by GET, and what it asks before that stream is there is
    # lost: in the client and the server alone nothing orders the GET and the call.
    "tools-call-sampling",
}
AGAIN = 3


def suite(*arguments):
    """The checks of each scenario that the suite ran: [(id, status, message)]."""
    with tempfile.TemporaryDirectory() as folder:
        # Its exit code says that some check failed, which is ours to judge.
        limit = ["--timeout", str(PATIENCE * 1000)]
        done = subprocess.run([*SUITE, *arguments, *limit, "-o", folder], cwd=folder, capture_output=True, text=True)
        prefix = "server-" if arguments[0] == "server" else ""
        scenarios = {}
        for file in sorted(pathlib.Path(folder).glob("**/checks.json")):
            name = re.fullmatch(prefix + r"(.+)-\d{4}-\d\d-\d\dT.+", file.parent.name)[1]
            scenarios[name] = [
                (check["id"], check["status"], check.get("errorMessage") or check["description"])
                for check in json.loads(file.read_text())
            ]
    if not scenarios:
        sys.exit(f"the suite has no results:\n{done.stdout}{done.stderr}")
    return scenarios


def succeeded(checks):
    return collections.Counter(name for name, status, _ in checks if status == "SUCCESS")


def failed(checks):
    return [[name, message] for name, status, message in checks if status == "FAILURE"]


def score(seen, direct):
    scores = {}
    for scenario, before in sorted(direct.items()):
        checks = seen.get(scenario, [])
        lost = succeeded(before) - succeeded(checks)
        scores[scenario] = {
            "passed": bool(checks) and not failed(checks) and not lost,
            "direct": not failed(before),
            "checks": succeeded(before).total(),
            "succeeded": sorted(succeeded(checks).elements()),
            "failed": failed(checks),
            "lost": sorted(lost.elements()),
        }
    return scores


def server(urls, spec, direct):
    def run(url):
        seen = suite("server", "--url", url, "--suite", "all", "--spec-version", spec)
        for name in RACES & seen.keys():
            for _ in range(AGAIN):
                if not failed(seen[name]):
                    break
                seen |= suite("server", "--url", url, "--scenario", name, "--spec-version", spec)
        return seen

    before = direct and run(direct)
    for url in urls:
        seen = run(url)
        print(json.dumps(score(seen, before or seen)), flush=True)


def client(command, spec):
    listed = subprocess.check_output([*SUITE, "list", "--client", "--spec-version", spec], text=True)
    # Those of `auth/` have the server be the one that asks for a token, which is between it and the gateway.
    names = [name for name in re.findall(r"^ +- (\S+)", listed, re.M) if not name.startswith("auth/")]

    def run(program):
        seen = {}
        for name in names:
            seen |= suite("client", "--command", shlex.join(map(str, program)), "--scenario", name, "--spec-version", spec)
        return seen

    before = run(CLIENT)
    seen = run([sys.executable, __file__, "through", command]) if command else before
    print(json.dumps(score(seen, before)))


def through(command, upstream):
    """What the suite takes for the client: the SDK's client, and the command between it and the suite."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the suite has lost patience
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = command.replace("{upstream}", shlex.quote(upstream)).replace("{port}", str(port))
    with tempfile.TemporaryDirectory() as folder:
        proxy = subprocess.Popen(command, shell=True, cwd=folder, stdout=sys.stderr, start_new_session=True)
        try:
            while not listens(port):
                try:
                    sys.exit(f"the proxy ended: {proxy.wait(0.02)}")
                except subprocess.TimeoutExpired:
                    pass
            sys.exit(subprocess.run([*CLIENT, f"http://127.0.0.1:{port}/mcp"]).returncode)
        finally:
            if proxy.poll() is None:
                os.killpg(proxy.pid, signal.SIGTERM)
            proxy.wait()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("server", help="the suite as the client of a URL")
    add.add_argument("--url", dest="urls", metavar="URL", action="append", required=True)
    add.add_argument("--spec", required=True)
    add.add_argument("--direct", metavar="URL", help="the same server without the proxy")
    add.set_defaults(run=server)
    add = commands.add_parser("client", help="the suite as the server of the SDK's client")
    add.add_argument("--command", help="what is between the two: a shell command with {upstream} and {port}")
    add.add_argument("--spec", required=True)
    add.set_defaults(run=client)
    add = commands.add_parser("through", help="what `client` has the suite start")
    add.add_argument("command")
    add.add_argument("upstream")
    add.set_defaults(run=through)
    arguments = vars(parser.parse_args())
    arguments.pop("run")(**arguments)


if __name__ == "__main__":
    main()
