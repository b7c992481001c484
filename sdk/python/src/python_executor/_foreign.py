"""Exchanges that failed, and answers that are not the server's: those of a proxy, or of another server."""

from __future__ import annotations

import email.utils
import json
import socket
import ssl
import time
from http.client import responses
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, cast

import httpx

from ._url import without_user
from .errors import CLASS_OF_CODE, ExecutorError, FieldError, InternalError, UnavailableError
from .models import Json

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
_CREDENTIALS = "a proxy or another server wants credentials of its own"
_BEHIND = "is the server behind the proxy running?"
_REMEDIES: Dict[int, str] = {
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    407: _CREDENTIALS,
    413: "a proxy before it bounds the size of a request",
    429: "a proxy before it bounds the number of requests",
    502: _BEHIND,
    503: _BEHIND,
    504: _BEHIND,
}
_NOT_RUNNING = ": is the server running there? python-executor serve starts one"


def _causes(error: Optional[BaseException]) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def unreachable(error: Exception, server: str) -> UnavailableError:
    """Return the error of a failed exchange: the server's URL, the reason, and what can be done."""
    reason, remedy = _reason(error)
    return UnavailableError(f"{without_user(server)}: {reason}{remedy}")


def _reason(error: Exception) -> Tuple[str, str]:
    message = str(error) or type(error).__name__
    if isinstance(error, httpx.ProxyError):
        return f"the proxy of the environment was not reached: {message}", ": is HTTP_PROXY or HTTPS_PROXY right, and has NO_PROXY this host?"
    if isinstance(error, httpx.ReadTimeout):
        silence = cast("Dict[str, Any]", error.request.extensions.get("timeout") or {}).get("read")
        return f"nothing came for {silence:g} s" if silence else "nothing came for too long", ""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return f"the name {error.request.url.host if isinstance(error, httpx.RequestError) else ''} is not known", ": is it right?"
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused", _NOT_RUNNING
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}", ": transport takes a connection that trusts it"
        if isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return "no TLS is spoken there", ": does its URL begin with http://?"
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return message if str(error) else "no connection within 10 s", _NOT_RUNNING
    return message, ""


def media_type(response: httpx.Response) -> str:
    """Return the type of an answer without its parameters."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


# Versions of Python name these differently. The names are those of the Go SDK.
_PHRASES = {
    413: "Request Entity Too Large",
    414: "Request URI Too Long",
    416: "Requested Range Not Satisfiable",
    418: "I'm a teapot",
    422: "Unprocessable Entity",
    425: "Too Early",
}


def _code_of(status: int) -> str:
    return _CODE_OF_STATUS.get(status, "invalid" if 400 <= status < 500 else "internal")


def foreign(response: httpx.Response, server: str) -> ExecutorError:
    """Make the error of an answer that is not the server's."""
    status = response.status_code
    remedy = _REMEDIES.get(status, "is its URL right?")
    if 300 <= status <= 399:
        remedy = f"must the URL be {response.headers.get('Location') or 'another'}?"
    elif status == 400 and server.startswith("http://"):
        remedy = "is its URL right, and must it begin with https://?"
    phrase = _PHRASES.get(status) or responses.get(status, "")
    line = f"{status} {phrase}".rstrip()
    message = f"{without_user(server)}: the answer is {line} ({media_type(response) or 'no type'}), which is not python-executor's: {remedy}"
    code = _code_of(status)
    return CLASS_OF_CODE[code](message, status=status, retry_after=_retry_after(response.headers.get("Retry-After", "")))


def read_json(response: httpx.Response, server: str, key: str = "") -> Any:
    """Return the JSON of an answer. key is a member that it has."""
    try:
        sent: Any = json.loads(response.content)
    except ValueError as error:
        if media_type(response) != "application/json":
            raise foreign(response, server) from None
        raise InternalError(f"the server's answer cannot be read: {error}", status=response.status_code) from error
    if not isinstance(sent, dict) or key and not cast("Dict[str, Any]", sent).get(key):
        raise foreign(response, server)
    return cast(Any, sent)


def _retry_after(header: str) -> float:
    if header.isdigit():
        return float(min(int(header), 86400))
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def response_error(response: httpx.Response, server: str) -> ExecutorError:
    """Make the error of an answer, which need not be RFC 9457."""
    status = response.status_code
    problem: Json = {}
    if media_type(response) in ("application/problem+json", "application/json"):  # anything else is not ours
        try:
            parsed: object = json.loads(response.content)
            problem = cast(Json, parsed) if isinstance(parsed, Mapping) else {}
        except ValueError:
            pass
    code = str(problem.get("code") or "")
    if not code:  # every error of the server has one
        return foreign(response, server)
    entries = problem.get("errors")
    fields = [
        FieldError(str(cast(Json, e).get("field", "")), str(cast(Json, e).get("message", "")))
        for e in cast("List[object]", entries if isinstance(entries, list) else [])
        if isinstance(e, Mapping)
    ]
    message = str(problem.get("detail") or problem.get("title") or "") or f"the server answered {status} {response.reason_phrase}".rstrip()
    # A code of a newer server has the class of its HTTP status.
    return CLASS_OF_CODE.get(code, CLASS_OF_CODE[_code_of(status)])(
        message,
        code=code,
        status=status,
        fields=fields,
        execution_id=str(problem.get("execution_id") or ""),
        request_id=str(problem.get("request_id") or ""),
        retry_after=_retry_after(response.headers.get("Retry-After", "")),
    )
