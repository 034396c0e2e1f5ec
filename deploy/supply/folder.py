"""The folder of a release: what is in it, its checksums, and their signature.

Verifying is closed: a file too many or too few, or one that cannot be read, fails like a byte that is another.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
# What is built.
BINARY = "portcullis"
# What it is built with: the counts of the branches (tests/bench/guided), and what describes source and tools.
COUNTS, COUNTED, BUILD = "counts.profdata", "counts.profdata.json", "build.json"
# What is told about it.
SBOM, NOTICES, LICENCE = "sbom.cdx.json", "THIRD-PARTY.txt", "LICENSE"
CONTENTS = (BINARY, COUNTS, COUNTED, BUILD, SBOM, NOTICES, LICENCE)
# What a signature is for, so that one that was made for something else does not count here.
NAMESPACE = "portcullis-release"
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)")


class Refused(Exception):
    """The folder is no release, or not one of these signers."""


def write_sums(folder):
    files = contents(folder)
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    (folder / SUMS).write_text("".join(lines))


def sign(folder, key):
    """Signs the checksums with a key of SSH, which can also be in an agent or on a token: then KEY is its public part."""
    sums = read(folder / SUMS)
    compare(folder, sums)
    signed = keygen(sums, "sign", "-f", key, "-n", NAMESPACE)
    if signed.returncode != 0 or not signed.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise Refused(f"{key} could not sign: {said(signed)}")
    (folder / SIGNATURE).write_bytes(signed.stdout)


def verify(folder, signers):
    """Returns what is told of the signature."""
    sums = read(folder / SUMS)
    if not (folder / SIGNATURE).exists():
        raise Refused(f"{folder} is not signed: there is no {SIGNATURE}")
    read(folder / SIGNATURE)
    if not Path(signers).is_file():
        raise Refused(f"there is no file of signers {signers}")
    signature = ("-s", folder / SIGNATURE, "-f", signers)
    # Whose key it is; the namespace, the limits of the key and the signature itself are checked by the second.
    found = keygen(b"", "find-principals", *signature)
    principals = found.stdout.decode(errors="replace").splitlines()
    if found.returncode != 0 or not principals:
        raise Refused(f"{SIGNATURE} is of no key in {signers}: {said(found)}")
    checked = keygen(sums, "verify", *signature, "-I", principals[0], "-n", NAMESPACE)
    if checked.returncode != 0:
        raise Refused(f"{SUMS} is not what was signed, or the key may not sign it: {said(checked)}")
    compare(folder, sums)
    return checked.stdout.decode(errors="replace").strip()


def keygen(data, what, *more):
    try:
        return subprocess.run(["ssh-keygen", "-Y", what, *map(str, more)], input=data, capture_output=True)
    except FileNotFoundError:
        raise Refused("there is no `ssh-keygen` (OpenSSH 8.2 or later)") from None


def said(done):
    return (done.stderr + done.stdout).decode(errors="replace").strip()


def compare(folder, sums):
    """The folder has the files that are listed, each with its checksum, and nothing else."""
    listed = parsed(sums)
    if set(listed) != set(CONTENTS):
        raise Refused(f"{SUMS} does not list what a release has: {differing(listed, CONTENTS)}")
    files = contents(folder)
    for name, digest in listed.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise Refused(f"{name} is not the file that was released: its checksum is another")


def parsed(sums):
    listed = {}
    for line in sums.decode("ascii", errors="replace").split("\n")[:-1]:
        found = LINE.fullmatch(line)
        if not found or found[2] in listed:
            raise Refused(f"{SUMS}: `{line}` is no line of checksums, or there twice")
        listed[found[2]] = found[1]
    return listed


def contents(folder):
    """The files by their names: those of a release and no others."""
    try:
        entries = {entry.name: entry for entry in os.scandir(folder)}
    except OSError as error:
        raise Refused(f"{folder} cannot be read: {error.strerror}") from None
    there = set(entries) - {SUMS, SIGNATURE}
    if there != set(CONTENTS):
        raise Refused(f"{folder} has not the files of a release: {differing(there, CONTENTS)}")
    return {name: read(folder / name) for name in sorted(there)}


def read(path):
    """A file itself: a link could lead to another one when it is used."""
    path = Path(path)
    try:
        if path.is_symlink() or not path.is_file():
            raise Refused(f"there is no file {path}" + (", but a link" if path.is_symlink() else ""))
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None


def differing(there, wanted):
    missing, more = sorted(set(wanted) - set(there)), sorted(set(there) - set(wanted))
    told = [f"{', '.join(missing)} missing"] if missing else []
    return "; ".join(told + ([f"{', '.join(more)} too many"] if more else []))
