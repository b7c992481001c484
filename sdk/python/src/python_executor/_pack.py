"""A folder as a tar that is written while it is sent, by the rules of the CLI.

    packed = pack_directory("project")
    metadata.update(packed.metadata(metadata))
    for chunk in packed.open():
        …

A folder's own files come before its subfolders, sorted by name. What .gitignore files name, version control and virtual environments
are left out. A symbolic link that leads out of the folder is an error. Memory is needed for names and sizes, never for content.
The same files make the same bytes.

Go has the same rules in sdk/go/pack. testdata/input of the repository has the examples that both are tested with.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import tarfile
import warnings
from dataclasses import dataclass
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Optional, Pattern, Sequence, Tuple, Union

from . import _detect
from ._detect import InputError

__all__ = ["InputError", "Packed", "pack_directory"]

Path = Union[str, "os.PathLike[str]"]

#: How much of a file is read at once.
CHUNK = 256 << 10
_TRAILER = 2 * tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Packed:
    """A folder that is ready to be sent."""

    #: The file that runs, or "" if the program is a command.
    entrypoint: str
    #: Text in requirements.txt form. None: none, or not read here (see `unread`).
    requirements_txt: Optional[str]
    #: The minor version that the program pins ("3.12"), or None.
    python_version: Optional[str]
    #: The length of the tar in bytes.
    size: int
    #: Return the bytes of the tar from the beginning. It may be called again. It raises InputError if a file has changed its size or kind.
    open: Callable[[], Iterator[bytes]]
    #: The version specifier that the program or its project has (">=3.11"), or "".
    requires_python: str = ""
    #: Whether the requirements are in TOML and this Python has no reader: before 3.11, without the package tomli.
    unread: bool = False
    #: Whether the entrypoint was chosen among several .py files.
    guessed: bool = False
    #: The entries of the tar in order: folders end in "/", links are "name -> target".
    names: Tuple[str, ...] = ()
    #: Files that cannot be sent, such as a FIFO. Each is warned of.
    left_out: Tuple[str, ...] = ()

    def metadata(self, given: Mapping[str, Any]) -> Dict[str, Any]:
        """Return what to add to the metadata of a request, which has `given` already.

        The requirements go along as text. The server reads them in the tar (`detect`) where this Python cannot, or where the program
        requires a version of Python: only the server knows which versions it has.
        """
        more: Dict[str, Any] = {}
        if self.entrypoint and not any(given.get(key) for key in ("entrypoint", "code", "command", "script")):
            more["entrypoint"] = self.entrypoint
        if given.get("requirements_txt") or given.get("session_id") or given.get("detect") is not None:
            return more
        chosen = given.get("python_version") or given.get("docker_image")
        if self.unread or self.requires_python and not chosen:
            more["detect"] = True
        elif self.requirements_txt:
            more["requirements_txt"] = self.requirements_txt
        return more


def pack_directory(
    path: Path, *, entrypoint: str = "", command: bool = False, include_all: bool = False, leave: Optional[Path] = None
) -> Packed:
    """Pack a folder. It reads the names, the ignore files and what tells the requirements, not the content.

    `entrypoint` is the file that runs; "": it is found. `command` reports whether something else runs: code, or a command.
    `include_all` also sends what is ignored. `leave` is a folder that is not sent, such as that of earlier results.
    """
    walker = _Walker(path, include_all, leave)
    walker.walk("", [] if include_all else _inherited(walker.real))
    if walker.files == 0:
        if walker.left:
            raise InputError(f"{walker.top}: everything in it is left out (.gitignore, version control, virtual environments)")
        raise InputError(f"{walker.top}: no files in it")
    regular = [e.name for e in walker.entries if e.kind == tarfile.REGTYPE]
    guessed = False
    if command:
        entrypoint = ""
    elif entrypoint:
        entrypoint = posixpath.normpath(entrypoint.replace(os.sep, "/"))
        if not any(e.name == entrypoint and e.kind != tarfile.DIRTYPE for e in walker.entries):
            raise InputError(f"entrypoint: must be a file in {walker.top} (got {entrypoint!r})")
    else:
        entrypoint, guessed = _detect.entrypoint(regular)
        if not entrypoint:
            raise InputError(f"no .py file in {walker.top}: entrypoint must be given")
    present = set(regular)

    def read(name: str) -> Optional[bytes]:
        if name not in present:
            return None
        with walker.open(name) as file:
            return file.read(_detect.MAX_FILE + 1)

    found = _detect.find(read, entrypoint)
    entries = tuple(walker.entries)
    for name, reason in walker.unsent:
        warnings.warn(f"{walker.title(name)!a}: {reason}: left out", stacklevel=2)
    return Packed(
        entrypoint=entrypoint,
        requirements_txt=found.requirements or None,
        python_version=_detect.pinned_version(found.requires_python) or None,
        size=sum(e.length for e in entries) + _TRAILER,
        open=lambda: _chunks(walker, entries),
        requires_python=found.requires_python,
        unread=found.unread,
        guessed=guessed,
        names=tuple(e.title for e in entries),
        left_out=tuple(name for name, _ in walker.unsent),
    )


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # it has bytes that are no characters
        return False
    return True


@dataclass(frozen=True)
class _Entry:
    """One member of the tar. It has no owner, which has no meaning on another machine."""

    name: str
    kind: bytes
    mode: int
    mtime: int
    size: int = 0
    target: str = ""

    @property
    def header(self) -> bytes:
        info = tarfile.TarInfo(self.name)
        info.type, info.mode, info.mtime, info.size, info.linkname = self.kind, self.mode, self.mtime, self.size, self.target
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    @property
    def length(self) -> int:
        return len(self.header) + self.size + -self.size % tarfile.BLOCKSIZE

    @property
    def title(self) -> str:
        if self.kind == tarfile.DIRTYPE:
            return self.name + "/"
        return f"{self.name} -> {self.target}" if self.kind == tarfile.SYMTYPE else self.name


def _chunks(walker: "_Walker", entries: Sequence[_Entry]) -> Iterator[bytes]:
    for entry in entries:
        yield entry.header
        if not entry.size:
            continue
        with walker.open(entry.name) as file:
            left = entry.size
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise InputError(f"{walker.title(entry.name)} became shorter while it was read")
                left -= len(chunk)
                yield chunk
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(_TRAILER)


class _Walker:
    """Collects the entries of one folder."""

    def __init__(self, path: Path, include_all: bool, leave: Optional[Path]) -> None:
        self.top = os.fspath(path)
        if not os.path.isdir(self.top):
            raise InputError(f"{self.top}: must be a folder")
        self.real = os.path.realpath(self.top)
        self.all = include_all
        self.leave: Optional[os.stat_result] = None
        if leave is not None and os.path.exists(leave):
            self.leave = os.stat(leave)
        self.entries: List[_Entry] = []
        self.unsent: List[Tuple[str, str]] = []  # files that cannot be sent, and why
        self.files = self.left = 0

    def local(self, name: str) -> str:
        return os.path.join(self.real, *name.split("/")) if name else self.real

    def title(self, name: str) -> str:
        return os.path.join(self.top, *name.split("/"))

    def open(self, name: str) -> IO[bytes]:
        """Open a regular file. A link that has taken its place is not followed, and a FIFO not waited for."""
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.local(name), flags)
        file = os.fdopen(descriptor, "rb")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise InputError(f"{self.title(name)}: must be a regular file")
        return file

    def walk(self, at: str, sets: "List[_RuleSet]") -> None:
        """Add the entries below a folder: its own files first, so that the first .py file is near the top."""
        with os.scandir(self.local(at)) as found:
            entries = sorted(found, key=lambda e: os.fsencode(e.name))
        if not self.all:
            sets = sets + _read_rules(os.path.join(self.local(at), ".gitignore"), at, "")
        folders: List[Tuple[str, os.stat_result]] = []
        for entry in entries:
            name = posixpath.join(at, entry.name)
            info = entry.stat(follow_symlinks=False)
            folder = stat.S_ISDIR(info.st_mode)
            if not self.all and self.is_left_out(sets, name, folder):
                self.left += 1
            elif not _is_text(name):  # a server refuses a tar that has such a name
                self.unsent.append((name, "the name is not UTF-8"))
            elif folder:
                folders.append((name, info))
            else:
                self.add(name, info)
        for name, info in folders:
            self.entries.append(_Entry(name, tarfile.DIRTYPE, info.st_mode & 0o777, int(info.st_mtime)))
            self.walk(name, sets)

    def is_left_out(self, sets: "Sequence[_RuleSet]", name: str, folder: bool) -> bool:
        if posixpath.basename(name) in (".git", ".hg", ".svn"):  # .git is a file in a worktree or submodule
            return True
        if _ignored(sets, name, folder):
            return True
        if not folder:
            return False
        if self.leave is not None and os.path.samestat(os.stat(self.local(name)), self.leave):
            return True
        return os.path.lexists(os.path.join(self.local(name), "pyvenv.cfg"))

    def add(self, name: str, info: os.stat_result) -> None:
        if stat.S_ISLNK(info.st_mode):
            target = self.target(name)
            if not _is_text(target):
                self.unsent.append((name, "the target of the link is not UTF-8"))
                return
            self.files += 1
            self.entries.append(_Entry(name, tarfile.SYMTYPE, 0o777, int(info.st_mtime), target=target))
        elif stat.S_ISREG(info.st_mode):
            self.files += 1
            with self.open(name) as file:  # a file that cannot be read is an error before anything is sent
                info = os.fstat(file.fileno())
            self.entries.append(_Entry(name, tarfile.REGTYPE, info.st_mode & 0o777, int(info.st_mtime), info.st_size))
        else:
            self.unsent.append((name, "no file"))

    def target(self, name: str) -> str:
        """Return the target of a link, relative to the link. It must be in the folder as text and after the system has resolved it."""
        local = self.local(name)
        target = os.readlink(local)
        leaves = InputError(f"{self.title(name)}: the symbolic link leaves the folder (-> {target})")
        relative = target
        if os.path.isabs(target):
            if not self.inside(os.path.normpath(target)):
                raise leaves
            relative = os.path.relpath(target, os.path.dirname(local))
        relative = relative.replace(os.sep, "/")
        lexical = posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))
        if lexical == ".." or lexical.startswith("../") or posixpath.isabs(relative):
            raise leaves
        try:
            os.stat(local)
        except (FileNotFoundError, PermissionError):
            pass  # a link to nothing is sent as it is
        except OSError:
            raise leaves from None
        if not self.inside(os.path.realpath(local)):
            raise leaves
        return relative

    def inside(self, path: str) -> bool:
        try:
            return os.path.commonpath([self.real, path]) == self.real
        except ValueError:  # another drive
            return False


# Ignore files, as git reads them.


@dataclass(frozen=True)
class _Rule:
    form: Pattern[str]
    negate: bool
    only_folders: bool


@dataclass(frozen=True)
class _RuleSet:
    """The rules of one .gitignore.

    `base` is the folder of the rules, relative to the packed folder. `above` is the path from the folder of the .gitignore to the packed
    folder.
    """

    base: str
    above: str
    rules: Tuple[_Rule, ...]


def _ignored(sets: Sequence[_RuleSet], name: str, folder: bool) -> bool:
    """Report whether a file is ignored: the last rule of the last set that matches decides."""
    for one in reversed(sets):
        relative = name[len(one.base) :] if name.startswith(one.base) else name
        relative = posixpath.join(one.above, relative.lstrip("/"))
        for rule in reversed(one.rules):
            if (folder or not rule.only_folders) and rule.form.fullmatch(relative):
                return not rule.negate
    return False


def _read_rules(file: str, base: str, above: str) -> List[_RuleSet]:
    try:
        with open(file, "rb") as opened:
            text = opened.read()
    except OSError:
        return []
    rules = _parse_rules(text)
    return [_RuleSet(base, above, rules)] if rules else []


def _inherited(root: str) -> List[_RuleSet]:
    """Return the rules that hold for root from outside: those of the repository that root is in."""
    sets: List[_RuleSet] = []
    above, folder = "", root
    while True:
        if folder != root:
            sets += _read_rules(os.path.join(folder, ".gitignore"), "", above)
        if os.path.lexists(os.path.join(folder, ".git")):
            sets += _read_rules(os.path.join(folder, ".git", "info", "exclude"), "", above)
            return sets[::-1]  # the nearest was read first, and the last is asked first
        parent = os.path.dirname(folder)
        if parent == folder:
            return []  # not in a repository, so the files above have no meaning for root
        above = posixpath.join(os.path.basename(folder), above) if above else os.path.basename(folder)
        folder = parent


def _parse_rules(text: bytes) -> Tuple[_Rule, ...]:
    if text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    rules = (_parse_rule(line[:-1] if line.endswith("\r") else line) for line in lines)
    return tuple(rule for rule in rules if rule is not None)


def _parse_rule(line: str) -> Optional[_Rule]:
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line[0] == "#":
        return None
    negate = line[0] == "!"
    line = line[1:] if negate else line
    only_folders = line.endswith("/")
    line = line[:-1] if only_folders else line
    anchored = "/" in line  # a slash at the beginning or in the middle ties the pattern to the folder of the file
    line = line[1:] if line.startswith("/") else line
    if not line:
        return None
    expression = _translate(line)
    if expression is None:
        return None
    try:
        return _Rule(re.compile(expression if anchored else "(?:.*/)?" + expression, re.DOTALL), negate, only_folders)
    except re.error:
        return None


def _translate(pattern: str) -> Optional[str]:
    """Return a pattern of git as a regular expression. None: it matches nothing."""
    out: List[str] = []
    i = 0
    while i < len(pattern):
        rest = pattern[i:]
        at_start = i == 0 or pattern[i - 1] == "/"
        if at_start and rest.startswith("**/"):
            out.append("(?:.*/)?")
            i += 3
        elif at_start and rest == "**" and i > 0:
            out.append(".+")
            i += 2
        elif rest[0] == "*":
            while i < len(pattern) and pattern[i] == "*":
                i += 1
            out.append("[^/]*")
        elif rest[0] == "?":
            out.append("[^/]")
            i += 1
        elif rest[0] == "[":
            group = _translate_class(rest)
            if group is None:
                return None
            out.append(group[0])
            i += group[1]
        elif rest[0] == "\\" and len(rest) > 1:
            out.append(re.escape(rest[1]))
            i += 2
        else:
            out.append(re.escape(rest[0]))
            i += 1
    return "".join(out)


_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def _translate_class(text: str) -> Optional[Tuple[str, int]]:
    """Return "[…]" at the beginning of a text as a regular expression, and its length. None: it does not end, or has an unknown class."""
    out = ["["]
    i = 1
    if text[1:2] in ("!", "^"):
        out.append("^/")
        i += 1
    first = True
    while i < len(text):
        end = text.find(":]", i)
        if text[i] == "]" and not first:
            return "".join(out) + "]", i + 1
        if text.startswith("[:", i) and end > i + 1:
            known = _CLASSES.get(text[i + 2 : end])
            if known is None:
                return None
            out.append(known)
            i = end + 2
        elif text[i] == "\\" and i + 1 < len(text):
            out.append(re.escape(text[i + 1]))
            i += 2
        else:
            out.append("-" if text[i] == "-" else re.escape(text[i]))
            i += 1
        first = False
    return None
