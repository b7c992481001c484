"""One call of Run: a program from its request to its Result."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

import grpc
from google.protobuf import duration_pb2

from local_backend import workspace
from local_backend.problems import Problem, SourceProblem, UserFailure
from pyexec.v1 import backend_pb2, types_pb2

if TYPE_CHECKING:
    from local_backend.plugin import Backend

# CHUNK is the most that one Output or one message of an artifact may hold.
CHUNK = 256 << 10

log = logging.getLogger("local_backend")


class Gone(Exception):
    """The caller has gone."""


class SinkProblem(Exception):
    """The caller's log could not take an event."""

    def __init__(self, error: types_pb2.Error) -> None:
        super().__init__(error.message)
        self.error = error


class Stream:
    """What a program writes to stdout or stderr: how much in all, and how much of it is in the log."""

    def __init__(self, name: str) -> None:
        self.name, self.seen, self.kept = name, 0, 0


class Run:
    """A program that runs, or that is being prepared."""

    def __init__(self, backend: "Backend", context: Any, start: Any) -> None:
        self.backend, self.context, self.job = backend, context, start.job
        self.spec, self.limits = self.job.spec, self.job.limits
        self.stdout, self.stderr = Stream("stdout"), Stream("stderr")
        self.acks: "asyncio.Queue[Any]" = asyncio.Queue()
        self.turn = asyncio.Lock()  # the caller's log takes one event at a time
        self.stopping = asyncio.Event()
        self.done = asyncio.Event()
        self.problem: Optional[Exception] = None  # why Run fails although the program has ended
        if start.cancelled:
            self.stop()

    def stop(self, problem: Optional[Exception] = None) -> None:
        """Asks the program to end. Without a problem the Result says that it was killed."""
        self.problem = self.problem or problem
        self.stopping.set()

    async def listen(self) -> None:
        """Reads what the caller sends: acknowledgements, and the cancel."""
        try:
            while True:
                message = await self.context.read()
                if message is grpc.aio.EOF:
                    break
                if message.HasField("ack"):
                    self.acks.put_nowait(message.ack)
                elif message.HasField("cancel"):
                    self.stop()
        finally:
            self.gone()

    def gone(self) -> None:
        self.stop(Gone())
        self.acks.put_nowait(None)

    async def work(self) -> Any:
        """The last message of the call."""
        try:
            return backend_pb2.RunResponse(result=await self.result())
        except SinkProblem as e:
            return backend_pb2.RunResponse(failure=backend_pb2.RunFailure(error=e.error, sink=True))
        except (Problem, SourceProblem) as e:
            return backend_pb2.RunResponse(failure=backend_pb2.RunFailure(error=e.error))
        except Gone:
            return backend_pb2.RunResponse()  # no one reads it
        except Exception as e:
            log.exception("run %s", self.job.id)
            error = types_pb2.Error(code="internal", message="run: %s" % e)
            return backend_pb2.RunResponse(failure=backend_pb2.RunFailure(error=error))
        finally:
            self.done.set()

    async def result(self) -> Any:
        self.backend.refuse(self.spec)
        began = time.monotonic()
        if self.stopping.is_set():
            return self.killed(began)
        folder = self.backend.make_folder()
        try:
            return await self.prepared(folder, began)
        except UserFailure as e:
            return types_pb2.Result(status="failed", failure=e.failure, cpu=span(-1), phases=types_pb2.Phases(prepare=since(began)))
        finally:
            self.backend.discard(folder)

    def killed(self, began: float) -> Any:
        """The Result of a program that was told to end before it was started."""
        if self.problem:
            raise self.problem
        return types_pb2.Result(status="killed", cpu=span(-1), phases=types_pb2.Phases(prepare=since(began)))

    async def prepared(self, folder: str, began: float) -> Any:
        root, temporary = os.path.join(folder, "work"), os.path.join(folder, "tmp")
        os.mkdir(root)
        os.mkdir(temporary)
        python: list[str] = []
        if self.job.HasField("workspace"):
            archive = os.path.join(folder, "workspace.tar")
            fetching = asyncio.create_task(self.fetch(archive))
            if not await self.unless_stopped(fetching):
                return self.killed(began)
            python = await asyncio.to_thread(workspace.unpack, archive, root)
            os.unlink(archive)
        chosen = ""
        if self.spec.command:
            argv = list(self.spec.command)
        else:
            if self.spec.code:
                main = os.path.join(root, "main.py")
                if os.path.lexists(main):
                    raise UserFailure("prepare", "invalid", "code: the workspace must not have a main.py besides", "code")
                with open(main, "w", encoding="utf-8", errors="surrogateescape", newline="") as f:
                    f.write(workspace.declared(self.spec.code))
            path, several = workspace.entrypoint(self.spec.entrypoint, python, root)
            chosen = path if several else ""
            argv = [self.backend.python, "./" + path if path.startswith("-") else path]
        before = await asyncio.to_thread(workspace.snapshot, root) if self.spec.outputs_changed else None
        env = {"PATH": self.backend.path, "HOME": root, "TMPDIR": temporary, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        env.update(self.spec.env)
        if not env["PYTHONUNBUFFERED"]:
            del env["PYTHONUNBUFFERED"]
        if self.stopping.is_set():
            return self.killed(began)
        result = await self.execute({"argv": argv + list(self.spec.args), "cwd": root, "env": env}, chosen, began)
        if self.problem is None and (self.spec.outputs or before is not None):
            collecting = time.monotonic()
            for name in await asyncio.to_thread(workspace.artifacts, root, list(self.spec.outputs), before):
                size = await self.artifact(root, name)
                result.artifacts.add(path=name, size_bytes=size)
            result.phases.collect.CopyFrom(since(collecting))
        if self.problem:
            raise self.problem
        return result

    async def unless_stopped(self, task: "asyncio.Task[Any]") -> bool:
        """Waits for task, and drops it when the program is to end first."""
        stop = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            return False
        await task
        return True

    async def fetch(self, path: str) -> None:
        with open(path, "wb") as f:
            async with contextlib.aclosing(self.backend.source(self.job.workspace)) as source:
                async for data in source:
                    f.write(data)

    async def execute(self, request: dict[str, Any], chosen: str, began: float) -> Any:
        """Runs the program under a supervisor of its own."""
        async with Supervisor(self.backend.supervisors, request, self.job.HasField("stdin")) as program:
            report = await program.report()
            if "errno" in report:
                missing = report["errno"] in (2, 20)  # ENOENT, ENOTDIR
                what = "%s: %s" % (request["argv"][0], report["error"])
                raise UserFailure("start", "not_found" if missing else "invalid", "command: " + what, "command")
            started, prepare = time.monotonic(), since(began)
            version = "" if self.spec.command else self.backend.version
            await self.emit(types_pb2.Event(kind="started", started=types_pb2.Started(
                pid=report["pid"], start="exec", python_version=version)))
            if chosen:
                line = "%s runs: the first of several .py files, none called main.py or __main__.py (entrypoint names another)\n"
                name = chosen if chosen.isprintable() else repr(chosen).replace("'", '"')
                await self.output(self.stderr, (line % name).encode())
            pumps = [asyncio.create_task(self.pump(s, r)) for s, r in ((self.stdout, program.stdout), (self.stderr, program.stderr))]
            feeding = asyncio.create_task(self.feed(program))
            status, report = await self.follow(program, started)
            wall = since(started)
            feeding.cancel()
            await asyncio.wait(pumps, timeout=None if report else 5)  # nothing holds the streams any more
        if report is None:
            raise self.problem or Problem("internal", "the supervisor of the program was killed")
        result = types_pb2.Result(
            status=status, wall=wall, cpu=span(report["cpu"]), peak_memory_bytes=report["peak"], peak_resident_bytes=report["peak"], python_version=version,
            phases=types_pb2.Phases(prepare=prepare, run=wall),
            stdout_bytes=self.stdout.seen, stdout_truncated=self.stdout.seen > self.stdout.kept,
            stderr_bytes=self.stderr.seen, stderr_truncated=self.stderr.seen > self.stderr.kept,
        )
        ended = report["status"]
        if os.WIFSIGNALED(ended):
            result.signal = signal_name(os.WTERMSIG(ended))
        else:
            result.exit_code = os.WEXITSTATUS(ended)
        if not status:
            result.status = "succeeded" if ended == 0 else "failed"
        elif status == "timed_out":
            said = "%s: the program ran longer than its limit of %g s; raise the limit"
            field, limit = "config.timeout_seconds", self.limits.timeout.ToTimedelta().total_seconds()
            result.failure.MergeFrom(types_pb2.Failure(code="exhausted", phase="run", field=field, message=said % (field, limit)))
        return result

    async def follow(self, program: "Supervisor", started: float) -> tuple[str, Optional[dict[str, Any]]]:
        """Waits for the end of the program. It ends the program at its timeout, and when it is to stop."""
        ended = asyncio.create_task(program.report())
        stop = asyncio.create_task(self.stopping.wait())
        try:
            left = started + self.limits.timeout.ToTimedelta().total_seconds() - time.monotonic()
            await asyncio.wait({ended, stop}, timeout=max(0, left), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return "", ended.result()
            status = "killed" if stop.done() else "timed_out"
            if not isinstance(self.problem, Gone):
                program.tell(b"int" if status == "killed" and self.spec.interrupt_on_cancel else b"term")
                grace = self.limits.kill_grace.ToTimedelta().total_seconds()
                await asyncio.wait({ended}, timeout=grace)
            program.tell(b"kill")
            return status, await ended
        finally:
            stop.cancel()

    async def pump(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            await self.output(stream, data)

    async def output(self, stream: Stream, data: bytes) -> None:
        """Logs data as far as the limit allows. The rest is counted."""
        limit = self.limits.output_bytes
        stream.seen += len(data)
        kept = data if limit < 0 else data[: max(0, limit - stream.kept)]
        if kept:
            offset, stream.kept = stream.kept, stream.kept + len(kept)
            await self.emit(types_pb2.Event(kind="output", output=types_pb2.Output(stream=stream.name, offset=offset, data=kept)))

    async def emit(self, event: Any) -> None:
        """Sends an event and waits until it is in the log. After the first error there are no more events."""
        async with self.turn:
            if self.problem is None:
                await self.send(backend_pb2.RunResponse(event=event))
                await self.acknowledged()

    async def send(self, message: Any) -> None:
        try:
            await self.context.write(message)
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            self.gone()

    async def acknowledged(self) -> None:
        ack = await self.acks.get()
        if ack is None:
            self.acks.put_nowait(None)  # for the next one who waits
        elif ack.HasField("error"):
            self.stop(SinkProblem(ack.error))

    async def artifact(self, root: str, name: str) -> int:
        """Sends one file. The program and its children have ended, so that the file stays as it is."""
        with open(os.open(os.path.join(root, name), os.O_RDONLY | os.O_NOFOLLOW), "rb") as f:
            info = os.fstat(f.fileno())
            begin = backend_pb2.ArtifactBegin(typeflag=ord("0"), name=name, size=info.st_size, mode=info.st_mode & 0o777)
            begin.mod_time.FromNanoseconds(info.st_mtime_ns)
            async with self.turn:
                if self.problem is None:
                    await self.send(backend_pb2.RunResponse(artifact_begin=begin))
                    while data := f.read(CHUNK):
                        await self.send(backend_pb2.RunResponse(artifact_data=data))
                    await self.send(backend_pb2.RunResponse(artifact_end=backend_pb2.ArtifactEnd()))
                    await self.acknowledged()
            return info.st_size

    async def feed(self, program: "Supervisor") -> None:
        """Copies the job's stdin to the program, as long as the program reads it."""
        if program.stdin is None:
            return
        try:
            async with contextlib.aclosing(self.backend.source(self.job.stdin)) as source:
                async for data in source:
                    program.stdin.write(data)
                    await program.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the program reads no more
        except SourceProblem as e:
            self.stop(e)
        finally:
            program.stdin.close()


class Supervisors:
    """The process that forks the supervisors."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", sys.argv[0], "supervise", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={}, cwd="/",
                # The host kills the plugin's process group when the plugin is gone. The supervisors live on, to end the programs.
                start_new_session=True,
            )

    def fork(self, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self.ours, [b"x"], descriptors)
        except OSError:
            log.error("the process that forks the supervisors is gone; the plugin ends, so that its host starts another")
            os._exit(1)


class Supervisor:
    """The supervisor of one program, seen from the plugin (supervisor.py is the other side)."""

    def __init__(self, parent: Supervisors, request: dict[str, Any], stdin: bool) -> None:
        self.parent, self.request, self.has_stdin = parent, request, stdin

    async def __aenter__(self) -> "Supervisor":
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        stdin, feed = os.pipe() if self.has_stdin else (os.open(os.devnull, os.O_RDONLY), None)
        (out, stdout), (err, stderr) = os.pipe(), os.pipe()
        try:
            self.parent.fork([stdin, stdout, stderr, theirs.fileno()])
        finally:
            theirs.close()
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        self.stdout, self.stderr, self.pipes = asyncio.StreamReader(CHUNK), asyncio.StreamReader(CHUNK), []
        for reader, descriptor in ((self.stdout, out), (self.stderr, err)):
            pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
            self.pipes.append(pipe)
        self.stdin: Optional[asyncio.StreamWriter] = None
        if feed is not None:
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(feed, "wb", 0))
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        self.writer.write(json.dumps(self.request).encode() + b"\n")
        return self

    async def report(self) -> Any:
        """The supervisor's next message, or None if it was killed."""
        try:
            line = await self.reader.readline()
        except ConnectionError:
            line = b""
        return json.loads(line) if line else None

    def tell(self, what: bytes) -> None:
        self.writer.write(what)

    async def __aexit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self.writer.write_eof()  # ends the supervisor, and the program with it
            await self.reader.read()  # until it has ended
        self.writer.close()
        for pipe in self.pipes:
            pipe.close()
        if self.stdin is not None:
            self.stdin.close()


def since(began: float) -> duration_pb2.Duration:
    return span(time.monotonic() - began)


def span(seconds: float) -> duration_pb2.Duration:
    d = duration_pb2.Duration()
    d.FromNanoseconds(int(seconds * 1e9))
    return d


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRT%d" % number
