"""A server lives as long as its with block, and no longer than the process that started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest
from helpers import binary, until

from python_executor import Client, ExecutorError, LocalServerError, UnauthenticatedError, local, local_async
from python_executor._server import LocalServer, find_binary, server_config


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which local servers make their folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def settings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program under test, with a cache and users of the tests."""
    monkeypatch.setenv("PYEXEC_BINARY", binary())
    monkeypatch.setenv("PYEXEC_BACKENDS_UV_CACHE_DIR", str(cache))
    if os.geteuid() == 0:
        monkeypatch.setenv("PYEXEC_BACKENDS_UV_RUN_AS", "200100-200149")


def is_down(url: str) -> bool:
    try:
        httpx.get(url + "/healthz", trust_env=False)
    except httpx.TransportError:
        return True
    return False


def test_a_server_runs_code_and_leaves_nothing(folders: Path) -> None:
    with local() as client:
        assert client.run("print(6 * 7)").stdout == "42\n"
        (folder,) = folders.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert is_down(client.server)
    assert list(folders.iterdir()) == []


def test_a_server_is_private() -> None:
    with local() as client, Client(client.server, "guess") as stranger, pytest.raises(UnauthenticatedError):
        stranger.run("print(1)")


def test_a_server_stops_after_an_exception(folders: Path) -> None:
    with pytest.raises(ZeroDivisionError), local() as client:
        _ = 1 / 0
    assert is_down(client.server)
    assert list(folders.iterdir()) == []


def test_running_executions_do_not_delay_the_end() -> None:
    with local() as client:
        execution_id = client.submit("import time; time.sleep(600)")
        for _ in client.follow(execution_id):
            if client.get(execution_id).status == "running":
                break
    assert is_down(client.server)


def test_a_process_that_holds_the_pipe_does_not_delay_the_end() -> None:
    server = LocalServer()
    server.start()
    process = server._process
    assert process is not None
    assert process.stdin is not None
    held = os.dup(process.stdin.fileno())
    server.stop()
    os.close(held)
    assert process.returncode == 0


def test_a_data_folder_is_kept(folders: Path) -> None:
    data = folders / "data"
    with local(data_dir=data) as client:
        execution_id = client.run("print(1)").execution_id
    with local(data_dir=data) as client:
        assert client.get(execution_id).stdout == "1\n"


def test_settings_reach_the_server() -> None:
    with local(config={"limits": {"max": {"timeout_seconds": 400}}}) as client, pytest.raises(ExecutorError, match="400"):
        client.run("print(1)", timeout_seconds=401)


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with local() as client:
        assert client.health().ok


def test_the_async_twin(folders: Path) -> None:
    async def main() -> str:
        async with local_async() as client:
            assert (await client.run("print(6 * 7)")).stdout == "42\n"
            return client.server

    assert is_down(asyncio.run(main()))
    assert list(folders.iterdir()) == []


def test_an_async_start_can_be_cancelled(folders: Path) -> None:
    async def start() -> None:
        async with local_async():
            raise AssertionError("the start is cancelled before")

    async def main() -> None:
        task = asyncio.ensure_future(start())
        while not list(folders.iterdir()):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it(how: signal.Signals, folders: Path) -> None:
    program = "import sys, python_executor\nwith python_executor.local() as c: print(c.server, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(folders)}
    ) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().decode().strip()
        assert not is_down(url)
        parent.send_signal(how)
    until(lambda: is_down(url), "the server has ended with its starter")


def test_the_folder_of_a_killed_process_is_removed_by_the_next_server(folders: Path) -> None:
    program = "import sys, python_executor\nwith python_executor.local() as c: print(c.server, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(folders)}
    ) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().decode().strip()
        (left,) = folders.iterdir()
        with local():
            assert left.exists(), "its server runs"
        parent.kill()
    until(lambda: is_down(url), "the server has ended with its starter")
    stranger = folders / "pyexec-local-stranger"
    stranger.mkdir()

    def swept() -> bool:
        with local():
            return not left.exists()

    until(swept, "the folder is removed")
    assert list(folders.iterdir()) == [stranger]


def test_a_server_that_cannot_start_says_why(folders: Path) -> None:
    with pytest.raises(LocalServerError, match=r"ended with status [1-9]\d* before it was ready:\n.*no_such_key"), local(config={"no_such_key": 1}):
        pass
    assert list(folders.iterdir()) == []


def test_a_server_that_is_never_ready_is_ended(folders: Path) -> None:
    program = folders / "program"
    program.write_text("#!/bin/sh\nexec cat\n")
    program.chmod(0o755)
    with pytest.raises(LocalServerError, match=r"not ready after 0\.1 s"), local(binary=program, start_timeout_seconds=0.1):
        pass
    assert list(folders.iterdir()) == [program]


@pytest.mark.parametrize("ready", [False, True], ids=["before the server is ready", "that a ready server would end"])
def test_a_stop_ends_a_start(folders: Path, monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    monkeypatch.setattr(LocalServer, "_ready", lambda *_: ready)
    server = LocalServer()
    server.stop()
    with pytest.raises(LocalServerError, match="stopped before it was ready"):
        server.start()
    assert server.pid is None
    assert list(folders.iterdir()) == []


def test_the_binary_is_found(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folders / "python-executor"
    program.write_text("")
    monkeypatch.setenv("PATH", str(folders))
    monkeypatch.delenv("PYEXEC_BINARY", raising=False)
    with pytest.raises(LocalServerError, match="python-executor must be on PATH, or PYEXEC_BINARY must name it"):
        find_binary(None)
    program.chmod(0o755)
    assert find_binary(None) == str(program)
    monkeypatch.setenv("PYEXEC_BINARY", "/no/such/file")
    with pytest.raises(LocalServerError, match=r'^PYEXEC_BINARY: must name an executable file \(got "/no/such/file"\)$'):
        find_binary(None)
    assert find_binary(program) == str(program)
    with pytest.raises(LocalServerError, match=r'^binary: must name an executable file \(got "/no"\)$'):
        find_binary("/no")


def test_settings_of_the_caller_are_kept() -> None:
    given = {"http": {"max_body_bytes": 1, "tokens": [{"owner": "a"}]}, "engine": {"max_queued": 2}, "backend": "uv"}
    before = json.dumps(given)
    made = server_config(given, "secret")
    assert made["http"]["max_body_bytes"] == 1
    assert [t["owner"] for t in made["http"]["tokens"]] == ["a", "local"]
    assert made["engine"] == {"drain_timeout_seconds": 0, "max_queued": 2}
    assert "secret" not in json.dumps(made)
    assert json.dumps(given) == before
