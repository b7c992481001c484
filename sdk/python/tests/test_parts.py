"""The parts that do no I/O: event streams, bodies, packing of files, and the two clients as twins."""

from __future__ import annotations

import inspect
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, List

import pytest
from helpers import REPOSITORY

import python_executor
from python_executor import AsyncClient, AsyncSession, Client, InvalidError, Session, _artifacts, _sse
from python_executor._http import transport_options
from python_executor._input import Source, multipart_body, source
from python_executor._pack import Packed
from python_executor._progress import reporting
from python_executor._submission import pack_files

SDK = REPOSITORY / "sdk" / "python"


def test_the_sync_client_is_the_async_one() -> None:
    done = subprocess.run([sys.executable, str(SDK / "tools" / "unasync.py"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("twin", "other"), [(AsyncClient, Client), (AsyncSession, Session)])
def test_twins_have_the_same_methods(twin: type, other: type) -> None:
    def shape(cls: type) -> Any:
        names = {n.replace("aclose", "close").replace("__a", "__") for n in vars(cls) if not n.startswith("_") or n.startswith("__a")}
        return names - {"__nnotations__"}

    assert shape(twin) <= shape(other) | {n for n in vars(other)}
    for name, member in vars(other).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            wanted = inspect.signature(vars(twin)["aclose" if name == "close" else name])
            assert list(inspect.signature(member).parameters) == list(wanted.parameters), name


def test_all_public_names_are_there() -> None:
    for name in python_executor.__all__:
        assert hasattr(python_executor, name), name


def parsed(chunks: List[bytes]) -> List[Any]:
    """Return the messages of a stream in pieces."""
    parser = _sse.Parser()
    return [(m.id, m.event, m.data) for chunk in chunks for m in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id: 1\nevent: output\ndata: {}\n\n: beat\n\n", [("1", "output", "{}")]),
        ("data:a\r\ndata: b\r\n\r\nid\n\n\n", [("", "", "a\nb")]),
        ("id: 1\ndata:  é€\n\nid: 2\ndata: cut", [("1", "", " é€")]),
    ],
)
def test_a_stream_reads_the_same_in_any_pieces(text: str, wanted: List[Any]) -> None:
    data = text.encode()
    assert parsed([data]) == wanted
    assert parsed([data[i : i + 1] for i in range(len(data))]) == wanted


def test_a_message_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sse, "MAX_MESSAGE", 100)
    for chunk in (b"data: ", b"data: x\n"):
        parser = _sse.Parser()
        with pytest.raises(_sse.MessageTooLong):
            for _ in range(100):
                list(parser.feed(chunk))
    assert len(parsed([b"data: " + b"x" * 90 + b"\n\n"] * 3)) == 3


def test_sources_know_their_size_and_whether_they_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with open(tmp_path / "f", "rb") as file:
        file.read(2)
        forms: List[Any] = [tmp_path / "f", b"12345", [b"12", b"345"], file]
        for form in forms:
            made = source(form, "x")
            assert made.size in (5, 3, None) and made.ready
            first = b"".join(made.chunks())
            assert b"".join(made.chunks()) == first and made.ready
    read, write = os.pipe()
    os.write(write, b"pipe")
    os.close(write)
    with open(read, "rb") as pipe:
        made = source(pipe, "x")
        assert (made.size, made.ready) == (None, True)
        assert b"".join(made.chunks()) == b"pipe" and not made.ready
    once = source(iter([b"a"]), "x")
    assert b"".join(once.chunks()) == b"a" and not once.ready
    with pytest.raises(InvalidError, match="binary"):
        source(io.StringIO("text"), "x")


def test_a_file_that_grows_makes_the_body_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12")
    made = source(path, "x")
    path.write_bytes(b"1234")
    assert b"".join(made.chunks()) == b"12"


def test_the_length_of_a_body_is_that_of_its_chunks() -> None:
    body = multipart_body({"code": "é"}, source(b"tar", "tar"), source(b"in", "stdin"))
    data = b"".join(body.chunks())
    assert len(data) == body.length
    assert data.index(b'name="metadata"') < data.index(b'name="tar"') < data.index(b'name="stdin"')
    assert multipart_body({}, Source(lambda: iter([b""]), None, False), None).length is None


def names(made: Packed) -> List[str]:
    """Return the names of the files of a tar."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(made.open()))) as tar:
        return tar.getnames()


def test_files_keep_their_relative_path_and_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    for name in ("here/sub/b.py", "here/a.py", "out.py"):
        (tmp_path / name).write_text("x" * 600)
    monkeypatch.chdir(tmp_path / "here")
    made = pack_files(["sub/b.py", "./a.py", "../out.py"])
    assert names(made) == ["sub/b.py", "a.py", "out.py"]
    assert made.size == len(b"".join(made.open()))
    assert names(pack_files([tmp_path / "here" / "sub" / "b.py"])) == ["b.py"]
    assert names(pack_files({"ü" * 200: b"long"})) == ["ü" * 200]
    wrong: List[Any] = [["a.py", tmp_path / "here" / "a.py"], [], "a.py", ["sub"], {"../a": b""}, {"": b""}, {"/a": b""}]
    for files in wrong:
        with pytest.raises(InvalidError, match="files"):
            pack_files(files)


def test_files_say_what_they_require() -> None:
    block = "# /// script\n# requires-python = '>=3.11'\n# dependencies = ['idna']\n# ///\n"
    packed = pack_files({"other.txt": "", "start.py": block, "requirements.txt": "six"})
    assert packed.entrypoint == "start.py"
    assert packed.unread or (packed.requirements_txt or "").split() == ["idna"]
    assert pack_files({"main.py": "", "requirements.txt": "six"}).metadata({}) == {"entrypoint": "main.py", "requirements_txt": "six"}


@pytest.mark.parametrize("name", ["../x", "/x", "link/x", "a/../../x"])
def test_an_artifact_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    buffer.seek(0)
    with pytest.raises(python_executor.InternalError, match="leads out"):
        _artifacts.extract(buffer, folder)
    assert not (tmp_path / "x").exists()


def test_a_download_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    with pytest.raises(KeyError), _artifacts.replacing(tmp_path / "f") as file:
        file.write(b"half")
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text() == "old"


def test_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYEXEC_SERVER", "http://from.env/base/")
    assert Client().server == "http://from.env/base"


def test_the_proxy_of_the_environment_is_for_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.test:1")
    monkeypatch.setenv("no_proxy", "direct.test")
    for url, proxied in (("http://server.test", True), ("http://direct.test", False), ("http://127.0.0.1:1", False), ("http://localhost", False)):
        assert ("proxy" in transport_options(url)) == proxied, url
        Client(url).close()


@pytest.mark.parametrize("module", ["tqdm.auto", "rich.progress", None])
def test_a_bar_is_drawn_with_what_is_installed(module: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("tqdm.auto", "rich.progress"):
        if name == module:
            pytest.importorskip(name)
        else:
            monkeypatch.setitem(sys.modules, name, None)
    with reporting(True) as report:
        if module is None:
            assert report is None
            return
        assert report is not None
        report(512, 1024)
        report(1024, 1024)
    captured = capfd.readouterr()
    assert "upload" in captured.out + captured.err
