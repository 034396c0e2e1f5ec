"""The licences of what is linked, with their whole texts: most of them ask for that where a binary is passed on."""

import packages

# How the names of files begin that have a licence, or what it asks to be passed on.
BEGINNINGS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
WIDTH = 100
# Of some packages only the expression is published, with the names of their authors.
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def text(root, target):
    linked = [one for one in packages.components(root, target).values() if one.used == packages.LINKED]
    others = sorted((one for one in linked if not one.purl.startswith(packages.PROJECT)), key=lambda one: (one.name, one.version))
    same = {}
    for one in others:
        for words in texts(root, one):
            same.setdefault(words, []).append(f"{one.name} {one.version}")
    listed = "\n".join(f"{one.name} {one.version}: {one.licence}" for one in others)
    parts = [f"What is linked into Portcullis {packages.version(root)} for {target}, and its licences.\n\n{listed}\n"]
    for words, names in same.items():
        parts.append(f"{'=' * WIDTH}\n{', '.join(names)}\n{'=' * WIDTH}\n\n{words}\n")
    return "\n".join(parts)


def texts(root, one):
    """The files with licences of a component, without spaces at the ends of lines, so that equal ones are shown once."""
    found = []
    files = one.folder.iterdir() if one.folder.is_dir() else []
    for path in sorted(files):
        if path.is_file() and path.suffix != ".html" and path.name.upper().startswith(BEGINNINGS):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found.append("\n".join(line.rstrip() for line in lines).strip("\n") + "\n")
    return found or [standing_for(root, one)]


def standing_for(root, one):
    """The text for a package that has none with it."""
    if "Apache-2.0" in one.licence:
        return (root / "LICENSE").read_text()
    if one.licence == "MIT":
        authors = ", ".join(one.authors) or f"the authors of {one.name}"
        return f"Copyright (c) {authors}\n\n{MIT}"
    raise packages.Unknown(f"{one.name} {one.version} has no text of its licence, {one.licence}")
