"""The rules for folders agree with those of the CLI: both read the vectors in testdata/input."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from python_executor import _detect, _pack
from python_executor._pack import InputError, pack_directory

VECTORS = Path(__file__).resolve().parents[3] / "testdata" / "input"
TOML = _detect.toml_reader() is not None

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="SKIPPED: the vectors are not here (a package outside its repository)")


def vectors() -> List[Any]:
    return list(_vectors())


def _vectors() -> Iterator[Any]:
    for file in sorted(VECTORS.glob("*.json")):
        if file.name != "ignore.json":
            for vector in json.loads(file.read_text("utf-8")):
                yield pytest.param(vector, id=f"{file.stem}: {vector['name']}")


def write(tree: Path, files: Dict[str, Any]) -> None:
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        elif isinstance(content, dict):
            os.symlink(content["link"].replace("{tree}", os.path.realpath(tree)), path)
        else:
            path.write_bytes(content.encode("utf-8"))


def entries(packed: _pack.Packed) -> List[str]:
    """Read the tar as another program does."""
    data = b"".join(packed.open())
    assert len(data) == packed.size
    found: List[str] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            name = member.name + ("/" if member.isdir() else "")
            found.append(f"{name} -> {member.linkname}" if member.issym() else name)
    return found


@pytest.mark.parametrize("vector", vectors())
def test_vectors(vector: Dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, vector["files"])
    folder = tmp_path / vector.get("folder", "")
    want = vector.get("want", {})

    def pack() -> _pack.Packed:
        return pack_directory(
            folder,
            entrypoint=vector.get("entrypoint", ""),
            command=vector.get("command", False),
            include_all=vector.get("all", False),
            leave=folder / vector["leave"] if "leave" in vector else None,
        )

    if "error" in vector and (TOML or "TOML" not in vector["name"]):
        try:
            packed = pack()
        except InputError as e:
            assert vector["error"] in str(e)
            return
        assert packed.unread and not TOML, vector["error"]
        return
    if not want.get("entrypoint") and not vector.get("command"):
        with pytest.raises(InputError, match="no .py file in .*: entrypoint must be given"):
            pack()
        return
    packed = pack()
    assert entries(packed) == want["names"] == list(packed.names)
    assert packed.entrypoint == want["entrypoint"]
    assert packed.guessed == want.get("guessed", False)
    if packed.unread:
        assert not TOML and packed.requirements_txt is None and packed.metadata({})["detect"] is True
        return
    assert (packed.requirements_txt or "") == want.get("requirements", "")
    assert packed.requires_python == want.get("python", "")


def ignore_vectors() -> Dict[str, Any]:
    file = VECTORS / "ignore.json"
    return json.loads(file.read_text("utf-8")) if file.is_file() else {"files": [], "cases": []}


@pytest.mark.parametrize("case", ignore_vectors()["cases"], ids=lambda c: repr(c["rules"]))
def test_ignore_files_agree_with_git(case: Dict[str, Any], tmp_path: Path) -> None:
    files = {name: "" for name in ignore_vectors()["files"]}
    write(tmp_path, {**files, ".gitignore": case["rules"] + "\n"})
    packed = pack_directory(tmp_path, command=True)
    assert sorted({*files, ".gitignore"} - set(packed.names)) == case["left_out"]


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "print(1)", "sub/" + "é" * 120 + ".py": "x" * 1000})
    first, second = pack_directory(tmp_path), pack_directory(tmp_path)
    assert b"".join(first.open()) == b"".join(first.open()) == b"".join(second.open())
    with tarfile.open(fileobj=io.BytesIO(b"".join(first.open()))) as tar:
        assert all(m.uid == m.gid == 0 and not m.uname and m.mtime == int(m.mtime) for m in tar)


def test_a_large_file_needs_no_memory(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": ""})
    with open(tmp_path / "big", "wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        packed = pack_directory(tmp_path)
        assert sum(map(len, packed.open())) == packed.size > 64 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_changes_is_an_error_or_keeps_its_size(tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text("print(1)")
    packed = pack_directory(tmp_path)
    main.write_text("print(1)  # longer")
    assert len(b"".join(packed.open())) == packed.size
    main.write_text("")
    with pytest.raises(InputError, match="main.py became shorter while it was read"):
        b"".join(packed.open())
    main.unlink()
    os.mkfifo(main)
    with pytest.raises(InputError, match="main.py: must be a regular file"):
        b"".join(packed.open())
    main.unlink()
    (tmp_path / "other").write_text("secrets of another file")
    main.symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        b"".join(packed.open())


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("")
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    os.symlink(os.fsdecode(b"caf\xe9.txt"), tmp_path / "link")
    with pytest.warns(UserWarning) as warned:
        packed = pack_directory(tmp_path)
    assert entries(packed) == ["main.py"]
    assert set(packed.left_out) == {os.fsdecode(b"caf\xe9"), os.fsdecode(b"caf\xe9.txt"), "fifo", "link"}
    assert any("caf\\udce9.txt': the name is not UTF-8: left out" in str(w.message) for w in warned)
    (tmp_path / "fifo").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).unlink()
    (tmp_path / os.fsdecode(b"caf\xe9")).rmdir()
    with pytest.raises(InputError, match="must be a folder"):
        pack_directory(tmp_path / "main.py")
    with pytest.raises(InputError, match="entrypoint: must be a file in "):
        pack_directory(tmp_path, entrypoint="none.py")


BLOCK = "# /// script\n# dependencies = ['six']\n{}# ///\n"


def test_metadata_says_what_the_request_leaves_open(tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    (tmp_path / "requirements.txt").write_text("idna\n")
    main.write_text("")
    packed = pack_directory(tmp_path)
    assert packed.metadata({}) == {"entrypoint": "main.py", "requirements_txt": "idna\n"}
    assert packed.metadata({"code": "1", "requirements_txt": "six"}) == {}
    assert packed.metadata({"entrypoint": "other.py", "detect": False}) == {}
    assert packed.metadata({"command": ["ls"], "session_id": "ctx-1"}) == {}


@pytest.mark.skipif(not TOML, reason="SKIPPED: needs a reader of TOML")
def test_a_required_python_is_chosen_by_the_server(tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text(BLOCK.format("# requires-python = '>=3.11'\n"))
    packed = pack_directory(tmp_path)
    assert packed.metadata({}) == {"entrypoint": "main.py", "detect": True}
    assert packed.metadata({"python_version": "3.12"}) == {"entrypoint": "main.py", "requirements_txt": "six\n"}
    assert packed.python_version is None
    main.write_text(BLOCK.format("# requires-python = '==3.12.*'\n"))
    assert pack_directory(tmp_path).python_version == "3.12"


def test_without_a_reader_of_toml_the_server_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_reader() -> Optional[Any]:
        return None

    monkeypatch.setattr(_detect, "toml_reader", no_reader)
    main = tmp_path / "main.py"
    main.write_text("")
    assert not pack_directory(tmp_path).unread
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = ['six']\n")
    packed = pack_directory(tmp_path)
    assert packed.unread and packed.metadata({}) == {"entrypoint": "main.py", "detect": True}
    (tmp_path / "requirements.txt").write_text("idna\n")
    assert pack_directory(tmp_path).requirements_txt == "idna\n"
    main.write_text(BLOCK.format(""))
    assert pack_directory(tmp_path).unread


def test_the_reader_is_in_python_from_3_11() -> None:
    assert TOML or sys.version_info < (3, 11)


@pytest.mark.parametrize(
    ("text", "valid", "pinned"),
    [
        (">=3.11", True, ""), ("==3.12.*", True, "3.12"), ("~=3.11.2", True, "3.11"), ("~=3.12", True, ""), ("==3", True, ""),
        (">= 3.9 , < 3.12", True, ""), ("===3.12.1", True, "3.12"), (">=3.13rc1", True, ""), ("3.12", False, ""), ("", False, ""),
        (">=x", False, ""), ("~=3", False, ""), (">=3.*", False, ""), ("new", False, ""),
    ],
)  # fmt: skip
def test_specifiers(text: str, valid: bool, pinned: str) -> None:
    assert _detect.valid_specifier(text) is valid
    assert _detect.pinned_version(text) == pinned


def test_values_of_another_kind_are_errors(tmp_path: Path) -> None:
    if not TOML:
        pytest.skip("SKIPPED: needs a reader of TOML")
    (tmp_path / "main.py").write_text("")
    for value in ["1979-05-27", "1.5", "true", "[[]]", "{}", "'x'"]:
        for file, text in [
            ("pyproject.toml", f"project.dependencies = {value}"),
            ("pyproject.toml", f"project.dependencies = [{value}]"),
            ("uv.lock", f"version = {value}"),
            ("uv.lock", f"version = 1\n[[package]]\nname = {value}"),
            ("uv.lock", f"version = 1\nsupported-markers = [{value}]"),
        ]:
            if file == "pyproject.toml" and text.endswith("['x']"):
                continue
            (tmp_path / file).write_text(text)
            with pytest.raises(InputError, match=f"^{file}: "):
                pack_directory(tmp_path)
            (tmp_path / file).unlink()
    (tmp_path / "pyproject.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="pyproject.toml: must be valid TOML"):
        pack_directory(tmp_path)


@pytest.mark.parametrize("raw", ["six\r\n".encode("utf-16"), "six\r\n".encode("utf-8-sig"), b"\xfe\xff" + "six\r\n".encode("utf-16-be")])
def test_requirements_of_windows(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(b"")
    (tmp_path / "requirements.txt").write_bytes(raw)
    assert pack_directory(tmp_path).requirements_txt == "six\r\n"


@pytest.mark.skipif(not TOML, reason="no reader of TOML")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-8"])
def test_a_project_of_windows(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(b"")
    (tmp_path / "pyproject.toml").write_bytes("[project]\r\ndependencies = ['six']\r\n".encode(encoding))
    assert pack_directory(tmp_path).requirements_txt == "six\n"


def test_requirements_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(b"")
    (tmp_path / "requirements.txt").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InputError, match="requirements.txt: must be UTF-8, or UTF-16 with a byte order mark"):
        pack_directory(tmp_path)
