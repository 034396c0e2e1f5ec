#!/usr/bin/env bash
# Checks every client against every server without a gateway and prints a table: one row per client and check.
# Argument: the checks (separated by commas, all without). With BOTH=1 the servers that speak both eras come too.
set -uo pipefail
cd "$(dirname "$0")"
peers=../../.peers
all=echo,tools,form,decline,url,twice,sample,roots,progress,log,cancel,list_changed,updated,resources,read,template
all+=,prompts,prompt,complete,complete_template,ping,instructions,no_capability
checks=${1:-$all}
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$out"' EXIT

mkdir -p $peers/node/compat
cp ./*.mjs $peers/node/compat/ # beside the packages they import

command_of() { # file
  case $1 in
    *_py1.py) command=($peers/py1/bin/python "$1") ;;
    *_py2.py) command=($peers/py2/bin/python "$1") ;;
    *.mjs) command=(node $peers/node/compat/"$1") ;;
  esac
}

port=${PORT:-7710}
test_server() { # era server-file arguments-of-the-server...
  local era=$1 file=$2 clients client
  shift 2
  port=$((port + 1))
  local name=${file%.*}${1:+-$1}
  command_of "$file"
  "${command[@]}" $port "$@" 2>"$out/log-$name" &
  for _ in $(seq 200); do (: </dev/tcp/127.0.0.1/$port) 2>/dev/null && break; sleep 0.1; done
  clients="client_py2.py client_ts2.mjs"
  [ "$era" = legacy ] && clients="client_py1.py client_ts1.mjs $clients"
  for client in $clients; do
    rm -f "$out/marker"
    command_of $client
    "${command[@]}" http://127.0.0.1:$port/mcp "$era" key "$checks" "$out/marker" 2>&1 |
      sed "s/^/$era ${client%.*} ${name#server_} /" >>"$out/rows"
  done
}

test_server legacy server_py1.py
test_server legacy server_py2.py legacy
test_server legacy server_ts1.mjs
test_server legacy server_ts2.mjs legacy
test_server modern server_py2.py modern
test_server modern server_ts2.mjs modern
if [ -n "${BOTH:-}" ]; then
  for era in legacy modern; do for file in server_py2.py server_ts2.mjs; do test_server $era $file both; done; done
fi

python3 - "$out/rows" "$checks" <<'PYTHON'
import json, sys

rows, servers, failures = {}, {}, []
for line in open(sys.argv[1]):
    era, client, server, rest = line.rstrip("\n").split(" ", 3)
    try:
        report = json.loads(rest)
        mark = {True: "ok", False: "FAIL", None: "n/a"}[report["ok"]]
    except (ValueError, KeyError, TypeError):
        failures.append(line)
        continue
    rows.setdefault((era, client), {}).setdefault(report["cap"], {})[server] = mark
    servers.setdefault(era, {})[server] = None
    if mark != "ok":
        failures.append(line)
for (era, client), caps in rows.items():
    print(f"{era + ' ' + client:24}", *(f"{server:12}" for server in servers[era]))
    for cap in sys.argv[2].split(","):
        print(f"  {cap:22}", *(f"{caps.get(cap, {}).get(server, 'MISSING'):12}" for server in servers[era]))
print(*failures, sep="")
PYTHON
