# Written by tools/unasync.py from src/python_executor/_async/request.py. Do not edit.
"""Requests with retries."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import httpx

from .. import _early, _foreign, _http, _platform_sync
from .._http import Call
from .._retry import Retry, RetryPolicy, is_temporary
from ..errors import ExecutorError


class Requests:
    """Sends calls to one server."""

    def __init__(
        self,
        server: str,
        token: Optional[str],
        retry: RetryPolicy,
        on_retry: Optional[Callable[[Retry], object]],
        idle_timeout: float,
        transport: Optional[_platform_sync.BaseTransport],
        headers: Optional[Dict[str, str]],
    ) -> None:
        """Make the connection pool. It connects with the first call."""
        self.server = server
        self.retry = retry
        self.idle_timeout = idle_timeout
        self._on_retry = on_retry
        given = {"User-Agent": _http.USER_AGENT, "Accept-Encoding": "identity", **(headers or {})}
        if token:
            given["Authorization"] = f"Bearer {token}"
        self._headers = given
        options = _http.transport_options(server)
        once: Dict[str, Any] = {**options, "limits": httpx.Limits(max_keepalive_connections=0)}
        self._watched = once if transport is None and _early.can_watch(server, options) else None
        self._client = self._connect(transport or _platform_sync.HTTPTransport(**options))

    def _connect(self, transport: _platform_sync.BaseTransport) -> _platform_sync.HTTPClient:
        return _platform_sync.HTTPClient(headers=self._headers, transport=transport, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def json(self, call: Call, key: str = "") -> Any:
        """Make a call that is answered with an object in JSON, which has the member key."""
        return _foreign.read_json(self.send(call), self.server, key)

    def send(self, call: Call) -> httpx.Response:
        """Send the call, repeat it if that is allowed, and return a successful answer."""
        attempt = 1
        while True:
            try:
                return self.once(call)
            except ExecutorError as error:
                again = call.idempotent and is_temporary(error) and attempt < self.retry.attempts
                if not again or (call.body is not None and not call.body.ready):
                    raise
                self.pause(call.operation, attempt, error)
            attempt += 1

    def once(self, call: Call) -> httpx.Response:
        """Send the call once."""
        if self._watched is None or call.body is None or not call.body.streams:
            return self._exchange(self._client, call, {})
        # A connection of its own, because only a new one can be watched. There is no TLS, so no certificates are loaded.
        # It is closed with the answer, which the caller of a streaming call still reads.
        client = self._connect(_platform_sync.HTTPTransport(verify=False, **self._watched))
        return self._exchange(client, call, {"Expect": "100-continue"})

    def _exchange(self, client: _platform_sync.HTTPClient, call: Call, more: Dict[str, str]) -> httpx.Response:
        headers = {**call.headers, **more}
        content: Any = None
        watch = _early.Watch()
        if call.body is not None:
            headers["Content-Type"] = call.body.content_type
            length = call.body.length
            if length is not None:
                headers["Content-Length"] = str(length)
            content = _platform_sync.stream(call.body, call.progress, watch)
        request = client.build_request(
            call.method,
            self.server + call.path,
            params=call.query or None,
            headers=headers,
            content=content,
            timeout=httpx.Timeout(None, connect=10.0, read=call.silence),
            extensions={"trace": _platform_sync.tracer(watch)} if more else {},
        )
        try:
            response = client.send(request, stream=True)
            page = _foreign.media_type(response) == "text/html"  # no answer of the API is one
            if call.stream and response.is_success and not page:
                return response
            try:
                response.read()
            finally:
                response.close()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _foreign.unreachable(error, self.server) from error
        except (httpx.TransportError, httpx.StreamError) as error:
            call.broken = True
            raise _foreign.unreachable(error, self.server) from error
        if not response.is_success or page:
            raise _foreign.response_error(response, self.server)
        return response

    def pause(self, operation: str, attempt: int, error: ExecutorError) -> None:
        """Wait before the next attempt."""
        delay = self.retry.delay(attempt, error)
        if self._on_retry:
            self._on_retry(Retry(operation, attempt, delay, error))
        _platform_sync.sleep(delay)
