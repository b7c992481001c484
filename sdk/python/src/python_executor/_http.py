"""What sync and async share of a request: its parts, its path, the connection's settings."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlsplit

import httpx

from ._input import Body, invalid
from ._version import __version__
from .errors import NotFoundError
from .models import Execution

USER_AGENT = f"python-executor-client/{__version__}"
#: The longest silence of a connection in seconds while a short answer is read.
SILENCE = 60.0
#: How long the cancellation of an Execution without a caller may take, in seconds.
CANCEL_PATIENCE = 15.0

@dataclass
class Call:
    """One operation of the API."""

    #: The name for the retry hook.
    operation: str
    method: str
    #: The escaped path below the base URL.
    path: str
    query: Mapping[str, Union[str, Sequence[str]]] = field(default_factory=lambda: {})
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    body: Optional[Body] = None
    #: Whether the call may be repeated.
    idempotent: bool = False
    #: The longest silence of the connection in seconds. None: no bound.
    silence: Optional[float] = None
    #: Whether the caller reads the answer's body.
    stream: bool = False
    #: Is told the bytes that were sent and their total.
    progress: Optional[Callable[[int, Optional[int]], object]] = None
    #: Whether an attempt broke after the request may have reached the server.
    broken: bool = False


def transport_options(url: str) -> Dict[str, Any]:
    """Return the settings of the connection: the proxy of the environment, and keep-alive, which finds a dead server."""
    keep: List[Tuple[int, int, int]] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            keep.append((socket.IPPROTO_TCP, getattr(socket, name), seconds))
    options: Dict[str, Any] = {
        "socket_options": keep,
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=60),
    }
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host != "localhost" and not host.startswith("127.") and host != "::1" and not urllib.request.proxy_bypass(host):
        proxies = urllib.request.getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy:
            options["proxy"] = httpx.Proxy(proxy if "://" in proxy else "http://" + proxy)
    return options


def id_of(execution: Union[str, Execution]) -> str:
    """Return the id of an Execution."""
    return execution.execution_id if isinstance(execution, Execution) else execution


def _object_path(folder: str, noun: str, name: object, rest: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{noun}: must be given by its id, a str (got {type(name).__name__})")
    if name in ("", ".", ".."):
        raise NotFoundError(f'no {noun} has the id "{name}"', status=404)
    return f"/api/v1/{folder}/{quote(name, safe='')}{rest}"


def execution_path(execution: Union[str, Execution], rest: str = "") -> str:
    """Return the path of an Execution, followed by rest."""
    return _object_path("executions", "execution", id_of(execution), rest)


def session_path(session_id: str, rest: str = "") -> str:
    """Return the path of a Session, followed by rest."""
    return _object_path("sessions", "session", session_id, rest)


def segments(path: Union[str, "os.PathLike[str]"]) -> str:
    """Return the relative path of a file as segments of a URL. It refuses paths that a proxy could change."""
    if isinstance(path, PurePath):
        path = path.as_posix()
    if not isinstance(path, str):
        raise invalid("path", f"must be a str or a path object (got {type(path).__name__})")
    parts = path.split("/")
    if any(p in ("", ".", "..") or "\x00" in p for p in parts):
        raise invalid("path", f"must be relative, without empty segments, . and .. (got {json.dumps(path, ensure_ascii=False)})")
    return "".join("/" + quote(p, safe="") for p in parts)
