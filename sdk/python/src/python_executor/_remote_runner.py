"""The program that makes the call of a remote function, inside the sandbox.

This file is sent with each call. It imports the standard library only, and cloudpickle if the call needs it. The folder of this
file has call.json, and call.pkl if the call is pickled. The answer is the file result: a line of JSON, then the pickled value.
"""

import __future__

import ast
import asyncio
import importlib
import inspect
import json
import linecache
import os
import sys
import textwrap
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

PLAIN = "None, bool, int, float, str, a list or a dict with str keys"


def json_problem(value: object) -> Optional[str]:
    """Return why value does not cross as JSON unchanged, or None."""
    try:
        return _problem(value, "")
    except RecursionError:
        return "must not be nested so deep (got a value that may contain itself)"


def _problem(value: object, at: str) -> Optional[str]:
    if value is None or type(value) in (bool, int, float, str):
        return None
    if type(value) is list:
        entries: List[Tuple[str, object]] = [(f"{at}[{i}]", v) for i, v in enumerate(cast("List[object]", value))]
    elif type(value) is dict:
        entries = [(f"{at}[{k!r}]", v) for k, v in cast("Dict[object, object]", value).items()]
        for key in cast("Dict[object, object]", value):
            if type(key) is not str:
                return f"must have str keys to cross as JSON (got a key of type {type(key).__name__}{' at ' + at if at else ''})"
    else:
        return f"must be {PLAIN} to cross as JSON (got {type(value).__name__}{' at ' + at if at else ''})"
    return next((p for p in (_problem(v, where) for where, v in entries) if p), None)


def function_of_source(call: Dict[str, Any]) -> Callable[..., Any]:
    """Compile the source of a function, without its decorators. Annotations are not evaluated."""
    tree = ast.parse(textwrap.dedent(call["source"]))
    node = cast(ast.FunctionDef, tree.body[0])
    node.decorator_list = []
    nothing = ast.copy_location(ast.Constant(None), node)
    node.args.defaults = [nothing for _ in node.args.defaults]
    node.args.kw_defaults = [d and nothing for d in node.args.kw_defaults]
    ast.increment_lineno(tree, call["first_line"] - 1)
    names: Dict[str, Any] = {"__name__": "__main__", **call["constants"]}
    for name, module in call["modules"].items():
        names[name] = importlib.import_module(module)
    flags = __future__.annotations.compiler_flag
    exec(compile(tree, call["file"], "exec", flags=flags, dont_inherit=True), names)  # the function is why the program runs
    function = names[call["name"]]
    function.__defaults__ = tuple(call["defaults"]) or None
    function.__kwdefaults__ = call["kwdefaults"] or None
    return function


def load(folder: str, call: Dict[str, Any]) -> Tuple[Callable[..., Any], List[Any], Dict[str, Any]]:
    """Return the function and its arguments."""
    if call["serializer"] == "json":
        return function_of_source(call), call["args"], call["kwargs"]
    if list(sys.version_info[:2]) != call["python"]:
        want, have = (".".join(map(str, v)) for v in (call["python"], sys.version_info[:2]))
        raise Refused(f"python_version: must be {want}, the version of the caller, for a function that is pickled (got {have})")
    import cloudpickle  # pyright: ignore[reportMissingImports, reportMissingTypeStubs, reportUnusedImport] # noqa: F401
    import pickle

    try:
        with open(os.path.join(folder, "call.pkl"), "rb") as f:
            return pickle.load(f)
    except ModuleNotFoundError as e:
        raise Refused(
            f"requirements: must have the package of the module {e.name!r}, which the function or an argument needs"
            " (a module of your own: name it in modules)"
        ) from e


class Refused(Exception):
    """The call cannot be made. The message is for the caller."""


def failure(error: BaseException) -> Dict[str, Any]:
    """Describe an exception, with its traceback from the function on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    args = list(error.args)
    return {
        "type": type(error).__qualname__,
        "module": type(error).__module__,
        "message": str(error),
        "args": args if json_problem(args) is None else None,
        "exit": isinstance(error, SystemExit),
        "traceback": "".join(traceback.format_exception(type(error), error, trace)),
    }


def dumps(value: object) -> bytes:
    """Pickle value."""
    import cloudpickle  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

    return cloudpickle.dumps(value)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def run(folder: str, call: Dict[str, Any]) -> Tuple[Dict[str, Any], bytes]:
    """Make the call and return the answer's head and body."""
    pickled = call["serializer"] != "json"
    try:
        function, args, kwargs = load(folder, call)
    except Refused as e:
        return {"refused": str(e)}, b""
    except Exception as e:
        return {"refused": "the function or an argument cannot be loaded: " + failure(e)["traceback"]}, b""
    try:
        value = function(*args, **kwargs)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except BaseException as e:
        head = {"error": failure(e)}
        try:
            return head, dumps(e) if pickled and isinstance(e, Exception) else b""
        except Exception:  # the description crosses instead
            return head, b""
    if not pickled:
        problem = json_problem(value)
        return ({"refused": f"return value: {problem}"} if problem else {"value": value}), b""
    try:
        return {"value": None}, dumps(value)
    except Exception as e:
        return {"refused": f"return value: cannot be pickled: {type(e).__name__}: {e}"}, b""


def main() -> int:
    """Make the call that lies beside this file."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [folder, os.getcwd()]
    with open(os.path.join(folder, "call.json"), encoding="utf-8") as f:
        call = json.load(f)
    if call["source"]:
        # A traceback shows these lines, although the file is not here.
        lines = ["\n"] * (call["first_line"] - 1) + call["source"].splitlines(True)
        linecache.cache[call["file"]] = (len(call["source"]), None, lines, call["file"])
    head, body = run(folder, call)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the function has closed or replaced it
    with open(os.path.join(folder, "result"), "wb") as f:
        f.write(json.dumps(head).encode() + b"\n" + body)
    return 0 if "value" in head else 1


if __name__ == "__main__":
    sys.exit(main())
