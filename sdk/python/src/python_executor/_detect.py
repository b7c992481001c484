"""The entrypoint and the requirements of a folder, by the rule of the server and the CLI.

The first of these that exists tells the requirements: the dependencies in the entrypoint's PEP 723 block, requirements.txt, uv.lock,
the dependencies in pyproject.toml. Never two of them. A lock that does not support Linux gives way to pyproject.toml.

Three of the four are TOML. Python has a reader (`tomllib`) from 3.11; before that the package `tomli` is used if it is installed.
Without a reader nothing is guessed: `Found.unread` is true, and the server must look into the files (`detect` of a request).

Go has the same rule in core/executor/detect. testdata/input of the repository has the examples that both are tested with.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, cast

#: How much of a file is read. A block of script metadata is near the top; of the other files a larger one is an error.
MAX_FILE = 4 << 20
MAX_SCRIPT = 256 << 10
MAX_CONDITIONS = 8
MAX_CONDITION = 4 << 10
MAX_CONDITION_BYTES = 1 << 20

REQUIREMENTS, LOCK, PROJECT = "requirements.txt", "uv.lock", "pyproject.toml"

Table = Mapping[str, Any]


class InputError(ValueError):
    """A local file cannot be sent, or says something that cannot be installed. The text names the file and what must be."""


@dataclass(frozen=True)
class Found:
    """What the files of a folder require."""

    #: Text in requirements.txt form, or "".
    requirements: str = ""
    #: A version specifier (">=3.11"), or "".
    requires_python: str = ""
    #: Whether a file that counts could not be read, because there is no reader of TOML.
    unread: bool = False


def entrypoint(names: Iterable[str]) -> Tuple[str, bool]:
    """Return the file that runs when a request names none, or "", and whether it was chosen among several.

    That is main.py, else __main__.py, else the first file that ends in .py. `names` are regular files in the order of the tar.
    """
    first, count, dunder = "", 0, False
    for name in names:
        name = posixpath.normpath(name)
        if name == "main.py":
            return name, False
        if name == "__main__.py":
            dunder = True
        elif name.endswith(".py"):
            count += 1
            first = first or name
    if dunder:
        return "__main__.py", False
    return first, count > 1


def find(read: Callable[[str], Optional[bytes]], program: str) -> Found:
    """Find what a program and its folder require.

    `read` returns at most MAX_FILE + 1 bytes of a regular file at the root, or None. `program` is the entrypoint, or "".
    """
    requires = ""
    if program:
        try:
            block = script_block((read(program) or b"")[:MAX_FILE])
            script = None if block is None else _parse(block, MAX_SCRIPT)
            if block is not None and script is None:
                return Found(unread=True)
            if script is not None:
                requires = _specifier(script)
                dependencies = _dependencies(script, script, "dependencies", "")
                if "dependencies" in script:
                    return Found(_lines(dependencies), requires)
        except InputError as e:
            text = str(e)
            raise InputError(f"{program}: " + (text if text.startswith("script metadata") else "script metadata: " + text)) from None
    for file in (REQUIREMENTS, LOCK, PROJECT):
        text = read(file)
        if text is None:
            continue
        try:
            if len(text) > MAX_FILE:
                raise InputError(f"must have at most {MAX_FILE} bytes")
            if file == REQUIREMENTS:
                return Found(text_of(text), requires)
            table = _parse(text)
            if table is None:
                return Found(requires_python=requires, unread=True)
            if file == LOCK and not _supports_linux(table):
                if read(PROJECT) is not None:
                    continue
                raise InputError("must support Linux: add it to tool.uv.environments, or add a pyproject.toml or a requirements.txt")
            requirements, python = _locked(table) if file == LOCK else _listed(table)
            return Found(requirements, requires or python)
        except InputError as e:
            raise InputError(f"{file}: {e}") from None
    return Found(requires_python=requires)


# Script metadata (PEP 723).

_OPENS = re.compile(rb"# /// ([a-zA-Z0-9-]+)\Z")
_NEARLY_OPENS = re.compile(rb"(?i)#[ \t]*///[ \t]*script[ \t]*\Z")


def script_block(source: bytes) -> Optional[bytes]:
    """Return the TOML text of the only block of the type "script", or None."""
    if source.startswith(b"\xef\xbb\xbf"):
        source = source[3:]
    lines = source.replace(b"\r\n", b"\n").split(b"\n")
    block: Optional[bytes] = None
    near = ""  # what is wrong with the first line that was meant to open a block, and opens none
    run_end, last = 0, -1
    i = -1
    while i + 1 < len(lines):
        i += 1
        opens = _OPENS.match(lines[i])
        if opens is None:
            if not near and _NEARLY_OPENS.match(lines[i]):
                near = f'line {i + 1} must be "# /// script" to open the block (got "{lines[i][:100].decode("utf-8", "replace")}")'
            continue
        if i >= run_end:
            run_end, last = _comment_run(lines, i)
        if last < i + 2:  # a block needs at least one line of content
            if not near and last <= i and opens.group(1) == b"script":
                near = f'the block of line {i + 1} must end with a line "# ///", and each of its lines must begin with "# "'
            continue
        if opens.group(1) == b"script":
            if block is not None:
                raise InputError("script metadata: must be one block only")
            block = b"".join(line[2:] + b"\n" for line in lines[i + 1 : last])
        i = last
    if block is None and near:
        raise InputError("script metadata: " + near)
    return block


def _comment_run(lines: Sequence[bytes], i: int) -> Tuple[int, int]:
    """Return the end of the run of comment lines from line i, and its last line that closes a block; -1: none."""
    last = -1
    while i < len(lines) and (lines[i] == b"#" or lines[i].startswith(b"# ")):
        if lines[i] == b"# ///":
            last = i
        i += 1
    return i, last


# TOML.


def toml_reader() -> Optional[Any]:
    """Return the module that reads TOML, or None."""
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _parse(text: bytes, limit: int = MAX_FILE) -> Optional[Table]:
    """Return the table of a TOML text, or None without a reader."""
    if len(text) > limit:
        raise InputError(f"must have at most {limit} bytes")
    reader = toml_reader()
    if reader is None:
        return None
    decoded = text_of(text)
    try:
        return cast("Table", reader.loads(decoded))
    except (ValueError, RecursionError) as e:
        raise InputError(f"must be valid TOML: {e}") from None


def text_of(raw: bytes) -> str:
    """Return the text of a file without its byte order mark. PowerShell writes UTF-16."""
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("must be UTF-8, or UTF-16 with a byte order mark") from None


_KINDS: Dict[type, str] = {str: "a string", list: "a list", dict: "a table", int: "a whole number"}


def _member(table: Any, key: str, kind: type, within: str = "", more: str = "") -> Any:
    """Return a member of a table, or the empty value of its kind. Another kind is an error. `within` begins its name, and `more` says what is meant."""
    value = cast("Table", table).get(key) if isinstance(table, dict) else None
    if value is None:
        if isinstance(table, dict):
            return kind()
        raise InputError(f"{within}{key}: must be in a table")
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{within}{key}: must be {_KINDS[kind]}{more}")
    return value


def _specifier(table: Any, within: str = "") -> str:
    text = str(_member(table, "requires-python", str, within, ', such as ">=3.11"')).strip()
    if text and not valid_specifier(text):
        raise InputError(f'requires-python: must be a version specifier, such as >=3.11 (got "{text[:100]}")')
    return text


def _is_specifier(text: str) -> bool:
    """Report whether a text can stand in a requirements.txt without becoming an option, a comment or two lines."""
    return bool(text) and not any(c in text for c in "\n\r\\\0") and text[0] not in "-#"


#: The settings of uv that decide which packages are installed. Requirements cannot say the same.
_DECIDING = (
    "constraint-dependencies",
    "exclude-dependencies",
    "exclude-newer",
    "exclude-newer-package",
    "fork-strategy",
    "override-dependencies",
    "prerelease",
    "resolution",
)


def _dependencies(table: Any, file: Table, where: str, locked: str) -> List[str]:
    """Return the dependencies of a table. Settings of uv in its file by which others would be installed are an error."""
    settings = _member(_member(file, "tool", dict), "uv", dict, "tool.")
    sources = cast("Dict[str, Any]", _member(settings, "sources", dict, "tool.uv."))
    elsewhere = {_normal(name) for name, source in sources.items() if not _is_index(source)}
    found: List[str] = []
    for i, item in enumerate(_member(table, "dependencies", list, where[: -len("dependencies")], ' of strings, such as ["six"]')):
        text = item.strip() if isinstance(item, str) else ""
        if not _is_specifier(text):
            raise InputError(f"{where}[{i}]: must be a dependency specifier, such as numpy>=2 (got {item!r})")
        match = _NAME.match(text)
        name = _normal(match.group() if match else "")
        if name in elsewhere:  # a package index may have another package of the same name
            raise InputError(f"tool.uv.sources.{name}: must be a package index{locked}")
        found.append(text)
    for name in _DECIDING:
        if found and name in settings:
            raise InputError(f"tool.uv.{name}: must not be set{locked}: give the versions in the dependencies, such as numpy==2.1.0")
    return found


def _lines(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


# pyproject.toml.

_NAME = re.compile(r"[A-Za-z0-9._-]*")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _listed(table: Table) -> Tuple[str, str]:
    project = _member(table, "project", dict)
    dependencies = _dependencies(project, table, "project.dependencies", ", or be locked in uv.lock")
    return _lines(dependencies), _specifier(project, "project.")


def _is_index(source: Any) -> bool:
    if isinstance(source, list):
        return all(_is_index(one) for one in cast("List[Any]", source))
    return isinstance(source, dict) and "index" in source


# uv.lock.

_SYSTEMS = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
_SYSTEM = re.compile(r"(sys_platform|platform_system|os_name) *(==|!=) *['\"]([^'\"]*)['\"]")


def _supports_linux(lock: Table) -> bool:
    markers = cast("List[Any]", _member(lock, "supported-markers", list))
    if not all(isinstance(m, str) for m in markers):
        raise InputError("supported-markers: must be a list of strings")
    return not markers or any(may_hold_on_linux(str(m)) for m in markers)


def may_hold_on_linux(marker: str) -> bool:
    """Report whether a marker may hold on Linux. Only comparisons of the operating system count; any other may hold."""

    def impossible(one: str) -> bool:
        m = _SYSTEM.fullmatch(one.strip())
        return m is not None and (_SYSTEMS[m.group(1)] == m.group(3)) != (m.group(2) == "==")

    marker = marker.replace("(", " ").replace(")", " ")
    return any(not any(impossible(one) for one in part.split(" and ")) for part in marker.split(" or "))


@dataclass(frozen=True)
class _Need:
    name: str
    version: str
    marker: str
    extra: Tuple[str, ...]


def _needs(table: Any, key: str = "dependencies") -> List[_Need]:
    needs: List[_Need] = []
    for item in _member(table, key, list):
        extra = _member(item, "extra", list)
        needs.append(_Need(_member(item, "name", str), _member(item, "version", str), _member(item, "marker", str), tuple(str(e) for e in extra)))
    return needs


class _Lock:
    """The packages of a lock, and the conditions under which each is needed; "" means always."""

    def __init__(self, table: Table) -> None:
        self.packages = cast("List[Any]", _member(table, "package", list))
        self.sources = [_member(p, "source", dict) for p in self.packages]
        self.names: Dict[str, List[int]] = {}
        for i, p in enumerate(self.packages):
            self.names.setdefault(_member(p, "name", str), []).append(i)
        self.when: Dict[int, List[str]] = {}
        self.size = 0
        self.gone: Set[Tuple[int, str, str]] = set()

    def walk(self, root: int) -> None:
        """Follow all dependencies. The stack takes the place of recursion, which Python bounds."""
        stack: List[Iterator[Tuple[_Need, str]]] = [iter([(need, "") for need in _needs(self.packages[root])])]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            need, condition = step
            i = self.index(need)
            stack.append(self.edges(i, need.extra, self.note(i, _both(condition, need.marker))))

    def edges(self, i: int, extras: Sequence[str], condition: str) -> Iterator[Tuple[_Need, str]]:
        for extra in ("", *extras):
            if (i, extra, condition) in self.gone:
                continue
            self.gone.add((i, extra, condition))
            package = self.packages[i]
            for need in _needs(_member(package, "optional-dependencies", dict), extra) if extra else _needs(package):
                yield need, condition

    def index(self, need: _Need) -> int:
        for i in self.names.get(need.name, []):
            if not need.version or _member(self.packages[i], "version", str) == need.version:
                return i
        raise InputError(f"{need.name} is needed, but has no entry: run uv lock")

    def note(self, i: int, condition: str) -> str:
        known = self.when.setdefault(i, [])
        if "" in known:
            return ""
        if not condition or len(known) >= MAX_CONDITIONS or len(condition) > MAX_CONDITION or self.size + len(condition) > MAX_CONDITION_BYTES:
            self.when[i] = [""]
            return ""
        if condition not in known:
            known.append(condition)
            self.size += len(condition)
        return condition

    def requirement(self, i: int) -> str:
        source, package = self.sources[i], self.packages[i]
        name, version = _member(package, "name", str), _member(package, "version", str)
        if _member(source, "registry", str) and version:
            return f"{name}=={version}"
        if _member(source, "url", str):
            return f"{name} @ {source['url']}"
        if _member(source, "git", str):
            url, _, commit = str(source["git"]).partition("#")
            return f"{name} @ git+{url.partition('?')[0]}@{commit}"
        raise InputError(f"{name}: must come from a package index, a URL or git, because a sandbox cannot install a local folder or file")


def _both(a: str, b: str) -> str:
    if not a or a == b:
        return b
    return f"({a}) and ({b})" if b else a


def _locked(table: Table) -> Tuple[str, str]:
    version = _member(table, "version", int)
    if version != 1:
        raise InputError(f"unknown version {version} (must be 1)")
    lock = _Lock(table)
    own = [i for i, s in enumerate(lock.sources) if s.get("editable") == "." or s.get("virtual") == "."]
    if not own:
        raise InputError("must have a package that is the project itself")
    lock.walk(own[0])
    lines: List[str] = []
    for i, conditions in lock.when.items():
        if i == own[0]:  # an extra of the project itself
            continue
        line = lock.requirement(i)
        if "" not in conditions:
            line += " ; " + " or ".join(sorted(conditions))
        if not _is_specifier(line):
            raise InputError(f'"{_member(lock.packages[i], "name", str)[:100]}": must be a package of uv\'s form')
        lines.append(line)
    return _lines(sorted(lines)), _specifier(table)


# Version specifiers.

_CLAUSE = re.compile(r"(===|==|~=|!=|<=|>=|<|>)\s*v?([0-9]+(?:\.[0-9]+){0,5})(?:[^0-9.*].*|\.[^0-9].*)?", re.DOTALL)


def _clauses(text: str) -> Optional[List[Tuple[str, List[str]]]]:
    clauses: List[Tuple[str, List[str]]] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        wild = part.endswith(".*")
        m = _CLAUSE.fullmatch(part[:-2] if wild else part)
        if m is None:
            return None
        operator, version = m.group(1), m.group(2).split(".")
        if wild and operator not in ("==", "!=") or operator == "~=" and len(version) < 2:
            return None
        clauses.append((operator, version))
    return clauses


def valid_specifier(text: str) -> bool:
    """Report whether a text is a version specifier, such as ">=3.11,<4"."""
    return bool(_clauses(text))


def pinned_version(text: str) -> str:
    """Return the minor version that a specifier pins ("==3.12.*"), or ""."""
    for operator, version in _clauses(text) or []:
        if len(version) >= 2 and (operator in ("==", "===") or operator == "~=" and len(version) > 2):
            return ".".join(version[:2])
    return ""
