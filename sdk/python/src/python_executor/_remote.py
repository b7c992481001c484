"""The decorator that runs a function on a server."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Optional, Tuple, TypeVar, Union, cast, overload

from ._async.client import AsyncClient
from ._output import Sink
from ._remote_call import ENTRYPOINT, EXTRA, RESULT, RemoteError, default_serializer, pack, unpack
from ._sync.client import Client
from .errors import InvalidError
from .models import Execution
from .options import LimitOptions, unknown

R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    P = ParamSpec("P")
else:
    P = TypeVar("P")  # Python 3.9 has no ParamSpec

SERIALIZERS = ("json", "cloudpickle")
PICKLES = 'a function that is pickled needs the version of this interpreter; with serializer="json" its source crosses'


class RemoteOptions(LimitOptions, total=False):
    """The options of a remote function, beside those that remote names."""

    #: Name of the backend. Default: the server's.
    backend: str
    #: Container image, "python:3.12-slim".
    docker_image: str
    #: Environment variables, added to the program's own.
    env: Mapping[str, str]


@dataclass(frozen=True)
class _Settings:
    client: Optional[Union[Client, AsyncClient]] = None
    requirements: Optional[Union[str, Sequence[str]]] = None
    python_version: Optional[str] = None
    timeout: Optional[float] = None
    serializer: Optional[str] = None
    files: Mapping[str, Union[str, bytes, "os.PathLike[str]"]] = field(default_factory=lambda: {})
    modules: Sequence[ModuleType] = ()
    stdout: Optional[Sink] = None
    stderr: Optional[Sink] = None
    options: Mapping[str, Any] = field(default_factory=lambda: {})


class RemoteFunction(Generic[P, R]):
    """A function whose calls run on a server. `local` calls it here."""

    def __init__(self, function: Callable[P, R], settings: _Settings) -> None:
        """Make a remote function. Use the decorator `remote`."""
        if not isinstance(function, FunctionType):
            raise TypeError(f"remote: must decorate a function (got {type(function).__name__})")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"function {function.__name__}: must return its value; a generator cannot cross")
        self._function = function
        self._settings = settings
        self._asynchronous = inspect.iscoroutinefunction(function)
        _check(function.__name__, settings, self._asynchronous)
        functools.update_wrapper(cast(Any, self), function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function on the server, and return its value."""
        call = self._call_async if self._asynchronous else self._call
        return cast(R, call(args, kwargs))

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function on the server, like a plain call."""
        return self(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in this process."""
        return cast(R, self._function(*args, **kwargs))

    def options(self, **changes: Any) -> RemoteFunction[P, R]:
        """Return the same function with other arguments of `remote`: f.options(client=client)(1)."""
        return RemoteFunction(cast("Callable[P, R]", self._function), _settings(self._settings, changes))

    def __reduce__(self) -> Tuple[Any, ...]:
        """In the sandbox, a remote function is a plain one."""
        return functools.partial, (self._function,)

    def __repr__(self) -> str:
        return f"<remote function {self._function.__qualname__}>"

    def _call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        request, pickled = self._request(args, kwargs)
        client = cast(Optional[Client], self._settings.client)
        if client is not None:
            return self._answer_of(client, request, pickled)
        with Client() as client:
            return self._answer_of(client, request, pickled)

    def _answer_of(self, client: Client, request: Dict[str, Any], pickled: bool) -> Any:
        with self._version_explained(pickled):
            execution = client.run(**request)
        answer = client.artifact(execution, self._answer_path(execution))
        return unpack(self._function.__name__, answer, pickled)

    async def _call_async(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        request, pickled = self._request(args, kwargs)
        client = cast(Optional[AsyncClient], self._settings.client)
        if client is not None:
            return await self._answer_of_async(client, request, pickled)
        async with AsyncClient() as client:
            return await self._answer_of_async(client, request, pickled)

    async def _answer_of_async(self, client: AsyncClient, request: Dict[str, Any], pickled: bool) -> Any:
        with self._version_explained(pickled):
            execution = await client.run(**request)
        answer = await client.artifact(execution, self._answer_path(execution))
        return unpack(self._function.__name__, answer, pickled)

    def _request(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[Dict[str, Any], bool]:
        """Return the arguments of `run`, and whether the answer is pickled."""
        s = self._settings
        inspect.signature(self._function).bind(*args, **kwargs)  # a wrong call fails here, as if the function were local
        serializer = s.serializer or default_serializer()
        pickled = serializer == "cloudpickle"
        version = _pinned_version(s.python_version, "docker_image" in s.options) if pickled else s.python_version
        request: Dict[str, Any] = {
            **s.options,
            "files": {**s.files, **pack(self._function, args, kwargs, serializer, s.modules)},
            "entrypoint": ENTRYPOINT,
            "outputs": [RESULT],
            "requirements": s.requirements,
            "python_version": version,
            "stdout": s.stdout or sys.stdout,
            "stderr": s.stderr or sys.stderr,
        }
        if s.timeout is not None:
            request["timeout_seconds"] = s.timeout
        return {name: value for name, value in request.items() if value is not None}, pickled

    @contextlib.contextmanager
    def _version_explained(self, pickled: bool) -> Generator[None]:
        """Explain why a version is refused that the caller did not write."""
        try:
            yield
        except InvalidError as e:
            if pickled and any(f.field == "python_version" for f in e.fields):
                raise RemoteError(f"{self._function.__name__}: {e}; {PICKLES}") from e
            raise

    def _answer_path(self, execution: Execution) -> str:
        if any(a.path == RESULT for a in execution.artifacts):
            return RESULT
        raise RemoteError(f"{self._function.__name__}: no result: {execution.summary()}")


def _check(name: str, settings: _Settings, asynchronous: bool) -> None:
    if settings.serializer not in (None, *SERIALIZERS):
        raise ValueError(f'serializer: must be one of {", ".join(SERIALIZERS)} (got "{settings.serializer}")')
    if settings.serializer == "cloudpickle" and default_serializer() != "cloudpickle":
        raise ValueError(f"serializer: cloudpickle must be installed ({EXTRA})")
    want, other = (AsyncClient, Client) if asynchronous else (Client, AsyncClient)
    if isinstance(settings.client, other):
        raise TypeError(f"client: must be {want.__name__} for {'async ' if asynchronous else ''}def {name} (got {type(settings.client).__name__})")


def _pinned_version(given: Optional[str], image: bool) -> Optional[str]:
    """Return the Python version of a pickled function: bytecode runs on the minor version that made it."""
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if given is not None and given != own:
        raise ValueError(
            f'python_version: must be {own} (got "{given}"); {PICKLES}'
        )
    return given if image else own  # an image has its own version, which the sandbox checks


def _settings(base: _Settings, changes: Mapping[str, Any]) -> _Settings:
    named = {k: v for k, v in changes.items() if k in _Settings.__dataclass_fields__ and k != "options"}
    options = {k: v for k, v in changes.items() if k not in named}
    known = [*(k for k in _Settings.__dataclass_fields__ if k != "options"), *RemoteOptions.__annotations__]
    for name in options:
        if name not in known:
            raise TypeError(unknown(name, known))
    return replace(base, **named, options={**base.options, **options})


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...


@overload
def remote(
    *,
    client: Optional[Union[Client, AsyncClient]] = None,
    requirements: Optional[Union[str, Sequence[str]]] = None,
    python_version: Optional[str] = None,
    timeout: Optional[float] = None,
    serializer: Optional[str] = None,
    files: Mapping[str, Union[str, bytes, os.PathLike[str]]] = ...,
    modules: Sequence[ModuleType] = (),
    stdout: Optional[Sink] = None,
    stderr: Optional[Sink] = None,
    **options: Unpack[RemoteOptions],
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...


def remote(function: Optional[Callable[..., Any]] = None, /, **settings: Any) -> Any:
    """Run a function on the server when it is called.

        @remote(requirements=["numpy"])
        def norm(values: list[float]) -> float:
            import numpy
            return float(numpy.linalg.norm(values))

        norm([3.0, 4.0])   # 5.0

    The function, its arguments and its value cross by cloudpickle if it is installed (the extra "remote"), else as source and JSON.
    What the function prints is printed here while it runs. Its exceptions are raised here, with the remote traceback as their
    cause. A pickled value is loaded in this process, and a pickle can run code: use serializer="json" for code that is not trusted.

    client: Client, or AsyncClient for an async function. Default: a client of PYEXEC_SERVER for each call.
    requirements: What is installed for the function: a list, or the text of a requirements.txt.
    python_version: Minor version of Python. Default and necessary with cloudpickle: this interpreter's.
    timeout: The maximum time of the call in seconds, without queueing and installing.
    serializer: "cloudpickle" or "json".
    files: Files of the work folder, by path. The function can also import modules among them.
    modules: Modules of your own that the function or its arguments need. Those of its own package cross without that.
    stdout, stderr: Get the output instead of sys.stdout and sys.stderr: a function of text, or a file.
    options: Limits and more, as in RemoteOptions.
    """
    made = _settings(_Settings(), settings)
    if function is not None:
        return RemoteFunction(function, made)

    def decorate(decorated: Callable[..., Any]) -> RemoteFunction[..., Any]:
        return RemoteFunction(decorated, made)

    return decorate
