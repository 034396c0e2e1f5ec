"""What the gateway is made of: the packages that cargo builds it from, and the code in other languages that some of them carry.

Cargo is asked, for one target and with the features that `-p gateway` has, because the lockfile also names packages of the
tests and of other systems.
"""

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

# How a component is used: it is in the binary, or runs while that is built.
LINKED, BUILDS = "linked", "build"
# Whose source the project is, as it stands in the labels of the image.
PROJECT = "pkg:github/portcullis/portcullis"


class Unknown(Exception):
    """Something is linked that nothing here describes."""


@dataclass
class Component:
    """A part of the binary, or of what builds it."""

    name: str
    version: str
    purl: str
    licence: str
    # Where its source is, and the files with its licences if they are not there.
    folder: Path
    # SHA-256 of the package, as the lockfile has it; the project's own packages have none.
    sha256: str | None = None
    authors: list[str] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    # The library in another language that it says it links.
    links: str | None = None
    used: str = LINKED


@dataclass(frozen=True)
class Native:
    """Code in C that a package compiles and links."""

    name: str
    # From which file of the package its version is read, and by what.
    file: str
    pattern: str
    purl: str
    # The folder with its own licence.
    folder: str


NATIVE = {
    "aws-lc-sys": Native(
        "aws-lc",
        "aws-lc/include/openssl/base.h",
        r'AWSLC_VERSION_NUMBER_STRING "([0-9.]+)"',
        "pkg:github/aws/aws-lc@v{version}",
        "aws-lc",
    ),
    "libmimalloc-sys": Native(
        "mimalloc",
        "c_src/mimalloc/v3/include/mimalloc.h",
        r"#define MI_MALLOC_VERSION\s+(\d+)",
        "pkg:github/microsoft/mimalloc@v{version}",
        "c_src/mimalloc/v3",
    ),
}
# Packages that name a library (`links`) only so that there is one of them: nothing but Rust is in them.
NO_NATIVE = {"aws-lc-rs"}


def asked(root, *command):
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def host(root):
    return next(line.split()[1] for line in asked(root, "rustc", "-vV").splitlines() if line.startswith("host:"))


def version(root):
    return tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def components(root, target):
    """All of them by their purl, the gateway's own package first."""
    known = described(root, target)
    linked = {name for _, name in tree(root, target, "normal,no-proc-macro")}
    found, path = {}, []
    for depth, name in tree(root, target, "normal,build"):
        component = known[name]
        component.used = LINKED if name in linked else BUILDS
        found[component.purl] = component
        del path[depth:]
        if path:
            path[-1].needs.add(component.purl)
        path.append(component)
    for component in [one for one in found.values() if one.used == LINKED]:
        for native in natives(component, known):
            component.needs.add(native.purl)
            found[native.purl] = native
    gateway = next(iter(found.values()))
    standard = standard_library(root)
    gateway.needs.add(standard.purl)
    found[standard.purl] = standard
    return found


def tree(root, target, edges):
    """Depth and package, line by line. What a package needs stands below it where it is named first."""
    command = ["cargo", "tree", "--locked", "-p", "gateway", "--target", target, "-e", edges]
    for line in asked(root, *command, "--prefix", "depth", "--format", "{p}").splitlines():
        depth, name, number = re.match(r"(\d+)(\S+) v(\S+)", line).groups()
        yield int(depth), (name, number)


def described(root, target):
    """What the packages say of themselves, and the lockfile of their digests."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    lock = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    digests = {(one["name"], one["version"]): one.get("checksum") for one in lock}
    # Two packages of one name and version, of two sources, could not be told apart.
    if len(digests) != len(lock):
        raise Unknown("Cargo.lock has a package twice in one version")
    found = {}
    for package in json.loads(asked(root, *command))["packages"]:
        name, number, folder = package["name"], package["version"], Path(package["manifest_path"]).parent
        own = package["source"] is None
        purl = f"{PROJECT}@v{number}#{folder.relative_to(root)}" if own else f"pkg:cargo/{name}@{number.replace('+', '%2B')}"
        digest = digests[name, number]
        if not own and not digest:
            raise Unknown(f"{name} {number} has no digest in Cargo.lock")
        if not package["license"]:
            raise Unknown(f"{name} {number} does not say its licence as an expression of SPDX")
        # Before there were expressions, a slash stood for `OR`.
        licence = re.sub(r"\s*/\s*", " OR ", package["license"])
        found[name, number] = Component(
            name, number, purl, licence, folder, sha256=digest, authors=package["authors"], links=package["links"]
        )
    return found


def natives(component, known):
    """The code in C of a package. One that links a library and is not described here stops everything."""
    if not component.links or component.name in NO_NATIVE:
        return
    native = NATIVE.get(component.name)
    if not native:
        raise Unknown(f"{component.name} links `{component.links}`: say in deploy/supply/packages.py what is in it")
    path = component.folder / native.file
    found = re.search(native.pattern, path.read_text())
    if not found:
        raise Unknown(f"the version of {native.name} is not in {native.file} of {component.name} {component.version}")
    number = found[1]
    # mimalloc writes 3.3.2 as 30302.
    if number.isdigit():
        number = f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"
    purl = native.purl.format(version=number)
    yield Component(native.name, number, purl, component.licence, component.folder / native.folder)


def standard_library(root):
    """What is linked beside the packages: the standard library, as the toolchain has it."""
    said = asked(root, "rustc", "-vV")
    number = re.search(r"^release: (\S+)", said, flags=re.M)[1]
    sysroot = Path(asked(root, "rustc", "--print", "sysroot").strip())
    purl = f"pkg:github/rust-lang/rust@{number}#library/std"
    return Component("std", number, purl, "MIT OR Apache-2.0", sysroot / "share/doc/rust")
