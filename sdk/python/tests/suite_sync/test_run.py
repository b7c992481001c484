# Written by tools/unasync.py from tests/suite_async/test_run.py. Do not edit.
"""Executions on a real server."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import List

import pytest
from helpers import TOKEN, Server

from python_executor import (
    Client,
    CaseResult,
    ConflictError,
    Event,
    Finished,
    InvalidError,
    NotFoundError,
    Output,
    ProgramError,
    Started,
    UnauthenticatedError,
    UnimplementedError,
)


def a_tar(**files: str) -> bytes:
    """Return a tar of files, each with a name that ends in .py."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{name}.py")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_code_runs_and_its_output_comes_back(server: Server) -> None:
    with Client() as client:
        execution = client.run("import sys; print(6 * 7); print('é', file=sys.stderr)")
        assert (execution.stdout, execution.stderr) == ("42\n", "é\n")
        assert execution.succeeded and execution.finished and execution.exit_code == 0
        assert execution.check() is execution
        assert execution.created_at is not None and execution.created_at.tzinfo is not None


def test_a_program_that_fails_is_no_error(server: Server) -> None:
    with Client() as client:
        execution = client.run("raise SystemExit(3)")
        assert (execution.status, execution.exit_code) == ("failed", 3)
        with pytest.raises(ProgramError, match="failed with exit code 3") as caught:
            execution.check()
        assert caught.value.execution is execution


def test_files_are_sent_by_path_and_by_content(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "data.bin").write_bytes(b"\xff" * 3)
    (tmp_path / "start.py").write_text("print(len(open('lib/data.bin', 'rb').read()))")
    monkeypatch.chdir(tmp_path)
    with Client() as client:
        by_path = client.run(files=["start.py", "lib/data.bin"])
        assert by_path.stdout == "3\n"
        content = {"main.py": "print(open('a').read(), len(open('b', 'rb').read()))", "a": b"text", "b": tmp_path / "lib" / "data.bin"}
        by_content = client.run(files=content)
        assert by_content.stdout == "text 3\n"
        with_code = client.run("print(open('a').read())", files={"a": "beside"})
        assert with_code.stdout == "beside\n"


def test_a_folder_is_sent_without_what_git_ignores(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("*.secret\n")
    (folder / "a.secret").write_text("")
    (folder / "sub" / "b").write_text("")
    (folder / "main.py").write_text("import os; print(sorted(f for _, _, fs in os.walk('.') for f in fs)); open('made', 'w')")
    with Client() as client:
        for _ in range(2):  # the artifacts of the first run are not sent with the second
            execution = client.run(directory=folder, artifacts_to=folder / "made here")
            assert execution.stdout == "['.gitignore', 'b', 'main.py']\n"
        assert (folder / "made here" / "made").exists()
        assert "a.secret" in (client.run(directory=folder, include_all=True)).stdout
        (folder / "out").symlink_to(tmp_path)
        with pytest.raises(InvalidError, match="directory: .*leaves the folder"):
            client.run(directory=folder)


@pytest.mark.parametrize("form", ["bytes", "path", "file", "pieces"])
def test_a_tar_is_sent_in_any_form(server: Server, tmp_path: Path, form: str) -> None:
    data = a_tar(main="print('tar')")
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    with Client() as client:
        with open(path, "rb") as file:
            forms = {"bytes": data, "path": path, "file": file, "pieces": iter([data[:700], data[700:]])}
            assert (client.run(tar=forms[form])).stdout == "tar\n"


def test_a_tar_is_searched_for_requirements_like_a_folder(server: Server) -> None:
    wrong = a_tar(main="# /// script\n# dependencies = [\n# ///\nprint('not searched')")
    with Client() as client:
        with pytest.raises(InvalidError, match="main.py: script metadata"):
            client.run(tar=wrong)
        assert (client.run(tar=wrong, detect=False)).stdout == "not searched\n"
        assert (client.run(tar=wrong, requirements="# those of the request win")).stdout == "not searched\n"


def test_standard_input_is_text_or_bytes(server: Server) -> None:
    code = "import sys; print(sys.stdin.buffer.read())"
    with Client() as client:
        assert (client.run(code, stdin="é")).stdout == "b'\\xc3\\xa9'\n"
        assert (client.run(code, stdin=b"\xff")).stdout == "b'\\xff'\n"
        assert (client.run(code, stdin=io.BytesIO(b"\x00"))).stdout == "b'\\x00'\n"


def test_output_comes_live_to_functions_and_files(server: Server) -> None:
    code = (
        "import sys, time\n"
        "for b in 'aé€'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.buffer.flush(); time.sleep(0.01)\n"
        "print('err', file=sys.stderr)"
    )
    pieces: List[str] = []
    seen: List[Event] = []
    binary, text = io.BytesIO(), io.StringIO()
    with Client() as client:
        execution = client.run(code, stdout=pieces.append, stderr=text, on_event=seen.append)
        client.run(code, stdout=binary)
    assert "".join(pieces) == "aé€" == execution.stdout
    assert text.getvalue() == "err\n"
    assert binary.getvalue() == "aé€".encode()
    assert [e.seq for e in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[-1], Finished) and any(isinstance(e, Started) for e in seen)


def test_an_exception_of_a_callback_kills_the_execution(server: Server) -> None:
    seen: List[str] = []

    def stop(event: Event) -> None:
        if isinstance(event, Output):
            raise KeyError("enough")

    with Client() as client:
        with pytest.raises(KeyError, match="enough"):
            client.run("print('one', flush=True)\nimport time\ntime.sleep(600)", on_event=stop, stdout=seen.append, idempotency_key="callback-Client")
        page = client.list_page(limit=1)
        assert page.executions[0].status == "killed"


def test_artifacts_come_to_a_folder_or_as_bytes(server: Server, tmp_path: Path) -> None:
    code = "import os\nos.makedirs('out/deep')\nopen('out/deep/a b.txt', 'w').write('x')\nopen('run.sh', 'w').write('y')\nos.chmod('run.sh', 0o755)"
    with Client() as client:
        execution = client.run(code, artifacts_to=tmp_path / "saved")
        assert sorted(a.path for a in execution.artifacts) == ["out/deep/a b.txt", "run.sh"]
        assert (tmp_path / "saved" / "out" / "deep" / "a b.txt").read_text() == "x"
        assert (tmp_path / "saved" / "run.sh").stat().st_mode & 0o100
        assert client.artifacts(execution) == {"out/deep/a b.txt": b"x", "run.sh": b"y"}
        assert client.artifact(execution, "out/deep/a b.txt") == b"x"
        client.artifact_to(execution, "run.sh", tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == b"y"
        kept = client.run(code, outputs=["*.sh"])
        assert [a.path for a in kept.artifacts] == ["run.sh"]


def test_an_execution_is_submitted_followed_and_listed(server: Server) -> None:
    with Client() as client:
        execution_id = client.submit("print('one', flush=True); print('two')")
        seen = [event for event in client.follow(execution_id)]
        assert b"".join(e.data for e in seen if isinstance(e, Output)) == b"one\ntwo\n"
        later = [event for event in client.follow(execution_id, after=2)]
        assert later == seen[2:]
        assert [event for event in client.follow(execution_id, after=seen[-1].seq)] == []
        finished = client.wait(execution_id)
        assert finished.stdout == "one\ntwo\n"
        assert b"".join([piece for piece in client.logs(execution_id, stream="stdout")]) == b"one\ntwo\n"
        assert execution_id in [e.execution_id for e in client.list(status=["succeeded", "failed"])]


def test_a_stream_may_be_left_early(server: Server) -> None:
    with Client() as client:
        execution_id = client.submit("import time; print('go', flush=True); time.sleep(600)")
        with client.follow(execution_id) as events:
            for event in events:
                if isinstance(event, Output):
                    break
        assert (client.get(execution_id)).status == "running"
        assert client.cancel(execution_id) == "killed"
        assert client.cancel(execution_id) == "killed"
        assert (client.wait(execution_id)).status == "killed"


def test_limits_and_options_reach_the_server(server: Server) -> None:
    with Client() as client:
        late = client.run("import time; time.sleep(600)", timeout_seconds=0.5)
        assert late.status == "timed_out"
        with pytest.raises(InvalidError) as caught:
            client.run("1", memory_mb=-1)
        assert [f.field for f in caught.value.fields] == ["config.memory_mb"]
        with pytest.raises(TypeError, match="memory_md: unknown option .did you mean memory_mb"):
            client.run("1", **{"memory_md": 1})  # pyright: ignore
        ran = client.run(command=["sh", "-c", "echo $K $0"], args=["a"], env={"K": "v"})
        assert ran.stdout == "v a\n"


def test_a_key_names_one_execution(server: Server) -> None:
    with Client() as client:
        first = client.run("print(1)", idempotency_key="one-Client")
        again = client.run("print(1)", idempotency_key="one-Client")
        assert again.execution_id == first.execution_id
        with pytest.raises(ConflictError):
            client.run("print(2)", idempotency_key="one-Client")
        ids = {(client.run("print(1)")).execution_id for _ in range(2)}
        assert len(ids) == 2


def test_errors_have_the_class_of_their_code(server: Server) -> None:
    with Client() as client:
        with pytest.raises(NotFoundError) as caught:
            client.get("exe_00000000000000000000000000")
        assert caught.value.status == 404 and caught.value.request_id
        with pytest.raises(NotFoundError):
            client.get("..")
        with pytest.raises(UnimplementedError):
            client.run("1", docker_image="alpine:3")
        with pytest.raises(InvalidError):
            client.artifact("exe_00000000000000000000000000", "../x")
        with pytest.raises(InvalidError, match="files"):
            client.run(files=["no such file.py"])
        with pytest.raises(InvalidError, match="together"):
            client.run(files={"a": "b"}, tar=b"")
        with pytest.raises(InvalidError, match="code"):
            client.run()
        with pytest.raises(InvalidError) as broken:
            client.run(tar=b"no tar" * 200, entrypoint="main.py")
        assert broken.value.execution_id.startswith("exe_")
    with Client(token="wrong") as stranger:
        assert (stranger.health()).ok
        with pytest.raises(UnauthenticatedError):
            stranger.run("1")


def test_a_refusal_of_a_large_upload_is_told_before_it_is_sent(server: Server) -> None:
    sent: List[int] = []
    upload = [bytes(1 << 20)] * 200
    with Client(token="wrong") as stranger:
        with pytest.raises(UnauthenticatedError):
            stranger.run(tar=upload, progress=lambda done, total: sent.append(done))
    assert sent == []
    with Client() as client:
        with pytest.raises(InvalidError) as caught:
            client.run(tar=upload, memory_mb=-1)
        assert [f.field for f in caught.value.fields] == ["config.memory_mb"]
        with pytest.raises(InvalidError) as broken:
            client.run(tar=[b"no tar" * 1000] * 20000, entrypoint="main.py")
        assert broken.value.execution_id.startswith("exe_")


@pytest.mark.parametrize("form", ["files", "directory", "tar", "stdin"])
def test_a_batch_is_answered_while_its_upload_has_a_connection_of_its_own(server: Server, tmp_path: Path, form: str) -> None:
    program = "import sys; print(sys.stdin.read() + sys.argv[1])"
    (tmp_path / "main.py").write_text(program)
    cases = [{"args": ["a"], "expect": {"stdout": "a"}}, {"args": ["b"], "expect": {"stdout": "b"}}]
    with Client() as client:
        if form == "files":
            summary = client.run_batch(files={"main.py": program}, cases=cases)
        elif form == "directory":
            summary = client.run_batch(directory=tmp_path, cases=cases)
        elif form == "tar":
            summary = client.run_batch(tar=a_tar(main=program), cases=cases)
        else:
            summary = client.run_batch(program, stdin=io.BytesIO(b""), cases=cases)
        assert [case.verdict for case in summary.results] == ["passed", "passed"], (summary.results, server.log.read_text())


def test_a_batch_that_its_caller_leaves_is_cancelled(server: Server) -> None:
    def leave(_: CaseResult) -> None:
        raise KeyError("mine")

    with Client() as client:
        program = "import sys, time; time.sleep(float(sys.argv[1]))"
        with pytest.raises(KeyError):
            client.run_batch(files={"main.py": program}, cases=[{"args": ["0"]}, {"args": ["1e6"]}], on_case=leave)
        while (client.list_page(status=["queued", "running"])).executions:
            pass


def test_the_server_describes_itself(server: Server) -> None:
    with Client(server.url + "/", TOKEN) as client:
        assert client.server == server.url
        health = client.health()
        assert health.ok and health.name == "python-executor"
        assert client.ready()
        (backend,) = [b for b in client.backends() if b.name == "uv"]
        assert backend.healthy and backend.capabilities["sessions"] is True
        assert TOKEN not in repr(client) + repr(vars(client))
