"""The values that the server answers with.

A newer server may send more fields, other statuses and other kinds of events. They never break this package: `raw` has every
field as it was sent, an unknown status is kept as text, and an unknown event is an `UnknownEvent`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Type, TypeVar, Union, cast

from . import _short
from .errors import ProgramError

Json = Mapping[str, Any]
T = TypeVar("T")

#: The statuses that are not final.
UNFINISHED = ("queued", "running")


def _time(value: object) -> Optional[datetime]:
    """Read an RFC 3339 time. Python 3.9 reads neither "Z" nor fractions of other than 3 or 6 digits."""
    if not isinstance(value, str):
        return None
    text = value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value
    head, dot, tail = text.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = head + "." + tail[:digits][:6].ljust(6, "0") + tail[digits:]
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def decode_bytes(value: object) -> bytes:
    """Read base64."""
    return base64.b64decode(value) if isinstance(value, str) else b""


def decode(cls: Type[T], sent: object, raw: Optional[Json] = None) -> T:
    """Make a dataclass of this package from JSON. A missing or null field has its default."""
    source: Json = cast(Json, sent) if isinstance(sent, Mapping) else {}
    values: Dict[str, Any] = {}
    for f in fields(cast(Any, cls)):
        value = source.get(f.name)
        if f.name == "raw":
            values["raw"] = source if raw is None else raw
        elif value is not None and f.init:
            read: Optional[Callable[[Any], Any]] = f.metadata.get("read")
            values[f.name] = read(value) if read else value
    return cls(**values)


def _one(cls: Type[T]) -> Any:
    """A field that holds an object, or None."""
    return field(default=None, metadata={"read": partial(decode, cls)})


def _many(cls: Type[T]) -> Any:
    """A field that holds a list of objects."""

    def read(raw: object) -> List[T]:
        return [decode(cls, entry) for entry in cast("List[object]", raw)] if isinstance(raw, list) else []

    return field(default_factory=lambda: [], metadata={"read": read})


def _at() -> Any:
    """A field that holds a time."""
    return field(default=None, metadata={"read": _time})


def _empty() -> Json:
    return {}


def _raw() -> Any:
    """The field that holds all that was sent."""
    return field(default_factory=_empty, repr=False, compare=False)


@dataclass
class Artifact:
    """A file of the work folder."""

    path: str = ""
    size_bytes: int = 0


@dataclass
class Failure:
    """Why a program did not run, which limit ended it, or that it was lost."""

    code: str = ""
    phase: Optional[str] = None
    message: str = ""
    field: str = ""


@dataclass
class Phases:
    """How long each phase took, in seconds. None: not known yet."""

    queue_seconds: Optional[float] = None
    prepare_seconds: Optional[float] = None
    run_seconds: Optional[float] = None
    collect_seconds: Optional[float] = None


@dataclass
class MemorySample:
    """One point of the memory curve."""

    offset_seconds: float = 0.0
    bytes: int = 0


@dataclass(repr=False)
class DisplayData:
    """A value that code displayed, in one or more forms."""

    __repr__ = _short.display

    #: The forms by their type ("text/plain", "image/png"): text, or bytes where the form is no text.
    data: Dict[str, Union[str, bytes]] = field(default_factory=lambda: {})
    #: Whether the value is that of the code's last expression. Otherwise the code displayed it.
    value: bool = False
    #: Whether forms are missing or cut.
    truncated: bool = False

    @property
    def text(self) -> Optional[str]:
        """The form text/plain."""
        form = self.data.get("text/plain")
        return form if isinstance(form, str) else None

    @property
    def html(self) -> Optional[str]:
        """The form text/html."""
        form = self.data.get("text/html")
        return form if isinstance(form, str) else None

    @property
    def png(self) -> Optional[bytes]:
        """The form image/png."""
        form = self.data.get("image/png")
        return form if isinstance(form, bytes) else None


def _displays(raw: object) -> List[DisplayData]:
    """Group the forms of a Result by the number of their value."""
    found: Dict[object, DisplayData] = {}
    for entry in cast("List[object]", raw) if isinstance(raw, list) else []:
        if not isinstance(entry, Mapping):
            continue
        form = cast(Json, entry)
        display = found.setdefault(form.get("display"), DisplayData(value=bool(form.get("value"))))
        display.data[str(form.get("mime", ""))] = decode_bytes(form["base64"]) if form.get("base64") is not None else str(form.get("data", ""))
    return list(found.values())


@dataclass(repr=False)
class Execution:
    """One run: with the output so far while it runs, with its result at the end.

    Lists and events have Executions without output. A field that the server does not know yet is None or empty.
    """

    __repr__ = _short.execution

    execution_id: str = ""
    session_id: Optional[str] = None
    #: queued, running, succeeded, failed, timed_out, out_of_memory, killed, lost; newer servers may have others.
    status: str = ""
    #: None: the program has not ended, never ran, or ended by a signal.
    exit_code: Optional[int] = None
    signal: Optional[str] = None
    #: The output as text. Bytes that are not UTF-8 are replaced by U+FFFD; stdout_data has them.
    stdout: str = ""
    stderr: str = ""
    stdout_base64: Optional[str] = field(default=None, repr=False)
    stderr_base64: Optional[str] = field(default=None, repr=False)
    displays: List[DisplayData] = field(default_factory=lambda: [], metadata={"read": _displays})
    displays_truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    displays_dropped: int = 0
    #: kept, restarted or lost. None before the end and without a session.
    session_state: Optional[str] = None
    attempts: int = 0
    created_at: Optional[datetime] = _at()
    started_at: Optional[datetime] = _at()
    finished_at: Optional[datetime] = _at()
    duration_seconds: Optional[float] = None
    cpu_seconds: Optional[float] = None
    peak_memory_bytes: Optional[int] = None
    #: Highest resident memory of the main process (ru_maxrss), with what it shares with other processes.
    peak_resident_bytes: Optional[int] = None
    phases: Phases = field(default_factory=Phases, metadata={"read": partial(decode, Phases)})
    backend: Optional[str] = None
    python_version: Optional[str] = None
    #: exec or fork: whether a new interpreter ran the program, or one that had started already, or a copy of such a one.
    start: Optional[str] = None
    resolved_requirements: List[str] = field(default_factory=lambda: [])
    artifacts: List[Artifact] = _many(Artifact)
    error: Optional[Failure] = _one(Failure)
    #: The usual cause of the failure of the program, and what to do.
    hint: str = ""
    memory_samples: List[MemorySample] = _many(MemorySample)
    files_changed: List[Artifact] = _many(Artifact)
    files_omitted: int = 0
    image_digest: str = ""
    raw: Json = _raw()

    @property
    def finished(self) -> bool:
        """Whether the Execution has ended: its status is neither queued nor running."""
        return bool(self.status) and self.status not in UNFINISHED

    @property
    def succeeded(self) -> bool:
        """Whether the program ended well."""
        return self.status == "succeeded"

    @property
    def stdout_data(self) -> bytes:
        """Standard output, byte for byte."""
        return decode_bytes(self.stdout_base64) if self.stdout_base64 else self.stdout.encode()

    @property
    def stderr_data(self) -> bytes:
        """Standard error, byte for byte."""
        return decode_bytes(self.stderr_base64) if self.stderr_base64 else self.stderr.encode()

    @property
    def value(self) -> Optional[DisplayData]:
        """The value of the last expression, in a Session."""
        return next((d for d in reversed(self.displays) if d.value), None)

    @property
    def images(self) -> List[bytes]:
        """The displayed images in PNG."""
        return [d.png for d in self.displays if d.png is not None]

    def _repr_html_(self) -> str:
        """Show the output and the displays in a notebook."""
        from ._notebook import execution_html

        return execution_html(self)

    def check(self) -> Execution:
        """Return the Execution if its program succeeded. Otherwise raise ProgramError."""
        if not self.succeeded:
            raise ProgramError(self)
        return self

    def summary(self) -> str:
        """One line about the end, with the last line of stderr, and with the usual cause if the server knows it."""
        how = self.status
        if self.signal:
            how += f" by {self.signal}"
        elif self.exit_code:
            how += f" with exit code {self.exit_code}"
        last = self.error.message if self.error else (self.stderr.strip().splitlines() or [""])[-1]
        return f"execution {self.execution_id} {how}" + (f": {last}" if last else "") + (f" ({self.hint})" if self.hint else "")


@dataclass(repr=False)
class Page:
    """A part of a list, newest first."""

    __repr__ = _short.page

    executions: List[Execution] = _many(Execution)
    #: The value of `after` for the next page. None: this page is the last.
    next: Optional[str] = None


@dataclass(repr=False)
class CaseResult:
    """What has become of a case of a batch."""

    __repr__ = _short.case

    #: Number of the case in `cases`, from 0.
    index: int = 0
    #: The name of the case.
    id: Optional[str] = None
    #: passed, wrong_output, failed, timed_out, out_of_memory, killed, lost, skipped or refused. A newer server may have others.
    verdict: str = ""
    #: Why the case has not passed.
    detail: Optional[str] = None
    #: Why the case was refused.
    error: Optional[Failure] = _one(Failure)
    #: The Execution with its output. None: the case did not run.
    result: Optional[Execution] = _one(Execution)

    @property
    def passed(self) -> bool:
        """Whether the program did what was expected."""
        return self.verdict == "passed"


@dataclass(repr=False)
class BatchSummary:
    """The end of a batch."""

    __repr__ = _short.summary

    cases: int = 0
    passed: int = 0
    #: The number of cases of each verdict that occurs.
    verdicts: Mapping[str, int] = field(default_factory=lambda: {})
    duration_seconds: float = 0.0
    #: The cases in the order of `cases`, if `run_batch` had no function for them.
    results: List[CaseResult] = field(default_factory=lambda: [], init=False)


@dataclass
class Limits:
    """The limits of a Session. MB are 2^20 bytes."""

    timeout_seconds: float = 0.0
    #: 0: no limit.
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    cpu_shares: int = 0
    pids: int = 0
    output_bytes: int = 0
    kill_grace_seconds: float = 0.0


@dataclass(repr=False)
class SessionInfo:
    """The state of a Session."""

    __repr__ = _short.session

    session_id: str = ""
    name: str = ""
    description: str = ""
    language: str = ""
    backend: Optional[str] = None
    generation: Optional[int] = None
    #: active, lost or closed; newer servers may have others.
    status: str = ""
    reason: Optional[str] = None
    created_at: Optional[datetime] = _at()
    last_used: Optional[datetime] = _at()
    expires_at: Optional[datetime] = _at()
    idle_timeout_seconds: Optional[float] = None
    max_life_seconds: Optional[float] = None
    python_version: Optional[str] = None
    resolved_requirements: List[str] = field(default_factory=lambda: [])
    image_digest: Optional[str] = None
    limits: Limits = field(default_factory=Limits, metadata={"read": partial(decode, Limits)})
    restarts: int = 0
    #: The Execution that runs in the Session now.
    running: Optional[str] = None
    #: The number of Executions that wait behind the running one.
    waiting: int = 0
    raw: Json = _raw()


@dataclass
class Variable:
    """A name in a Session's interpreter."""

    name: str = ""
    type: str = ""
    preview: str = ""


@dataclass
class File:
    """An entry of a Session's work folder."""

    path: str = ""
    directory: bool = False
    size_bytes: int = 0
    mode: int = 0
    mod_time: Optional[datetime] = _at()


@dataclass(repr=False)
class Backend:
    """A backend of the server."""

    __repr__ = _short.backend

    name: str = ""
    type: str = ""
    version: str = ""
    generation: int = 0
    #: Whether Executions are expected to succeed. `message` says why not.
    healthy: bool = False
    message: str = ""
    #: The number of Executions that can run at once. 0: the backend has no bound of its own.
    capacity: int = 0
    #: What the backend promises, by name, as the server sends it.
    capabilities: Dict[str, Any] = field(default_factory=lambda: {})
    images: List[str] = field(default_factory=lambda: [])
    warnings: List[str] = field(default_factory=lambda: [])
    details: Dict[str, str] = field(default_factory=lambda: {})
    metrics: Dict[str, float] = field(default_factory=lambda: {})
    raw: Json = _raw()


@dataclass
class Health:
    """The server's answer to `health`."""

    ok: bool = False
    name: str = ""
    version: str = ""


def decode_list(cls: Type[T], sent: Any, name: str) -> List[T]:
    """Make dataclasses of the list with this name in an answer."""
    entries = cast(Json, sent).get(name) if isinstance(sent, Mapping) else None
    return [decode(cls, entry) for entry in cast("List[object]", entries or [])]
