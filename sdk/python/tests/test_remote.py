"""Functions run on a server. How their calls cross is tested without a server in test_remote_call."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers import TOKEN, Server, needs_index

import python_executor
from python_executor import AsyncClient, Client, RemoteError, RemoteFunction, RemoteTraceback, remote
from python_executor._remote import _pinned_version

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def own(cache: Path) -> Iterator[Server]:
    """A server whose programs have the rights of the tests, and so every Python that the tests can run on."""
    server = Server(cache.parent / "own", "200000-200049")
    config = json.loads(server.config.read_text())
    uv = config["backends"]["uv"]
    uv.pop("run_as", None)
    server.config.write_text(json.dumps({**config, "backends": {"uv": {**uv, "isolation": "none"}}}))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def client(own: Server) -> Iterator[Client]:
    with Client(own.url, TOKEN) as made:
        yield made


@pytest.fixture(params=["json", "cloudpickle"])
def serializer(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "cloudpickle":
        request.getfixturevalue("pickles")
    return name


@pytest.fixture
def pickles(client: Client) -> None:
    """The server has the Python of the tests."""
    versions = [v for b in client.backends() for v in b.capabilities.get("python_versions") or []]
    if OWN not in versions:
        pytest.skip(f"the server has no Python {OWN} (it has {', '.join(versions)})")


@remote
def hypotenuse(a: float, b: float = 4.0) -> float:
    """Return the long side."""
    print("computing", flush=True)
    print("carefully", file=sys.stderr)
    return (a * a + b * b) ** 0.5


def test_a_call_prints_here_and_returns_its_value(client: Client, serializer: str, capsys: pytest.CaptureFixture[str]) -> None:
    there = hypotenuse.options(client=client, serializer=serializer)
    assert there(3.0) == 5.0
    assert there.remote(3.0, b=4.0) == 5.0
    assert capsys.readouterr() == ("computing\n" * 2, "carefully\n" * 2)


def test_output_is_live(client: Client, serializer: str) -> None:
    def stop(text: str) -> None:
        raise KeyError(text)  # ends the execution, which would not end by itself

    @remote(client=client, serializer=serializer, stdout=stop)
    def endless() -> None:
        import time

        print("first", end="", flush=True)
        while True:
            time.sleep(1)

    with pytest.raises(KeyError, match="first"):
        endless()


def test_an_exception_has_the_remote_traceback(client: Client, serializer: str) -> None:
    @remote(client=client, serializer=serializer)
    def divide(a: int, b: int) -> float:
        return a / b

    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        divide(1, 0)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "return a / b" in str(caught.value.__cause__)


def test_a_default_client_is_that_of_the_environment(own: Server, serializer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYEXEC_SERVER", own.url)
    monkeypatch.setenv("PYEXEC_TOKEN", TOKEN)

    @remote(serializer=serializer, stdout=lambda text: None)
    async def double(n: int) -> int:
        return 2 * n

    assert hypotenuse.options(serializer=serializer)(3.0) == 5.0
    assert asyncio.run(double(4)) == 8


def test_async_functions_run_together(own: Server, serializer: str) -> None:
    async def main() -> list[int]:
        async with AsyncClient(own.url, TOKEN) as one:

            @remote(client=one, serializer=serializer)
            async def double(n: int) -> int:
                return 2 * n

            return await asyncio.gather(*map(double, range(4)))

    assert asyncio.run(main()) == [0, 2, 4, 6]


def test_files_modules_and_limits_are_there(client: Client, serializer: str) -> None:
    @remote(client=client, serializer=serializer, files={"data/rows.csv": "1,2\n", "tools.py": "SIX = 6"}, env={"WORD": "w"}, memory_mb=200)
    def look() -> list[Any]:
        import os
        from pathlib import Path

        import tools  # type: ignore[import-not-found]

        return [Path("data/rows.csv").read_text(), tools.SIX, os.environ["WORD"]]

    assert look() == ["1,2\n", 6, "w"]


def test_an_end_without_an_answer_tells_the_end(client: Client, serializer: str) -> None:
    @remote(client=client, serializer=serializer, timeout=0.5)
    def endless() -> None:
        while True:
            pass

    @remote(client=client, serializer=serializer)
    def gone() -> None:
        import os

        os._exit(7)

    with pytest.raises(RemoteError, match=r"^endless: no result: execution exe_\w+ timed_out"):
        endless()
    with pytest.raises(RemoteError, match=r"^gone: no result: execution exe_\w+ failed with exit code 7"):
        gone()


@needs_index
def test_requirements_are_there(client: Client, serializer: str) -> None:
    @remote(client=client, serializer=serializer, requirements=["numpy"])
    def norm(values: list[float]) -> float:
        import numpy

        return float(numpy.linalg.norm(values))

    assert norm([3.0, 4.0]) == 5.0


@needs_index
@pytest.mark.usefixtures("pickles")
def test_values_of_a_package_cross_as_pickles(client: Client) -> None:
    @remote(client=client, requirements=[f"httpx=={httpx.__version__}"])
    def join(url: httpx.URL, path: str) -> httpx.URL:
        return url.join(path)

    assert join(httpx.URL("http://host/a"), "/b") == httpx.URL("http://host/b")


@pytest.mark.usefixtures("pickles")
def test_a_missing_requirement_is_named(client: Client) -> None:
    @remote(client=client)
    def text(url: httpx.URL) -> str:
        return str(url)

    with pytest.raises(RemoteError, match=r"^text: requirements: must have the package of the module 'httpx'"):
        text(httpx.URL("http://host/a"))


@pytest.mark.usefixtures("pickles")
def test_remote_functions_call_each_other_in_the_sandbox(client: Client) -> None:

    @remote(client=client)
    def inner(n: int) -> int:
        return n + 1

    @remote(client=client)
    def outer(n: int) -> int:
        return inner(n) * 10

    assert outer(1) == 20


def test_the_version_of_a_pickle_is_pinned() -> None:
    assert _pinned_version(None, image=False) == OWN
    assert _pinned_version(OWN, image=False) == OWN
    assert _pinned_version(None, image=True) is None
    with pytest.raises(ValueError, match=rf'^python_version: must be {OWN} \(got "3\.1"\); a function that is pickled'):
        hypotenuse.options(python_version="3.1", serializer="cloudpickle")(3.0)


def test_a_version_that_the_server_lacks_is_explained(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_executor._remote, "_pinned_version", lambda given, image: "3.1")
    with pytest.raises(RemoteError, match=r'hypotenuse: .*python_version: must be one of .*; a function that is pickled .*serializer="json"'):
        hypotenuse.options(client=client, serializer="cloudpickle")(3.0)
    with pytest.raises(python_executor.InvalidError):
        hypotenuse.options(client=client, serializer="json", python_version="3.1")(3.0)


def test_a_remote_function_looks_like_the_function() -> None:
    assert hypotenuse.local(3.0) == 5.0
    assert hypotenuse.__name__ == "hypotenuse"
    assert hypotenuse.__doc__ == "Return the long side."
    assert repr(hypotenuse) == "<remote function hypotenuse>"
    assert isinstance(hypotenuse, RemoteFunction)


def test_wrong_uses_are_refused_before_anything_is_sent() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None: ...

    with Client("http://127.0.0.1:1") as nowhere:
        for call, problem in [
            (lambda: remote(print), r"^remote: must decorate a function \(got builtin_function_or_method\)$"),
            (lambda: remote(generator), r"^function generator: must return its value; a generator cannot cross$"),
            (lambda: remote(client=nowhere)(coroutine), r"^client: must be AsyncClient for async def coroutine \(got Client\)$"),
            (lambda: remote(memory=1)(test_wrong_uses_are_refused_before_anything_is_sent), r"^memory: unknown option \(did you mean memory_mb\?\)$"),  # type: ignore[call-overload]
            (lambda: remote(timeot=3), r"^timeot: unknown option \(did you mean timeout\?\)$"),  # type: ignore[call-overload]
            (lambda: hypotenuse.options(packages=["six"]), r"^packages: unknown option \(did you mean requirements\?\)$"),
            (lambda: hypotenuse.options(client=nowhere)(1, 2, 3), r"too many positional arguments"),  # type: ignore[call-arg]
        ]:
            with pytest.raises(TypeError, match=problem):
                call()
    with pytest.raises(ValueError, match=r'^serializer: must be one of json, cloudpickle \(got "yaml"\)$'):
        hypotenuse.options(serializer="yaml")


def test_without_cloudpickle_functions_cross_as_source(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert hypotenuse.options(client=client)(3.0) == 5.0
    with pytest.raises(ValueError, match=r"^serializer: cloudpickle must be installed \(install python-executor-client\[remote\]\)$"):
        hypotenuse.options(serializer="cloudpickle")
