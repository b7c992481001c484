"""The files of a program: what it gets, and what is kept of what it leaves."""

import os
import posixpath
import re
import shutil
import stat
import subprocess
import tarfile
from typing import Optional

from local_backend.problems import UserFailure


# CODING is the declaration of an encoding, which Python looks for in the first two lines.
CODING = re.compile(r"\A((?:[ \t\f]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))??[ \t\f]*#[^\r\n]*?coding[:=][ \t]*)([-\w.]+)", re.ASCII)


def declared(code: str) -> str:
    """Returns code with the encoding that its file will have, which is UTF-8."""
    return code if code.isascii() else CODING.sub(r"\1utf-8", code)


def unpack(archive: str, root: str) -> list[str]:
    """Unpacks a tar into root. The result is the names of its .py files, in the order of the archive."""
    python: dict[str, None] = {}
    links: list[str] = []
    files: set[str] = set()
    name = ""
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                name = member.name
                path = clean(name)
                if path == ".":
                    continue
                place(tar, member, path, root, files)
                if member.issym():
                    links.append(path)
                if member.isreg() and path.endswith(".py"):
                    python[path] = None
            end = tar.offset
        with open(archive, "rb") as raw:
            raw.seek(end)
            if raw.read(512) != bytes(512):
                raise invalid("it is cut off")
    except OSError as e:
        raise invalid("%s: %s" % (name, e.strerror)) from e
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as e:
        raise invalid("it must be a whole uncompressed tar: %s" % e) from e
    real = os.path.realpath(root)
    for path in links:
        if not (os.path.realpath(os.path.join(root, path)) + "/").startswith(real + "/"):
            raise invalid("%s: the link must stay in the work folder" % path)
    return list(python)


def invalid(message: str) -> UserFailure:
    return UserFailure("prepare", "invalid", "tar: " + message, "tar")


def clean(name: str) -> str:
    """The name of an entry, relative to the work folder."""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise invalid("%s: the name must be relative and stay in the work folder" % name)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise invalid("%r: the name must be UTF-8" % name) from None
    return posixpath.normpath(name)


def place(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, root: str, files: set[str]) -> None:
    """Makes one entry. No folder on its way may be a link."""
    parents = path.split("/")[:-1]
    for n in range(1, len(parents) + 1):
        folder("/".join(parents[:n]), root, 0o755, path)
    target = os.path.join(root, path)
    if member.isdir():
        folder(path, root, member.mode, path)
        return
    if os.path.isdir(target) and not os.path.islink(target):
        os.rmdir(target)  # a folder with files is an error
    elif os.path.lexists(target):
        os.unlink(target)
    if member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        with open(target, "xb") as f:
            shutil.copyfileobj(content, f, 1 << 18)
        os.chmod(target, (member.mode | 0o600) & 0o777)
        files.add(path)
    elif member.issym():
        if member.linkname.startswith("/") or escapes(posixpath.join(posixpath.dirname(path), member.linkname)):
            raise invalid("%s: the link must stay in the work folder" % member.name)
        os.symlink(member.linkname, target)
    elif member.islnk():
        other = posixpath.normpath(member.linkname)
        if other not in files:
            raise invalid("%s: a hard link must lead to a file of the archive" % member.name)
        os.link(os.path.join(root, other), target)
    else:
        raise invalid("%s: must be a file, a folder or a link" % member.name)


def escapes(path: str) -> bool:
    return posixpath.normpath(path).split("/")[0] == ".."


def folder(path: str, root: str, mode: int, entry: str) -> None:
    target = os.path.join(root, path)
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        os.mkdir(target, (mode | 0o700) & 0o777)
        return
    if not stat.S_ISDIR(found.st_mode):
        raise invalid("%s: %s must be a folder" % (entry, path))


def entrypoint(wanted: str, python: list[str], root: str) -> tuple[str, bool]:
    """The program's file, and whether it was chosen among several."""

    def fail(message: str) -> UserFailure:
        return UserFailure("prepare", "invalid", message, "entrypoint")

    if wanted:
        path = posixpath.normpath(wanted)
        if path.startswith("/") or escapes(path) or not os.path.isfile(os.path.join(root, path)):
            raise fail("entrypoint: must be a file of the work folder (got %s)" % wanted)
        return path, False
    for path in ("main.py", "__main__.py"):
        if os.path.isfile(os.path.join(root, path)):
            return path, False
    if not python:
        raise fail("entrypoint: there is no .py file to run")
    return python[0], len(python) > 1


Snapshot = dict[str, tuple[int, int, int]]


def snapshot(root: str) -> Snapshot:
    """The regular files below root, without following links."""
    found: Snapshot = {}
    for at, _, names in os.walk(root):
        for name in names:
            path = os.path.join(at, name)
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode):
                found[os.path.relpath(path, root)] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


def artifacts(root: str, outputs: list[str], before: Optional[Snapshot]) -> list[str]:
    """The files that outputs name, and those that are not as they were before."""
    patterns = [re.compile(regex(p)) for p in outputs]
    kept = []
    for path, info in sorted(snapshot(root).items()):
        changed = before is not None and before.get(path) != info
        parents = [path[:n] for n, c in enumerate(path) if c == "/"]  # a folder stands for its content
        if changed or any(p.fullmatch(name) for p in patterns for name in [path, *parents]):
            kept.append(path)
    return kept


def regex(pattern: str) -> str:
    """A glob as a regular expression: * and ? stay in a folder, ** is any number of folders."""
    out = ""
    for part in re.findall(r"\*\*/|\*\*|\*|\?|.", posixpath.normpath(pattern), re.DOTALL):
        out += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(part)
    return out


def remove(path: str) -> None:
    """Removes a folder, also a deep one and one without rights."""
    quiet = subprocess.DEVNULL
    if subprocess.run(["rm", "-rf", "--", path], stderr=quiet).returncode != 0:
        subprocess.run(["chmod", "-R", "u+rwx", "--", path], stderr=quiet)
        subprocess.run(["rm", "-rf", "--", path], stderr=quiet)
