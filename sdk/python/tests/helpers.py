"""What the tests share: a real server, and a scripted one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import httpx
import pytest

from python_executor import RetryPolicy

REPOSITORY = Path(__file__).resolve().parents[3]
TOKEN = "token-of-the-tests"
#: Retries without noticeable pauses.
QUICK = RetryPolicy(min_delay=0.001, max_delay=0.002)
PNG = b"\x89PNG\r\n\x1a\n"


def required(what: str) -> bool:
    """Report whether PYEXEC_TEST_REQUIRE names a thing."""
    return what in os.environ.get("PYEXEC_TEST_REQUIRE", "").split(",")


needs_index = pytest.mark.skipif(not required("index"), reason="needs index (PYEXEC_TEST_REQUIRE=index)")


#: How long a wait lasts before its test fails. Only a hang reaches it.
BOUND = 600.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + BOUND
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.02)


def own_port() -> int:
    """Return a free port below those that the system gives to connections. A server that is started again must find it free."""
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except OSError:  # not Linux
        low = 32768
    for port in random.sample(range(low // 2, low), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def binary() -> str:
    """Return the path of the server's program."""
    path = Path(os.environ.get("PYEXEC_TEST_BINARY") or REPOSITORY / "bin" / "python-executor")
    if not path.is_file():
        pytest.fail(f"{path}: no binary to test (make build)")
    return str(path)


class Server:
    """A `python-executor serve` with folders of its own. `uids` are the users of its programs."""

    def __init__(self, cache: Path, uids: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="server-", dir=cache.parent))
        self.folder.chmod(0o755)  # programs run as other users
        sha256 = hashlib.sha256(TOKEN.encode()).hexdigest()
        uv: Dict[str, Any] = {"cache_dir": str(cache), "work_dir": str(self.folder / "work")}
        if os.geteuid() == 0:
            uv["run_as"] = uids
        config = {
            "http": {"tokens": [{"owner": "tests", "sha256": sha256}]},
            "backends": {"uv": uv},
            "engine": {"max_concurrent": 2, "drain_timeout_seconds": 0},
            "data_dir": str(self.folder / "data"),
        }
        self.config = self.folder / "config.json"
        self.config.write_text(json.dumps(config))
        self.log = self.folder / "log"
        self.url = ""
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        """Start the server, each time at the same address, and wait until it is ready."""
        bind = self.url[len("http://") :] or f"127.0.0.1:{own_port()}"
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYEXEC_")}
        with open(self.log, "wb") as log:
            command = [binary(), "serve", "--config", str(self.config), "--bind", bind]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environ)
        until(self._ready, "the server is ready")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text("utf-8", "replace")
        found = re.search(r'"msg":"listening","url":"(http://[^"]+)"', self.log.read_text("utf-8", "replace"))
        if found is None:
            return False
        self.url = found.group(1)
        with httpx.Client(trust_env=False) as http:
            try:
                return http.get(self.url + "/readyz").is_success
            except httpx.TransportError:
                return False

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the server with a signal, and wait for it."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(BOUND)

    def remove(self) -> None:
        """End the server and remove its folder."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a scripted answer: pieces, and then the error if there is one."""

    def __init__(self, pieces: Sequence[bytes], error: Optional[Exception] = None) -> None:
        self.pieces, self.error = pieces, error
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Script(httpx.MockTransport):
    """A transport that gives prepared answers, in order: a Response, or an error to raise. It keeps the requests."""

    def __init__(self, *answers: Union[httpx.Response, Exception]) -> None:
        super().__init__(self._answer)
        self.answers = list(answers)
        self.requests: List[httpx.Request] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        assert self.answers, f"no answer is left for {request.method} {request.url}"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bodies(self) -> List[Dict[str, Any]]:
        """Return the JSON bodies of the requests."""
        return [json.loads(r.content) for r in self.requests]


def problem(status: int, code: str, detail: str = "", headers: Optional[Mapping[str, str]] = None, **more: object) -> httpx.Response:
    """Return the answer of an error."""
    return httpx.Response(status, json={"code": code, "detail": detail, **more}, headers=headers or {})


def message(number: int, kind: str, data: Mapping[str, Any]) -> bytes:
    """Return one message of an event stream."""
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def events(*pieces: bytes, error: Optional[Exception] = None) -> httpx.Response:
    """Return the answer of an event stream."""
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Stream(pieces, error))
