"""A copy of the tree in which code is changed, for the scripts beside this module."""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files():
    """Everything in the tree that Git does not ignore, as paths from its root, with what is not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return {name for name in names if name and (ROOT / name).is_file()}


def copy(to, changed=None):
    """Copies the tree to the folder `to`, with the text in `changed` for the files that it names.

    A file that is already there as it should be is left alone, so that only what is different is built anew.
    """
    changed = changed or {}
    wanted = files() | set(changed)
    for folder, below, names in os.walk(to):
        # What is installed for the tests is a link.
        below[:] = [name for name in below if not os.path.islink(os.path.join(folder, name))]
        for name in names:
            path = pathlib.Path(folder, name)
            if str(path.relative_to(to)) not in wanted:
                path.unlink()
    for name in wanted:
        path, own = to / name, ROOT / name
        content = changed[name].encode() if name in changed else own.read_bytes()
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if own.exists():
            shutil.copymode(own, path)


def once(text, old, new, where):
    """The text with `new` where `old` stands, which has to be one place."""
    count = text.count(old)
    assert count == 1, f"{where}: `{old}` stands {count} times"
    return text.replace(old, new)
