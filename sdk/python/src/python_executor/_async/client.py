"""The client."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

import httpx

from .. import _artifacts, _foreign, _http, _output, _platform_async
from .._http import Call
from .._input import Bytes, check_call, check_kind, json_body
from .._keywords import suggesting
from .._progress import Progress, reporting
from .._retry import Retry, RetryPolicy
from .._submission import Files, Stdin, batch_members, submission
from .._url import check_token, server_url
from ..errors import UnavailableError
from ..events import Event
from ..models import Backend, BatchSummary, CaseResult, Execution, Health, Page, SessionInfo, decode, decode_list
from ..options import RunOptions, SessionOptions, metadata
from .follow import AsyncEventStream
from .request import AsyncRequests
from .session import AsyncSession

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathLike = Union[str, "os.PathLike[str]"]
#: An Execution or its id.
ExecutionRef = Union[str, Execution]


@suggesting
class AsyncClient:
    """A client of one server.

    Calls that cannot run a program twice are repeated when the server is not reached or is full. Submissions are among them:
    each has an idempotency key.
    """

    def __init__(
        self,
        server: Optional[str] = None,
        token: Optional[str] = None,
        *,
        retry: Optional[RetryPolicy] = None,
        on_retry: Optional[Callable[[Retry], object]] = None,
        idle_timeout: float = 45.0,
        headers: Optional[Dict[str, str]] = None,
        transport: Optional[_platform_async.BaseTransport] = None,
    ) -> None:
        """Make a client. It connects with the first call.

        server: the base URL. Default: PYEXEC_SERVER.
        token: the bearer token. Default: PYEXEC_TOKEN.
        retry: the bounds of retries.
        on_retry: is called before each pause between attempts.
        idle_timeout: a stream of events or of a batch that is silent for this many seconds is broken. The server sends a heartbeat every 15 s.
        headers: more headers of every request.
        transport: the connection, for example httpx's with a Unix socket or with certificates of its own.
        """
        url = server_url(server)
        field = "PYEXEC_TOKEN" if token is None else "token"
        token = os.environ.get("PYEXEC_TOKEN") if token is None else token
        if token is not None:
            check_token(token, field)
        check_kind("retry", retry, RetryPolicy, "a RetryPolicy")
        check_kind("idle_timeout", idle_timeout, (int, float), "a number of seconds")
        check_kind("headers", headers, dict, "a dict")
        check_call("on_retry", on_retry)
        self._requests = AsyncRequests(url, token, retry or RetryPolicy(), on_retry, idle_timeout, transport, headers)

    @property
    def server(self) -> str:
        """The base URL."""
        return self._requests.server

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._requests.aclose()

    async def run(
        self,
        code: Optional[str] = None,
        *,
        files: Optional[Files] = None,
        directory: Optional[PathLike] = None,
        tar: Optional[Bytes] = None,
        script: Optional[str] = None,
        include_all: bool = False,
        stdin: Optional[Stdin] = None,
        stdout: Optional[_output.Sink] = None,
        stderr: Optional[_output.Sink] = None,
        on_event: Optional[Callable[[Event], object]] = None,
        artifacts_to: Optional[PathLike] = None,
        progress: Progress = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run a program and return the finished Execution with its output. A program that fails is not an error.

        code: the text of a program.
        files: paths, or a dict of names and contents. The entrypoint is main.py, else __main__.py, else the first .py file.
        directory: a folder, without what .gitignore files name, version control and virtual environments.
        tar: an uncompressed tar: its path, its bytes, or a binary file.
        script: an allow-listed script of the server's host.
        include_all: also sends what is left out of a directory.
        stdin: standard input: a text, or bytes from anywhere.
        stdout, stderr: get the output while the program runs: a function of text, or a file.
        on_event: gets every event. An exception of it, of stdout or of stderr kills the Execution, and is raised here.
        artifacts_to: a folder for the artifacts. Without `outputs` it gets every file that is new or changed.
        progress: True for a bar, or a function of the bytes sent and their total.
        options: see RunOptions.

        If the caller is interrupted or cancelled, the Execution is killed.
        """
        if artifacts_to is not None:
            _artifacts.check_folder("artifacts_to", artifacts_to)
            if "outputs" not in options:
                options.setdefault("outputs_changed", True)
        writers = _output.writers(stdout, stderr)
        check_call("on_event", on_event)
        body = await _platform_async.in_thread(
            partial(submission, include_all=include_all, leave=artifacts_to), code, files, directory, tar, script, stdin, options
        )
        with reporting(progress) as report:
            live = bool(writers) or on_event is not None
            path = "/api/v1/exec/async" if live else "/api/v1/exec/sync"
            call = Call("run", "POST", path, body=body, idempotent=True, progress=report)
            answer = await self._requests.json(call, "execution_id")
        if live:
            execution = await self._attend(str(answer["execution_id"]), writers, on_event)
        else:
            execution = decode(Execution, answer)
            if call.broken and execution.status == "killed":
                # The server kills an Execution whose caller is gone. The answer is that of the same Execution, by its key.
                message = "the connection broke, so the server killed the execution"
                raise UnavailableError(message, execution_id=execution.execution_id)
        if artifacts_to is not None and execution.artifacts:
            await self.artifacts_to(execution, artifacts_to)
        return execution

    async def _attend(
        self, execution_id: str, writers: List[_output.Writer], on_event: Optional[Callable[[Event], object]]
    ) -> Execution:
        """Follow an Execution for its caller. It is killed if the caller goes."""
        try:
            async with self.follow(execution_id) as events:
                async for event in events:
                    for writer in writers:
                        piece = writer.take(event)
                        if piece:
                            await _platform_async.call(writer.call, piece)
                            if writer.flush:
                                writer.flush()
                    if on_event:
                        await _platform_async.call(on_event, event)
                for writer in writers:
                    rest = writer.end()
                    if rest:
                        await _platform_async.call(writer.call, rest)
        except BaseException:
            await self._abandon(execution_id)
            raise
        return await self.get(execution_id)

    async def _abandon(self, execution_id: str) -> None:
        """Kill an Execution without a caller. The error of the caller is the one to tell."""
        call = Call("cancel", "DELETE", _http.execution_path(execution_id), silence=_http.CANCEL_PATIENCE)
        try:
            await self._requests.once(call)
        except Exception:  # noqa: BLE001
            return

    async def submit(
        self,
        code: Optional[str] = None,
        *,
        files: Optional[Files] = None,
        directory: Optional[PathLike] = None,
        tar: Optional[Bytes] = None,
        script: Optional[str] = None,
        include_all: bool = False,
        stdin: Optional[Stdin] = None,
        progress: Progress = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Start an Execution and return its id when the server has everything on disk. The arguments are those of `run`."""
        body = await _platform_async.in_thread(
            partial(submission, include_all=include_all), code, files, directory, tar, script, stdin, options
        )
        with reporting(progress) as report:
            call = Call("submit", "POST", "/api/v1/exec/async", body=body, idempotent=True, progress=report)
            return str((await self._requests.json(call, "execution_id"))["execution_id"])

    async def run_batch(
        self,
        code: Optional[str] = None,
        *,
        cases: Sequence[Mapping[str, Any]],
        on_case: Optional[Callable[[CaseResult], object]] = None,
        parallel: Optional[int] = None,
        stop_at_first_failure: bool = False,
        files: Optional[Files] = None,
        directory: Optional[PathLike] = None,
        tar: Optional[Bytes] = None,
        script: Optional[str] = None,
        include_all: bool = False,
        stdin: Optional[Stdin] = None,
        progress: Progress = None,
        **options: Unpack[RunOptions],
    ) -> BatchSummary:
        """Run a program for many cases, each in a sandbox of its own, and judge them. A case that has not passed is not an error.

        cases: for each one a dict with any of id, args, env, stdin (text) and expect. expect has any of exit_code, stdout, compare
            (lines, exact or float; lines ignores the white space at the ends of lines and is the default), tolerance_abs and
            tolerance_rel.
        on_case: gets each case as it ends. An exception of it cancels the cases that run, and is raised here. Without it the cases and their
            output are in the summary's results.
        parallel: cases that wait or run at once. Default: 8.
        stop_at_first_failure: the first case that has not passed ends the batch.
        The other arguments are those of `run`, for all cases. If the caller is interrupted or cancelled, the cases that run are killed.
        """
        check_call("on_case", on_case)
        more = batch_members(cases, parallel, stop_at_first_failure)
        body = await _platform_async.in_thread(
            partial(submission, include_all=include_all, batch=more), code, files, directory, tar, script, stdin, options
        )
        with reporting(progress) as report:
            call = Call("batch", "POST", "/api/v1/exec/batch", body=body, idempotent=True, stream=True, progress=report)
            call.silence = self._requests.idle_timeout
            response = await self._requests.send(call)
        results: List[CaseResult] = []
        try:
            if _foreign.media_type(response) == "application/json":  # a batch is answered with lines of JSON
                raise _foreign.foreign(response, self.server)
            async for record in self._records(response):
                if "summary" in record:
                    summary = decode(BatchSummary, record["summary"])
                    summary.results = sorted(results, key=lambda case: case.index)
                    return summary
                if not record.get("verdict"):  # each case has one
                    raise _foreign.foreign(response, self.server)
                if on_case is None:
                    results.append(decode(CaseResult, record))
                else:
                    await _platform_async.call(on_case, decode(CaseResult, record))
        finally:
            await response.aclose()
        raise UnavailableError("the batch was cut off")

    async def _records(self, response: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
        """Iterate over the lines of an answer, each of them an object. An empty line is a sign of life."""
        pieces: List[bytes] = []
        try:
            async for chunk in response.aiter_raw():
                *ended, rest = chunk.split(b"\n")
                for piece in ended:
                    line = b"".join([*pieces, piece]).strip()
                    pieces.clear()
                    if line:
                        yield json.loads(line)
                pieces.append(rest)
        except (httpx.TransportError, httpx.StreamError, json.JSONDecodeError) as error:
            raise _foreign.unreachable(error, self.server) from error

    async def get(self, execution: ExecutionRef) -> Execution:
        """Return an Execution with its output so far."""
        call = Call("get", "GET", _http.execution_path(execution), idempotent=True, silence=_http.SILENCE)
        return decode(Execution, await self._requests.json(call, "execution_id"))

    async def wait(self, execution: ExecutionRef) -> Execution:
        """Wait for the end of an Execution and return it with its output."""
        async with self.follow(execution) as events:
            async for _ in events:
                pass
        return await self.get(execution)

    async def cancel(self, execution: ExecutionRef) -> str:
        """End an Execution and return its status: killed, or its final status if it had already ended."""
        call = Call("cancel", "DELETE", _http.execution_path(execution), idempotent=True)
        return str((await self._requests.json(call)).get("status", ""))

    def follow(self, execution: ExecutionRef, after: int = 0) -> AsyncEventStream:
        """Iterate over the events behind the one with the number `after`, live, up to the end of the Execution.

        The stream is resumed when the connection breaks or the server restarts.
        """
        return AsyncEventStream(self._requests, _http.id_of(execution), after)

    async def list_page(
        self, *, status: Union[str, Sequence[str], None] = None, after: Optional[str] = None, limit: Optional[int] = None
    ) -> Page:
        """Return one page of the caller's Executions, newest first, without output."""
        query: Dict[str, Union[str, Sequence[str]]] = {}
        if status:
            query["status"] = status
        if after:
            query["after"] = after
        if limit:
            query["limit"] = str(limit)
        call = Call("list", "GET", "/api/v1/executions", query, idempotent=True, silence=_http.SILENCE)
        return decode(Page, await self._requests.json(call))

    async def list(self, *, status: Union[str, Sequence[str], None] = None) -> AsyncIterator[Execution]:
        """Iterate over all of the caller's Executions, newest first, without output. It reads a page at a time."""
        after: Optional[str] = None
        while True:
            page = await self.list_page(status=status, after=after)
            for execution in page.executions:
                yield execution
            if not page.next or page.next == after:
                return
            after = page.next

    async def logs(self, execution: ExecutionRef, *, stream: str = "both", follow: bool = False) -> AsyncIterator[bytes]:
        """Iterate over the raw output, in pieces. With `follow` up to the end of the Execution."""
        query = {"stream": stream, "follow": "true" if follow else "false"}
        call = Call("logs", "GET", _http.execution_path(execution, "/logs"), query, idempotent=True, stream=True)
        response = await self._requests.send(call)
        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _foreign.unreachable(error, self.server) from error
        finally:
            await response.aclose()

    async def artifacts(self, execution: ExecutionRef) -> Dict[str, bytes]:
        """Return the content of all artifacts by their path."""
        with tempfile.TemporaryFile() as archive:
            await self._download("artifacts", _http.execution_path(execution, "/artifacts"), archive)
            return await _platform_async.in_thread(_artifacts.contents, archive)

    async def artifacts_to(self, execution: ExecutionRef, folder: PathLike) -> List[Path]:
        """Save all artifacts below the folder and return their paths. Files that exist are replaced."""
        _artifacts.check_folder("folder", folder)
        with tempfile.TemporaryFile() as archive:
            await self._download("artifacts", _http.execution_path(execution, "/artifacts"), archive)
            return await _platform_async.in_thread(_artifacts.extract, archive, folder)

    async def artifact(self, execution: ExecutionRef, path: PathLike) -> bytes:
        """Return the content of one artifact."""
        call = Call("artifact", "GET", _http.execution_path(execution, "/artifacts" + _http.segments(path)), idempotent=True)
        return (await self._requests.send(call)).content

    async def artifact_to(self, execution: ExecutionRef, path: PathLike, file: Union[PathLike, IO[bytes]]) -> None:
        """Save one artifact as a file: its path, or a binary file that is open."""
        await self._save("artifact", _http.execution_path(execution, "/artifacts" + _http.segments(path)), file)

    async def _save(self, operation: str, path: str, file: Union[PathLike, IO[bytes]]) -> None:
        if isinstance(file, (str, os.PathLike)):
            with _artifacts.replacing(file) as target:
                await self._download(operation, path, target, rewind=False)
        else:
            await self._download(operation, path, file, rewind=False)

    async def _download(self, operation: str, path: str, file: IO[bytes], rewind: bool = True) -> None:
        """Write an answer into a file, and go back to the file's beginning."""
        response = await self._requests.send(Call(operation, "GET", path, idempotent=True, stream=True))
        try:
            async for chunk in response.aiter_raw():
                await _platform_async.in_thread(file.write, chunk)
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _foreign.unreachable(error, self.server) from error
        finally:
            await response.aclose()
        if rewind:
            file.seek(0)

    async def open_session(self, **options: Unpack[SessionOptions]) -> AsyncSession:
        """Open a Session: an interpreter and a work folder that stay between Executions.

        As a context manager it is closed at the end. options: see SessionOptions.
        """
        body = json_body(metadata(options))
        answer = await self._requests.json(Call("open session", "POST", "/api/v1/sessions", body=body), "session_id")
        return AsyncSession(self, decode(SessionInfo, answer))

    async def session(self, session_id: str) -> AsyncSession:
        """Return a Session that is open."""
        call = Call("get session", "GET", _http.session_path(session_id), idempotent=True, silence=_http.SILENCE)
        return AsyncSession(self, decode(SessionInfo, await self._requests.json(call, "session_id")))

    async def sessions(self) -> List[SessionInfo]:
        """Return active and lost Sessions and those that were closed recently, newest first."""
        call = Call("list sessions", "GET", "/api/v1/sessions", idempotent=True, silence=_http.SILENCE)
        return decode_list(SessionInfo, await self._requests.json(call), "sessions")

    async def backends(self) -> List[Backend]:
        """Return the server's backends."""
        call = Call("backends", "GET", "/api/v1/backends", idempotent=True, silence=_http.SILENCE)
        return decode_list(Backend, await self._requests.json(call), "backends")

    async def health(self) -> Health:
        """Check that the server is up. It needs no token."""
        call = Call("health", "GET", "/healthz", idempotent=True, silence=_http.SILENCE)
        return decode(Health, await self._requests.json(call))

    async def ready(self) -> bool:
        """Report whether the server accepts Executions now. It needs no token."""
        try:
            await self._requests.once(Call("ready", "GET", "/readyz", silence=_http.SILENCE))
        except UnavailableError:
            return False
        return True
