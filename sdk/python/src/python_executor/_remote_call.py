"""How the call of a remote function crosses: the files that are sent, and the answer."""

from __future__ import annotations

import builtins
import contextlib
import dis
import importlib.util
import inspect
import json
import pickle
import re
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, cast

from . import _remote_runner
from ._remote_runner import json_problem

#: The folder of a call in the work folder of its execution.
FOLDER = ".pyexec"
ENTRYPOINT = FOLDER + "/run.py"
RESULT = FOLDER + "/result"
EXTRA = "install python-executor-client[remote]"


class RemoteError(Exception):
    """A remote function has no result: its program did not end well, or a value could not cross.

    An exception of the function itself is raised as it is, if its class is there. RemoteError stands for any other exception.
    """


class RemoteTraceback(Exception):
    """The traceback of a remote exception: its cause, for people."""

    def __init__(self, text: str) -> None:
        """Make the cause of an exception."""
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def default_serializer() -> str:
    """Return cloudpickle if it is installed, else json."""
    return "cloudpickle" if importlib.util.find_spec("cloudpickle") else "json"


def pack(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any], serializer: str, modules: Sequence[ModuleType]) -> Dict[str, bytes]:
    """Return the files of a call, by path. A TypeError names what cannot cross."""
    lines, first_line = _source(function)
    call: Dict[str, Any] = {
        "serializer": serializer,
        "python": list(sys.version_info[:2]),
        "name": function.__name__,
        "file": function.__code__.co_filename,
        "source": "".join(lines),
        "first_line": first_line,
    }
    files: Dict[str, bytes] = {ENTRYPOINT: Path(_remote_runner.__file__).read_bytes()}
    if serializer == "json":
        call.update(_plain_function(function, call["source"]), args=list(args), kwargs=dict(kwargs))
        for name, value in _named(function, args, kwargs):
            problem = json_problem(value)
            if problem:
                raise TypeError(f"argument {name}: {problem}; for other values {EXTRA}")
    else:
        files[FOLDER + "/call.pkl"] = _pickled(function, args, kwargs, modules)
        files.update(_cloudpickle_files())
    files[FOLDER + "/call.json"] = json.dumps(call).encode()
    return files


def unpack(name: str, answer: bytes, pickled: bool) -> Any:
    """Return the value of an answer, or raise the exception that it holds."""
    line, _, body = answer.partition(b"\n")
    head = json.loads(line)
    if "refused" in head:
        raise RemoteError(f"{name}: {head['refused']}")
    if "error" in head:
        error = head["error"]
        raise _explained(_exception(name, error, body)) from RemoteTraceback(error["traceback"])
    if not pickled:
        return head["value"]
    try:
        return pickle.loads(body)
    except ModuleNotFoundError as e:
        raise RemoteError(f"{name}: return value: needs the module {e.name!r}, which is not installed here") from e
    except Exception as e:
        raise RemoteError(f"{name}: return value: cannot be loaded here: {type(e).__name__}: {e}") from e


def _exception(name: str, error: Mapping[str, Any], body: bytes) -> Exception:
    described = RemoteError(f"{name}: {error['type']}: {error['message']}")
    if error["exit"]:
        return RemoteError(f"{name}: called sys.exit({error['message']})")
    if body:
        with contextlib.suppress(Exception):
            loaded = pickle.loads(body)
            return loaded if isinstance(loaded, Exception) else described
    known = getattr(builtins, error["type"], None) if error["module"] == "builtins" else None
    if inspect.isclass(known) and issubclass(known, Exception) and error["args"] is not None:
        with contextlib.suppress(Exception):
            return known(*error["args"])
    return described


def _explained(error: Exception) -> Exception:
    """Add the remedies to the error of a module that the sandbox does not have."""
    missing = re.match(r"No module named '(\w+)", str(error))
    if isinstance(error, ModuleNotFoundError) and missing:
        module = missing[1]
        error.msg = f'{error}; requirements=["{module}"] of remote installs a package, and modules=[{module}] sends a module of your own'
    return error


def _source(function: FunctionType) -> Tuple[List[str], int]:
    try:
        return inspect.getsourcelines(function)
    except (OSError, TypeError):  # typed into an interpreter, or made by exec
        return [], 1


def _named(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[Tuple[str, Any]]:
    """Return the arguments by the names of their parameters."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    named: List[Tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"*{name}[{i}]", v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += list(value.items())
        else:
            named.append((name, value))
    return named


# Functions as source.


def _plain_function(function: FunctionType, source: str) -> Dict[str, Any]:
    """Return what a function needs besides its source: defaults, modules and constants."""
    name = function.__name__
    if not source or not name.isidentifier():
        raise TypeError(f"function {name}: must be a def in a file to cross as source; for other functions {EXTRA}")
    if hasattr(function, "__wrapped__"):
        raise TypeError(f"function {name}: must have no decorators under remote to cross as source; for such functions {EXTRA}")
    if function.__code__.co_freevars:
        raise TypeError(
            f'function {name}: must not use "{function.__code__.co_freevars[0]}" of the function around it; pass it as an argument, or {EXTRA}'
        )
    modules: Dict[str, str] = {}
    constants: Dict[str, Any] = {}
    for used in sorted(_global_names(function.__code__) - {name}):
        if used not in function.__globals__:
            continue  # a builtin, or a NameError like anywhere else
        value = function.__globals__[used]
        if isinstance(value, ModuleType):
            modules[used] = value.__name__
        elif json_problem(value) is None:
            constants[used] = value
        else:
            raise TypeError(
                f'function {name}: must not use "{used}" ({type(value).__name__}) of its module; import or define it inside the function, or {EXTRA}'
            )
    defaults, kwdefaults = list(function.__defaults__ or ()), dict(function.__kwdefaults__ or {})
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    for parameter, value in [*zip(positional[len(positional) - len(defaults) :], defaults), *kwdefaults.items()]:
        problem = json_problem(value)
        if problem:
            raise TypeError(f"argument {parameter}: default {problem}; for other values {EXTRA}")
    return {"defaults": defaults, "kwdefaults": kwdefaults, "modules": modules, "constants": constants}


def _global_names(code: CodeType) -> Set[str]:
    """Return the names that code and the functions in it read from their module."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


# Functions as pickles.

_by_value = threading.Lock()


@contextlib.contextmanager
def _pickled_by_value(function: FunctionType, modules: Sequence[ModuleType]) -> Generator[Callable[[object], bytes]]:
    """Pickle the functions and classes of the function's own package by value: the sandbox does not have the package."""
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

    module_name = function.__module__ or ""
    own = sys.modules.get(module_name.partition(".")[0]) or sys.modules.get(module_name)
    with _by_value:  # the registry belongs to the process
        before = cast("Set[str]", cloudpickle.list_registry_pickle_by_value())  # pyright: ignore[reportUnknownMemberType]
        added = [m for m in [own, *modules] if m is not None and m.__name__ not in {*before, "__main__", "builtins"}]
        added = list({m.__name__: m for m in added}.values())
        try:
            for module in added:
                cloudpickle.register_pickle_by_value(module)  # pyright: ignore[reportUnknownMemberType]
            yield cast("Callable[[object], bytes]", cloudpickle.dumps)  # pyright: ignore[reportUnknownMemberType]
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)  # pyright: ignore[reportUnknownMemberType]


def _pickled(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any], modules: Sequence[ModuleType]) -> bytes:
    with _pickled_by_value(function, modules) as dumps:
        try:
            return dumps((function, list(args), dict(kwargs)))
        except Exception as e:
            whole = e
        for name, value in _named(function, args, kwargs):
            problem = _pickle_problem(dumps, value)
            if problem:
                raise TypeError(f"argument {name}: cannot be pickled: {problem}") from whole
    raise TypeError(f"function {function.__name__}: cannot be pickled: {type(whole).__name__}: {whole}") from whole


def _pickle_problem(dumps: Callable[[object], bytes], value: object) -> Optional[str]:
    try:
        dumps(value)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


def _cloudpickle_files() -> Dict[str, bytes]:
    """Return the files of cloudpickle: both ends have the same version, and nothing is installed for it."""
    spec = importlib.util.find_spec("cloudpickle")
    if spec is None or spec.origin is None:
        raise TypeError(f"serializer: cloudpickle must be installed ({EXTRA})")
    package = Path(spec.origin).parent
    return {f"{FOLDER}/cloudpickle/{path.name}": path.read_bytes() for path in package.glob("*.py")}
