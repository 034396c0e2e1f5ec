"""Reads a lockfile, or the vectors in a page of documentation, and works the digests out anew.

Shares nothing with the gateway: Python's own JSON, its own number format, and hashlib.
"""

import hashlib
import json
import pathlib
import re
import sys


def number(value):
    if isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value == 0:
        return "0"
    if value < 0:
        return "-" + number(-value)
    mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" not in repr(value) else repr(value).split("e")
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    point = len(whole) + int(exponent)
    if not whole.strip("0"):
        point -= len(part) - len(part.lstrip("0")) + len(whole)
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    sign = "+" if point > 0 else "-"
    rest = "." + digits[1:] if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{sign}{abs(point - 1)}"


def canonical(value):
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
    return "{" + ",".join(f"{canonical(key)}:{canonical(member)}" for key, member in members) + "}"


def digest(subject, text, domain=""):
    line = f"mcp-pin/v1:{subject}{domain}\n"
    return f"mcp-pin/v1:{subject}:sha256:" + hashlib.sha256((line + text).encode()).hexdigest()


def of_set(members):
    lines = sorted(f"[{canonical(d.split(':')[1])},{canonical(n)},\"{d[-64:]}\"]".encode() for n, d in members)
    return digest("set", (b"[" + b",".join(lines) + b"]").decode())


def exceptions(lines):
    """What was accepted in one definition: four members each, of which the first begins an item."""
    found = []
    for line in lines:
        if line.strip() == "evaluation:":
            break
        if match := re.match(r" *- finding: (\S+)$", line):
            found.append({"finding": match[1]})
        elif found and (match := re.match(r' *(by|at|reason): (".*")$', line)):
            found[-1][match[1]] = json.loads(match[2])
    return found


def evaluation(lines):
    """The recorded evaluation of one definition, if there is one: three members."""
    found = {}
    for at, line in enumerate(lines):
        if line.strip() == "evaluation:":
            for member in lines[at + 1 : at + 4]:
                match = re.match(r' *(result|digest|at): (".*")$', member)
                found[match[1]] = json.loads(match[2])
    return found


def lockfile(path, listing):
    """The definitions are literal blocks of JSON; that much YAML a loop can read."""
    lines = path.read_text().splitlines()
    names = {entry["digest"]: entry for entry in json.loads(listing.read_text())}
    count, approved, stated, count_of = 0, [], None, {"exceptions": 0, "evaluations": 0}
    for at, line in enumerate(lines):
        if found := re.match(r"    set: (\S+)", line):
            stated = found[1]
        if not (found := re.match(r"( *)- digest: (mcp-pin/v1:(\w+):sha256:\w+)", line)):
            continue
        start = next(n for n in range(at, len(lines)) if lines[n].strip() == "definition: |") + 1
        indent = len(found[1]) + 4
        block = []
        while start < len(lines) and (lines[start].startswith(" " * indent)):
            block.append(lines[start])
            start += 1
        definition = json.loads("\n".join(block))
        assert digest(found[3], canonical(definition)) == found[2], definition
        for field, value in names[found[2]]["fields"].items():
            alone = canonical({field: definition[field]})
            assert digest(found[3], alone, ".field") == value, field
        name = "" if found[3] == "server" else definition.get("name", definition.get("uri"))
        approved.append((name, found[2]))
        for exception in exceptions(lines[at:start]):
            text = canonical({**exception, "definition": found[2]})
            approved.append((name, digest("exception", text)))
            count_of["exceptions"] += 1
        if recorded := evaluation(lines[at:start]):
            text = canonical({**recorded, "definition": found[2]})
            approved.append((name, digest("evaluation", text)))
            count_of["evaluations"] += 1
        count += 1
    assert of_set(approved) == stated, (of_set(approved), stated)
    print(f"{count} definitions, {count_of['exceptions']} exceptions, {count_of['evaluations']} evaluations")


def vectors(path):
    count = 0
    for found in re.finditer(r"```json\n(.*?)\n```\n\n`(mcp-pin/v1:(\w+):sha256:\w+)`", path.read_text(), re.S):
        got = digest(found[3], canonical(json.loads(found[1])))
        assert got == found[2], f"{found[1]}\n{got}\n{canonical(json.loads(found[1]))}"
        count += 1
    assert count > 2
    print(f"{count} vectors hold")


if len(sys.argv) == 3:
    lockfile(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
else:
    vectors(pathlib.Path(sys.argv[1]))
