"""Files from the server on this machine's disk."""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Dict, Generator, List, Union

from ._input import invalid
from .errors import InternalError

PathLike = Union[str, "os.PathLike[str]"]


def _destination(folder: Path, name: str) -> Path:
    """Return the path of an artifact below the folder. A name that leads out of the folder is refused."""
    target = folder.joinpath(*name.split("/"))
    inside = os.path.normpath(target)
    if name.startswith("/") or os.path.isabs(name) or os.path.relpath(inside, folder).split(os.sep)[0] == os.pardir or "\\" in name and os.sep == "\\":
        raise InternalError(f"artifact {name!r}: the name leads out of the folder")
    # A link in the folder must not lead the file out of it.
    parent = os.path.realpath(os.path.dirname(inside))
    root = os.path.realpath(folder)
    if parent != root and not parent.startswith(root.rstrip(os.sep) + os.sep):
        raise InternalError(f"artifact {name!r}: a link leads out of the folder")
    return Path(inside)


def check_folder(field: str, folder: PathLike) -> None:
    """Raise an error if artifacts cannot be saved below a path, before a program runs for them."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise invalid(field, f"{os.fspath(folder)}: must be a folder (got a file)")


def extract(archive: IO[bytes], folder: PathLike) -> List[Path]:
    """Write the regular files of a tar into the folder. It replaces files that exist, and returns the paths."""
    top = Path(folder)
    top.mkdir(parents=True, exist_ok=True)
    written: List[Path] = []
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            target = _destination(top, member.name)
            with replacing(target) as file:
                shutil.copyfileobj(content, file)
            if member.mode & 0o100:
                target.chmod(target.stat().st_mode | 0o111)
            written.append(target)
    return written


def contents(archive: IO[bytes]) -> Dict[str, bytes]:
    """Return the regular files of a tar by their path."""
    found: Dict[str, bytes] = {}
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                found[member.name] = content.read()
    return found


@contextmanager
def replacing(path: PathLike) -> Generator[IO[bytes], None, None]:
    """Write a file that replaces the one at the path when it is complete. Otherwise it leaves nothing behind."""
    target = Path(path)
    if target.is_dir():
        raise invalid("file", f"{target}: must be a file (got a folder): give the name, too")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
