#!/usr/bin/env python3
"""Measures the strategies of `portcullis select`, and serves recorded answers of models in place of the models.

    strategies.py files FOLDER OUT [--tools 500] [--requests 200] [--pairs FILE]
        writes OUT/tools.jsonl, OUT/queries.jsonl and OUT/expected.json: a catalogue of so many tools and requests for
        them, in an order that is always the same. FOLDER is that of the laboratory of the selector
        (policy/selector/examples/lab); --pairs is a file of written requests, such as policy/selector/data/pairs.tsv.

    strategies.py requests PORTCULLIS OUT --judge-model MODEL
        writes OUT/judge-requests.jsonl: what the judge is asked for each request, as `portcullis select
        --print-judge-requests` prints it.

    strategies.py record OUT URL [--token-file FILE]
        sends OUT/judge-requests.jsonl to a model, and writes OUT/judge-answers.jsonl.

    strategies.py serve OUT [--port 0] [--delay MILLISECONDS]
        answers `/chat/completions` from OUT/judge-answers.jsonl, on loopback, by the SHA-256 of the body of each
        question. What was not recorded is answered with 404. Prints its URL.

    strategies.py measure PORTCULLIS OUT [--judge-url URL --judge-model MODEL] [--embeddings-url URL --embeddings-model MODEL]
        prints a table: for each strategy the median and the 99th percentile of the time, and how often the right tool
        was first and among five. Without URLs the table has no rows for a judge or for embeddings.

A line of judge-answers.jsonl is `{"key": KEY, "order": [NUMBERS]}`, with the `key` of the line of judge-requests.jsonl that
it answers, and the numbers of the candidates that fit, the best one first; or `{"key": KEY, "answer": {…}}` with the body
that a model answered.
"""

import argparse
import hashlib
import http.server
import json
import math
import pathlib
import random
import subprocess
import sys
import time
import urllib.request

POOLS = ["wild", "livemcp", "mcpproxy", "metatool", "bfcl_live", "sealtools"]
# Servers of these are names of benchmarks, which no gateway has.
WITHOUT_SERVERS = {"metatool", "bfcl_live", "sealtools"}


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def catalogue(folder):
    """Every tool by `POOL|ID`."""
    tools = {}
    for pool in POOLS:
        for row in lines(folder / "queries" / f"tools_{pool}.jsonl"):
            server = "" if pool in WITHOUT_SERVERS else row.get("server") or ""
            tools[f"{pool}|{row['tool_id']}"] = {"server": server, "tool": row["tool"]}
    for row in lines(folder / "benign_tools.jsonl"):
        tools[f"benign|{row['id']}"] = {"server": row.get("server") or "", "tool": row["tool"]}
    return {id: row for id, row in tools.items() if row["tool"].get("name")}


def requests_of(arguments, tools):
    """Requests with the tools that they are about."""
    if arguments.pairs:
        with open(arguments.pairs, encoding="utf-8") as file:
            pairs = [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]
        return [(request, [id]) for id, request in pairs if id in tools]
    found = []
    for row in lines(arguments.folder / "queries" / "queries.jsonl"):
        expected = [f"{row['tools_pool']}|{id}" for id in row["expected"]]
        if expected and all(id in tools for id in expected):
            found.append((row["query"], expected))
    return found


def files(arguments):
    tools = catalogue(arguments.folder)
    dice = random.Random(11)
    requests = requests_of(arguments, tools)
    dice.shuffle(requests)
    # A request whose tools would make the catalogue too long is left out.
    chosen, needed = [], set()
    for request, expected in requests:
        if len(chosen) < arguments.requests and len(needed | set(expected)) <= arguments.tools:
            chosen.append((request, expected))
            needed |= set(expected)
    others = sorted(set(tools) - needed)
    dice.shuffle(others)
    ids = sorted(needed) + others[: arguments.tools - len(needed)]
    # The tools that are needed must not come first: equal scores would be decided for them.
    dice.shuffle(ids)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_lines(arguments.out / "tools.jsonl", [{"tool_id": id, **tools[id]} for id in ids])
    queries = [{"id": n, "query": request} for n, (request, _) in enumerate(chosen)]
    write_lines(arguments.out / "queries.jsonl", queries)
    expected = [expected for _, expected in chosen]
    (arguments.out / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
    print(f"{len(ids)} tools, {len(chosen)} requests")


def select(arguments, *more):
    command = [arguments.portcullis, "select", "--tools", arguments.out / "tools.jsonl"]
    command += ["--queries", arguments.out / "queries.jsonl", "--limit", "5", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def requests(arguments):
    text = select(arguments, "--print-judge-requests", "--judge-model", arguments.judge_model)
    (arguments.out / "judge-requests.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(text.splitlines())} questions")


def body_of(line):
    """The body of a question, byte for byte as the line has it."""
    return line.rstrip("\n").split(',"request":', 1)[1][:-1].encode()


def record(arguments):
    url = arguments.url.rstrip("/") + "/chat/completions"
    headers = {"content-type": "application/json"}
    if arguments.token_file:
        headers["authorization"] = "Bearer " + arguments.token_file.read_text().strip()
    answers = []
    with open(arguments.out / "judge-requests.jsonl", encoding="utf-8") as file:
        for line in file:
            body = body_of(line)
            asked = urllib.request.Request(url, data=body, headers=headers)
            with urllib.request.urlopen(asked, timeout=120) as answer:
                said = json.loads(answer.read())
            answers.append({"key": hashlib.sha256(body).hexdigest(), "answer": said})
    write_lines(arguments.out / "judge-answers.jsonl", answers)
    print(f"{len(answers)} answers")


def answer_of(row):
    """The body of an answer that was recorded."""
    if "answer" in row:
        return row["answer"]
    content = json.dumps({"order": row["order"]})
    message = {"role": "assistant", "content": content}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def serve(arguments):
    recorded = lines(arguments.out / "judge-answers.jsonl")
    answers = {row["key"]: json.dumps(answer_of(row)).encode() for row in recorded}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer = answers.get(hashlib.sha256(body).hexdigest())
            time.sleep(arguments.delay / 1000)
            self.send_response(200 if answer else 404)
            self.send_header("content-type", "application/json")
            answer = answer or b"{}"
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


def wilson(found, of):
    """The interval of Wilson at 95 % for a share, in percent."""
    z, share = 1.96, found / of
    middle = share + z * z / (2 * of)
    width = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 100 / (1 + z * z / of)
    return (middle - width) * scale, (middle + width) * scale


def time_of(micros):
    return f"{micros} µs" if micros < 10_000 else f"{micros / 1000:.0f} ms"


def row_of(name, answers, expected):
    times = sorted(answer["micros"] for answer in answers)
    first = among = 0.0
    for answer in answers:
        right = set(expected[answer["id"]])
        first += bool(answer["tools"] and answer["tools"][0] in right)
        among += len(right & set(answer["tools"][:5])) / len(right)
    of = len(answers)
    cells = [name, str(of), time_of(times[of // 2]), time_of(times[of * 99 // 100])]
    for found in (first, among):
        low, high = wilson(found, of)
        cells.append(f"{100 * found / of:.1f} % ({low:.0f} to {high:.0f})")
    return "| " + " | ".join(cells) + " |"


def measure(arguments):
    expected = json.loads((arguments.out / "expected.json").read_text(encoding="utf-8"))
    judge = ["--judge-url", arguments.judge_url, "--judge-model", arguments.judge_model]
    judge += ["--judge-timeout", arguments.judge_timeout]
    near = ["--embeddings-url", arguments.embeddings_url, "--embeddings-model", arguments.embeddings_model]
    strategies = [("lexical", "lexical", []), ("semantic", "semantic", []), ("fused", "fused", [])]
    if arguments.judge_url:
        strategies.append(("fused and judge", "judge", judge))
    if arguments.embeddings_url:
        name = "all" if arguments.judge_url else "fused and embeddings"
        strategies.append((name, "all", near + (judge if arguments.judge_url else [])))
    print("| strategy | requests | median | 99th percentile | first | among five |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, strategy, more in strategies:
        text = select(arguments, "--strategy", strategy, "--explain", *more)
        answers = [json.loads(line) for line in text.splitlines()]
        print(row_of(name, answers, expected), flush=True)
        outcomes = {}
        for answer in answers:
            if "judge" in answer:
                outcomes[answer["judge"]] = outcomes.get(answer["judge"], 0) + 1
        if outcomes:
            print(f"judge: {outcomes}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    path = pathlib.Path
    verb = verbs.add_parser("files")
    verb.add_argument("folder", type=path)
    verb.add_argument("out", type=path)
    verb.add_argument("--tools", type=int, default=500)
    verb.add_argument("--requests", type=int, default=200)
    verb.add_argument("--pairs", type=path)
    verb.set_defaults(run=files)
    verb = verbs.add_parser("requests")
    verb.add_argument("portcullis")
    verb.add_argument("out", type=path)
    verb.add_argument("--judge-model", required=True)
    verb.set_defaults(run=requests)
    verb = verbs.add_parser("record")
    verb.add_argument("out", type=path)
    verb.add_argument("url")
    verb.add_argument("--token-file", type=path)
    verb.set_defaults(run=record)
    verb = verbs.add_parser("serve")
    verb.add_argument("out", type=path)
    verb.add_argument("--port", type=int, default=0)
    verb.add_argument("--delay", type=float, default=0)
    verb.set_defaults(run=serve)
    verb = verbs.add_parser("measure")
    verb.add_argument("portcullis")
    verb.add_argument("out", type=path)
    verb.add_argument("--judge-url", default="")
    verb.add_argument("--judge-model", default="")
    verb.add_argument("--judge-timeout", default="30s")
    verb.add_argument("--embeddings-url", default="")
    verb.add_argument("--embeddings-model", default="")
    verb.set_defaults(run=measure)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
