# Written by tools/unasync.py from src/python_executor/_async/follow.py. Do not edit.
"""The events of an Execution, as they come."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Optional

import httpx

from .. import _foreign, _http
from .._http import Call
from .._retry import is_temporary
from .._sse import Message, MessageTooLong, Parser
from ..errors import ExecutorError, InternalError, UnavailableError
from ..events import Event, Finished, decode_event
from ..models import Execution, decode
from .request import Requests

_EARLY = "the event stream ended before the execution"


class EventStream:
    """Iterates over the events of an Execution, follows its log, and ends after Finished.

    A broken or silent connection is resumed with Last-Event-ID, within the RetryPolicy. No event comes twice, and none is missing.
    Close the stream, or use it as a context manager, if you leave it early.
    """

    def __init__(self, requests: Requests, execution_id: str, after: int = 0) -> None:
        """Make the stream of the events behind the one with the number `after`."""
        self._requests = requests
        self._id = execution_id
        self._last = after
        self._ready: Deque[Event] = deque()
        self._response: Optional[httpx.Response] = None
        self._chunks: Any = None
        self._parser = Parser()
        self._failures = 0
        self._came = False
        self._known_ended = False
        self._done = False

    @property
    def last_event_id(self) -> int:
        """The number of the last event that was read from the server."""
        return self._last

    def __iter__(self) -> EventStream:
        return self

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Event:
        while not self._ready:
            if self._done:
                raise StopIteration
            try:
                self._advance()
            except ExecutorError as error:
                self._disconnect()
                self._broken(error)
            except BaseException:
                self.close()
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """End the stream. The Execution goes on."""
        self._done = True
        self._disconnect()

    def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()

    def _advance(self) -> None:
        """Connect, or read the next piece of the stream."""
        if self._response is None:
            self._came = False
            self._connect()
        try:
            chunk: bytes = self._chunks.__next__()
        except StopIteration:
            raise UnavailableError(_EARLY) from None
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _foreign.unreachable(error, self._requests.server) from error
        try:
            for message in self._parser.feed(chunk):
                self._take(message)
        except MessageTooLong as error:
            raise InternalError(str(error)) from error
        if self._done:
            self._disconnect()

    def _connect(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if self._last:
            headers["Last-Event-ID"] = str(self._last)
        call = Call("follow", "GET", _http.execution_path(self._id, "/events"), headers=headers, stream=True)
        call.silence = self._requests.idle_timeout
        response = self._requests.once(call)
        self._response = response
        if _foreign.media_type(response) != "text/event-stream":
            raise _foreign.foreign(response, self._requests.server)
        self._parser = Parser()
        self._chunks = response.iter_raw()

    def _take(self, message: Message) -> None:
        if self._done or not message.event or not message.id.isdigit():
            return  # not an event of the log
        seq = int(message.id)
        if seq <= self._last:
            return
        if seq != self._last + 1:
            raise UnavailableError(f"the event stream jumped from {self._last} to {seq}")
        try:
            event = decode_event(seq, message.event, message.data)
        except (TypeError, ValueError) as error:
            raise InternalError(f"event {seq} cannot be read: {error}") from error
        self._last = seq
        self._came = True
        self._failures = 0
        self._known_ended = False
        self._done = isinstance(event, Finished)
        self._ready.append(event)

    def _broken(self, error: ExecutorError) -> None:
        """Decide whether to connect again, and wait. Otherwise raise the error."""
        if error.message == _EARLY and not self._came:
            if self._known_ended:  # no event follows the last
                self._done = True
                return
            if self._ended():
                self._known_ended = True
                return
        if not is_temporary(error):
            self._done = True
            raise error
        self._failures += 1
        if self._failures >= self._requests.retry.follow_attempts:
            self._done = True
            raise error
        self._requests.pause("follow", self._failures, error)

    def _ended(self) -> bool:
        try:
            return decode(Execution, self._requests.json(Call("get", "GET", _http.execution_path(self._id)))).finished
        except ExecutorError:
            return False
