"""The process of a local server: its start, its folders and its end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import httpx

from .errors import UnavailableError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PREFIX = "pyexec-local-"
_LOCK = "lock"
_PROGRAM = "python-executor"
_LISTENING = re.compile(rb'"msg":"listening","url":"(http://[^"]+)"')
_POLL_SECONDS = 0.02
_STOP_SECONDS = 60.0
_LOG_TAIL_BYTES = 4000


class LocalServerError(UnavailableError):
    """A local server did not start."""


class LocalServer:
    """A server on a loopback port, with a data folder and a token of its own.

    The server also ends when this process dies: the server reads a pipe that this process holds open. A child process that was
    forked without exec holds the pipe, too.
    """

    def __init__(
        self,
        *,
        binary: Optional[Union[str, os.PathLike[str]]] = None,
        config: Optional[Mapping[str, Any]] = None,
        data_dir: Optional[Union[str, os.PathLike[str]]] = None,
        start_timeout_seconds: float = 60.0,
    ) -> None:
        self.url = ""
        self.token = secrets.token_urlsafe(32)
        self._binary = binary
        self._config = config or {}
        self._data_dir = data_dir
        self._start_timeout_seconds = start_timeout_seconds
        self._folder: Optional[Path] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the server and wait until it accepts executions. A stop in another thread ends the wait."""
        with self._lock:
            self._start()

    def stop(self) -> None:
        """End the server with its executions, and remove its folder. A data folder that the caller named is kept."""
        self._stopping.set()
        with self._lock:
            self._end()

    def _start(self) -> None:
        binary = find_binary(self._binary)
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _lock(self._folder)
        try:
            config = self._folder / "config.json"
            config.write_text(json.dumps(server_config(self._config, self.token)), encoding="utf-8")
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [
                        *(binary, "serve", "--until-eof", "--bind", "127.0.0.1:0"),
                        *("--config", str(config), "--data-dir", str(self._data_dir or self._folder / "data")),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=() if lock is None else (lock,),
                    start_new_session=True,  # a Ctrl-C in the terminal is for this process
                )
            self._wait_until_ready(self._process)
        except BaseException:
            self._end()
            raise
        finally:
            if lock is not None:
                os.close(lock)  # the server has it

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> Optional[int]:
        """The process id of the server; None while it is not running."""
        return self._process.pid if self._process is not None else None

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "server.log"

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        with httpx.Client(trust_env=False) as http:  # a proxy must not see the loopback address
            while True:
                if self._stopping.is_set():
                    raise LocalServerError("local server: stopped before it was ready")
                if self._ready(http):
                    return
                if process.poll() is not None:
                    raise LocalServerError(f"local server: ended with status {process.returncode} before it was ready:\n{self._log_tail()}")
                if time.monotonic() > deadline:
                    raise LocalServerError(f"local server: not ready after {self._start_timeout_seconds:g} s:\n{self._log_tail()}")
                time.sleep(_POLL_SECONDS)

    def _ready(self, http: httpx.Client) -> bool:
        if not self.url:
            found = _LISTENING.search(self._log.read_bytes())
            if found is None:
                return False
            self.url = found.group(1).decode()
        try:
            return http.get(self.url + "/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")


def _lock(folder: Path) -> Optional[int]:
    """Mark a folder as used while the descriptor is open in any process. Without locks of files, no folder is ever swept."""
    if fcntl is None:
        return None
    new = folder / (_LOCK + ".new")
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(folder / _LOCK)  # a lock that others see is taken
    return descriptor


def _sweep() -> None:
    """Remove the folders of servers that were killed together with the process that started them."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # of another user, or gone
            continue
        try:
            if fcntl is not None and os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # in use
            pass
        finally:
            os.close(descriptor)


def find_binary(given: Optional[Union[str, os.PathLike[str]]]) -> str:
    """Return the path of the server's binary: given, else PYEXEC_BINARY, else python-executor on PATH."""
    for source, name in (("binary", given), ("PYEXEC_BINARY", os.environ.get("PYEXEC_BINARY")), ("PATH", _PROGRAM)):
        if not name:
            continue
        found = shutil.which(os.fspath(name))
        if found is not None:
            return found
        if source != "PATH":
            raise LocalServerError(f'{source}: must name an executable file (got "{os.fspath(name)}")')
    raise LocalServerError(f"local server: {_PROGRAM} must be on PATH, or PYEXEC_BINARY must name it")


def server_config(config: Mapping[str, Any], token: str) -> dict[str, Any]:
    """Return config with the token of a local server. Executions end at once when the server stops."""
    http: dict[str, Any] = dict(config.get("http", {}))
    own = {"owner": "local", "sha256": hashlib.sha256(token.encode()).hexdigest(), "scopes": ["exec", "read", "admin"]}
    http["tokens"] = [*http.get("tokens", []), own]
    return {**config, "http": http, "engine": {"drain_timeout_seconds": 0, **config.get("engine", {})}}
