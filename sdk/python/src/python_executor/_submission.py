"""What to run, as the body of a submission."""

from __future__ import annotations

import os
import tarfile
import uuid
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Generator, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, cast

from . import _detect
from ._input import Body, Bytes, Source, invalid, kind, multipart_body, source
from ._pack import InputError, Packed, pack_directory
from .options import metadata

#: Files to send: paths, or the content of each file (text, bytes, or the path of a local file) by its name.
Files = Union[Mapping[str, Union[str, bytes, "os.PathLike[str]"]], Sequence[Union[str, "os.PathLike[str]"]]]
PathLike = Union[str, "os.PathLike[str]"]
#: Standard input: text, or bytes from anywhere.
Stdin = Union[str, Bytes]


def _header(name: str, size: int, mode: int = 0o644, mtime: float = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, int(mtime)
    return info.tobuf(tarfile.PAX_FORMAT)


def _sent_name(path: str) -> str:
    """Return the name of a file that was given by its path: a relative path is kept, any other has its base name."""
    if os.path.isabs(path):
        return os.path.basename(path)
    name = PurePosixPath(*Path(os.path.normpath(path)).parts).as_posix()
    return os.path.basename(path) if name.startswith("..") else name


def _entries(files: Files) -> List[Tuple[str, Union[bytes, Path]]]:
    found: Dict[str, Union[bytes, Path]] = {}
    if isinstance(files, (str, bytes, os.PathLike)):
        raise invalid("files", "must be a list of paths, or a dict of names and contents")
    if isinstance(files, Mapping):
        for name, content in files.items():
            if isinstance(content, str):
                try:
                    found[name] = content.encode()
                except UnicodeError:
                    raise invalid("files", f"{name!r} must be text that UTF-8 can encode") from None
            elif isinstance(content, os.PathLike):
                found[name] = Path(content)
            elif isinstance(cast(object, content), (bytes, bytearray, memoryview)):
                found[name] = bytes(content)
            else:
                raise invalid("files", f"{name!r} must be text, bytes or a path object (got {type(content).__name__})")
    else:
        for given in files:
            path = os.fspath(given)
            name = _sent_name(path)
            if name in found:
                raise invalid("files", f"{found[name]} and {path} would both be {name}")
            found[name] = Path(path)
    for name, content in found.items():
        if isinstance(content, Path) and not content.is_file():
            raise invalid("files", f"{content} must be a regular file")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise invalid("files", f"{name!r} must be a relative path")
    return list(found.items())


def pack_files(files: Files) -> Packed:
    """Return files as a tar, in their order. What they require is found by the rules of a folder."""
    entries: List[Tuple[str, bytes, int, Union[bytes, Path]]] = []
    for name, content in _entries(files):
        if isinstance(content, Path):
            stat = content.stat()
            entries.append((name, _header(name, stat.st_size, stat.st_mode & 0o777, stat.st_mtime), stat.st_size, content))
        else:
            entries.append((name, _header(name, len(content)), len(content), content))
    if not entries:
        raise invalid("files", "must have a file")

    def chunks() -> Iterator[bytes]:
        for _, header, size, content in entries:
            yield header
            sent = 0
            for chunk in source(content, "files").chunks():
                chunk = chunk[: size - sent]
                sent += len(chunk)
                yield chunk
            if sent < size:
                raise InputError(f"{content} became shorter while it was read")
            yield bytes(-size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    contents = {name: content for name, _, _, content in entries}

    def read(name: str) -> Optional[bytes]:
        content = contents.get(name)
        if not isinstance(content, Path):
            return content
        with open(content, "rb") as file:
            return file.read(_detect.MAX_FILE + 1)

    entrypoint, guessed = _detect.entrypoint(contents)
    found = _detect.find(read, entrypoint)
    return Packed(
        entrypoint=entrypoint,
        requirements_txt=found.requirements or None,
        python_version=_detect.pinned_version(found.requires_python) or None,
        size=sum(len(h) + size + -size % tarfile.BLOCKSIZE for _, h, size, _ in entries) + 2 * tarfile.BLOCKSIZE,
        open=chunks,
        requires_python=found.requires_python,
        unread=found.unread,
        guessed=guessed,
    )


@contextmanager
def _as_invalid(field: str) -> Generator[None, None, None]:
    """Raise what is wrong with local files as the error of a field."""
    try:
        yield
    except InputError as error:
        raise invalid(field, str(error)) from error


def _sent(field: str, packed: Packed, body: Dict[str, Any]) -> Source:
    """Return what was packed as a part of the request, and add what it says about the program to the metadata."""
    body.update(packed.metadata(body))

    def chunks() -> Iterator[bytes]:
        with _as_invalid(field):
            yield from packed.open()

    return Source(chunks, packed.size, True)


def _instead_of_code(given: object) -> str:
    """Return what a value that is no text was meant to be."""
    if isinstance(given, os.PathLike):
        return ": a file is sent with files=[path]"
    if isinstance(given, (bytes, bytearray)):
        return ": decode it"
    return ": the decorator remote runs a function" if callable(given) else ""


def check_text(code: object, remedy: str) -> None:
    """Raise an error if code that is to run as Python is the path of a local file: as a program it would be a NameError."""
    if isinstance(code, str) and code.rstrip().endswith(".py") and os.path.isfile(code.strip()):
        path = code.strip()
        raise invalid("code", f"must be the text of a program ({path!r} is the path of a file: {remedy.format(path)})")


def batch_members(cases: object, parallel: Optional[int], stop_at_first_failure: bool) -> Dict[str, Any]:
    """Return the members that a batch has beside those of a program."""
    if isinstance(cases, (str, bytes, dict)) or not isinstance(cases, Iterable):
        raise invalid("cases", f'must be a list of dicts, [{{"stdin": "1"}}] (got {kind(cast(object, cases))})')
    listed = list(cast("Iterable[object]", cases))
    for number, case in enumerate(listed):
        if not isinstance(case, Mapping):
            raise invalid(f"cases[{number}]", f'must be a dict, {{"stdin": "1"}} (got {kind(case)})')
    members: Dict[str, Any] = {"cases": [dict(cast("Mapping[str, Any]", case)) for case in listed]}
    if parallel is not None:
        members["parallel"] = parallel
    if stop_at_first_failure:
        members["stop_at_first_failure"] = True
    return members


def submission(
    code: Optional[str],
    files: Optional[Files],
    directory: Optional[PathLike],
    tar: Optional[Bytes],
    script: Optional[str],
    stdin: Optional[Stdin],
    options: Mapping[str, Any],
    *,
    include_all: bool = False,
    leave: Optional[PathLike] = None,
    batch: Optional[Mapping[str, Any]] = None,
) -> Body:
    """Return the body of `run`, `submit` and `run_batch`, whose own members are in `batch`. It has an idempotency key, so that the call may be repeated.

    `leave` is a folder that is not sent with a directory, such as that of earlier artifacts.
    """
    body = metadata(options)
    inputs = [name for name, value in (("files", files), ("directory", directory), ("tar", tar)) if value is not None]
    if len(inputs) > 1:
        raise invalid(inputs[1], f"must not be given together with {inputs[0]}")
    if code is not None and not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid("code", f"must be text (got {kind(code)})" + _instead_of_code(code))
    if code is None and script is None and not inputs and "command" not in body:
        raise invalid("code", "must be given, unless files, directory, tar, script or command is")
    if code is not None:
        if body.get("language", "python") == "python" and "session_id" not in body:
            check_text(code, "files=[{!r}] sends and runs it")
        body["code"] = code
    if script is not None:
        body["script"] = script
    workspace: Optional[Source] = None
    if tar is not None:
        workspace = source(tar, "tar")
        if not any(body.get(key) for key in ("requirements_txt", "session_id")):
            body.setdefault("detect", True)
    elif files is not None:
        with _as_invalid("files"):
            workspace = _sent("files", pack_files(files), body)
    elif directory is not None:
        entrypoint, other = str(body.get("entrypoint", "")), "code" in body or "command" in body
        with _as_invalid("directory"):
            packed = pack_directory(directory, entrypoint=entrypoint, command=other, include_all=include_all, leave=leave)
            workspace = _sent("directory", packed, body)
    piped: Optional[Source] = None
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif stdin is not None:
        piped = source(stdin, "stdin")
    body.update(batch or {})
    body.setdefault("idempotency_key", uuid.uuid4().hex)
    return multipart_body(body, workspace, piped)
