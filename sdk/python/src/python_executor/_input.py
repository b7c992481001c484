"""The bodies of requests: JSON, or parts that are streamed at constant memory."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable as IterableType
from typing import IO, Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, Union, cast

from .errors import FieldError, InvalidError

#: How much of a file is read at once.
CHUNK = 256 << 10

#: Bytes that are sent: a path, bytes, a binary file, or pieces of bytes.
Bytes = Union[str, "os.PathLike[str]", bytes, bytearray, IO[bytes], Iterable[bytes]]


def invalid(field: str, message: str) -> InvalidError:
    """Make the error of one bad field."""
    return InvalidError(f"{field}: {message}", fields=[FieldError(field, message)])


def kind(value: object) -> str:
    """Return the name of a value's type, for errors."""
    return type(value).__name__


def check_kind(field: str, value: object, wanted: Union[type, Tuple[type, ...]], what: str) -> None:
    """Raise an error if a value that was given has another type."""
    if value is not None and not isinstance(value, wanted):
        raise invalid(field, f"must be {what} (got {kind(value)})")


def check_call(field: str, value: object) -> None:
    """Raise an error if a value that was given is no function."""
    if value is not None and not callable(value):
        raise invalid(field, f"must be a function (got {kind(value)})")


class Source:
    """Bytes that can be read once, or again if `again` is true."""

    def __init__(self, start: Callable[[], Iterator[bytes]], size: Optional[int], again: bool) -> None:
        """`start` returns the pieces from the beginning. `size` is None if it is not known."""
        self._start = start
        self.size = size
        self._again = again
        self._started = False

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes from the beginning, never more than `size`."""
        self._started = True
        left = self.size
        for chunk in self._start():
            if left is not None:
                # A file that grows meanwhile must not make the body longer than announced.
                chunk = chunk[:left]
                left -= len(chunk)
            yield chunk
            if left == 0:
                return

    @property
    def ready(self) -> bool:
        """Whether the bytes can be read from the beginning."""
        return self._again or not self._started


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while True:
        chunk = file.read(CHUNK)
        if not chunk:
            return
        yield chunk


def _pieces(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(data), CHUNK):
        yield bytes(view[at : at + CHUNK])


def source(given: Bytes, field: str) -> Source:
    """Return the bytes that a user named. `field` is the name of the argument, for errors."""
    if isinstance(given, (str, os.PathLike)):
        return _file_source(os.fspath(given), field)
    if isinstance(given, (bytes, bytearray, memoryview)):
        data = bytes(given)
        return Source(lambda: _pieces(data), len(data), True)
    if hasattr(given, "read"):
        return _stream_source(cast("IO[bytes]", given), field)
    if isinstance(given, Mapping) or not isinstance(cast(object, given), IterableType):
        raise invalid(field, f"must be a path, bytes or a binary file (got {kind(cast(object, given))})")
    pieces = cast("Iterable[object]", given)

    def checked() -> Iterator[bytes]:
        for piece in pieces:
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise invalid(field, f"must have pieces of bytes (got {kind(piece)})")
            yield bytes(cast(bytes, piece))

    if isinstance(given, (list, tuple)):  # before anything is sent
        for _ in checked():
            pass
    return Source(checked, None, iter(pieces) is not pieces)


def _file_source(path: str, field: str) -> Source:
    """Return the bytes of a local file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        why = getattr(error, "strerror", None) or str(error)
        text = "" if field == "tar" else '; a text is sent as bytes: "…".encode()'
        raise invalid(field, f"{_cut(path)}: {why} (a str is the path of a local file{text})") from error
    if stat.S_ISDIR(status.st_mode):
        raise invalid(field, f"{_cut(path)}: must be a file (got a folder): " + ("run sends one with directory=" if field == "tar" else "give its files one by one"))

    def from_path() -> Iterator[bytes]:
        with open(path, "rb") as file:
            yield from _read(file)

    return Source(from_path, status.st_size if stat.S_ISREG(status.st_mode) else None, stat.S_ISREG(status.st_mode))


def _stream_source(file: IO[bytes], field: str) -> Source:
    """Return the bytes of a file that is open."""
    if isinstance(file.read(0), str):
        raise invalid(field, 'must be opened in binary mode: open(path, "rb")')
    try:
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
    except (AttributeError, OSError, ValueError):  # a pipe
        return Source(lambda: _read(file), None, False)

    def from_start() -> Iterator[bytes]:
        file.seek(start)
        yield from _read(file)

    return Source(from_start, max(0, size), True)


def _cut(text: str) -> str:
    """Return a text as an error shows it."""
    return repr(text if len(text) <= 80 else text[:80] + "…")


def check_order(content: object, path: object) -> None:
    """Raise an error if the content of a file was given behind its path."""
    if path is None or isinstance(path, (str, os.PathLike)):
        lines = isinstance(path, str) and "\n" in path and isinstance(content, (str, os.PathLike))
        if not lines:
            return
    raise invalid("content", f"must be given before the path: upload(content, {_cut(str(content)) if isinstance(content, str) else 'path'})")


class Body:
    """The body of a request: parts in order, each of them bytes or a Source."""

    def __init__(self, content_type: str, parts: Sequence[Union[bytes, Source]]) -> None:
        """Make a body."""
        self.content_type = content_type
        self._parts = parts

    @property
    def streams(self) -> bool:
        """Whether a part is a Source."""
        return any(isinstance(p, Source) for p in self._parts)

    @property
    def ready(self) -> bool:
        """Whether the body can be sent, again or for the first time."""
        return all(p.ready for p in self._parts if isinstance(p, Source))

    @property
    def length(self) -> Optional[int]:
        """The size in bytes. None: not known."""
        total = 0
        for p in self._parts:
            size = p.size if isinstance(p, Source) else len(p)
            if size is None:
                return None
            total += size
        return total

    def chunks(self) -> Iterator[bytes]:
        """Yield the body from its beginning."""
        for p in self._parts:
            if isinstance(p, Source):
                yield from p.chunks()
            else:
                yield p


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _check(field: str, value: Any) -> None:
    """Raise the error of the first field that cannot be sent."""
    if isinstance(value, dict):
        for name, item in cast("dict[object, Any]", value).items():
            _check(f"{field}.{name}" if field else str(name), item)
        return
    if isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            _check(f"{field}[{number}]", item)
        return
    try:
        _encoded(value)
    except UnicodeError:
        raise invalid(field, "must be text that UTF-8 can encode") from None
    except TypeError:
        if isinstance(value, (bytes, bytearray)):
            raise invalid(field, f"must be text (got {type(value).__name__}): decode it") from None
        raise invalid(field, f"must be a value of JSON (got {type(value).__name__})") from None
    except ValueError:
        raise invalid(field, f"must be a finite number (got {value})") from None


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return an object as JSON."""
    try:
        return _encoded(value)
    except (TypeError, ValueError):
        _check("", value)
        raise


def json_body(value: Mapping[str, Any]) -> Body:
    """Return a body of JSON."""
    return Body("application/json", [json_bytes(value)])


def multipart_body(metadata: Mapping[str, Any], tar: Optional[Source], stdin: Optional[Source]) -> Body:
    """Return the body of a submission. The metadata comes first, so that the server can stream the tar to the sandbox."""
    if tar is None and stdin is None:
        return json_body(metadata)
    boundary = secrets.token_hex(16)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n'
    parts: list[Union[bytes, Source]] = [head.encode() + json_bytes(metadata) + b"\r\n"]
    sent: Sequence[Tuple[str, str, Optional[Source]]] = (
        ('name="tar"; filename="workspace.tar"', "application/x-tar", tar),
        ('name="stdin"; filename="stdin"', "application/octet-stream", stdin),
    )
    for disposition, media_type, content in sent:
        if content is not None:
            header = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\nContent-Type: {media_type}\r\n\r\n"
            parts += [header.encode(), content, b"\r\n"]
    parts.append(f"--{boundary}--\r\n".encode())
    return Body(f"multipart/form-data; boundary={boundary}", parts)
