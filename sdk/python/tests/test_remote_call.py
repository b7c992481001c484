"""The call of a remote function crosses and comes back. The sandbox is a process of this interpreter."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import linecache
import math
import os.path as paths
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest

from python_executor import _remote_call
from python_executor._remote_call import RESULT, RemoteError, RemoteTraceback
from python_executor._remote_runner import json_problem

BOTH = ["json", "cloudpickle"]
LIMIT = 3
LOCK = threading.Lock()


class OwnError(Exception):
    """An exception of this module."""


@dataclasses.dataclass
class Point:
    """A value of this module."""

    x: int
    y: int


def helper(value: int) -> int:
    """A function of this module."""
    return value + 1


class Sandbox:
    """Makes calls in processes, each in a folder of its own."""

    def __init__(self, folder: Path, serializer: str) -> None:
        self.folder = folder
        self.serializer = serializer
        self.modules: list[ModuleType] = []
        self.stdout = ""

    def send(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        files = _remote_call.pack(function, args, kwargs, self.serializer, self.modules)  # type: ignore[arg-type]
        for path, data in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(data)

    def answer(self, name: str = "f") -> Any:
        (self.folder / RESULT).unlink(missing_ok=True)
        # -S: nothing that is installed here is there, cloudpickle included.
        done = subprocess.run([sys.executable, "-S", "-E", _remote_call.ENTRYPOINT], cwd=self.folder, capture_output=True, text=True, check=False)
        assert (self.folder / RESULT).exists(), done.stderr
        assert done.stderr == ""
        self.stdout = done.stdout
        return _remote_call.unpack(name, (self.folder / RESULT).read_bytes(), self.serializer == "cloudpickle")

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.send(function, *args, **kwargs)
        return self.answer(function.__name__)


@pytest.fixture(params=BOTH)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path, request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path, "json")


@pytest.fixture
def pickled(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path, "cloudpickle")


def test_arguments_and_values_cross(sandbox: Sandbox) -> None:
    def f(a: Undefined, /, b: int = 2, *rest: int, c: str = "c", **more: Any) -> Any:  # type: ignore[name-defined] # noqa: F821
        print("it runs")
        return [a, b, list(rest), c, more]

    assert sandbox(f, None) == [None, 2, [], "c", {}]
    assert sandbox(f, {"k": [1, 2.5, True]}, 3, 4, 5, c="d", e="ü\ud800") == [{"k": [1, 2.5, True]}, 3, [4, 5], "d", {"e": "ü\ud800"}]
    assert sandbox.stdout == "it runs\n"


def test_modules_and_constants_of_the_module_cross(sandbox: Sandbox) -> None:
    def f() -> Any:
        return math.floor(LIMIT + 0.5), paths.basename("/a/b")  # noqa: PTH119

    def g() -> Any:
        return [*map(lambda n: n + LIMIT, [1])]  # noqa: C417

    assert sandbox.serializer == "json" or sandbox(f) == (3, "b")
    assert sandbox(g) == [4]


def test_an_async_function_is_awaited(sandbox: Sandbox) -> None:
    async def f(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    assert sandbox(f, 1) == 2


def close_stdout() -> int:
    sys.stdout.close()
    return 1


def close_descriptors() -> int:
    import os

    os.close(1)
    os.close(0)
    return 2


def lose_streams() -> int:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    return 3


def test_a_function_may_close_its_streams(pickled: Sandbox) -> None:
    assert [pickled(f) for f in (close_stdout, close_descriptors, lose_streams)] == [1, 2, 3]


def recursive(n: int, acc: int = 1) -> int:
    """A function that calls itself, with a default."""
    return acc if n < 2 else recursive(n - 1, acc * n)


def test_a_function_may_call_itself(sandbox: Sandbox) -> None:
    assert sandbox(recursive, 5) == 120


def fails(value: int) -> None:
    """A function that raises."""
    del value
    raise ValueError("no", 1)  # this very line


def test_an_exception_is_raised_here_with_the_remote_traceback(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match=r"\('no', 1\)") as caught:
        sandbox(fails, 1)
    assert type(caught.value) is ValueError
    assert caught.value.args == ("no", 1)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    line = fails.__code__.co_firstlineno + 3
    assert f'{__file__}", line {line}, in fails' in str(cause)
    assert 'raise ValueError("no", 1)  # this very line' in str(cause)
    assert "run.py" not in str(cause)


def test_the_remote_traceback_has_lines_of_a_file_that_only_the_caller_has(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "\n\ndef far():\n    raise ValueError('no')  # a line\n"
    monkeypatch.setitem(linecache.cache, "/no/such/file.py", (len(source), None, source.splitlines(True), "/no/such/file.py"))
    names: dict[str, Any] = {}
    exec(compile(source, "/no/such/file.py", "exec"), names)
    with pytest.raises(ValueError, match="no") as caught:
        sandbox(names["far"])
    assert "/no/such/file.py\", line 4, in far\n    raise ValueError('no')  # a line" in str(caught.value.__cause__)


def test_an_exception_without_a_class_here_is_a_remote_error(plain: Sandbox) -> None:
    def f() -> None:
        class Special(Exception):
            pass

        raise Special("odd")

    with pytest.raises(RemoteError, match=r"f: test_\w*\.?.*Special: odd|f: f\.<locals>\.Special: odd") as caught:
        plain(f)
    assert isinstance(caught.value.__cause__, RemoteTraceback)


def test_an_exception_that_is_made_with_other_values_is_described(plain: Sandbox) -> None:
    def f() -> None:
        raise ValueError({1, 2})

    with pytest.raises(RemoteError, match=r"f: ValueError: \{1, 2\}"):
        plain(f)


def test_an_exception_of_the_module_keeps_its_class(pickled: Sandbox) -> None:
    def f() -> None:
        raise OwnError(Point(1, 2))

    with pytest.raises(OwnError) as caught:
        pickled(f)
    assert caught.value.args == (Point(1, 2),)


def test_an_exit_does_not_end_this_process(sandbox: Sandbox) -> None:
    def f() -> None:
        raise SystemExit(3)

    with pytest.raises(RemoteError, match=r"f: called sys\.exit\(3\)"):
        sandbox(f)


def test_functions_and_classes_of_the_module_cross_as_pickles(pickled: Sandbox) -> None:
    captured = 10

    def f(point: Point) -> Point:
        return Point(helper(point.x), point.y + captured)

    value = pickled(f, Point(1, 2))
    assert value == Point(2, 12)
    assert type(value) is Point


def test_nothing_stays_registered_after_a_call(pickled: Sandbox) -> None:
    import cloudpickle

    before = set(cloudpickle.list_registry_pickle_by_value())
    pickled.send(helper, 1)
    assert set(cloudpickle.list_registry_pickle_by_value()) == before


def test_a_module_of_ones_own_crosses_when_it_is_named(pickled: Sandbox, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_module.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(str(folder))
    import own_module  # type: ignore[import-not-found]

    double = own_module.double

    def f() -> int:
        return double(4)  # type: ignore[no-any-return]

    with pytest.raises(RemoteError, match=r"f: requirements: must have the package of the module 'own_module'.*name it in modules"):
        pickled(f)
    pickled.modules = [own_module]
    assert pickled(f) == 8


def test_an_argument_that_cannot_cross_is_named(sandbox: Sandbox) -> None:
    def f(a: Any, *rest: Any, key: Any = None, **more: Any) -> None:
        del a, rest, key, more

    for args, kwargs, name in [((LOCK,), {}, "a"), ((1, 2, LOCK), {}, r"\*rest\[1\]"), ((1,), {"key": [LOCK]}, "key"), ((1,), {"other": LOCK}, "other")]:
        with pytest.raises(TypeError, match=rf"^argument {name}: .*'?_thread\.lock|^argument {name}: .*lock"):
            sandbox.send(f, *args, **kwargs)


def test_a_function_that_cannot_be_pickled_says_so(pickled: Sandbox) -> None:
    def f() -> None:
        LOCK.acquire()

    with pytest.raises(TypeError, match=r"^function f: cannot be pickled: .*lock"):
        pickled.send(f)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ((1,), r"got tuple\)"),
        ({"k": [1, {2}]}, r"got set at \['k'\]\[1\]\)"),
        ({1: 2}, r"got a key of type int\)"),
        (b"", r"got bytes\)"),
    ],
)
def test_json_takes_no_value_that_it_would_change(plain: Sandbox, value: Any, problem: str) -> None:
    def f(a: Any) -> None:
        del a

    with pytest.raises(TypeError, match=r"^argument a: must .*" + problem + r"; for other values install python-executor-client\[remote\]$"):
        plain.send(f, value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    assert "contain itself" in str(json_problem(value))


def test_a_return_value_that_cannot_cross_says_so(sandbox: Sandbox) -> None:
    def f() -> Any:
        import threading as t

        return t.Lock()

    with pytest.raises(RemoteError, match=r"^f: return value: .*lock"):
        sandbox(f)


def with_lock() -> None:
    """A function that uses a value of its module."""
    LOCK.acquire()


def with_bad_default(a: Any = LOCK) -> Any:
    """A function with a default that is no JSON."""
    return a


def wrapped() -> None:
    """A function that functools.wraps has marked."""


wrapped.__wrapped__ = helper  # type: ignore[attr-defined]


def test_source_that_needs_more_than_itself_is_refused(plain: Sandbox) -> None:
    outer = 1

    def closure() -> int:
        return outer

    typed = eval("lambda: 1")
    for function, problem in [
        (with_lock, r'must not use "LOCK" \(lock\) of its module; import or define it inside the function'),
        (closure, r'must not use "outer" of the function around it; pass it as an argument'),
        (typed, r"must be a def in a file"),
        (wrapped, r"must have no decorators under remote"),
        (with_bad_default, r"argument a: default must be .*got lock"),
    ]:
        with pytest.raises(TypeError, match=problem + r".*python-executor-client\[remote\]$"):
            plain.send(function)


def test_another_python_refuses_a_pickle(pickled: Sandbox) -> None:
    pickled.send(helper, 1)
    path = pickled.folder / _remote_call.FOLDER / "call.json"
    call = json.loads(path.read_text())
    path.write_text(json.dumps({**call, "python": [3, 1]}))
    have = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(RemoteError, match=rf"helper: python_version: must be 3\.1, the version of the caller, .*\(got {have}\)"):
        pickled.answer("helper")


def imports_what_is_missing() -> None:
    """A function that needs a package."""
    import no_such_module.part  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports, reportUnusedImport]  # noqa: F401


def test_a_module_that_is_missing_there_names_the_remedies(sandbox: Sandbox) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        sandbox(imports_what_is_missing)
    known = "No module named 'no_such_module'"
    remedy = '; requirements=["no_such_module"] of remote installs a package, and modules=[no_such_module] sends a module of your own'
    assert str(caught.value) == known + remedy
    assert isinstance(caught.value.__cause__, RemoteTraceback)


def test_a_value_whose_module_is_missing_here_says_so() -> None:
    body = b"cno_such_module\nthing\n."
    with pytest.raises(RemoteError, match="f: return value: needs the module 'no_such_module', which is not installed here"):
        _remote_call.unpack("f", b'{"value": null}\n' + body, pickled=True)
    with pytest.raises(RemoteError, match="f: return value: cannot be loaded here: UnpicklingError"):
        _remote_call.unpack("f", b'{"value": null}\n' + b"x", pickled=True)
    assert pickle.loads(pickle.dumps(1)) == 1
