"""The form of a reading, and the loop of a reader: what `main.rs` says about both.

A reader gets a line for each text, `raw`, `legacy` or `modern` and the text in hexadecimal, and answers with a line of its
readings, one for each way in which the library reads messages. An empty line is answered with what was written so far.
"""
import json
import struct
import sys

REFUSED = "refused"
BETWEEN = "\x1f"
NAMED = ("tools/call", "prompts/get")
LOCATED = ("resources/read", "resources/subscribe", "resources/unsubscribe")


def double(number):
    try:
        number = float(number) + 0.0
    except OverflowError:
        number = float("inf") if number > 0 else float("-inf")
    return "n" + struct.pack(">d", number).hex()


def canonical(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return double(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return "{" + ",".join(f"{json.dumps(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"


def line(kind, method=None, ident=None, name=None, arguments=None, uri=None):
    def field(value):
        return "-" if value is None else canonical(value)
    return "\t".join((kind, field(method), field(ident), field(name), field(arguments), field(uri)))


def serve(readers):
    for text in sys.stdin:
        text = text.rstrip("\n")
        if not text:
            sys.stdout.flush()
            continue
        source, digits = text.split(" ")
        message, found = bytes.fromhex(digits), []
        for reader in readers:
            try:
                found.append(reader(source, message))
            except Exception:
                found.append(REFUSED)
        sys.stdout.write(BETWEEN.join(found) + "\n")
    sys.stdout.flush()
