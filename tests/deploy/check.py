#!/usr/bin/env python3
"""Checks everything under deploy/ that can be checked without a cluster, a daemon or the network.

    tests/deploy/setup
    tests/.peers/deploy/venv/bin/python tests/deploy/check.py static --portcullis BIN [--metrics FILE] [--strict]
    tests/.peers/deploy/venv/bin/python tests/deploy/check.py image --portcullis BIN

Without --metrics a gateway is started for a moment to get them. A tool that is not there is told of and left out;
with --strict that is a failure, unless setup does not install it. The exit code is 1 when anything is wrong.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import kubernetes_validate
import promql_parser
import yaml

import sbom

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEPLOY = ROOT / "deploy"
PEERS = HERE.parent / ".peers" / "deploy"
CHART = DEPLOY / "helm" / "portcullis"
# The oldest Kubernetes the chart admits, the first with native sidecars, and one that is new.
KUBERNETES = ["1.27", "1.29", "1.34"]
# Prometheus makes these itself.
OF_PROMETHEUS = {"up"}
# The worst that `systemd-analyze security` may say of the unit, of 10.
EXPOSURE = 1.5

# What setup cannot install: Debian has no version of it that knows components.
NOT_INSTALLED = {"kustomize or kubectl"}

problems: list[str] = []
left_out: list[str] = []


def wrong(what):
    problems.append(what)


def require(good, what):
    if not good:
        wrong(what)
    return good


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **more)


def must(what, *command, **more):
    """Runs something that has to succeed; what it says otherwise is the problem."""
    done = run(*command, **more)
    require(done.returncode == 0, f"{what}: {(done.stdout + done.stderr).strip()}")
    return done


def name(path):
    return str(path.relative_to(ROOT))


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def tool(*names):
    """The first of these programs that is there."""
    for one in names:
        beside = Path(sys.executable).parent / one
        found = str(beside) if beside.exists() else shutil.which(one)
        if found:
            return found
    left_out.append(" or ".join(names))
    return None


# ---- files


def check_files():
    """Everything is what its name says."""
    count = 0
    for path in sorted(DEPLOY.rglob("*")):
        if not path.is_file() or CHART / "templates" in path.parents:
            continue
        try:
            if path.suffix in (".yaml", ".yml"):
                documents(path)
            elif path.suffix == ".json":
                json.loads(path.read_text())
            else:
                continue
            count += 1
        except (yaml.YAMLError, ValueError) as error:
            wrong(f"{name(path)}: {error}")
    must("copies are out of date, run deploy/sync", DEPLOY / "sync", "--check")
    for script in (DEPLOY / "sync", DEPLOY / "image" / "stage", HERE / "setup"):
        must(name(script), "bash", "-n", script)
    for page in DEPLOY.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in link:
                require((page.parent / link).exists(), f"{name(page)}: there is no `{link}`")
    return f"{count} files"


# ---- configurations of the gateway


def validate(portcullis, where, text, beside=()):
    """`portcullis validate`, with what the file refers to moved to a folder where it is."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for one in ("etc", "run", "log", "lib", "credentials"):
            (folder / one).mkdir()
        key = "1f" * 32
        for file in ("run/session-key", "credentials/session-key", "credentials/ops-token"):
            (folder / file).write_text(key)
        run(portcullis, "audit", "keygen", folder / "credentials" / "audit-key", "--origin", "mcp.example.com/prod")
        for file, content in beside:
            (folder / "etc" / file).write_text(content)
        (folder / "lib" / "revoked.yaml").write_text("{}\n")
        for from_, to in (("/etc/portcullis", "etc"), ("/run/secrets/portcullis", "run"), ("/var/log/portcullis", "log"),
                          ("/var/lib/portcullis", "lib")):
            text = text.replace(from_, str(folder / to))
        # In the image; here it is somewhere else.
        text = text.replace("command: /portcullis", f"command: {portcullis}")
        (folder / "etc" / "portcullis.yaml").write_text(text)
        environment = {
            **os.environ, "PORTCULLIS_API_KEY_SHA256": "ab" * 32, "CREDENTIALS_DIRECTORY": str(folder / "credentials"),
        }
        must(where, portcullis, "validate", "--elsewhere", folder / "etc" / "portcullis.yaml", env=environment)


def check_configurations(portcullis):
    # A provider of dashboards for Grafana has the same file name.
    files = sorted(path for path in DEPLOY.rglob("portcullis.yaml") if "portcullis.dev/v1" in path.read_text())
    revocations = (DEPLOY / "kustomize" / "base" / "revocations.yaml").read_text()
    for path in files:
        validate(portcullis, name(path), path.read_text(), [("revocations.yaml", revocations)])
    return f"{len(files)} files: portcullis validate"


# ---- Kubernetes

LABEL = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")


def check_pod(where, metadata, spec):
    """What the restricted Pod Security Standard asks for, and what we ask for beyond it."""
    pod = spec.get("securityContext", {})
    require(spec.get("automountServiceAccountToken") is False, f"{where}: a token of the account is mounted")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        require(not spec.get(key), f"{where}: {key}")
    allowed = {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "csi", "downwardAPI", "ephemeral"}
    for volume in spec.get("volumes", []):
        require(set(volume) - {"name"} <= allowed, f"{where}: volume {volume['name']} is of a kind that is not admitted")
    names = {volume["name"] for volume in spec.get("volumes", [])}
    for container in spec["containers"] + spec.get("initContainers", []):
        at = f"{where}: container {container['name']}"
        context = container.get("securityContext", {})
        require(context.get("allowPrivilegeEscalation") is False, f"{at}: can gain rights")
        require(context.get("readOnlyRootFilesystem") is True, f"{at}: its root can be written to")
        require(context.get("capabilities", {}).get("drop") == ["ALL"], f"{at}: keeps capabilities")
        require(not context.get("privileged"), f"{at}: is privileged")
        require({**pod, **context}.get("runAsNonRoot") is True, f"{at}: may be root")
        require({**pod, **context}.get("runAsUser") not in (None, 0), f"{at}: has no user")
        require({**pod, **context}.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{at}: no seccomp")
        require("memory" in container.get("resources", {}).get("limits", {}), f"{at}: no limit of memory")
        require("requests" in container.get("resources", {}), f"{at}: requests nothing")
        image = container["image"].rsplit("/", 1)[-1]
        require("@sha256:" in image or re.search(r":[^:]*\d", image), f"{at}: image `{container['image']}` names no version")
        for mount in container.get("volumeMounts", []):
            require(mount["name"] in names, f"{at}: there is no volume {mount['name']}")
            require("subPath" not in mount, f"{at}: {mount['name']} with subPath would never change")
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "portcullis" == container["name"]:
                got = container.get(probe, {}).get("httpGet", {})
                path = "/livez" if probe == "livenessProbe" else "/readyz"
                require(got.get("path") == path and got.get("port") in ports, f"{at}: {probe} is not {path} of ops")


def check_custom(where, thing, alerts):
    """By hand what there is no schema for: PodMonitor and PrometheusRule."""
    spec = thing["spec"]
    if thing["kind"] == "PodMonitor":
        require(set(spec) <= {"jobLabel", "selector", "podMetricsEndpoints", "namespaceSelector"}, f"{where}: unknown member")
        require(spec["selector"]["matchLabels"], f"{where}: selects everything")
        for endpoint in spec["podMetricsEndpoints"]:
            require(set(endpoint) <= {"port", "path", "interval"} and endpoint["port"] == "ops", f"{where}: not the ops port")
    elif thing["kind"] == "PrometheusRule":
        require(set(spec) == {"groups"}, f"{where}: unknown member")
        text = json.dumps(spec, sort_keys=True).replace("https://runbooks.example.com/", alerts["base"])
        require(text == json.dumps({"groups": alerts["groups"]}, sort_keys=True), f"{where}: not the rules of alerts.yaml")


def check_objects(where, objects, portcullis, alerts, versions=KUBERNETES):
    """Against the schemas of Kubernetes, and against each other."""
    seen = set()
    for thing in objects:
        at = f"{where}: {thing['kind']} {thing['metadata']['name']}"
        identity = (thing["apiVersion"], thing["kind"], thing["metadata"]["name"])
        require(identity not in seen, f"{at}: is there twice")
        seen.add(identity)
        for key, value in {**thing["metadata"].get("labels", {})}.items():
            require(LABEL.match(value) and len(value) <= 63, f"{at}: label {key}: `{value}`")
        if "monitoring.coreos.com" in thing["apiVersion"]:
            check_custom(at, thing, alerts)
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(thing, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                wrong(f"{at}: Kubernetes {version}: {error.message} at {'.'.join(map(str, error.path))}")
        if thing["kind"] == "Pod":
            check_pod(at, thing["metadata"], thing["spec"])
        if thing["kind"] == "Deployment":
            template = thing["spec"]["template"]
            check_pod(at, template["metadata"], template["spec"])
            labels, chosen = template["metadata"]["labels"], thing["spec"]["selector"]["matchLabels"]
            require(chosen.items() <= labels.items(), f"{at}: does not select its own pods")
            grace = template["spec"].get("terminationGracePeriodSeconds", 30)
            require(grace > 10, f"{at}: {grace} s is not longer than limits.drainTimeout")
        if thing["kind"] == "ConfigMap" and "portcullis.yaml" in thing.get("data", {}) and portcullis:
            data = thing["data"]
            beside = [(file, data[file]) for file in ("revocations.yaml",) if file in data]
            validate(portcullis, at, data["portcullis.yaml"], beside)
    pods = [thing["spec"]["template"]["metadata"]["labels"] for thing in objects if thing["kind"] == "Deployment"]
    for thing in objects:
        spec = thing.get("spec", {})
        chosen = {
            "Service": lambda: spec["selector"], "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
            "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"], "PodMonitor": lambda: spec["selector"]["matchLabels"],
        }.get(thing["kind"])
        if chosen and pods:
            require(any(chosen().items() <= labels.items() for labels in pods),
                    f"{where}: {thing['kind']} {thing['metadata']['name']} selects no pod")


def check_kustomize(portcullis, alerts):
    kubectl = tool("kustomize", "kubectl")
    if not kubectl:
        return "not built: neither kustomize nor kubectl is there"
    build = [kubectl, "build"] if kubectl.endswith("kustomize") else [kubectl, "kustomize"]
    count = 0
    for folder in ("base", "overlays/example", "overlays/sidecar"):
        done = must(f"kustomize {folder}", *build, DEPLOY / "kustomize" / folder)
        objects = [thing for thing in yaml.safe_load_all(done.stdout) if thing]
        # Native sidecars are of 1.29.
        versions = KUBERNETES[1:] if "sidecar" in folder else KUBERNETES
        check_objects(f"kustomize {folder}", objects, portcullis, alerts, versions)
        kinds = [thing["kind"] for thing in objects]
        if folder == "overlays/sidecar":
            pod = next(thing for thing in objects if thing["kind"] == "Deployment")["spec"]["template"]["spec"]
            beside = pod.get("initContainers", [{}])[0]
            require(beside.get("restartPolicy") == "Always", "kustomize overlays/sidecar: the gateway is no native sidecar")
        else:
            wanted = {"Namespace", "ServiceAccount", "ConfigMap", "Service", "Deployment", "NetworkPolicy",
                      "PodDisruptionBudget", "HorizontalPodAutoscaler"}
            require(wanted <= set(kinds), f"kustomize {folder}: without {wanted - set(kinds)}")
        count += len(objects)
    version = run(kubectl, "version", *([] if kubectl.endswith("kustomize") else ["--client"])).stdout.strip().splitlines()[-1]
    return f"{count} objects built by {Path(kubectl).name} ({version}), schemas of {', '.join(KUBERNETES)}"


def check_helm(portcullis, alerts):
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    defaults = documents(CHART / "values.yaml")[0]

    def closed(at, part):
        if "properties" in part:
            require(part.get("additionalProperties") is False, f"values.schema.json: {at} admits what it does not know")
            for key, below in part["properties"].items():
                closed(f"{at}/{key}", below)

    closed("", schema)
    require(set(defaults) == set(schema["properties"]) - {"global"}, "values.yaml and values.schema.json differ in their keys")
    uncommented = [line for before, line in zip(["", *(CHART / "values.yaml").read_text().splitlines()],
                                                (CHART / "values.yaml").read_text().splitlines())
                   if re.match(r"^[a-zA-Z]", line) and not before.strip().startswith("#")]
    grouped = {"extraVolumeMounts", "prometheusRule", "nodeSelector", "tolerations", "affinity", "podAnnotations", "podLabels",
               "priorityClassName", "service", "podDisruptionBudget", "autoscaling", "resources", "image", "audit",
               "serviceAccount", "existingSecret", "sessionKeys"}
    for line in uncommented:
        require(line.split(":")[0] in grouped, f"values.yaml: `{line}` is not explained")
    sets = {"default": {}} | {path.stem: documents(path)[0] for path in sorted((CHART / "ci").glob("*.yaml"))}
    require(len(sets) >= 4, "fewer than three sets of values beside the default")
    for which, values in sets.items():
        for error in validator.iter_errors(values if which != "default" else defaults):
            if which == "default" or error.validator != "required":
                wrong(f"values {which}: {error.message} at {'.'.join(map(str, error.path))}")
    try:
        import helm_sdkpy  # noqa: F401
    except ImportError:
        left_out.append("helm-sdkpy")
        return "values only: Helm's library is not there"

    def helm(values):
        return run(sys.executable, HERE / "chart.py", CHART, "mcp", "portcullis", input=json.dumps(values))

    count = 0
    for which, values in sets.items():
        done = helm(values)
        if not require(done.returncode == 0, f"helm {which}: {done.stderr.strip()}"):
            continue
        release = json.loads(done.stdout)
        require(not release["lint"].get("Errors"), f"helm lint {which}: {release['lint']}")
        objects = [thing for text in [release["manifest"], *release["hooks"]] for thing in yaml.safe_load_all(text) if thing]
        check_objects(f"helm {which}", objects, portcullis, alerts)
        count += len(objects)
        kinds = [thing["kind"] for thing in objects]
        require("portcullis" in release["notes"].lower(), f"helm {which}: no notes")
        require(("NetworkPolicy" in kinds) == values.get("networkPolicy", {}).get("enabled", True), f"helm {which}: NetworkPolicy")
        if which == "full":
            require(kinds.count("ConfigMap") == 4 and "PodMonitor" in kinds and "PrometheusRule" in kinds, f"helm full: {kinds}")
    if problems:
        return "not as it should be"

    # A change that the gateway takes while it runs replaces no pod; one that it does not take does.
    def template(values):
        things = yaml.safe_load_all(json.loads(helm(values).stdout)["manifest"])
        return next(thing for thing in things if thing and thing["kind"] == "Deployment")["spec"]["template"]

    before = template({})
    require(before == template({"config": {"policy": {"contact": "somebody"}}}), "helm: a change of the policy would replace pods")
    require(before == template({"lockfile": "{}", "revocations": {"principals": ["x"]}}), "helm: a lockfile would replace pods")
    require(before != template({"config": {"limits": {"inFlight": 7}}}), "helm: a change of limits would not be taken")
    # What must not be taken.
    for values, why in (({"replicas": 3}, "a misspelt value"), ({"service": {"type": "Cluster"}}, "a type of Service"),
                        ({"existingConfigMap": "a", "existingSecret": "b"}, "two sources")):
        require(helm(values).returncode != 0, f"helm takes {why}: {values}")
    return f"{len(sets)} sets of values, {count} objects made by Helm 4.3.0, schemas of {', '.join(KUBERNETES)}"


# ---- PromQL


def families(text):
    """Names of series and of families in what /metrics says, and names of labels."""
    series, labels = set(), set()
    for line in text.splitlines():
        if kind := re.match(r"# TYPE (\S+) (\S+)", line):
            series |= {kind[1]} if kind[2] != "histogram" else {kind[1] + end for end in ("_bucket", "_sum", "_count")}
        elif line and not line.startswith("#"):
            labels |= set(re.findall(r'([a-zA-Z_]\w*)="', line))
    return series, labels


def of_source():
    """Families that show only when there is something to count, from the source: operations and certificates."""
    text = (ROOT / "gateway" / "src" / "metrics" / "table.rs").read_text()
    found = set()
    # A plain counter always shows.
    row = r'name: "([a-z0-9_.]+)",\s*unit: "([a-zA-Z]*)",\s*help: "(?:[^"\\]|\\.|\\\n)*",\s*source: MetricSource::(?!Count\()'
    for family, unit in re.findall(row, text):
        base = family.replace(".", "_") + {"s": "_seconds", "By": "_bytes"}.get(unit, "")
        found |= {base, base + "_total", base + "_bucket", base + "_sum", base + "_count"}
    return found


def labels_of_source():
    """The labels of operations, which show only after there was one."""
    text = (ROOT / "gateway" / "src" / "metrics" / "series.rs").read_text()
    return {label.replace(".", "_") for label in re.findall(r'"((?:mcp|gen_ai|portcullis|error|rpc)\.[a-z_.]+)"', text)}


def names_in(node):
    """The metrics that a parsed expression asks for."""
    found = {node.name} if isinstance(node, promql_parser.VectorSelector) else set()
    for part in ("lhs", "rhs", "expr", "param", "args", "vector_selector"):
        below = getattr(node, part, None)
        for one in below if isinstance(below, list) else [below]:
            found |= names_in(one) if one is not None else set()
    return found


def labels_in(node, text):
    """The labels that an expression chooses and groups by."""
    found = {label for group in re.findall(r"\bby \(([^)]*)\)", text) for label in re.split(r",\s*", group) if label}

    def walk(node):
        if isinstance(node, promql_parser.VectorSelector):
            found.update(matcher.name for matcher in node.matchers.matchers)
        for part in ("lhs", "rhs", "expr", "param", "args", "vector_selector"):
            below = getattr(node, part, None)
            for one in below if isinstance(below, list) else [below]:
                if one is not None:
                    walk(one)

    walk(node)
    return found


def check_expression(where, text, known):
    text = text.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
    try:
        parsed = promql_parser.parse(text)
    except ValueError as error:
        return wrong(f"{where}: {error}: {text}")
    used = names_in(parsed)
    require(used, f"{where}: asks for nothing: {text}")
    for metric in used:
        require(metric in known, f"{where}: there is no metric `{metric}`")
    for label in labels_in(parsed, text):
        require(label in LABELS, f"{where}: there is no label `{label}`")
    return None


def check_values(where, text):
    """Reasons, outcomes, detectors and types of errors that an expression names have to be those of the gateway."""
    codes = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs" / "reasons.md").read_text())) | {"tool_error"}
    for label, values in re.findall(r'(reason|outcome|detector|error_type)=~?"([^"$]*)"', text):
        for value in values.split("|"):
            if value and "*" not in value:
                there = value in codes if label == "error_type" else f'{label}="{value}"' in EXPOSITION
                require(there, f"{where}: there is no {label} `{value}`")


EXPOSITION = ""
# Besides those of the gateway: Prometheus's own, and those that show only with TLS.
LABELS = {"job", "instance", "listener"}


def check_alerts(known):
    path = DEPLOY / "prometheus" / "alerts.yaml"
    groups = documents(path)[0]["groups"]
    rules = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    require(sum(len(group["rules"]) for group in groups) == len(rules), "an alert is there twice")
    base = "https://github.com/portcullis/portcullis/blob/main/deploy/runbooks/"
    for alert, rule in rules.items():
        check_expression(f"alert {alert}", rule["expr"], known)
        check_values(f"alert {alert}", rule["expr"])
        require(rule["labels"]["severity"] in ("critical", "warning"), f"alert {alert}: severity")
        require(set(rule["annotations"]) == {"summary", "description", "runbook_url"}, f"alert {alert}: annotations")
        require(rule["annotations"]["runbook_url"] == f"{base}{alert}.md", f"alert {alert}: runbook_url")
        runbook = DEPLOY / "runbooks" / f"{alert}.md"
        if require(runbook.exists(), f"alert {alert}: no runbook"):
            text = runbook.read_text()
            for part in ("Meaning", "Impact", "Diagnosis", "What to do"):
                require(f"\n## {part}\n" in text, f"{name(runbook)}: no `{part}`")
            require(f"Severity: {rule['labels']['severity']}\n" in text, f"{name(runbook)}: another severity")
    for runbook in (DEPLOY / "runbooks").glob("*.md"):
        require(runbook.stem in rules or runbook.stem == "README", f"{name(runbook)}: of no alert")
    fires, silent = set(), set()
    for test in documents(DEPLOY / "prometheus" / "alerts.test.yaml")[0]["tests"]:
        for case in test["alert_rule_test"]:
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
    require(fires == set(rules), f"alerts without a test that fires: {set(rules) - fires}")
    require(silent == set(rules), f"alerts without a test that stays silent: {set(rules) - silent}")
    promtool = tool("promtool")
    if promtool:
        must("promtool check rules", promtool, "check", "rules", path)
        must("promtool test rules", promtool, "test", "rules", DEPLOY / "prometheus" / "alerts.test.yaml")
        config = (DEPLOY / "compose" / "prometheus.yaml").read_text().replace("/etc/prometheus/alerts.yaml", str(path))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(config)
            file.flush()
            must("promtool check config", promtool, "check", "config", file.name)
    return {"groups": groups, "base": base}, f"{len(rules)} alerts, each with a runbook and tests" + (": promtool" if promtool else "")


def check_dashboards(known):
    count, uids = 0, set()
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        board = json.loads(path.read_text())
        require(board["uid"] not in uids, f"{name(path)}: its uid is there twice")
        uids.add(board["uid"])
        variables = {variable["name"] for variable in board["templating"]["list"]}
        require({"datasource", "job", "instance"} <= variables, f"{name(path)}: without variables")
        ids = [panel["id"] for panel in board["panels"]]
        require(len(ids) == len(set(ids)), f"{name(path)}: an id is there twice")
        taken = set()
        for panel in board["panels"]:
            at = f"{name(path)}: {panel['title']}"
            grid = panel["gridPos"]
            cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
            require(not cells & taken and grid["x"] + grid["w"] <= 24, f"{at}: lies on another panel")
            taken |= cells
            require(panel["type"] == "row" or panel["targets"], f"{at}: shows nothing")
            for target in panel.get("targets", []):
                require(target["datasource"]["uid"] == "${datasource}", f"{at}: a data source of its own")
                check_expression(at, target["expr"], known)
                check_values(at, target["expr"])
                count += 1
        for note in board["annotations"]["list"]:
            check_expression(f"{name(path)}: {note['name']}", note["expr"], known)
    return f"{len(uids)} dashboards, {count} queries: promql-parser"


# What a gateway has, in seconds, to come up or to go down before it is killed.
PATIENCE = 60


@contextlib.contextmanager
def no_longer_than(seconds, gateway):
    """Kills the gateway, and what it has started, when the block takes longer: what reads its output then sees the end."""
    late = threading.Timer(seconds, os.killpg, (gateway.pid, signal.SIGKILL))
    late.start()
    try:
        yield
    finally:
        late.cancel()


def announced(gateway, lines, said):
    """Where a gateway serves and where its ops listener is, read from what it says until it knows its server's tools."""
    places = {}
    with no_longer_than(PATIENCE, gateway):
        for line in lines:
            said.append(line)
            for what in ("listens on", "ops on"):
                if f"{what} http://" in line:
                    places[what] = line.split(f"{what} ")[1].strip()
            if '"tools listed"' in line:
                return places["listens on"], places["ops on"]
    raise OSError("the gateway did not come up: " + "".join(said))


def fetch(url, body=None, headers=()):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, dict(headers)), timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def live_metrics(portcullis):
    """What a gateway says of itself, after a call that was answered and one that was denied."""
    environment = {**os.environ, "LISTEN": "127.0.0.1:0", "OPS": "127.0.0.1:0"}
    with tempfile.TemporaryDirectory() as folder:
        gateway = subprocess.Popen([portcullis, "run"], cwd=folder, env=environment, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            listener, ops = announced(gateway, gateway.stderr, [])
            for tool_name, arguments in (("add", {"a": 1, "b": 2}), ("delete_account", {"account": "x"})):
                meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                        "params": {"name": tool_name, "arguments": arguments, "_meta": meta}}
                fetch(f"{listener}/mcp", json.dumps(body).encode(), {
                    "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                    "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool_name}.items())
            return fetch(f"{ops}/metrics")
        finally:
            gateway.terminate()
            with no_longer_than(PATIENCE, gateway):
                gateway.stderr.read()
                gateway.wait()


# ---- compose, systemd, containers


def check_compose():
    folder = DEPLOY / "compose"
    compose = documents(folder / "compose.yaml")[0]
    schema = PEERS / "compose" / "schema.json"
    how = "by hand"
    if schema.exists():
        how = "JSON schema of the compose specification (of 2021: without the later `name`), and by hand"
        old = {key: value for key, value in compose.items() if key != "name"}
        for error in jsonschema.Draft7Validator(json.loads(schema.read_text())).iter_errors(old):
            wrong(f"compose.yaml: {error.message} at {'.'.join(map(str, error.path))}")
    else:
        left_out.append("the schema of compose files")
    for service, what in compose["services"].items():
        at = f"compose.yaml: {service}"
        require(what.get("read_only") is True, f"{at}: its root can be written to")
        require(what.get("cap_drop") == ["ALL"] and "cap_add" not in what, f"{at}: keeps capabilities")
        require("no-new-privileges:true" in what.get("security_opt", []), f"{at}: can gain rights")
        require(re.match(r"[1-9]\d*:[1-9]\d*$", what.get("user", "")), f"{at}: has no user")
        require(all(key in what for key in ("mem_limit", "cpus", "pids_limit")), f"{at}: is not bounded")
        require(re.search(r":v?\d+\.\d+\.\d+$", what["image"]), f"{at}: `{what['image']}` names no version")
        require(not what.get("privileged"), f"{at}: is privileged")
        for port in what.get("ports", []):
            require(port.startswith("127.0.0.1:"), f"{at}: {port} is open to others")
            require("edge" in what["networks"], f"{at}: a port on an internal network")
        for volume in what.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                require((folder / source).exists(), f"{at}: there is no {source}")
                require(volume.endswith(":ro"), f"{at}: {source} can be written to")
            else:
                require(source in compose["volumes"], f"{at}: there is no volume {source}")
        for other in what.get("depends_on", []):
            require(other in compose["services"], f"{at}: depends on {other}")
    require(compose["services"]["gateway"]["user"] == compose["services"]["collector"]["user"],
            "compose.yaml: the collector could not read the audit file, which its owner alone can read")
    collector = documents(folder / "collector.yaml")[0]
    for pipeline, parts in collector["service"]["pipelines"].items():
        for kind in ("receivers", "processors", "exporters"):
            for part in parts.get(kind, []):
                require(part in collector[kind], f"collector.yaml: {pipeline} has no {kind[:-1]} {part}")
    for part in collector["service"]["extensions"]:
        require(part in collector["extensions"], f"collector.yaml: there is no extension {part}")
    sources = documents(folder / "grafana/provisioning/datasources/stack.yaml")[0]["datasources"]
    for source in sources:
        host = re.match(r"http://([a-z]+):\d+$", source["url"])
        require(host and host[1] in compose["services"], f"stack.yaml: {source['url']}")
    return f"{len(compose['services'])} services: {how}"


def check_systemd():
    analyze = tool("systemd-analyze")
    unit = (DEPLOY / "systemd" / "portcullis.service").read_text()
    require("Type=notify-reload" in unit and "NotifyAccess=main" in unit and "WatchdogSec=" in unit, "portcullis.service: notify")
    configured = documents(DEPLOY / "systemd" / "portcullis.yaml")[0]
    revocations = configured.get("revocations", {}).get("file", "")
    # The unit may write there, so that a revocation holds over a restart.
    require(revocations.startswith("/var/lib/portcullis/"), "systemd/portcullis.yaml: `revocations.file` is not in the unit's folder")
    require("StateDirectory=portcullis" in unit, "portcullis.service: no folder of its own")
    if not analyze:
        return "read only"
    version = int(re.search(r"systemd (\d+)", run("systemctl", "--version").stdout)[1])
    how = f"systemd-analyze {version}"
    with tempfile.TemporaryDirectory() as folder:
        # The program is not installed here, and what it would be given is not there.
        text = unit.replace("/usr/local/bin/portcullis ", "/bin/true ")
        if version < 253:
            text = text.replace("Type=notify-reload", "Type=notify")
            how += ", which does not know notify-reload (253) yet: as notify"
        file = Path(folder) / "portcullis.service"
        file.write_text(text)
        plain = must("systemd-analyze verify", analyze, "verify", file)
        require(not plain.stderr.strip(), f"systemd-analyze verify: {plain.stderr.strip()}")
        rated = run(analyze, "security", "--offline=true", file).stdout
        exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", rated)[1])
        require(exposure <= EXPOSURE, f"portcullis.service: exposure {exposure}, more than {EXPOSURE}")
        # With the drop-in for programs it has to be a unit as well.
        (Path(folder) / "portcullis.service.d").mkdir()
        shutil.copy(DEPLOY / "systemd" / "stdio.conf", Path(folder) / "portcullis.service.d")
        with_programs = run(analyze, "verify", file)
        require(with_programs.returncode == 0 and not with_programs.stderr.strip(), f"stdio.conf: {with_programs.stderr}")
    return f"{how}; exposure {exposure} of 10"


def last_stage(path):
    """What the last stage of a container file says, without comments."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.M)
    text = "FROM" + re.split(r"^FROM", text, flags=re.M)[-1]
    return [" ".join(line.split()) for line in re.sub(r"\\\n", "", text).splitlines() if line.strip()]


def check_containers():
    files = [DEPLOY / "Dockerfile", DEPLOY / "Containerfile.prebuilt", DEPLOY / "Dockerfile.stdio"]
    built = [line.replace("--from=build ", "").replace("/image/", "") for line in last_stage(files[0])]
    require(built == last_stage(files[1]), "Containerfile.prebuilt is not the last stage of Dockerfile")
    for path in files:
        lines = last_stage(path)
        text = "\n".join(lines)
        require("USER 65532:65532" in lines, f"{name(path)}: another user")
        require('CMD ["run", "-c", "/etc/portcullis/portcullis.yaml"]' in lines, f"{name(path)}: another command")
        require('CMD ["/portcullis", "health"]' in text, f"{name(path)}: no health check")
        for image in re.findall(r"^FROM (\S+)", path.read_text(), flags=re.M):
            pinned = image == "scratch" or image.startswith("${") or re.search(r":.*\d+\.\d+", image)
            require(pinned, f"{name(path)}: {image} names no version")
    hadolint = tool("hadolint")
    if hadolint:
        for path in files:
            must(f"hadolint {name(path)}", hadolint, path)
    return f"{len(files)} files" + (": hadolint" if hadolint else "")


def static(options):
    global EXPOSITION
    portcullis = options.portcullis.resolve()
    EXPOSITION = options.metrics.read_text() if options.metrics else live_metrics(portcullis)
    known, labels = families(EXPOSITION)
    LABELS.update(labels | labels_of_source())
    if not require(len(known) > 20, "what was given as metrics has fewer than twenty of them"):
        return
    # Families show once there is a value. Which there can be besides, the source says.
    known |= of_source() | OF_PROMETHEUS
    report = {"files": check_files()}
    alerts, report["alerts"] = check_alerts(known)
    report["dashboards"] = check_dashboards(known)
    report["configurations"] = check_configurations(portcullis)
    report["kustomize"] = check_kustomize(portcullis, alerts)
    report["helm"] = check_helm(portcullis, alerts)
    report["compose"] = check_compose()
    report["systemd"] = check_systemd()
    report["containers"] = check_containers()
    with tempfile.TemporaryDirectory() as folder:
        report["sbom"] = sbom.check(require, portcullis, Path(folder))
    for what, how in report.items():
        print(f"{what:15} {how}")


# ---- the image


def below(ancestor):
    """The processes that this one has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    for process in parents:
        above = process
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor and process != ancestor:
            yield Path("/proc") / str(process)


def live_image(buildah_run, container, folder):
    """The gateway of deploy/compose in the image: it is started, called and stopped."""
    (folder / "conf").mkdir()
    (folder / "log").mkdir()
    os.chown(folder / "log", 65532, 65532)
    folder.chmod(0o755)
    text = (DEPLOY / "compose" / "gateway" / "portcullis.yaml").read_text()
    text = text.replace("0.0.0.0:8080", "127.0.0.1:0").replace("0.0.0.0:9901", "127.0.0.1:0")
    # There is no collector here.
    text = re.sub(r"^telemetry:.*", "", text, flags=re.M | re.S)
    (folder / "conf" / "portcullis.yaml").write_text(text)
    key = "pcl_" + "a" * 43
    digest = hashlib.sha256(key.encode()).hexdigest()
    command = [*buildah_run, "-v", f"{folder}/conf:/etc/portcullis:ro", "-v", f"{folder}/log:/var/log/portcullis",
               "-e", f"PORTCULLIS_API_KEY_SHA256={digest}", container, "--", "/portcullis", "run", "-c", "/etc/portcullis/portcullis.yaml"]
    gateway = subprocess.Popen([str(part) for part in command], start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    listed, said = None, []
    try:
        listener, ops = announced(gateway, gateway.stdout, said)
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        listed = fetch(f"{listener}/mcp", json.dumps(body).encode(), {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": f"Bearer {key}",
            "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}.items())
        tools = {one["name"] for one in json.loads(listed)["result"]["tools"]}
        require(len(tools) == 3 and "add" in tools, f"in the image: the tools are {tools}")
        health = run(*buildah_run, container, "--", "/portcullis", "health", "--url", f"{ops}/readyz")
        require(health.returncode == 0, f"in the image: health of a gateway that is ready: {health.returncode}: {health.stderr}")
    except (OSError, ValueError, KeyError) as error:
        wrong(f"in the image: the gateway does not answer: {error!r}: {listed}")
    finally:
        # The gateway itself and not buildah, which would not wait for it.
        for process in below(gateway.pid):
            # One that has ended meanwhile has nothing to be told.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if process.joinpath("cmdline").read_bytes().startswith(b"/portcullis\0run\0"):
                    os.kill(int(process.name), signal.SIGTERM)
        with no_longer_than(PATIENCE, gateway):
            said.append(gateway.stdout.read())
            gateway.wait()
    audit = folder / "log" / "audit.jsonl"
    if require(audit.exists(), f"in the image: no audit file: {''.join(said)}"):
        require(audit.stat().st_uid == 65532 and audit.stat().st_mode & 0o077 == 0, "in the image: the audit file is not its own alone")
        events = [json.loads(line)["event"] for line in audit.read_text().splitlines()]
        require("exchange" in events and "stop" in events, f"in the image: the records are {events}")


def image(options):
    buildah = tool("buildah")
    if not buildah:
        wrong("buildah is not there: tests/deploy/setup installs it")
        return
    portcullis = options.portcullis.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        store = [buildah, "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs"]
        linked = run("ldd", portcullis)
        libraries = [] if linked.returncode or "not a dynamic" in linked.stdout + linked.stderr else ["--with-libraries"]
        must("stage", DEPLOY / "image" / "stage", portcullis, folder / "image", *libraries)
        # The health check is no part of an OCI image: with the other format it is seen whether it is as it should be.
        must("buildah build", *store, "build", "--isolation", "chroot", "--format", "docker", "-t", "portcullis:check",
             "-f", DEPLOY / "Containerfile.prebuilt", folder / "image")
        if problems:
            return
        config = json.loads(run(*store, "inspect", "--type", "image", "portcullis:check").stdout)["Docker"]["config"]
        wanted = {"User": "65532:65532", "Entrypoint": ["/portcullis"], "Cmd": ["run", "-c", "/etc/portcullis/portcullis.yaml"],
                  "StopSignal": "SIGTERM", "WorkingDir": "/var/lib/portcullis"}
        for key, value in wanted.items():
            require(config.get(key) == value, f"image: {key} is {config.get(key)}, not {value}")
        require(config["Healthcheck"]["Test"] == ["CMD", "/portcullis", "health"], f"image: {config.get('Healthcheck')}")
        require(config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0", "image: labels")
        container = must("buildah from", *store, "from", "portcullis:check").stdout.strip()
        root = Path(must("buildah mount", *store, "mount", container).stdout.strip())
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink()}
        expected = {"portcullis", "etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt"}
        more = {file for file in files - expected if not (libraries and file.startswith("lib"))}
        require(not more and expected <= files, f"image: has {more}, lacks {expected - files}")
        for path in ("var/log/portcullis", "var/lib/portcullis"):
            require((root / path).stat().st_uid == 65532, f"image: {path} belongs to {(root / path).stat().st_uid}")
        for path in root.rglob("*"):
            mode = path.lstat()
            require(mode.st_mode & 0o6000 == 0, f"image: {path} has rights of its own")
            own = path.relative_to(root).parts[:3] in (("var", "log", "portcullis"), ("var", "lib", "portcullis"))
            require(own or mode.st_uid == 0, f"image: {path} does not belong to root")
            require(path.is_symlink() or mode.st_mode & 0o002 == 0, f"image: {path} can be written to by everybody")
        size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
        # It runs in there, as that user, with what is in there.
        inside = [*store, "run", "--isolation", "chroot", container, "--"]
        said = must("in the image", *inside, "/portcullis", "--version").stdout.strip()
        require(said.startswith("portcullis "), f"image: says `{said}`")
        key = must("in the image", *inside, "/portcullis", "keygen").stdout
        require("sha256:" in key, "image: keygen")
        for shell in ("/bin/sh", "/bin/bash", "/bin/busybox"):
            require(run(*inside, shell, "-c", "true").returncode != 0, f"image: there is {shell}")
        health = run(*inside, "/portcullis", "health", "--url", "http://127.0.0.1:1/readyz")
        require(health.returncode == 1, f"image: health of nothing exits with {health.returncode}: {health.stderr}")
        live_image(inside[:-2], container, folder)
        run(*store, "umount", container)
        run(*store, "rm", container)
        version = run(buildah, "--version").stdout.strip()
        print(f"image           {len(files)} files, {size // 2**20} MiB, {'with libraries, ' if libraries else 'static, '}{said}: {version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["static", "image"])
    parser.add_argument("--portcullis", type=Path, required=True, help="the binary")
    parser.add_argument("--metrics", type=Path, help="what /metrics of a running gateway says")
    parser.add_argument("--strict", action="store_true", help="a missing tool that setup installs is a failure")
    options = parser.parse_args()
    require(options.portcullis.exists(), f"there is no {options.portcullis}")
    if not problems:
        {"static": static, "image": image}[options.what](options)
    for what in dict.fromkeys(left_out):
        print(f"not checked: {what} is not there")
    missing = set(left_out) - NOT_INSTALLED
    if options.strict and missing:
        wrong(f"not checked without {', '.join(sorted(missing))}: tests/deploy/setup installs it")
    for problem in problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
