"""The bill of materials, in the format of CycloneDX 1.6.

The same source gives the same bytes: the serial number is derived from the rest, and the only time is SOURCE_DATE_EPOCH.
`cargo-cyclonedx` 0.5.9 writes the versions 1.3 to 1.5 of the format, draws the serial number or leaves it out, and does not know
the code in C nor the standard library.
"""

import datetime
import hashlib
import json
import os
import uuid

import packages

FORMAT = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6"}
# The namespace of serial numbers, so that they cannot be those of other tools.
SERIAL = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/portcullis/portcullis#sbom")


def text(root, target, binary=None):
    """The bill of what `-p gateway` is built from; with the digest of the binary, if there is one."""
    found = packages.components(root, target)
    gateway, *others = found.values()
    bill = {
        "version": 1,
        "metadata": metadata(root, gateway, target, binary),
        "components": [described(one) for one in sorted(others, key=lambda one: one.purl)],
        "dependencies": [{"ref": purl, "dependsOn": sorted(one.needs)} for purl, one in sorted(found.items())],
    }
    serial = uuid.uuid5(SERIAL, hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest())
    return json.dumps({**FORMAT, "serialNumber": f"urn:uuid:{serial}", **bill}, indent=1, ensure_ascii=False) + "\n"


def metadata(root, gateway, target, binary):
    component = {
        "type": "application",
        "bom-ref": gateway.purl,
        "name": "portcullis",
        "version": gateway.version,
        "licenses": [{"expression": gateway.licence}],
        "purl": gateway.purl,
        "properties": [{"name": "portcullis:target", "value": target}],
    }
    if binary:
        digest = hashlib.sha256(binary.read_bytes()).hexdigest()
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    tool = {"type": "application", "name": "deploy/release", "version": packages.version(root)}
    said = {"lifecycles": [{"phase": "build"}], "tools": {"components": [tool]}, "component": component}
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds:
        time = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
        said = {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), **said}
    return said


def described(one):
    component = {"type": "library", "bom-ref": one.purl, "name": one.name, "version": one.version}
    component["scope"] = "required" if one.used == packages.LINKED else "excluded"
    if one.sha256:
        component["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
    component["licenses"] = [{"expression": one.licence}]
    component["purl"] = one.purl
    if one.used == packages.BUILDS:
        component["properties"] = [{"name": "portcullis:used", "value": one.used}]
    return component
