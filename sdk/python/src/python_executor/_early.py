"""Answers that come before the server has read a body.

httpx reads an answer when it has sent the body. A server that refuses an upload answers at once and closes the connection, and then the
answer may be lost with it. So an upload over plain HTTP asks for "100 Continue", and its connection is watched: the body is not begun
before the server wants it, and it ends when the server has answered.
"""

from __future__ import annotations

import os
import selectors
import socket
from typing import Any, Mapping, Optional

import httpcore

#: How long the server is waited for before the body is sent anyway, in seconds.
PATIENCE = 3.0
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class Watch:
    """Looks at what the server has sent on a connection, and leaves it there."""

    def __init__(self) -> None:
        """Make a watch. It sees nothing before `note` has seen the connection."""
        self._descriptor: Optional[int] = None

    def note(self, name: str, info: Mapping[str, Any]) -> None:
        """Take an event of the extension "trace" of httpx."""
        if name == "connection.connect_tcp.complete":
            self._descriptor = info["return_value"].get_extra_info("socket").fileno()

    def check(self, seconds: float = 0) -> None:
        """Raise the error that makes httpx read the answer if there is one. Wait so long for a word of the server."""
        seen = self._peek(seconds)
        if seen and seen != _GO_ON[: len(seen)]:
            raise httpcore.WriteError("the server has answered")

    def _peek(self, seconds: float) -> bytes:
        if self._descriptor is None:
            return b""
        with socket.socket(fileno=os.dup(self._descriptor)) as copy, selectors.DefaultSelector() as selector:
            selector.register(copy, selectors.EVENT_READ)
            if not selector.select(seconds):
                return b""
            try:
                return copy.recv(len(_GO_ON) + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:  # the connection is broken, which httpx finds out, too
                return b""


def can_watch(server: str, options: Mapping[str, Any]) -> bool:
    """Report whether connections with these settings can be watched: not those of TLS or a proxy, and not on Windows."""
    return server.startswith("http://") and "proxy" not in options and hasattr(socket, "MSG_DONTWAIT")
