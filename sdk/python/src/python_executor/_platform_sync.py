"""What the sync client needs of its platform. `_platform_async` is the same for the async client; the two are written by hand."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, Optional, TypeVar

import httpx

from ._early import PATIENCE, Watch
from ._input import Body

T = TypeVar("T")

HTTPClient = httpx.Client
HTTPTransport = httpx.HTTPTransport
BaseTransport = httpx.BaseTransport


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def call(function: Callable[..., object], *args: object) -> None:
    """Call a function of the user."""
    function(*args)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function that reads or writes files."""
    return function(*args)


def stream(body: Body, report: Optional[Callable[[int, Optional[int]], object]], watch: Watch) -> Iterator[bytes]:
    """Yield a body for httpx."""
    done = 0
    if body.streams:
        watch.check(PATIENCE)
    for chunk in body.chunks():
        watch.check()
        yield chunk
        done += len(chunk)
        if report:
            report(done, body.length)


def tracer(watch: Watch) -> Callable[[str, Dict[str, Any]], None]:
    """Return the function of the extension "trace"."""
    return watch.note
