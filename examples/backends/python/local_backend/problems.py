"""What can go wrong, in the words of the contract."""

from collections.abc import Iterable
from typing import Any, Optional

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2

from pyexec.v1 import types_pb2

# Each code of the contract has a gRPC code of its own.
STATUS = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "conflict": grpc.StatusCode.FAILED_PRECONDITION,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "unimplemented": grpc.StatusCode.UNIMPLEMENTED,
    "internal": grpc.StatusCode.INTERNAL,
}


class Problem(Exception):
    """An error of the backend, or the refusal of a request. fields are pairs of a field's name and what is wrong with it."""

    def __init__(self, code: str, message: str, fields: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.error = types_pb2.Error(code=code, message=message)
        for field, text in fields:
            self.error.fields.add(field=field, message=text)


class SourceProblem(Exception):
    """The caller could not read one of its own sources."""

    def __init__(self, error: types_pb2.Error) -> None:
        super().__init__(error.message)
        self.error = error


class UserFailure(Exception):
    """The user's input is at fault: the Execution fails, and the backend does not."""

    def __init__(self, phase: str, code: str, message: str, field: Optional[str] = None) -> None:
        super().__init__(message)
        self.failure = types_pb2.Failure(phase=phase, code=code, message=message, field=field or "")


async def abort(context: Any, error: types_pb2.Error) -> None:
    """Ends a call with error as a detail of its status, so that the host gets its fields, too."""
    code = STATUS.get(error.code, grpc.StatusCode.INTERNAL)
    detail = any_pb2.Any()
    detail.Pack(error)
    status = status_pb2.Status(code=code.value[0], message=error.message[:1000], details=[detail])
    await context.abort(code, status.message, (("grpc-status-details-bin", status.SerializeToString()),))
