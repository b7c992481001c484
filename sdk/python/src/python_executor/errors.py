"""The exceptions of this package: one class per code of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Type

if TYPE_CHECKING:
    from .models import Execution


@dataclass(frozen=True)
class FieldError:
    """A bad field of a request, named as a user writes it."""

    field: str
    message: str


class ExecutorError(Exception):
    """An error of the server, or the reason why the server was not reached.

    A program that fails is not an error: its Execution has the status and the exit code.
    """

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        status: int = 0,
        fields: Sequence[FieldError] = (),
        execution_id: str = "",
        request_id: str = "",
        retry_after: float = 0.0,
    ) -> None:
        """Make an error. `code` is the code of the class unless a newer server sent another."""
        if code is not None:
            self.code = code
        #: What is wrong, without the fields.
        self.message = message or self.code
        #: The HTTP status. 0: there was no answer.
        self.status = status
        #: Every bad field.
        self.fields = tuple(fields)
        #: The Execution that the error is about, or "".
        self.execution_id = execution_id
        #: The name of the request in the server's log, or "".
        self.request_id = request_id
        #: The pause in seconds that the server asks for. 0: none.
        self.retry_after = retry_after
        super().__init__(self.message)

    def __str__(self) -> str:
        more = [f"{f.field}: {f.message}" for f in self.fields if f.message not in self.message]
        return "; ".join([self.message, *more])


class InvalidError(ExecutorError):
    """The request is wrong: `fields` says which part."""

    code = "invalid"


class NotFoundError(ExecutorError):
    """The object does not exist, or belongs to another owner."""

    code = "not_found"


class ConflictError(ExecutorError):
    """The state of the object does not allow the call, or an idempotency key was used for another Spec."""

    code = "conflict"


class ExhaustedError(ExecutorError):
    """A bound is reached: the queue, a quota, a size."""

    code = "exhausted"


class UnavailableError(ExecutorError):
    """The server was not reached or cannot serve now. The same request may succeed later."""

    code = "unavailable"


class UnauthenticatedError(ExecutorError):
    """The token is missing or wrong."""

    code = "unauthenticated"


class DeniedError(ExecutorError):
    """The token lacks a scope."""

    code = "denied"


class UnimplementedError(ExecutorError):
    """The backend cannot do what the request asks for."""

    code = "unimplemented"


class PurgedError(ExecutorError):
    """The server has removed what the request asks for."""

    code = "purged"


class InternalError(ExecutorError):
    """A bug or a broken machine. The server's log has the detail under `request_id`."""

    code = "internal"


class ProgramError(Exception):
    """A program did not succeed. `Execution.check` raises it."""

    def __init__(self, execution: Execution) -> None:
        """Make the error of a finished Execution."""
        #: The Execution with its status and output.
        self.execution = execution
        super().__init__(execution.summary())


_CLASSES: Sequence[Type[ExecutorError]] = (
    InvalidError,
    NotFoundError,
    ConflictError,
    ExhaustedError,
    UnavailableError,
    UnauthenticatedError,
    DeniedError,
    UnimplementedError,
    PurgedError,
    InternalError,
)

#: The exception class of each code.
CLASS_OF_CODE: Dict[str, Type[ExecutorError]] = {c.code: c for c in _CLASSES}
