"""Checks the bill of materials that `deploy/release sbom` writes: against the schema of CycloneDX, against what cargo links,
and against the names of sources that are in a built gateway."""

import json
import os
import re
import subprocess
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

ROOT = Path(__file__).resolve().parent.parent.parent
# 2023-11-14T22:13:20Z
EPOCH = "1700000000"


def check(require, binary, folder):
    """Calls `require` with what has to be true; says what was looked at."""
    text = written(folder / "first.json")
    require(text == written(folder / "second.json"), "sbom: not the same bytes twice")
    require('"timestamp"' not in text, "sbom: a time that nobody gave")
    stamped = written(folder / "stamped.json", SOURCE_DATE_EPOCH=EPOCH)
    require(json.loads(stamped)["metadata"]["timestamp"] == "2023-11-14T22:13:20Z", "sbom: SOURCE_DATE_EPOCH is not its time")
    bill = json.loads(text)
    require(json.loads(stamped)["serialNumber"] != bill["serialNumber"], "sbom: one serial number for two bills")
    for one in (text, stamped):
        problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(one)
        require(problem is None, f"sbom: {problem}")
    require(str(ROOT) not in text and str(Path.home()) not in text, "sbom: a folder of this machine is in it")
    check_parts(require, bill, text)
    linked = check_cargo(require, bill)
    seen = check_binary(require, binary, linked)
    return f"{len(bill['components'])} components, {len(linked)} of them packages that are linked, {seen} seen in the binary: CycloneDX 1.6"


def written(path, **more):
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run([ROOT / "deploy/release", "sbom", path], check=True, timeout=120, env={**environment, **more})
    return path.read_text()


def check_parts(require, bill, text):
    """Each component says what it is, and the graph names only what there is."""
    refs = [one["bom-ref"] for one in bill["components"]] + [bill["metadata"]["component"]["bom-ref"]]
    require(len(refs) == len(set(refs)), "sbom: two components of one name")
    require(sorted(one["ref"] for one in bill["dependencies"]) == sorted(refs), "sbom: the graph has other components")
    needed = {ref for one in bill["dependencies"] for ref in one["dependsOn"]}
    require(needed == set(refs) - {bill["metadata"]["component"]["bom-ref"]}, "sbom: a component that nothing needs, or that is not there")
    spdx = get_spdx_licensing()
    for one in bill["components"]:
        is_package = one["purl"].startswith("pkg:cargo/")
        require(is_package == ("hashes" in one), f"sbom: the digest of {one['purl']}")
        for licence in one["licenses"]:
            wrong = spdx.validate(licence["expression"]).errors
            require(not wrong, f"sbom: the licence of {one['purl']}: {wrong}")
    # The version of what is in C is that of its own headers, and not of the package around it.
    for name in ("aws/aws-lc", "microsoft/mimalloc", "rust-lang/rust"):
        require(re.search(rf'"pkg:github/{name}@v?\d+\.\d+\.\d+[#"]', text), f"sbom: {name} is not in it")


def check_cargo(require, bill):
    """What cargo links, by its own flat list; and the digests of the lockfile, read line by line."""
    command = ["cargo", "tree", "--locked", "-p", "gateway", "-e", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout
    wanted = {tuple(line.split()[:2]) for line in tree.splitlines() if "(/" not in line}
    packages = [one for one in bill["components"] if one["purl"].startswith("pkg:cargo/")]
    linked = {(one["name"], f"v{one['version']}") for one in packages if one["scope"] == "required"}
    require(linked == wanted, f"sbom: linked and in the bill are not the same: {linked ^ wanted}")
    lock = (ROOT / "Cargo.lock").read_text()
    for one in packages:
        entry = re.search(rf'^name = "{re.escape(one["name"])}"\nversion = "{re.escape(one["version"])}"\n.*\nchecksum = "(.*)"', lock, flags=re.M)
        require(entry and one["hashes"][0]["content"] == entry[1], f"sbom: the digest of {one['purl']} is not that of Cargo.lock")
    return linked


def check_binary(require, binary, linked):
    """A gateway names sources in its panics: each is of a package that is in the bill as linked."""
    found = set(re.findall(rb"/registry/src/[^/\0]+/([A-Za-z0-9_.+-]+-[0-9][^/\0 ]*)/", binary.read_bytes()))
    names = {f"{name}-{version[1:]}" for name, version in linked}
    more = {name.decode() for name in found} - names
    require(not more, f"sbom: linked and not in the bill: {sorted(more)}")
    return len(found)
