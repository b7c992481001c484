"""The events of an Execution's log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Type, Union, cast

from .models import DisplayData, Execution, Json, decode, decode_bytes


@dataclass
class Event:
    """One entry of the log."""

    #: Numbers the events of an Execution from 1 without gaps.
    seq: int
    #: The event as the server sent it.
    raw: Json = field(default_factory=lambda: {}, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The name of the event in the stream."""
        return type(self).__name__.lower()


@dataclass
class Queued(Event):
    """The server accepted the Execution."""

    #: Position in the queue, from 0.
    position: int = 0


@dataclass
class Progress(Event):
    """Work before the program and beside it."""

    phase: str = ""
    message: str = ""
    #: `done` and `total` count `unit`. `total` is 0 if unknown.
    done: int = 0
    total: int = 0
    unit: str = ""


@dataclass
class Started(Event):
    """The program runs."""

    pid: int = 0
    python_version: Optional[str] = None
    requirements: List[str] = field(default_factory=lambda: [])
    #: How the process was made: exec or fork.
    start: Optional[str] = None


@dataclass
class Output(Event):
    """A piece of a stream."""

    #: stdout or stderr.
    stream: str = ""
    #: The position of the first byte in its stream.
    offset: int = 0
    data: bytes = b""
    #: Whether a process of an earlier Execution of the Session wrote it before this one began.
    earlier: bool = False


@dataclass
class Display(Event):
    """A value that the code displayed."""

    display: DisplayData = field(default_factory=DisplayData)


@dataclass
class Finished(Event):
    """The last event. Its Execution has no output; `get` returns it with output."""

    execution: Execution = field(default_factory=Execution)


@dataclass
class UnknownEvent(Event):
    """An event of a kind that this version does not know."""

    name: str = ""

    @property
    def kind(self) -> str:
        """The name of the event in the stream."""
        return self.name


_PLAIN: Dict[str, Type[Event]] = {"queued": Queued, "progress": Progress, "started": Started}
#: The kinds that this version knows.
KINDS = frozenset([*_PLAIN, "output", "display", "finished"])


def decode_event(seq: int, kind: str, data: str) -> Event:
    """Make an Event from a message of the stream.

    It raises ValueError or TypeError if a message of a known kind is not as the API says.
    """
    try:
        parsed: object = json.loads(data) if data else {}
    except ValueError:
        if kind in KINDS:
            raise
        parsed = {"data": data}
    raw: Json = cast(Json, parsed) if isinstance(parsed, Mapping) else {"data": parsed}
    if kind in _PLAIN:
        return decode(_PLAIN[kind], {**raw, "seq": seq}, raw)
    if kind == "output":
        encoded, text = raw.get("data_base64"), raw.get("data")
        piece = decode_bytes(encoded) if encoded is not None else str(text or "").encode()
        return Output(seq, raw, str(raw.get("stream", "")), int(raw.get("offset") or 0), piece, bool(raw.get("earlier")))
    if kind == "display":
        forms: Dict[str, Union[str, bytes]] = {}
        sent = raw.get("data")
        for mime, form in cast("Mapping[str, Any]", sent if isinstance(sent, Mapping) else {}).items():
            forms[mime] = decode_bytes(cast(Json, form).get("base64")) if isinstance(form, Mapping) else str(form)
        return Display(seq, raw, DisplayData(forms, bool(raw.get("value")), bool(raw.get("truncated"))))
    if kind == "finished":
        return Finished(seq, raw, decode(Execution, raw))
    return UnknownEvent(seq, raw, kind)
