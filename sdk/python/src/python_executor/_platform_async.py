"""What the async client needs of its platform. `_platform_sync` is the same for the sync client; the two are written by hand."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterator, Optional, TypeVar

import httpx

from ._early import PATIENCE, Watch
from ._input import Body

T = TypeVar("T")

HTTPClient = httpx.AsyncClient
HTTPTransport = httpx.AsyncHTTPTransport
BaseTransport = httpx.AsyncBaseTransport


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def call(function: Callable[..., object], *args: object) -> None:
    """Call a function of the user, which may be a coroutine function."""
    result = function(*args)
    if inspect.isawaitable(result):
        await result


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function that reads or writes files, beside the event loop."""
    return await asyncio.to_thread(function, *args)


async def stream(body: Body, report: Optional[Callable[[int, Optional[int]], object]], watch: Watch) -> AsyncIterator[bytes]:
    """Yield a body for httpx. Its files are read beside the event loop."""
    done = 0
    chunks: Iterator[bytes] = body.chunks()
    if body.streams:
        await asyncio.to_thread(watch.check, PATIENCE)
    while True:
        chunk: Optional[bytes] = await asyncio.to_thread(next, chunks, None) if body.streams else next(chunks, None)
        if chunk is None:
            return
        watch.check()
        yield chunk
        done += len(chunk)
        if report:
            report(done, body.length)


def tracer(watch: Watch) -> Callable[[str, Dict[str, Any]], Awaitable[None]]:
    """Return the function of the extension "trace"."""

    async def trace(name: str, info: Dict[str, Any]) -> None:
        watch.note(name, info)

    return trace
