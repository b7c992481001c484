"""What sync and async share of a request: its parts, its path, its error, the connection's settings."""

from __future__ import annotations

import email.utils
import json
import os
import socket
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast
from urllib.parse import quote, urlsplit

import httpx

from ._input import Body, invalid
from ._version import __version__
from .errors import CLASS_OF_CODE, ExecutorError, FieldError, InternalError, NotFoundError, UnavailableError
from .models import Execution, Json

USER_AGENT = f"python-executor-client/{__version__}"
#: The longest silence of a connection in seconds while a short answer is read.
SILENCE = 60.0
#: How long the cancellation of an Execution without a caller may take, in seconds.
CANCEL_PATIENCE = 15.0

_CODE_OF_STATUS: Dict[int, str] = {
    401: "unauthenticated",
    403: "denied",
    404: "not_found",
    408: "unavailable",
    409: "conflict",
    410: "purged",
    413: "exhausted",
    429: "exhausted",
    501: "unimplemented",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}


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


def server_url(server: Optional[str]) -> str:
    """Return the base URL, by default that of PYEXEC_SERVER."""
    server = server or os.environ.get("PYEXEC_SERVER")
    if not server:
        raise invalid("server", "must be given, or set in PYEXEC_SERVER (http://127.0.0.1:8080 is the address of python-executor serve)")
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise invalid("server", f"must begin with http:// or https:// (got {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r})")
    return parts._replace(query="", fragment="").geturl().rstrip("/")


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
            options["proxy"] = httpx.Proxy(proxy)
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


def segments(path: str) -> str:
    """Return the relative path of a file as segments of a URL. It refuses paths that a proxy could change."""
    parts = path.split("/")
    if any(p in ("", ".", "..") or "\x00" in p for p in parts):
        raise invalid("path", f"must be relative, without empty segments, . and .. (got {path!r})")
    return "".join("/" + quote(p, safe="") for p in parts)


def unreachable(error: Exception) -> UnavailableError:
    """Return the error of a failed exchange. It names the server, without the credentials of the URL."""
    message = str(error) or type(error).__name__
    try:
        url = cast(httpx.RequestError, error).request.url
    except (AttributeError, RuntimeError):  # the error has no request
        return UnavailableError(message)
    return UnavailableError(f"{url.scheme}://{url.netloc.decode('ascii')}: {message}")


def read_json(response: httpx.Response) -> Any:
    """Return the JSON of an answer."""
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise InternalError(f"the server's answer cannot be read: {error}", status=response.status_code) from error


def _retry_after(header: str) -> float:
    if header.isdigit():
        return float(min(int(header), 86400))
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def response_error(response: httpx.Response) -> ExecutorError:
    """Make the error of an answer, which need not be RFC 9457."""
    status = response.status_code
    problem: Json = {}
    try:
        parsed: object = json.loads(response.content)
        problem = cast(Json, parsed) if isinstance(parsed, Mapping) else {}
    except ValueError:
        pass
    known = _CODE_OF_STATUS.get(status, "invalid" if 400 <= status < 500 else "internal")
    code = str(problem.get("code") or known)
    entries = problem.get("errors")
    fields = [
        FieldError(str(cast(Json, e).get("field", "")), str(cast(Json, e).get("message", "")))
        for e in cast("List[object]", entries if isinstance(entries, list) else [])
        if isinstance(e, Mapping)
    ]
    message = str(problem.get("detail") or problem.get("title") or "")
    if not message:
        message = f"the server answered {status} {response.reason_phrase}".rstrip()
        if response.has_redirect_location:
            message += f" (to {response.headers['Location']}): server must be the address itself"
    # A code of a newer server has the class of its HTTP status.
    return CLASS_OF_CODE.get(code, CLASS_OF_CODE[known])(
        message,
        code=code,
        status=status,
        fields=fields,
        execution_id=str(problem.get("execution_id") or ""),
        request_id=str(problem.get("request_id") or ""),
        retry_after=_retry_after(response.headers.get("Retry-After", "")),
    )
