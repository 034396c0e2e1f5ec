"""Makes messages that readers of JSON could read differently. The same seed makes the same messages.

    generate.py SEED COUNT     # a hexadecimal message a line

A message is a tree of spelled values, in which objects are lists of pairs, so that a key can stand in it twice. Most
messages are valid and spelled in an unusual way; the others are changed as a tree or as bytes.
"""
import random
import sys

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"


class Raw(str):
    """A value that is written as it stands."""


class Lone(str):
    """A string that is written as it stands, between quotes."""


TOOLS = ["add", "search", "files.read", "get_user", "crm__contacts/list", "a-b", "é", "名前", "😀", "a b", "add ", " add",
         "Add", "ADD", "аdd", "add\u200b", "add\u0000", "ad\u0301d", "toString", "__proto__", "constructor", "\u2028", "\ufffd",
         "\uffff", "x" * 200, "", "null", "true", "1", "$ref", "a\tb", "a\nb", "\u007f", "\u0085", "\ufeffadd", "K"]
KEYS = ["a", "b", "path", "query", "id", "name", "arguments", "method", "uri", "__proto__", "constructor", "prototype",
        "toString", "hasOwnProperty", "", " ", "é", "e\u0301", "名", "😀", "\u0000", "\u2028", "0", "1", "10", "-1", "1.0",
        "ſ", "K", "İ", "ı", "A", "a.b", "a/b", "~", "\\", "\"", "$schema", "_meta", "null", "\uffff", "\ud7ff", "x" * 300]
TEXTS = ["", "a", "hello", "../../etc/passwd", "DROP TABLE", "é", "e\u0301", "😀👩‍👩‍👧", "\u0000", "\u0001\u001f", "\u007f\u0080",
         "\u2028\u2029", "\ufeff", "\ufffe\uffff", "\ud7ff\ue000", "\U0010ffff", "\"\\/", "</script>", "\b\f\n\r\t",
         "0", "1e400", "NaN", "true", "null", "{}", "[1]", "a" * 1000, "İıſK", "א\u202eב", "\U000e0041"]
NUMBERS = ["0", "-0", "1", "-1", "42", "1.0", "1.50", "-0.0", "0e0", "0E-5", "1e2", "1E+2", "1e-2", "1e21", "1e22", "123456789",
           "2147483648", "4294967296", "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993",
           "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
           "123456789012345678901234567890", "0.1", "0.30000000000000004", "0.1000000000000000055511151231257827",
           "3.141592653589793238462643383279", "1e308", "1.7976931348623157e308", "5e-324", "2.5e-324", "1e-400", "2.2250738585072011e-308",
           "1" + "0" * 200, "0." + "0" * 150 + "1", "1" * 250]
HUGE = ["1e400", "-1e400", "1.7976931348623159e308", "1e999999999", "1" + "0" * 309, "9" * 256, "1" + "0" * 400, "1e-999999999"]
WRONG_NUMBERS = ["01", "-01", "+1", ".5", "1.", "0x10", "1_000", "NaN", "Infinity", "-Infinity", "1e", "1e+", "--1", "1,0", "１", "0b1", "1n"]
LONES = ["\\ud800", "\\udc00", "a\\ud83d", "\\ud83d\\u0041", "\\udc00\\ud800", "\\uD83D\\uD83D\\uDE00"]
WRONG_ESCAPES = ["\\x41", "\\'", "\\0", "\\u12", "\\u{41}", "\\U0001F600", "\\a", "\\", "\\u 041", "\\u+041", "\\uFF1"]
URIS = ["file:///srv/a", "file:///srv/a%20b", "file:/srv/a", "FILE:///srv/a", "file://host/srv/a", "file:///C:/a", "file:///C|/a",
        "file:///srv/../etc", "file:///srv/%2e%2e/etc", "file:///srv//a", "file:///srv/./a", "file:///srv/a/", "file:///srv/a?x=1",
        "file:///srv/a#f", "https://example.com/a", "https://EXAMPLE.com/a", "HTTPS://example.com", "https://example.com:443/a",
        "https://example.com:8443/a", "https://example.com:08443/a", "https://user@example.com/", "https://example.com./a",
        "https://127.1/a", "https://0x7f.0.0.1/", "https://[::1]/a", "https://[0:0::1]/", "tickets://[::1]/a", "tickets://[0:0::1]/a",
        "https://[::ffff:1.2.3.4]/a", "https://[::FFFF:102:304]/a", "tickets://[::ffff:1.2.3.4]/a", "tickets://[::FFFF:102:304]/a", "https://ｅxample.com/", "https://exämple.com/",
        "https://example.com\\a", "https://example.com/a\\b", "https:example.com/a", "https:///example.com/a", "tickets://42",
        "tickets://ABC/def", "tickets://a/b?c=d&e=f", "tickets:42", "tickets:///42", "tickets://a b", "tickets://a%41", "tickets://a%2Fb",
        "tickets://a%252f", "tickets://é", "tickets://e\u0301", "tickets://%C3%A9", "tickets://%c3%a9", "tickets://a/\u3002\u3002/b",
        "memo://insights", "urn:isbn:0451450523", "data:text/plain,a", "mailto:a@example.com", "a", "/a", "", " tickets://42",
        "tickets://42 ", "tick\tets://42", "tickets://4\n2", "tickets://42\u0000", "tickets://[a]", "tickets://a'b\"c", "tickets://a<b>`{|}^",
        "git://repo/tree/main", "x-y.z+w://a", "https://xn--e1afmkfd.example/", "https://example.com/%ff", "https://example.com/%zz",
        "https://example.com/a;b=c/d", "https://a_b.example/", "https://example.com?x", "http://example.com:80", "ws://example.com/..;/a",
        "https://faß.example/", "https://example.com/🙂", "https://a%20b.example/", "tickets://a|b/c", "tickets://a:b/c", "tickets://a:99999/",
        "https://example.com:99999/", "https://1.2.3/", "https://1.2.3.4.5/", "tickets://127.1/a", "tickets://A%7E", "file:///~a", "file:///%7Ea"]
EXTENSIONS = ["x-vendor/do", "com.example/run", "com.example.run", "custom/method", "Tools/call", "tools/Call", "tools//call", "tools/call ",
              "tools/call\u0000", "tools\\call", "toolscall", "tools_call", "tools/caII", "tools/саll", "rpc.discover", "skills/other", "", "/", "a" * 128,
              "notifications/x", "TOOLS/CALL", "toolſ/call", "ping\n"]
MISSPELLINGS = {
    "name": ["Name", "NAME", "nAme", "name ", " name", "name\u0000", "na\u200bme", "ｎａｍｅ", "n\u0430me", "n_ame", "na-me"],
    "arguments": ["Arguments", "ARGUMENTS", "argumentſ", "arguments\u0000", "argument_s", "argument"],
    "uri": ["URI", "Uri", "u_ri", "uri\u200d"],
    "method": ["Method", "METHOD", "method ", "mеthod"],
    "params": ["Params", "PARAMS", "paramſ", "param"],
    "id": ["ID", "Id", "iD", "id ", "ıd"],
    "jsonrpc": ["JSONRPC", "jsonRpc", "json_rpc", "jsonrpc\u0000"],
    "_meta": ["_Meta", "meta", "__meta", "_META"],
}
SPACES = ["", "", "", " ", "\n", "\t", "\r\n", "  ", "\r", " \n \t"]
ODD_SPACES = ["\u000b", "\u000c", "\u00a0", "\u2028", "\u3000", "\ufeff", "\u0085", "/**/", "//a\n", "#a\n", "\u0000"]


class Maker:
    """Makes and changes messages with one source of randomness."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def chance(self, percent):
        return self.random.random() * 100 < percent

    # Values.

    def value(self, depth=0):
        roll = self.random.random()
        if depth > 3 or roll < 0.35:
            return self.text()
        if roll < 0.60:
            return self.number()
        if roll < 0.70:
            return Raw(self.pick(["true", "false", "null"]))
        if roll < 0.82:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.object(depth + 1)

    def object(self, depth=0):
        keys = []
        for _ in range(self.random.randrange(5)):
            key = self.pick(KEYS)
            if key not in keys:
                keys.append(key)
        return tuple((key, self.value(depth)) for key in keys)

    def text(self):
        if self.chance(60):
            return self.pick(TEXTS)
        length = self.random.randrange(8)
        code = lambda: self.random.choice([self.random.randrange(0x80), self.random.randrange(0xd800),
                                           self.random.randrange(0xe000, 0x110000)])
        return "".join(chr(code()) for _ in range(length))

    def number(self):
        if self.chance(70):
            return Raw(self.pick(NUMBERS))
        sign, whole = self.pick(["", "-"]), str(self.random.randrange(10 ** self.random.randrange(1, 25)))
        part = "." + str(self.random.randrange(10 ** 6)) if self.chance(30) else ""
        exponent = self.pick(["e", "E", "e+", "e-"]) + str(self.random.randrange(300)) if self.chance(25) else ""
        return Raw(sign + whole + part + exponent)

    def id(self):
        return self.pick([Raw("1"), Raw("0"), Raw("-7"), Raw("9007199254740991"), "a", "1", "é", "", "\u0000", "x" * 256, Raw("-0"),
                          "\u2028", "01"])

    def odd_id(self):
        return self.pick([Raw("1.0"), Raw("1e2"), Raw("9007199254740992"), Raw("null"), Raw("true"), Raw("1.5"), "x" * 257, [], (),
                          Raw("18446744073709551616"), Raw("-0.0"), Raw("1E0")])

    # Messages.

    def meta(self, modern):
        meta = []
        if modern:
            meta += [(VERSION, "2026-07-28"), (CAPABILITIES, ())]
            if self.chance(40):
                meta.append((CLIENT, (("name", "c"), ("version", "1"))))
        if self.chance(25):
            meta.append(("progressToken", self.id()))
        if self.chance(15):
            meta.append((self.pick(["com.example/a", "a", "traceparent"]), self.value(2)))
        self.random.shuffle(meta)
        return tuple(meta)

    def message(self):
        modern = self.chance(50)
        roll = self.random.random()
        ident, params = self.id(), []
        if roll < 0.42:
            method, params = "tools/call", [("name", self.pick(TOOLS))]
            if self.chance(90):
                params.append(("arguments", self.object()))
        elif roll < 0.52:
            method, params = "prompts/get", [("name", self.pick(TOOLS))]
            if self.chance(80):
                params.append(("arguments", tuple((key, self.text()) for key in dict.fromkeys(
                    self.pick(KEYS) for _ in range(self.random.randrange(4))))))
        elif roll < 0.72:
            method, params = "resources/read", [("uri", self.uri())]
        elif roll < 0.76:
            method, params = self.pick(["resources/subscribe", "resources/unsubscribe"]), [("uri", self.uri())]
            modern = False
        elif roll < 0.81:
            kind, member = self.pick([("ref/prompt", "name"), ("ref/resource", "uri")])
            reference = [("type", kind), (member, self.pick(TOOLS))]
            self.random.shuffle(reference)
            method, params = "completion/complete", [("ref", tuple(reference)), ("argument", (("name", "a"), ("value", self.text())))]
        elif roll < 0.84:
            method = self.pick(["tools/list", "prompts/list", "resources/list", "ping", "server/discover"])
        elif roll < 0.87:
            method, modern = "initialize", False
            params = [("protocolVersion", "2025-11-25"), ("capabilities", ()), ("clientInfo", (("name", "c"), ("version", "1")))]
        elif roll < 0.90:
            method = self.pick(["notifications/initialized", "notifications/cancelled", "notifications/progress",
                                "notifications/roots/list_changed"])
            ident, modern = None, False
            params = [("requestId", self.id())] if "cancel" in method else [("progressToken", self.id()), ("progress", self.number())] \
                if "progress" in method else []
        elif roll < 0.94:
            outcome = ("result", self.object()) if self.chance(60) else ("error", (("code", Raw("-32000")), ("message", self.text())))
            members = [("jsonrpc", "2.0"), ("id", ident), outcome]
            self.random.shuffle(members)
            return members
        else:
            method, params = self.pick(EXTENSIONS), [("a", self.value())]
            ident = None if self.chance(20) else ident
        meta = self.meta(modern)
        if meta:
            params.append(("_meta", meta))
        if self.chance(8):
            params.append((self.pick(KEYS + ["cursor", "task", "level", "inputResponses", "requestState", "extra"]), self.value(1)))
        self.random.shuffle(params)
        members = [("jsonrpc", "2.0"), ("method", method)]
        if ident is not None:
            members.append(("id", ident))
        if params or self.chance(50):
            members.append(("params", tuple(params)))
        self.random.shuffle(members)
        return members

    def uri(self):
        if self.chance(75):
            return self.pick(URIS)
        alphabet = "aAzZ09-._~!$&'()*+,;=:@/?#[]%|\\ \"<>{}`^é\u3002\uff0e\u00ad\u200b\u212aｅ\u0130\u00df"
        scheme = self.pick(["file://", "https://", "tickets://", "http:", "x:", "memo://a/", "https://example.com/"])
        return scheme + "".join(self.pick(alphabet) for _ in range(self.random.randrange(12)))

    # Changes of the tree.

    def places(self, members, found=None):
        """The lists of members in a message, as pairs of a getter and a setter would have them: the lists themselves."""
        found = [] if found is None else found
        found.append(members)
        for at, (key, value) in enumerate(members):
            if isinstance(value, tuple):
                members[at] = (key, inner := list(value))
                self.places(inner, found)
        return found

    def change(self, members):
        place = self.pick(self.places(members))
        at = self.random.randrange(len(place)) if place else None
        roll = self.random.randrange(9)
        if at is None or roll == 0:
            place.append((self.pick(KEYS), self.value(1)))
            return
        key, value = place[at]
        if roll == 1:  # A key twice, the second one with another value and perhaps another spelling.
            place.insert(self.random.randrange(len(place) + 1), (key, self.pick([value, self.value(2), self.pick(TOOLS)])))
        elif roll == 2:  # A name that some readers take for another.
            variants = MISSPELLINGS.get(key) or [key.upper(), key.title(), key + " ", key + "\u0000"]
            place.insert(self.random.randrange(len(place) + 1), (self.pick(variants), self.pick([value, self.value(2), self.pick(TOOLS)])))
        elif roll == 3:
            variants = MISSPELLINGS.get(key) or [key.swapcase()]
            place[at] = (self.pick(variants), value)
        elif roll == 4:
            place[at] = (key, self.value(1))
        elif roll == 5:
            place[at] = (key, self.pick([Raw(self.pick(HUGE)), Raw(self.pick(WRONG_NUMBERS)), Lone(self.pick(LONES)), Lone(self.pick(WRONG_ESCAPES)),
                                         self.odd_id()]))
        elif roll == 6:
            del place[at]
        elif roll == 7:
            depth = self.pick([5, 60, 63, 64, 65, 70, 200])
            place[at] = (key, Raw("[" * depth + "]" * depth) if self.chance(50) else Raw('{"a":' * depth + "1" + "}" * depth))
        else:
            place[at] = (key, Raw(self.pick(["'a'", "undefined", "True", "nul", "[1,]", '{"a":1,}', "{a:1}", "[1 2]", "{\"a\" 1}", "\"a", "\"\t\"", "\"\n\""])))

    # Writing.

    def space(self):
        return self.pick(SPACES) if self.spaced else ""

    def string(self, text):
        """A string in one of its spellings."""
        out = ['"']
        for c in text:
            code = ord(c)
            if c in "\"\\" or code < 0x20:
                short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c)
                out.append(short if short and not (self.escaped and self.chance(30)) else self.escape(code))
            elif self.escaped and self.chance(25):
                out.append("\\/" if c == "/" and self.chance(50) else self.escape(code))
            else:
                out.append(c)
        out.append('"')
        return "".join(out)

    def escape(self, code):
        digits = (lambda unit: f"{unit:04x}") if self.chance(50) else (lambda unit: f"{unit:04X}")
        if code < 0x10000:
            return "\\u" + digits(code)
        code -= 0x10000
        return "\\u" + digits(0xd800 + (code >> 10)) + "\\u" + digits(0xdc00 + (code & 0x3ff))

    def write(self, value):
        if isinstance(value, Raw):
            return str(value)
        if isinstance(value, Lone):
            return '"' + str(value) + '"'
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, (tuple, list)) and (not value or isinstance(value[0], tuple) and len(value[0]) == 2 and type(value[0][0]) is str):
            if not value and isinstance(value, list) and not self.chance(50):
                return "[]"
            space = self.space
            members = (f"{space()}{self.string(key)}{space()}:{space()}{self.write(inner)}{space()}" for key, inner in value)
            return "{" + (",".join(members) or space()) + "}"
        return "[" + ",".join(f"{self.space()}{self.write(item)}{self.space()}" for item in value) + "]"

    # Changes of the bytes.

    def spoil(self, text):
        roll = self.random.randrange(13)
        at = self.random.randrange(len(text) + 1)
        if roll == 0:
            return self.pick([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00", b"\x1e", b")]}'\n"]) + text
        if roll == 1:
            return text + self.pick([b"\x00", b"x", b" {}", b"\n{}", b",", b"]", b"}", b"\x1a", b"\xef\xbb\xbf", b"//", b"\x0c"])
        if roll == 2:
            return text[:at]
        if roll == 3:  # No UTF-8: a stray byte, an overlong form, a surrogate, a code point that is too large.
            bad = self.pick([b"\x80", b"\xff", b"\xc0\x80", b"\xc0\xa2", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98"])
            return text[:at] + bad + text[at:]
        if roll == 4:
            return text[:at] + self.pick(ODD_SPACES).encode() + text[at:]
        if roll == 5:
            return text[:at] + bytes([self.random.randrange(256)]) + text[at + 1:]
        if roll == 6:
            return text[:at] + text[at + 1:]
        if roll == 7:
            return text + text if self.chance(50) else b"[" + text + b"]"
        if roll == 8:
            encoding = self.pick(["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-7", "latin-1"])
            return text.decode("utf-8", "replace").encode(encoding, "replace")
        if roll == 9:
            return text.replace(b'"', b"'") if self.chance(50) else text.replace(b":", b"=", 1)
        if roll == 10:
            part = text[at:at + self.random.randrange(1, 30)]
            return text[:at] + part + text[at:]
        if roll == 11:
            return text[:at] + self.pick([b",", b"}", b"{", b"]", b"[", b'"', b":", b"\\", b"\x00", b"\n", b"1", b"."]) + text[at:]
        return text.replace(self.pick([b"method", b"params", b"name", b"arguments", b"id"]), self.pick([b"Method", b"name", b"nam\\u0065", b"n\\u0061me"]), 1)

    def next(self):
        self.spaced, self.escaped = self.chance(30), self.chance(35)
        members = self.message()
        if self.chance(40):
            for _ in range(self.pick([1, 1, 2])):
                self.change(members)
        text = self.write(members) if members else "{}"
        if self.spaced:
            text = self.space() + text + self.space()
        text = text.encode("utf-8", "surrogatepass")
        return self.spoil(text) if self.chance(20) else text


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    maker = Maker(seed)
    out = sys.stdout
    for _ in range(count):
        # An empty line has a meaning of its own to readers.
        out.write((maker.next() or b" ").hex() + "\n")


if __name__ == "__main__":
    main()
