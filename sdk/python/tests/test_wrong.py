"""Wrong uses, and the answer to each, which names the thing, the reason and the remedy.

The Go SDK has the same answers for servers: both read testdata/wrong. Nothing here needs a server.
"""

from __future__ import annotations

import io
import json
import socket
import ssl
from pathlib import Path
from typing import Any, Callable, Dict, List

import httpx
import pytest
from helpers import REPOSITORY, Script, Stream

from python_executor import (
    Artifact,
    Backend,
    BatchSummary,
    CaseResult,
    Client,
    DisplayData,
    Execution,
    ExecutorError,
    Failure,
    InvalidError,
    Page,
    RetryPolicy,
    Session,
    SessionInfo,
    UnavailableError,
    local,
    local_async,
)

WRONG = REPOSITORY / "testdata" / "wrong"
ONCE = RetryPolicy(attempts=1, follow_attempts=1)
HERE = Path(__file__)


def vectors(name: str) -> List[Dict[str, Any]]:
    uses = json.loads((WRONG / name).read_text("utf-8"))
    assert len(uses) >= 20
    return uses


def test_the_url_of_a_server() -> None:
    for use in vectors("servers.json"):
        if "is" in use:
            assert Client(use["server"]).server == use["is"]
            continue
        with pytest.raises(InvalidError) as caught:
            Client(use["server"])
        assert str(caught.value) == use["error"]


def test_the_answer_of_another_server() -> None:
    for use in vectors("answers.json"):
        calls: Dict[str, Callable[[Client], object]] = {"run": lambda c: c.run("1"), "events": lambda c: list(c.follow("exe_1"))}
        if (use["status"], use["type"]) != (200, "text/plain"):
            calls["batch"] = lambda c: c.run_batch("1", cases=[{}])
        if use["status"] != 200 or use["type"] == "text/html":
            calls["artifact"] = lambda c: c.artifact("exe_1", "a")
        headers = {"Content-Type": use["type"]} if use["type"] else {}
        if "location" in use:
            headers["Location"] = use["location"]
        for name, call in calls.items():
            given = Script(httpx.Response(use["status"], headers=headers, content=use["body"].encode()))
            with Client("http://u:s3cret@box.lan", transport=given, retry=ONCE) as client, pytest.raises(ExecutorError) as caught:
                call(client)
            error = caught.value
            wanted = (use["error"].replace("SERVER", "http://box.lan"), use["code"], use["status"])
            assert (str(error), error.code, error.status) == wanted, name


def session(client: Client) -> Session:
    return Session(client, SessionInfo(session_id="ctx-1"))


CLIENT = "http://127.0.0.1:1"
ARGUMENTS: List[Any] = [
    # Client
    (lambda c: Client(5), "server: must be a URL as http://127.0.0.1:8080 (got int)"),
    (lambda c: Client(CLIENT, timeot=5), "timeot: unknown option (did you mean idle_timeout?; the limit of a program is timeout_seconds of run)"),
    (lambda c: Client(base_url=CLIENT), "base_url: unknown option (did you mean server?)"),
    (lambda c: Client(CLIENT, api_key="x"), "api_key: unknown option (did you mean token?)"),
    (lambda c: Client(CLIENT, zzz=1), "zzz: unknown option (must be one of server, token, retry, on_retry, idle_timeout, headers, transport)"),
    (lambda c: Client(CLIENT, retry=3), "retry: must be a RetryPolicy (got int)"),
    (lambda c: Client(CLIENT, headers=["a"]), "headers: must be a dict (got list)"),
    (lambda c: Client(CLIENT, "s3cret\n"), "token: must be visible ASCII characters (character 7 is white space or a control character)"),
    (lambda c: Client(CLIENT, "s3crét"), "token: must be visible ASCII characters (character 5 is a character that is not ASCII)"),
    (lambda c: Client(CLIENT, 5), "token: must be a str (got int)"),
    (lambda c: Client(CLIENT, on_retry=5), "on_retry: must be a function (got int)"),
    # run
    (lambda c: c.run("1", on_event=5), "on_event: must be a function (got int)"),
    (lambda c: c.run("1", timeout=5), "timeout: unknown option (did you mean timeout_seconds?)"),
    (lambda c: c.run("1", cpu=5), "cpu: unknown option (did you mean cpu_seconds?)"),
    (lambda c: c.run("1", env_vars={}), "env_vars: unknown option (did you mean env?)"),
    (lambda c: c.run("1", dir="x"), "dir: unknown option (did you mean directory?)"),
    (lambda c: local(start_timeout=3), "start_timeout: unknown option (did you mean start_timeout_seconds?)"),
    (lambda c: local(timeot=3), "timeot: unknown option (must be one of binary, config, data_dir, start_timeout_seconds)"),
    (lambda c: local_async(bin="x"), "bin: unknown option (did you mean binary?)"),
    (lambda c: local("x"), "local: must get at most 0 arguments without a name (got 1): binary=, config=, data_dir= … take the others"),
    (lambda c: c.run("1", memory=5), "memory: unknown option (did you mean memory_mb?)"),
    (lambda c: c.run("1", on_evnt=print), "on_evnt: unknown option (did you mean on_event?)"),
    (lambda c: c.run("1", input="x"), "input: unknown option (did you mean stdin?)"),
    (lambda c: c.run("1", "2"), "run: must get at most 1 arguments without a name (got 2): files=, directory=, tar= … take the others"),
    (lambda c: c.run(), "code: must be given, unless files, directory, tar, script or command is"),
    (lambda c: c.run(HERE), f"code: must be text (got {type(HERE).__name__}): a file is sent with files=[path]"),
    (lambda c: c.run(str(HERE)), f"code: must be the text of a program ({str(HERE)!r} is the path of a file: files=[{str(HERE)!r}] sends and runs it)"),
    (lambda c: c.submit(f"{HERE}\n"), f"code: must be the text of a program ({str(HERE)!r} is the path of a file: files=[{str(HERE)!r}] sends and runs it)"),
    (
        lambda c: Session(c, SessionInfo(session_id="ctx-1", language="python")).run(str(HERE)),
        f"code: must be the text of a program ({str(HERE)!r} is the path of a file: Path({str(HERE)!r}).read_text() is its text)",
    ),
    (lambda c: c.run(b"1"), "code: must be text (got bytes): decode it"),
    (lambda c: c.run(print), "code: must be text (got builtin_function_or_method): the decorator remote runs a function"),
    (lambda c: c.run("print('\ud83d')"), "code: must be text that UTF-8 can encode"),
    (lambda c: c.run("1", timeout_seconds=float("nan")), "config.timeout_seconds: must be a finite number (got nan)"),
    (lambda c: c.run("1", env={"A": "\udc80"}), "env.A: must be text that UTF-8 can encode"),
    (lambda c: c.run("1", network="no"), "network: must be True or False (got 'no')"),
    (lambda c: c.run("1", requirements=5), "requirements: must be a text or a list of texts (got int)"),
    (lambda c: c.run("1", requirements=[5]), "requirements: must be a text or a list of texts"),
    (lambda c: c.run("1", requirements={"six": "1"}), "requirements: must be a text or a list of texts (got dict)"),
    (lambda c: c.run("1", artifacts_to=HERE), f"artifacts_to: {HERE}: must be a folder (got a file)"),
    (lambda c: c.run("1", stdout=5), "stdout: must be a function or a file"),
    (lambda c: c.run(files={"main.py": 5}), "files: 'main.py' must be text, bytes or a path object (got int)"),
    (lambda c: c.run(files={"main.py": "\ud83d"}), "files: 'main.py' must be text that UTF-8 can encode"),
    (lambda c: c.run(files="main.py"), "files: must be a list of paths, or a dict of names and contents"),
    (lambda c: c.run(files=["nope.py"]), "files: nope.py must be a regular file"),
    (lambda c: c.run(directory="nope"), "directory: nope: must be a folder"),
    (lambda c: c.run(tar="nope.tar"), "tar: 'nope.tar': No such file or directory (a str is the path of a local file)"),
    (lambda c: c.run(tar=HERE.parent), f"tar: {str(HERE.parent)!r}: must be a file (got a folder): run sends one with directory="),
    (lambda c: c.run("1", stdin=5), "stdin: must be a path, bytes or a binary file (got int)"),
    (lambda c: c.run("1", stdin=io.StringIO("x")), 'stdin: must be opened in binary mode: open(path, "rb")'),
    # run_batch
    (lambda c: c.run_batch("1", cases={"stdin": "1"}), 'cases: must be a list of dicts, [{"stdin": "1"}] (got dict)'),
    (lambda c: c.run_batch("1", cases=["1"]), 'cases[0]: must be a dict, {"stdin": "1"} (got str)'),
    (lambda c: c.run_batch("1", cases=[{}, {"stdin": b"1"}]), "cases[1].stdin: must be text (got bytes): decode it"),
    (lambda c: c.run_batch("1", cases=[{}], on_cases=print), "on_cases: unknown option (did you mean on_case?)"),
    (lambda c: c.run_batch("1", cases=[{}], on_case=[]), "on_case: must be a function (got list)"),
    # Executions
    (lambda c: c.artifacts_to("exe_1", HERE), f"folder: {HERE}: must be a folder (got a file)"),
    (lambda c: c.get(5), "execution: must be given by its id, a str (got int)"),
    (lambda c: c.get(""), 'no execution has the id ""'),
    (lambda c: c.session(5), "session: must be given by its id, a str (got int)"),
    (lambda c: c.list_page(limt=1), "limt: unknown option (did you mean limit?)"),
    (lambda c: c.logs("exe_1", folow=True), "folow: unknown option (did you mean follow?)"),
    (lambda c: c.artifact("exe_1", "/x"), 'path: must be relative, without empty segments, . and .. (got "/x")'),
    (lambda c: c.artifact("exe_1", 5), "path: must be a str or a path object (got int)"),
    # Sessions
    (lambda c: c.open_session(packages=["six"]), "packages: unknown option (did you mean requirements?)"),
    (lambda c: session(c).upload("d.csv", b"a,b\n"), "content: must be given before the path: upload(content, 'd.csv')"),
    (lambda c: session(c).upload("d.csv", "a,b\n1,2\n"), "content: must be given before the path: upload(content, 'd.csv')"),
    (lambda c: session(c).upload("d.csv", io.BytesIO()), "content: must be given before the path: upload(content, 'd.csv')"),
    (
        lambda c: session(c).upload("a,b\n", "d.csv"),
        "content: 'a,b\\n': No such file or directory (a str is the path of a local file; a text is sent as bytes: \"…\".encode())",
    ),
    (lambda c: session(c).upload(HERE.parent), f"content: {str(HERE.parent)!r}: must be a file (got a folder): give its files one by one"),
    (lambda c: session(c).upload(b"x"), 'path: must be given, because only a path has a name: upload(content, "data.csv")'),
    (lambda c: session(c).upload(5, "a"), "content: must be a path, bytes or a binary file (got int)"),
    (lambda c: session(c).upload({"a": "b"}, "a"), "content: must be a path, bytes or a binary file (got dict)"),
    (lambda c: session(c).upload(["a"], "a"), "content: must have pieces of bytes (got str)"),
    (lambda c: session(c).upload(io.StringIO("x"), "a"), 'content: must be opened in binary mode: open(path, "rb")'),
    (lambda c: session(c).upload(b"x", "../x"), 'path: must be relative, without empty segments, . and .. (got "../x")'),
    (lambda c: session(c).download_to("a", HERE.parent), f"file: {HERE.parent}: must be a file (got a folder): give the name, too"),
    (lambda c: session(c).install(), 'requirements: must be given: install("numpy")'),
    (lambda c: session(c).run("1", timeot=1), "timeot: unknown option (did you mean timeout_seconds?)"),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS, ids=[message[:60] for _, message in ARGUMENTS])
def test_wrong_arguments(call: Callable[[Client], object], message: str) -> None:
    with Client(CLIENT, transport=Script()) as client, pytest.raises((ExecutorError, TypeError)) as caught:
        call(client)
    assert str(caught.value) == message


def test_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYEXEC_SERVER", "127.0.0.1:8080")
    monkeypatch.setenv("PYEXEC_TOKEN", "s3cret\n")
    for arguments, message in (
        ({}, 'PYEXEC_SERVER: must begin with http:// or https://: did you mean http://127.0.0.1:8080? (got "127.0.0.1:8080")'),
        ({"server": CLIENT}, "PYEXEC_TOKEN: must be visible ASCII characters (character 7 is white space or a control character)"),
    ):
        with pytest.raises(InvalidError) as caught:
            Client(**arguments)
        assert str(caught.value) == message
    monkeypatch.setenv("http_proxy", "proxy.test:3128")  # as Go and curl take it
    Client("http://box.lan", "t").close()


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_failures_of_the_connection() -> None:
    plain = ssl.SSLError(1, "wrong version number")
    plain.reason = "WRONG_VERSION_NUMBER"
    for error, message in (
        (caused(httpx.ConnectError("[Errno 111] Connection refused"), ConnectionRefusedError()), "connection refused: is the server running there? python-executor serve starts one"),
        (caused(httpx.ConnectError("x"), socket.gaierror()), "the name box.lan is not known: is it right?"),
        (caused(httpx.ConnectError("x"), plain), "no TLS is spoken there: does its URL begin with http://?"),
        (httpx.ConnectTimeout(""), "no connection within 10 s: is the server running there? python-executor serve starts one"),
        (httpx.ReadTimeout(""), "nothing came for 60 s"),
        (httpx.ProxyError("refused"), "the proxy of the environment was not reached: refused: is HTTP_PROXY or HTTPS_PROXY right, and has NO_PROXY this host?"),
        (httpx.ReadError("reset"), "reset"),
    ):
        with Client("http://u:s3cret@box.lan", transport=Script(error), retry=ONCE) as client, pytest.raises(UnavailableError) as caught:
            client.health()
        assert str(caught.value) == f"http://box.lan: {message}"


def test_a_printed_value_is_short() -> None:
    long = Execution("exe_1", status="failed", exit_code=3, stdout="é" * 500, stderr="no", artifacts=[Artifact(name) for name in "abcdef"])
    long.displays = [DisplayData({"text/plain": "7", "image/png": b"x" * 9000})]
    for value, text in (
        (Execution("exe_1", status="succeeded", exit_code=0, stdout="42\n"), 'Execution(exe_1, succeeded, stdout="42\\n")'),
        (
            long,
            f'Execution(exe_1, failed, exit code 3, stdout="{"é" * 80}"… (500 characters), stderr="no", '
            "displays=[text/plain image/png], artifacts=[a b c d e and 1 more])",
        ),
        (Execution("exe_1", status="killed", signal="SIGKILL", error=Failure(message="no memory")), 'Execution(exe_1, killed, SIGKILL, error="no memory")'),
        (SessionInfo("ctx-1", "mine", language="python", status="active"), "SessionInfo(ctx-1, mine, python, active)"),
        (CaseResult(id="a", verdict="wrong_output", detail="2 is not 3"), 'CaseResult(a, wrong_output, "2 is not 3")'),
        (CaseResult(7, verdict="passed"), "CaseResult(7, passed)"),
        (BatchSummary(2, 1, duration_seconds=0.5), "BatchSummary(1 of 2 passed, 0.5 s)"),
        (Page([long], "exe_1"), "Page(1 executions, next=exe_1)"),
        (long.displays[0], 'DisplayData(text/plain="7", image/png of 9000 bytes)'),
        (Backend("uv", "uv", message="no python"), "Backend(uv, not healthy: no python)"),
    ):
        assert str(value) == repr(value) == text
    failed = Execution("exe_1", status="failed", exit_code=1, stderr="Traceback\nModuleNotFoundError: six\n", hint="name it")
    assert failed.summary() == "execution exe_1 failed with exit code 1: ModuleNotFoundError: six (name it)"


def test_a_batch_without_a_function_returns_its_cases() -> None:
    records: List[Dict[str, Any]] = [
        {"index": 1, "verdict": "failed"},
        {"index": 0, "verdict": "passed", "result": {"stdout": "1\n"}},
        {"summary": {"cases": 2, "passed": 1}},
    ]
    lines = "".join(json.dumps(r) + "\n" for r in records).encode()
    with Client(CLIENT, transport=Script(httpx.Response(200, stream=Stream([lines])))) as client:
        summary = client.run_batch("1", cases=[{}, {}])
    assert [case.verdict for case in summary.results] == ["passed", "failed"]
    assert summary.results[0].result is not None and summary.results[0].result.stdout == "1\n"
