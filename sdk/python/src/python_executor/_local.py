"""A server that lives as long as a with block."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, Optional, Union

from ._async.client import AsyncClient
from ._keywords import checking
from ._server import LocalServer
from ._sync.client import Client


@checking
@contextlib.contextmanager
def local(
    *,
    binary: Optional[Union[str, os.PathLike[str]]] = None,
    config: Optional[Mapping[str, Any]] = None,
    data_dir: Optional[Union[str, os.PathLike[str]]] = None,
    start_timeout_seconds: float = 60.0,
) -> Generator[Client]:
    """Start a server for a with block, and give a client of it.

    The server listens on a loopback port with a random token. It stops at the end of the block, and when this process dies.

    binary: The server's program. Default: PYEXEC_BINARY, else python-executor on PATH.
    config: Settings of the server, as in its configuration file: {"backends": {"docker": {}}}.
    data_dir: The folder of executions. Default: a temporary folder, removed at the end.
    start_timeout_seconds: The maximum time until the server accepts executions.
    """
    server = LocalServer(binary=binary, config=config, data_dir=data_dir, start_timeout_seconds=start_timeout_seconds)
    server.start()
    try:
        with Client(server.url, server.token) as client:
            yield client
    finally:
        server.stop()


@checking
@contextlib.asynccontextmanager
async def local_async(
    *,
    binary: Optional[Union[str, os.PathLike[str]]] = None,
    config: Optional[Mapping[str, Any]] = None,
    data_dir: Optional[Union[str, os.PathLike[str]]] = None,
    start_timeout_seconds: float = 60.0,
) -> AsyncGenerator[AsyncClient]:
    """Start a server for an async with block, and give a client of it. The arguments are those of local."""
    server = LocalServer(binary=binary, config=config, data_dir=data_dir, start_timeout_seconds=start_timeout_seconds)
    try:
        await asyncio.to_thread(server.start)
        async with AsyncClient(server.url, server.token) as client:
            yield client
    finally:
        await asyncio.to_thread(server.stop)
