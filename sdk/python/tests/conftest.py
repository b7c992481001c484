"""The fixtures, and coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from helpers import TOKEN, Server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Optional[bool]:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def cache() -> Iterator[Path]:
    """The cache of the servers, so that interpreters are probed and environments are built once."""
    folder = Path(tempfile.mkdtemp(prefix="pyexec-sdk-"))
    folder.chmod(0o755)  # programs run as other users
    yield folder / "cache"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared(cache: Path) -> Iterator[Server]:
    """The server of the suite."""
    server = Server(cache, "200000-200049")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def server(shared: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server of the suite, as the default of clients."""
    monkeypatch.setenv("PYEXEC_SERVER", shared.url)
    monkeypatch.setenv("PYEXEC_TOKEN", TOKEN)
    return shared


@pytest.fixture
def private(cache: Path) -> Iterator[Server]:
    """A server that a test may end."""
    server = Server(cache, "200050-200099")
    try:
        server.start()
        yield server
    finally:
        server.remove()
