"""Where two files differ: in a binary by its sections, in a text by its lines."""

import struct

# How much is shown around the first difference.
AROUND = 24


def told(name, first, second):
    """Lines about the difference of two files; none if they are equal."""
    if first == second:
        return []
    lines = [f"{name} differs: {len(first)} bytes and {len(second)} bytes"]
    at = next((n for n, (a, b) in enumerate(zip(first, second)) if a != b), min(len(first), len(second)))
    if first.startswith(b"\x7fELF") and second.startswith(b"\x7fELF"):
        return lines + of_sections(first, second) + [f"  first at {at:#x}: {shown(first, at)} and {shown(second, at)}"]
    number = first.count(b"\n", 0, at)
    both = [data.split(b"\n")[number:][:1] for data in (first, second)]
    return lines + [f"  line {number + 1}: {line[0].decode(errors='replace').strip()}" for line in both if line]


def shown(data, at):
    return ascii(data[max(at - AROUND, 0) : at + AROUND].decode("latin-1"))


def of_sections(first, second):
    """Which sections differ, and by how much."""
    lines, others = [], sections(second)
    for section, content in sections(first).items():
        other = others.pop(section, None)
        if other is None:
            lines.append(f"  {section}: only in the first")
        elif content != other:
            count = sum(a != b for a, b in zip(content, other)) + abs(len(content) - len(other))
            lines.append(f"  {section}: {count} of {len(content)} bytes ({len(other)} in the second)")
    return lines + [f"  {section}: only in the second" for section in others]


def sections(data):
    """The sections of an ELF file of 64 bits, little endian, by their names."""
    table, size, count, names = struct.unpack_from("<Q", data, 0x28) + struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + n * size) for n in range(count)]
    _, _, _, _, start, length = headers[names]
    strings, found = data[start : start + length], {}
    for name, kind, _, _, offset, length in headers:
        # One that has no bytes in the file is of kind 8.
        content = b"" if kind == 8 else data[offset : offset + length]
        found[strings[name : strings.index(b"\0", name)].decode()] = content
    return found
