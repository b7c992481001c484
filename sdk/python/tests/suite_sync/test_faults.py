# Written by tools/unasync.py from tests/suite_async/test_faults.py. Do not edit.
"""Broken connections, full servers and answers of newer servers, from a scripted transport."""

from __future__ import annotations

import json
from typing import List

import httpx
import pytest
from helpers import QUICK, Script, Stream, events, message, problem

from python_executor import (
    Client,
    CaseResult,
    ConflictError,
    Event,
    ExecutorError,
    ExhaustedError,
    Finished,
    InternalError,
    NotFoundError,
    Output,
    PurgedError,
    Retry,
    RetryPolicy,
    UnavailableError,
    UnknownEvent,
)

URL = "http://server.test"
DONE = {"execution_id": "exe_1", "status": "succeeded", "stdout": "42\n"}
OUT = {"stream": "stdout", "offset": 0, "data": "a"}


def connect(script: Script, retry: RetryPolicy = QUICK) -> Client:
    """Return a client of a scripted server."""
    return Client(URL, "secret", transport=script, retry=retry)


def test_a_full_server_is_asked_again_with_the_same_key() -> None:
    script = Script(
        problem(503, "unavailable", headers={"Retry-After": "1"}),
        problem(429, "exhausted"),
        httpx.ConnectError("refused"),
        httpx.Response(200, json=DONE),
    )
    retries: List[Retry] = []
    with Client(URL, transport=script, retry=QUICK, on_retry=retries.append) as client:
        assert (client.run("print(42)", stdin=b"x")).stdout == "42\n"
    assert len({r.content.split(b'"idempotency_key":"')[1][:32] for r in script.requests}) == 1
    assert [(r.operation, r.attempt) for r in retries] == [("run", 1), ("run", 2), ("run", 3)]
    assert all(r.delay <= 0.002 for r in retries)  # max_delay bounds Retry-After, too


def test_attempts_are_bounded() -> None:
    script = Script(*[problem(503, "unavailable", "down") for _ in range(4)])
    with connect(script) as client:
        with pytest.raises(UnavailableError, match="down"):
            client.get("exe_1")
    assert script.answers == []


def test_what_could_run_twice_is_not_repeated() -> None:
    for operation in ("interrupt", "restart", "open"):
        opened = httpx.Response(201, json={"session_id": "ctx-1"})
        down = problem(503, "unavailable")
        script = Script(down) if operation == "open" else Script(opened, down)
        with connect(script) as client:
            with pytest.raises(UnavailableError):
                session = client.open_session()
                (session.interrupt() if operation == "interrupt" else session.restart())
        assert script.answers == []


def test_a_stream_that_was_read_is_not_sent_again() -> None:
    script = Script(problem(503, "unavailable"), httpx.Response(200, json=DONE))
    with connect(script) as client:
        with pytest.raises(UnavailableError):
            client.run(tar=iter([b"once"]))
        assert (client.run(tar=[b"again", b"and again"])).succeeded
    assert b"againand again" in script.requests[-1].content


def test_an_execution_that_a_broken_connection_killed_is_no_result() -> None:
    killed = httpx.Response(200, json={"execution_id": "exe_1", "status": "killed"})
    with connect(Script(httpx.ReadError("reset"), killed)) as client:
        with pytest.raises(UnavailableError, match="connection broke") as caught:
            client.run("1")
        assert caught.value.execution_id == "exe_1"
    with connect(Script(httpx.ReadError("reset"), httpx.Response(200, json=DONE))) as client:
        assert (client.run("1")).succeeded
    with connect(Script(httpx.ConnectError("refused"), httpx.Response(200, json={"execution_id": "exe_1", "status": "killed"}))) as client:
        assert (client.run("1")).status == "killed"  # by somebody else


def test_a_broken_stream_is_resumed_behind_the_last_event() -> None:
    script = Script(
        events(message(1, "queued", {"position": 0}), message(2, "output", OUT)[:20], error=httpx.ReadError("reset")),
        httpx.ConnectError("refused"),
        events(b": beat\n\n", message(1, "queued", {}), message(2, "output", OUT), error=httpx.ReadTimeout("silent")),
        problem(503, "unavailable", headers={"Retry-After": "1"}),
        events(message(3, "finished", DONE)),
    )
    with connect(script) as client:
        seen = [event for event in client.follow("exe_1")]
    assert [e.seq for e in seen] == [1, 2, 3]
    assert isinstance(seen[1], Output) and seen[1].data == b"a"
    assert [r.headers.get("Last-Event-ID") for r in script.requests] == [None, "1", "1", "2", "2"]


def test_an_event_begins_the_count_of_attempts_anew() -> None:
    broken = [events(message(n, "output", OUT), error=httpx.ReadError("reset")) for n in (1, 2, 3)]
    with connect(Script(*broken, events(message(4, "finished", DONE))), RetryPolicy(follow_attempts=2, min_delay=0.001)) as client:
        assert [event.seq for event in client.follow("exe_1")] == [1, 2, 3, 4]


def test_a_stream_without_an_event_is_given_up() -> None:
    script = Script(*[httpx.ConnectError("refused") for _ in range(3)])
    with connect(script, RetryPolicy(follow_attempts=3, min_delay=0.001, max_delay=0.002)) as client:
        stream = client.follow("exe_1")
        with pytest.raises(UnavailableError):
            stream.__next__()
        with pytest.raises(StopIteration):
            stream.__next__()
    assert script.answers == []


def test_a_gap_in_the_stream_is_no_event() -> None:
    script = Script(events(message(1, "queued", {}), message(3, "finished", DONE)), events(message(2, "output", OUT), message(3, "finished", DONE)))
    with connect(script) as client:
        assert [event.seq for event in client.follow("exe_1")] == [1, 2, 3]


def test_a_stream_behind_the_end_is_empty() -> None:
    script = Script(events(), httpx.Response(200, json=DONE), events())
    with connect(script) as client:
        assert [event for event in client.follow("exe_1", after=9)] == []


def test_a_stream_of_an_ended_execution_comes_to_its_end() -> None:
    ended = httpx.Response(200, json=DONE)
    script = Script(events(), ended, events(message(1, "queued", {})), events(), ended, events(message(2, "finished", DONE)))
    with connect(script, RetryPolicy(min_delay=0.001)) as client:
        assert [event.seq for event in client.follow("exe_1")] == [1, 2]


def test_a_stream_that_is_purged_or_missing_says_so() -> None:
    with connect(Script(problem(410, "purged", "gone"), problem(404, "not_found"))) as client:
        with pytest.raises(PurgedError, match="gone"):
            client.follow("exe_1").__next__()
        with pytest.raises(NotFoundError):
            client.wait("exe_1")


def test_an_event_that_cannot_be_read_is_no_silence() -> None:
    with connect(Script(events(message(1, "output", {"stream": "stdout", "offset": 0, "data_base64": "x"})))) as client:
        with pytest.raises(InternalError, match="event 1 cannot be read"):
            client.follow("exe_1").__next__()


def test_a_newer_server_breaks_nothing() -> None:
    new = {**DONE, "status": "hibernated", "mood": "good", "artifacts": [{"path": "a", "colour": "red"}], "phases": None}
    script = Script(
        events(message(1, "sang", {"song": "la"}), message(2, "output", {**OUT, "mood": 1}), message(3, "finished", new)),
        httpx.Response(200, json=new),
        problem(418, "tired", "no tea"),
        problem(507, "full_disk", "no space"),
    )
    with connect(script) as client:
        seen: List[Event] = [event for event in client.follow("exe_1")]
        unknown = seen[0]
        assert isinstance(unknown, UnknownEvent) and unknown.kind == "sang" and unknown.raw == {"song": "la"}
        assert isinstance(seen[2], Finished) and seen[2].execution.status == "hibernated"
        execution = client.get("exe_1")
        assert execution.finished and execution.raw["mood"] == "good" and execution.artifacts[0].path == "a"
        with pytest.raises(ExecutorError, match="no tea") as caught:
            client.get("exe_1")
        assert caught.value.code == "tired"
        with pytest.raises(InternalError, match="no space"):
            client.get("exe_1")


def test_a_code_counts_more_than_its_status() -> None:
    script = Script(httpx.Response(429), problem(422, "conflict"))
    with connect(script, RetryPolicy(attempts=1)) as client:
        with pytest.raises(ExhaustedError):
            client.get("exe_1")
        with pytest.raises(ConflictError):  # the code counts, not the status
            client.get("exe_1")


def test_a_body_that_breaks_is_asked_for_again() -> None:
    broken = httpx.Response(200, stream=Stream([b'{"exec'], httpx.RemoteProtocolError("cut")))
    with connect(Script(broken, httpx.Response(200, json=DONE))) as client:
        assert (client.get("exe_1")).stdout == "42\n"


def test_options_become_the_metadata() -> None:
    script = Script(httpx.Response(202, json={"execution_id": "exe_1"}))
    with connect(script) as client:
        client.submit(
            "1", requirements=["idna", "six"], network=True, timeout_seconds=0, outputs=("a", "b"), idempotency_key="k", python_version=None  # type: ignore
        )
    assert json.loads(script.requests[0].content) == {
        "code": "1",
        "requirements_txt": "idna\nsix\n",
        "outputs": ["a", "b"],
        "idempotency_key": "k",
        "config": {"network_disabled": False, "timeout_seconds": 0},
    }
    assert script.requests[0].headers["Authorization"] == "Bearer secret"
    assert script.requests[0].headers["User-Agent"].startswith("python-executor-client/")


def test_the_error_of_a_block_is_not_hidden_by_the_end_of_its_session() -> None:
    opened, down = httpx.Response(201, json={"session_id": "ctx-1"}), [problem(503, "unavailable") for _ in range(4)]
    with connect(Script(opened, *down)) as client:
        with pytest.raises(KeyError):
            with client.open_session():
                raise KeyError
    with connect(Script(opened, *down)) as client:
        with pytest.raises(UnavailableError):
            with client.open_session():
                pass


def test_a_script_of_the_host_is_named() -> None:
    script = Script(httpx.Response(200, json=DONE))
    with connect(script) as client:
        client.run(script="nightly/backup.sh", args=["--quick"])
    sent = script.bodies()[0]
    assert (sent["script"], sent["args"]) == ("nightly/backup.sh", ["--quick"])


def test_progress_reports_the_whole_body() -> None:
    script = Script(httpx.Response(200, json=DONE), httpx.Response(200, json=DONE))
    seen: List[object] = []
    with connect(script) as client:
        client.run(tar=bytes(1 << 20), progress=lambda done, total: seen.append((done, total)))
        length = int(script.requests[0].headers["Content-Length"])
        assert len(seen) >= 4 and seen[-1] == (length, length)
        client.run(tar=iter([b"a"]), progress=lambda done, total: seen.append(total))
        assert seen[-1] is None and "Content-Length" not in script.requests[1].headers


def test_a_list_reads_page_after_page() -> None:
    pages = [{"executions": [{"execution_id": "exe_2"}], "next": "exe_2"}, {"executions": [{"execution_id": "exe_1"}], "next": None}]
    script = Script(*[httpx.Response(200, json=p) for p in pages])
    with connect(script) as client:
        assert [e.execution_id for e in client.list(status="succeeded")] == ["exe_2", "exe_1"]
    assert [str(r.url.query, "ascii") for r in script.requests] == ["status=succeeded", "status=succeeded&after=exe_2"]


PASSED = b'{"index":0,"id":"a","verdict":"passed","detail":null,"error":null,"result":{"execution_id":"exe_1","stdout":"1\\n"}}\n'
REFUSED = b'{"index":1,"verdict":"refused","detail":"full","error":{"code":"unavailable","message":"full"},"result":null}\n'
SUMMARY = b'{"summary":{"cases":2,"passed":1,"verdicts":{"passed":1,"refused":1},"duration_seconds":0.5}}\n'


def test_a_batch_is_read_in_any_pieces() -> None:
    answer = b"\n" + PASSED + b"\n" + REFUSED + SUMMARY
    for size in (1, 7, len(answer)):
        stream = Stream([answer[i : i + size] for i in range(0, len(answer), size)])
        script = Script(problem(429, "exhausted"), httpx.Response(200, stream=stream))
        seen: List[CaseResult] = []
        with connect(script) as client:
            summary = client.run_batch(
                "print(input())", cases=[{"id": "a", "stdin": "1"}, {}], on_case=seen.append, parallel=2, stop_at_first_failure=True
            )
        assert (summary.cases, summary.passed, summary.verdicts["refused"]) == (2, 1, 1)
        assert [(c.index, c.id, c.passed) for c in seen] == [(0, "a", True), (1, None, False)]
        assert seen[0].result is not None and seen[0].result.stdout == "1\n"
        assert seen[1].error is not None and seen[1].error.message == "full" and seen[1].result is None
        first, again = script.bodies()
        assert first == again
        assert first["cases"] == [{"id": "a", "stdin": "1"}, {}]
        assert (first["parallel"], first["stop_at_first_failure"], first["code"]) == (2, True, "print(input())")
        assert stream.closed


def test_a_batch_that_is_cut_off_is_an_error_and_not_repeated() -> None:
    for stream in (Stream([PASSED]), Stream([PASSED], httpx.ReadTimeout("silent")), Stream([PASSED[:20] + b"\n"])):
        script = Script(httpx.Response(200, stream=stream))
        with connect(script) as client:
            with pytest.raises(UnavailableError):
                client.run_batch("x", cases=[{}], on_case=lambda _: None)
        assert [r.extensions["timeout"]["read"] for r in script.requests] == [45.0]  # a silent server is left
        assert stream.closed


def test_an_error_of_the_caller_ends_a_batch() -> None:
    stream = Stream([PASSED, REFUSED, SUMMARY])

    def fail(_: CaseResult) -> None:
        raise ValueError("mine")

    with connect(Script(httpx.Response(200, stream=stream))) as client:
        with pytest.raises(ValueError, match="mine"):
            client.run_batch("x", cases=[{}, {}], on_case=fail)
    assert stream.closed
