"""What to run, as the body of a submission."""

from __future__ import annotations

import os
import tarfile
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._input import Body, Bytes, Source, invalid, multipart_body, source
from .options import RunOptions, metadata

#: Files to send: paths, or the content of each file (text, bytes, or the path of a local file) by its name.
Files = Union[Mapping[str, Union[str, bytes, "os.PathLike[str]"]], Sequence[Union[str, "os.PathLike[str]"]]]
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
                found[name] = content.encode()
            else:
                found[name] = Path(content) if isinstance(content, os.PathLike) else bytes(content)
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


def files_source(files: Files) -> Source:
    """Return a tar of files, in their order."""
    entries: List[Tuple[bytes, int, Union[bytes, Path]]] = []
    for name, content in _entries(files):
        if isinstance(content, Path):
            stat = content.stat()
            entries.append((_header(name, stat.st_size, stat.st_mode & 0o777, stat.st_mtime), stat.st_size, content))
        else:
            entries.append((_header(name, len(content)), len(content), content))
    if not entries:
        raise invalid("files", "must have a file")

    def chunks() -> Iterator[bytes]:
        for header, size, content in entries:
            yield header
            sent = 0
            for chunk in source(content, "files").chunks():
                chunk = chunk[: size - sent]
                sent += len(chunk)
                yield chunk
            if sent < size:
                raise invalid("files", f"{content} became shorter while it was read")
            yield bytes(-size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    total = sum(len(h) + size + -size % tarfile.BLOCKSIZE for h, size, _ in entries) + 2 * tarfile.BLOCKSIZE
    return Source(chunks, total, True)


def submission(
    code: Optional[str],
    files: Optional[Files],
    directory: Optional[Union[str, "os.PathLike[str]"]],
    tar: Optional[Bytes],
    script: Optional[str],
    stdin: Optional[Stdin],
    options: Mapping[str, Any],
) -> Body:
    """Return the body of `run` and `submit`. It has an idempotency key, so that the call may be repeated."""
    body = metadata(RunOptions, options)
    inputs = [name for name, value in (("files", files), ("directory", directory), ("tar", tar)) if value is not None]
    if len(inputs) > 1:
        raise invalid(inputs[1], f"must not be given together with {inputs[0]}")
    if code is None and script is None and not inputs and "command" not in body:
        raise invalid("code", "must be given, unless files, directory, tar, script or command is")
    if code is not None:
        body["code"] = code
    if script is not None:
        body["script"] = os.fspath(script)
    workspace: Optional[Source] = None
    if tar is not None:
        workspace = source(tar, "tar")
    elif files is not None:
        workspace = files_source(files)
        if "requirements_txt" not in body and "session_id" not in body:
            body.setdefault("detect", True)
    elif directory is not None:
        workspace = _packed(directory, body)
    piped: Optional[Source] = None
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif stdin is not None:
        piped = source(stdin, "stdin")
    body.setdefault("idempotency_key", uuid.uuid4().hex)
    return multipart_body(body, workspace, piped)


def _packed(directory: Union[str, "os.PathLike[str]"], body: Dict[str, Any]) -> Source:
    from ._pack import pack_directory

    packed = pack_directory(directory)
    start: Callable[[], Iterator[bytes]] = packed.open
    if "code" not in body and "command" not in body and packed.entrypoint:
        body.setdefault("entrypoint", packed.entrypoint)
    if packed.requirements_txt:
        body.setdefault("requirements_txt", packed.requirements_txt)
    if packed.python_version:
        body.setdefault("python_version", packed.python_version)
    return Source(start, packed.size, True)


