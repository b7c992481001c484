"""Where the output of a followed Execution goes."""

from __future__ import annotations

import codecs
import io
from typing import Any, Callable, List, Optional, Union, cast

from .events import Event, Output

#: Receives output: a function of text, or a file. A binary file gets the bytes as they are.
Sink = Union[Callable[[str], object], Any]


class Writer:
    """Passes the output of one stream on to a sink. Text is split between characters only."""

    def __init__(self, stream: str, sink: Sink) -> None:
        """Make the writer of "stdout" or "stderr"."""
        self.stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        write = getattr(sink, "write", None)
        self.call: Callable[[Any], object] = cast("Callable[[Any], object]", write or sink)
        self._binary = write is not None and (
            isinstance(sink, (io.RawIOBase, io.BufferedIOBase)) or "b" in str(getattr(cast(Any, sink), "mode", ""))
        )
        flush = getattr(cast(Any, sink), "flush", None)
        self.flush: Optional[Callable[[], object]] = flush if write is not None else None
        if not callable(self.call):
            raise TypeError(f"{stream}: must be a function or a file")

    def take(self, event: Event) -> Union[str, bytes]:
        """Return what the sink gets for an event. Empty: nothing."""
        if not isinstance(event, Output) or event.stream != self.stream:
            return b""
        return event.data if self._binary else self._decoder.decode(event.data)

    def end(self) -> Union[str, bytes]:
        """Return what is left at the end: a character that was cut off."""
        return b"" if self._binary else self._decoder.decode(b"", True)


def writers(stdout: Optional[Sink], stderr: Optional[Sink]) -> List[Writer]:
    """Return the writers of the sinks that are given."""
    return [Writer(name, sink) for name, sink in (("stdout", stdout), ("stderr", stderr)) if sink is not None]
