# Written by tools/unasync.py from src/python_executor/_async/session.py. Do not edit.
"""Sessions."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Callable, List, Optional, Sequence, Union

from .. import _http, _output
from .._http import Call
from .._input import Body, Bytes, check_order, invalid, json_body, source
from .._keywords import suggesting
from .._progress import Progress, reporting
from .._submission import check_text
from ..errors import ExecutorError
from ..events import Event
from ..models import Execution, File, SessionInfo, Variable, decode, decode_list
from ..options import RunOptions, requirements_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._submission import Stdin
    from .client import Client, PathLike


@suggesting
class Session:
    """An interpreter and a work folder that stay between Executions.

    Executions in a Session share names, imports and files. They run one at a time, in the order of their arrival.
    """

    def __init__(self, client: Client, info: SessionInfo) -> None:
        """`Client.open_session` and `Client.session` make Sessions."""
        self._client = client
        self._requests = client._requests  # pyright: ignore[reportPrivateUsage]
        #: The state of the Session when it was last asked for.
        self.info = info

    @property
    def session_id(self) -> str:
        """The id, "ctx-…"."""
        return self.info.session_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r})"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except ExecutorError:
            if kind is None:  # otherwise the error of the block is the one to tell
                raise

    def close(self) -> str:
        """Close the Session: kill the running Execution, end the sandbox and remove its files. Return the status."""
        answer = self._requests.json(Call("close session", "DELETE", self._path(), idempotent=True))
        self.info.status = str(answer.get("status", ""))
        return self.info.status

    def _path(self, rest: str = "") -> str:
        return _http.session_path(self.session_id, rest)

    def run(
        self,
        code: Optional[str] = None,
        *,
        stdin: Optional[Stdin] = None,
        stdout: Optional[_output.Sink] = None,
        stderr: Optional[_output.Sink] = None,
        on_event: Optional[Callable[[Event], object]] = None,
        artifacts_to: Optional[PathLike] = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run code in the interpreter, or a `command` beside it, and return the finished Execution.

        Plots and the value of the last expression are in its displays. The arguments are those of `Client.run`.
        """
        self._check(code)
        options["session_id"] = self._id()
        return self._client.run(
            code, stdin=stdin, stdout=stdout, stderr=stderr, on_event=on_event, artifacts_to=artifacts_to, **options
        )

    def submit(self, code: Optional[str] = None, *, stdin: Optional[Stdin] = None, **options: Unpack[RunOptions]) -> str:
        """Start an Execution in the Session and return its id."""
        self._check(code)
        options["session_id"] = self._id()
        return self._client.submit(code, stdin=stdin, **options)

    def _check(self, code: Optional[str]) -> None:
        if self.info.language == "python":
            check_text(code, "Path({!r}).read_text() is its text")

    def _id(self) -> str:
        if not self.session_id:  # the code would run in a sandbox of its own
            raise invalid("session_id", "must not be empty")
        return self.session_id

    def refresh(self) -> SessionInfo:
        """Return the present state."""
        call = Call("get session", "GET", self._path(), idempotent=True, silence=_http.SILENCE)
        self.info = decode(SessionInfo, self._requests.json(call))
        return self.info

    def interrupt(self) -> SessionInfo:
        """Stop the running Execution and wait for its end.

        Names stay unless the code does not stop in time. The call is never repeated: it could stop the next Execution.
        """
        self.info = decode(SessionInfo, self._requests.json(Call("interrupt", "POST", self._path("/interrupt"))))
        return self.info

    def restart(self, *, wipe: bool = False) -> SessionInfo:
        """Restart the interpreter. Names and imports are lost. Files stay unless `wipe` is true."""
        call = Call("restart", "POST", self._path("/restart"), body=json_body({"wipe": wipe}))
        self.info = decode(SessionInfo, self._requests.json(call))
        return self.info

    def install(self, *requirements: Union[str, Sequence[str]]) -> List[str]:
        """Install requirements without a restart and return all that are installed: `install("numpy", "pandas>=2")`."""
        text = "".join(requirements_text([r] if isinstance(r, str) else r) for r in requirements)
        if not text.strip():
            raise invalid("requirements", 'must be given: install("numpy")')
        # Installed requirements are not installed again.
        call = Call("install", "POST", self._path("/requirements"), body=json_body({"requirements_txt": text}), idempotent=True)
        return list((self._requests.json(call)).get("resolved_requirements") or [])

    def variables(self) -> List[Variable]:
        """Return the names of the interpreter, sorted. It waits for the running Execution."""
        call = Call("variables", "GET", self._path("/variables"), idempotent=True)
        return decode_list(Variable, self._requests.json(call), "variables")

    def files(self, path: str = "", *, recursive: bool = False) -> List[File]:
        """List a folder, by default the work folder. With `recursive` all that is below it."""
        query = {"recursive": "true"} if recursive else {}
        if path:
            query["path"] = path
        call = Call("list files", "GET", self._path("/files"), query, idempotent=True, silence=_http.SILENCE)
        return decode_list(File, self._requests.json(call), "files")

    def upload(self, content: Bytes, path: Optional[PathLike] = None, *, mode: Optional[int] = None, progress: Progress = None) -> File:
        """Make or replace a file, as a whole or not at all. Missing folders are made.

        content: the path of a local file, its bytes, or a binary file. It is streamed.
        path: the name in the work folder. Default: that of the local file.
        mode: the permission bits, such as 0o755. Default: those of the local file, else 0o644.
        """
        check_order(content, path)
        if path is None:
            if not isinstance(content, (str, os.PathLike)):
                raise invalid("path", 'must be given, because only a path has a name: upload(content, "data.csv")')
            path = os.path.basename(os.fspath(content))
        if mode is None and isinstance(content, (str, os.PathLike)) and os.name == "posix":
            with suppress(OSError):  # the upload tells what is wrong
                mode = os.stat(content).st_mode & 0o777
        query = {} if mode is None else {"mode": format(mode, "o")}
        body = Body("application/octet-stream", [source(content, "content")])
        with reporting(progress) as report:
            call = Call("upload", "PUT", self._file(path), query, body=body, idempotent=True, progress=report)
            return decode(File, self._requests.json(call))

    def make_folder(self, path: PathLike) -> File:
        """Make a folder and those on its way, unless they are there."""
        body = Body("application/octet-stream", [source(b"", "content")])
        call = Call("make folder", "PUT", self._file(path), {"directory": "true"}, body=body, idempotent=True)
        return decode(File, self._requests.json(call))

    def download(self, path: PathLike) -> bytes:
        """Return the content of a file."""
        return (self._requests.send(Call("download", "GET", self._file(path), idempotent=True))).content

    def download_to(self, path: PathLike, file: Union[PathLike, IO[bytes]]) -> None:
        """Save a file of the Session as a local file: its path, or a binary file that is open."""
        self._client._save("download", self._file(path), file)  # pyright: ignore[reportPrivateUsage]

    def remove(self, path: PathLike) -> None:
        """Remove a file, or a folder with its contents.

        The call is repeated if its answer was lost, so NotFoundError may mean that the first attempt removed the file.
        """
        self._requests.send(Call("remove", "DELETE", self._file(path), idempotent=True))

    def _file(self, path: PathLike) -> str:
        return self._path("/files" + _http.segments(path))
