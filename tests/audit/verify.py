#!/usr/bin/env python3
"""Verifies a log as docs/audit.md describes it, with nothing but Python's own library: written from the
description, not from the gateway's code.

    verify.py [--key NAME+HASH+KEY] [--checkpoint FILE] FILE...

Exits with 0 when the log is whole and with 8 when it is not; then it prints the first record that is wrong.
"""
import argparse, base64, hashlib, json, sys

DASH = "\u2014 "
P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P
L = 2**252 + 27742317777372353535851937790883648493


class Broken(Exception):
    pass


def sha256(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


# RFC 8032, section 6, for verification alone.
def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(s, p):
    q = (0, 1, 1, 0)
    while s:
        if s & 1:
            q = add(q, p)
        p, s = add(p, p), s >> 1
    return q


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= P:
        raise Broken("a point is none")
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        raise Broken("a point is none")
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


BASE = point(bytes.fromhex("58" + "66" * 31))


def signed(key, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L
    left, right = multiply(s, BASE), add(point(r), multiply(h, point(key)))
    return s < L and (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


def verifier(text):
    name, key_id, key = text.strip().split("+", 2)
    key = base64.b64decode(key)
    if key[0] != 1 or sha256(name.encode(), b"\n", key)[:4].hex() != key_id:
        raise Broken("a key is none")
    return name, bytes.fromhex(key_id), key[1:]


def signers(lines):
    """Who has signed, to the end: a crash leaves a line that is not whole."""
    for line in lines.splitlines():
        try:
            name, signature = line.removeprefix(DASH).rsplit(" ", 1)
            signature = base64.b64decode(signature, validate=True)
        except ValueError:
            continue
        if line.startswith(DASH) and len(signature) >= 68:
            yield name, signature


def opened(note, keys):
    """The origin, the size and the root of a checkpoint that one of the keys has signed."""
    text, signatures = note.split("\n\n", 1)
    text += "\n"
    for name, signature in signers(signatures):
        for known, key_id, key in keys:
            if known == name and signature[:4] == key_id:
                if not signed(key, text.encode(), signature[4:]):
                    raise Broken("the signature of a checkpoint is wrong")
                origin, size, root = text.splitlines()[:3]
                return origin, int(size), base64.b64decode(root)
    raise Broken("a checkpoint is signed by none of the keys")


def notes_in(text):
    """What stands in a file of checkpoints: a text, an empty line, signatures, and an empty line or the next text."""
    note, last = [], ""
    for line in [line.removesuffix("\r") for line in text.split("\n")]:
        signs = line.startswith(DASH)
        if note and not signs and (last.startswith(DASH) or not last):
            yield "\n".join(note) + "\n"
            note = []
        last = line
        if note or line:
            note.append(line)
    if note:
        yield "\n".join(note) + "\n"


class Tree:
    def __init__(self, size=0, peaks=()):
        self.size, self.peaks = size, list(peaks)
        if bin(size).count("1") != len(self.peaks):
            raise Broken("the peaks do not fit the size")

    def push(self, leaf):
        node, level = leaf, self.size
        while level & 1:
            node, level = sha256(b"\1", self.peaks.pop(), node), level >> 1
        self.peaks.append(node)
        self.size += 1

    def root(self):
        if not self.peaks:
            return sha256()
        node = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            node = sha256(b"\1", peak, node)
        return node


def canonical(record):
    # The members are ASCII and the numbers whole, so this is RFC 8785.
    said = {name: value for name, value in record.items() if name not in ("seq", "prev", "hash")}
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def unique(pairs):
    if len({name for name, _ in pairs}) != len(pairs):
        raise Broken("a member is there twice")
    return dict(pairs)


def verify(files, keys, witnesses, options):
    given = bool(keys)
    tree = last = chain = None
    begun = covered = 0
    stopped = False
    seen, heads, known, retired, ends = {}, set(), {}, {}, {}
    for note in witnesses:
        if given:
            opened(note, keys)
        origin, size, root = note.split("\n")[:3]
        if known.setdefault((origin.rsplit("/", 1)[1], int(size)), base64.b64decode(root)) != base64.b64decode(root):
            raise Broken(f"two checkpoints over {size} records have other heads")

    def close():
        if tree is not None and given:
            after = tree.size - max(covered, begun)
            if covered == 0 or covered < begun or after > (1 if stopped else options.uncovered):
                raise Broken("the end of it is covered by no checkpoint")

    for file in files:
        lines = open(file, "rb").read().split(b"\n")
        ending = lines.pop()
        if ending:
            lines.append(ending)
        for number, line in enumerate(lines, 1):
            where = f"{file}:{number}"
            try:
                try:
                    record = json.loads(line, object_pairs_hook=unique)
                    seq, prev, own = record["seq"], bytes.fromhex(record["prev"]), bytes.fromhex(record["hash"])
                except (ValueError, KeyError, TypeError):
                    raise Broken("this is no record") from None
                event = record["event"]
                if sha256(b"\0", prev, seq.to_bytes(8, "big"), sha256(canonical(record))) != own:
                    raise Broken("it is not what it was")
                if options.collected and tree is not None and seq < tree.size and seen.get((chain, seq)) == own:
                    continue
                follows = tree is not None and seq == tree.size and prev == last
                gap = tree is not None and event == "gap" and (record["from"], record["to"]) == (tree.size, seq - 1)
                if not follows:
                    begins = event in ("start", "opened") and (number == 1 or record["chain"] != chain)
                    if tree is not None and not gap and not begins:
                        raise Broken("it does not follow the one before it")
                    if not (event in ("start", "opened") or gap) or record.get("size") != seq or (seq == 0 and prev != bytes(32)):
                        raise Broken("nothing says what came before")
                    close()
                    if not gap and seq > ends.get(record["chain"], seq):
                        raise Broken("records before it are missing")
                    chain, tree, last = record["chain"], Tree(seq, map(bytes.fromhex, record["peaks"])), prev
                    begun, covered, stopped = seq, 0, False
                    if known.get((chain, seq), tree.root()) != tree.root():
                        raise Broken("a checkpoint from elsewhere has another head")
                if record["chain"] != chain:
                    raise Broken("it is of another chain")
                if not given and event in ("start", "opened"):
                    keys.append(verifier(record["key"]))
                if event == "checkpoint":
                    head = opened(record["note"], keys)
                    if head[1:] != (tree.size, tree.root()) or not head[0].endswith("/" + chain):
                        raise Broken("the checkpoint is not of this log")
                    covered = tree.size
                if event == "retired":
                    retired[chain] = max(retired.get(chain, 0), record["to"] + 1)
                stopped = event == "stop" or (stopped and event == "checkpoint")
                if seen.setdefault((chain, seq), own) != own:
                    raise Broken("the log was forked")
                tree.push(own)
                last = own
                ends[chain] = max(ends.get(chain, 0), tree.size)
                heads.add((chain, tree.size))
                if known.get((chain, tree.size), tree.root()) != tree.root():
                    raise Broken("a checkpoint from elsewhere has another head")
            except Broken as error:
                raise Broken(f"{where}: {error}") from None
    close()
    for name in ends:
        if min(seq for c, seq in seen if c == name) > max(options.begin, retired.get(name, 0)):
            raise Broken("records before the first one are not here")
    for name, size in known:
        if ends.get(name, 0) < size:
            raise Broken(f"a checkpoint is over {size} records: the end was cut off")
    return len(seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("--checkpoint", action="append", default=[])
    parser.add_argument("--from", type=int, default=0, dest="begin")
    parser.add_argument("--uncovered", type=int, default=1100)
    parser.add_argument("--collected", action="store_true")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    notes = []
    for file in options.checkpoint:
        found = list(notes_in(open(file, encoding="utf-8", errors="replace").read()))
        finished = [note for note in found if any(signers(note.partition("\n\n")[2]))]
        if not finished:
            sys.exit(f"{file}: there is no checkpoint in it")
        if len(finished) < len(found):
            print(f"{file}: {len(found) - len(finished)} checkpoints are not finished", file=sys.stderr)
        notes += finished
    try:
        count = verify(options.files, [verifier(key) for key in options.key], notes, options)
    except Broken as error:
        print(f"broken: {error}")
        sys.exit(8)
    print(f"whole: {count} records")


main()
