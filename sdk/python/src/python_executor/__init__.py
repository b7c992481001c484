"""The Python client of python-executor: run code in the sandboxes of a server.

    from python_executor import Client

    with Client("http://127.0.0.1:8080") as client:
        print(client.run("print(6 * 7)").stdout)

`Client` and `AsyncClient` have the same methods. Without arguments they use PYEXEC_SERVER and PYEXEC_TOKEN.
"""

from ._async.client import AsyncClient
from ._async.follow import AsyncEventStream
from ._async.session import AsyncSession
from ._local import local, local_async
from ._remote import RemoteFunction, remote
from ._remote_call import RemoteError, RemoteTraceback
from ._retry import Retry, RetryPolicy
from ._server import LocalServerError
from ._sync.client import Client
from ._sync.follow import EventStream
from ._sync.session import Session
from ._version import __version__
from .errors import (
    ConflictError,
    DeniedError,
    ExecutorError,
    ExhaustedError,
    FieldError,
    InternalError,
    InvalidError,
    NotFoundError,
    ProgramError,
    PurgedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from .events import Display, Event, Finished, Output, Progress, Queued, Started, UnknownEvent
from .models import (
    Artifact,
    Backend,
    BatchSummary,
    CaseResult,
    DisplayData,
    Execution,
    Failure,
    File,
    Health,
    Limits,
    MemorySample,
    Page,
    Phases,
    SessionInfo,
    Variable,
)
from .options import LimitOptions, RunOptions, SessionOptions

__all__ = [
    "Artifact",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncSession",
    "Backend",
    "BatchSummary",
    "CaseResult",
    "Client",
    "ConflictError",
    "DeniedError",
    "Display",
    "DisplayData",
    "Event",
    "EventStream",
    "Execution",
    "ExecutorError",
    "ExhaustedError",
    "Failure",
    "FieldError",
    "File",
    "Finished",
    "Health",
    "InternalError",
    "InvalidError",
    "LimitOptions",
    "Limits",
    "LocalServerError",
    "MemorySample",
    "NotFoundError",
    "Output",
    "Page",
    "Phases",
    "ProgramError",
    "Progress",
    "PurgedError",
    "Queued",
    "RemoteError",
    "RemoteFunction",
    "RemoteTraceback",
    "Retry",
    "RetryPolicy",
    "RunOptions",
    "Session",
    "SessionInfo",
    "SessionOptions",
    "Started",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownEvent",
    "Variable",
    "__version__",
    "local",
    "local_async",
    "remote",
]
