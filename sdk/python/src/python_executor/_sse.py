"""Server-Sent Events as the HTML standard defines them, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, List

#: The longest message of a stream. The longest that a server sends is the end of an Execution with very many artifacts.
MAX_MESSAGE = 64 << 20


class MessageTooLong(Exception):
    """A message of the stream is longer than MAX_MESSAGE."""


@dataclass
class Message:
    """One message of an event stream."""

    id: str = ""
    event: str = ""
    data: str = ""


@dataclass
class Parser:
    """Makes messages of bytes that come in any pieces. Comments are left out, and so is a message that is cut off."""

    _line: bytearray = field(default_factory=bytearray)
    _data: List[str] = field(default_factory=lambda: [])
    _message: Message = field(default_factory=Message)
    _size: int = 0

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield the messages that end in this chunk."""
        at = 0
        while True:
            end = chunk.find(b"\n", at)
            piece = chunk[at:] if end < 0 else chunk[at:end]
            self._size += len(piece)
            if self._size > MAX_MESSAGE:
                raise MessageTooLong("a message of the event stream is too long")
            self._line += piece
            if end < 0:
                return
            at = end + 1
            line = self._line.decode("utf-8", "replace")
            self._line.clear()
            yield from self._take(line[:-1] if line.endswith("\r") else line)

    def _take(self, line: str) -> Iterator[Message]:
        message = self._message
        if not line:
            if self._data or message.event or message.id:
                message.data = "\n".join(self._data)
                yield message
            self._message, self._data, self._size = Message(), [], 0
            return
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id":
            message.id = value
        elif name == "event":
            message.event = value
        elif name == "data":
            self._data.append(value)
