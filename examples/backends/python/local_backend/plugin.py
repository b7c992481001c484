"""The plugin: its start, its supervision, and the services that the host calls."""

import asyncio
import fcntl
import glob
import json
import logging
import os
import platform
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Optional

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from local_backend import workspace
from local_backend.problems import Problem, SourceProblem, abort
from local_backend.run import CHUNK, Run, Supervisors
from pyexec.v1 import backend_pb2, backend_pb2_grpc, plugin_pb2, plugin_pb2_grpc, source_pb2, source_pb2_grpc, types_pb2

VERSION = "1.0.0"
# PROTOCOL is the version of the services between host and plugin.
PROTOCOL = 2

CAPABILITIES = dict(
    isolation="none", network_on=True, commands=True, artifacts=True, system_interpreter=True, local_path=True, languages=["python"],
)

# Each limit and each protection that is not promised has a warning.
WARNINGS = [
    "programs are processes of this host without isolation: they have all the rights of this server's user",
    "the network cannot be switched off: programs reach every service of the host, those on its loopback addresses included",
    "memory_mb, disk_mb, cpu_shares and pids (the number of processes) are not enforced",
    "programs share the host's /tmp, and what they leave there stays",
]

log = logging.getLogger("local_backend")


class Backend:
    """What the services share."""

    def __init__(self) -> None:
        self.name = ""
        self.refusal: Optional[str] = "the plugin is not configured yet"
        self.runs: dict[str, Run] = {}
        self.feeds: dict[str, Feed] = {}
        self.removing: set[asyncio.Future[None]] = set()
        # Programs get the interpreter below the virtual environment, and not the environment's packages.
        self.python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self.path = os.path.dirname(self.python) + ":/usr/local/bin:/usr/bin:/bin"
        self.version = platform.python_version()
        self.minor = ".".join(self.version.split(".")[:2])

    def configure(self, c: Any) -> None:
        unknown = sorted(json.loads(c.options or b"{}"))
        if unknown:
            raise Problem("invalid", "the backend has no settings",
                          [("backends.%s.%s" % (c.name, key), "unknown key; there are no settings") for key in unknown])
        self.name = c.name
        parent = c.data_dir or tempfile.gettempdir()
        for old in glob.glob(os.path.join(glob.escape(parent), "work-*")):
            if lock(old) is not None:  # the process that made it is dead
                workspace.remove(old)
        self.folder = tempfile.mkdtemp(prefix="work-", dir=parent)
        self.lock = lock(self.folder)
        self.supervisors = Supervisors()
        self.refusal = None

    def info(self) -> Any:
        return types_pb2.Info(
            name=self.name, type="local-python", version=VERSION, healthy=True, warnings=WARNINGS,
            capabilities=types_pb2.Capabilities(python_versions=[self.minor], **CAPABILITIES),
            details={"pid": str(os.getpid()), "python": self.python, "work_dir": self.folder,
                     "peak_memory": "that of the largest process of a program"},
        )

    def make_folder(self) -> str:
        return tempfile.mkdtemp(prefix="run-", dir=self.folder)

    def discard(self, folder: str) -> None:
        """Removes a folder after the answer."""
        removing = asyncio.get_running_loop().run_in_executor(None, workspace.remove, folder)
        self.removing.add(removing)
        removing.add_done_callback(self.removing.discard)

    def refuse(self, spec: Any) -> None:
        """Raises a Problem that names every field which this backend cannot serve. A limit that it cannot enforce is refused."""
        wrong: dict[str, str] = {}
        for field, asked in (
            ("requirements_txt", spec.requirements), ("pre_commands", spec.pre_commands), ("session", spec.session),
            ("sample_interval_seconds", spec.sample_interval.ToNanoseconds() > 0), ("script", spec.script),
            ("host_directory", spec.host_directory), ("config.network_disabled", spec.network == "off"),
            ("config.memory_mb", spec.limits.memory_bytes), ("config.disk_mb", spec.limits.disk_bytes),
            ("config.cpu_shares", spec.limits.cpu_shares), ("config.pids", spec.limits.pids),
            ("config.cpu_seconds", bool(spec.limits.cpu_time.ToNanoseconds())),
        ):
            if asked:
                wrong[field] = "this backend cannot do or enforce this"
        if not spec.command and spec.language not in ("", "python"):
            wrong["language"] = "must be python (got %s)" % spec.language
        if spec.image and spec.image != "python:" + self.minor and not spec.image.startswith("python:%s-" % self.minor):
            wrong["docker_image"] = "must be python:%s (got %s)" % (self.minor, spec.image)
        code = "unimplemented"
        if spec.python_version not in ("", self.minor):
            wrong["python_version"] = "must be %s (got %s)" % (self.minor, spec.python_version)
            code = "invalid"
        if wrong:
            fields = sorted(wrong.items())
            raise Problem(code, "\n".join("%s: %s" % f for f in fields), fields)

    async def source(self, src: Any) -> AsyncIterator[bytes]:
        """The bytes of a source of the caller: from a file, or from the Feed call that has its key."""
        if src.path:
            with open(src.path, "rb") as f:
                while data := await asyncio.to_thread(f.read, CHUNK):
                    yield data
            return
        feed = self.feed(src.key)
        try:
            stream = await feed.arrived
            await stream.write(source_pb2.FeedResponse(open=source_pb2.SourceOpen()))
            while True:
                message = await stream.read()
                if message is grpc.aio.EOF:
                    raise SourceProblem(types_pb2.Error(code="unavailable", message="the source broke off"))
                if message.HasField("end"):
                    if message.end.HasField("error"):
                        raise SourceProblem(message.end.error)
                    return
                yield message.data
        finally:
            feed.over.set()

    def feed(self, key: str) -> "Feed":
        return self.feeds.setdefault(key, Feed())

    async def close(self, patience: Optional[float] = None) -> None:
        """Waits until nothing runs any more, and removes the work folder."""
        if self.runs:
            await asyncio.wait([asyncio.create_task(r.done.wait()) for r in self.runs.values()], timeout=patience)
        if self.removing:
            await asyncio.wait(self.removing, timeout=patience)
        if self.name:
            workspace.remove(self.folder)


class Feed:
    """A source on its way. The call and the source arrive in any order."""

    def __init__(self) -> None:
        self.arrived: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()


def lock(folder: str) -> Optional[int]:
    """Takes the lock of a folder, which ends with the process. The result is None if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class PluginService(plugin_pb2_grpc.PluginServiceServicer):
    def __init__(self, backend: Backend) -> None:
        self.backend, self.supervised = backend, False

    async def Supervise(self, _: Any, context: Any) -> None:
        if self.supervised:
            await abort(context, Problem("conflict", "the plugin has a host already").error)
        self.supervised = True
        try:
            await self.supervise(context)
        except Problem as e:
            exit_in(2)
            await abort(context, e.error)
        except BaseException:  # the stream broke: the host is gone
            self.backend.refusal = "the host is gone"
            for run in self.backend.runs.values():
                run.gone()
            await self.backend.close(1)
            os._exit(0)  # the supervisors end what is left

    async def supervise(self, context: Any) -> None:
        first = await context.read()
        self.backend.configure(first.configure)
        await context.write(plugin_pb2.SuperviseResponse(ready=plugin_pb2.Ready(info=self.backend.info())))
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.HasField("ping"):
                await context.write(plugin_pb2.SuperviseResponse(pong=plugin_pb2.Pong(number=message.ping.number)))
        self.backend.refusal = "the plugin is stopping"
        await self.backend.close()
        await context.write(plugin_pb2.SuperviseResponse(drained=plugin_pb2.Drained()))
        exit_in(2)


def exit_in(seconds: float) -> None:
    asyncio.get_running_loop().call_later(seconds, os._exit, 0)


class BackendService(backend_pb2_grpc.BackendServiceServicer):
    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def admit(self, context: Any) -> None:
        if self.backend.refusal:
            await abort(context, Problem("unavailable", self.backend.refusal).error)

    async def Info(self, request: Any, context: Any) -> Any:
        await self.admit(context)
        return backend_pb2.InfoResponse(info=self.backend.info())

    async def Remove(self, request: Any, context: Any) -> Any:
        await self.admit(context)
        run = self.backend.runs.get(request.id)
        if run is not None:
            run.stop()
            await run.done.wait()
        if self.backend.removing:
            await asyncio.wait(set(self.backend.removing))
        return backend_pb2.RemoveResponse()

    async def Run(self, _: Any, context: Any) -> None:
        await self.admit(context)
        start = (await context.read()).start
        if start.HasField("resume"):
            await abort(context, Problem("unimplemented", "programs of this backend end with its plugin").error)
        run = Run(self.backend, context, start)
        id = start.job.id
        if id in self.backend.runs:
            await abort(context, Problem("conflict", "execution %s runs already" % id).error)
        self.backend.runs[id] = run
        listening = asyncio.create_task(run.listen())
        working = asyncio.create_task(run.work())
        working.add_done_callback(lambda _: self.forget(start.job))
        try:
            await context.write(await asyncio.shield(working))
        except asyncio.CancelledError:
            run.gone()
            raise
        finally:
            listening.cancel()

    def forget(self, job: Any) -> None:
        del self.backend.runs[job.id]
        for src in (job.workspace, job.stdin):
            feed = self.backend.feeds.pop(src.key, None)
            if feed:
                feed.over.set()


class SourceService(source_pb2_grpc.SourceServiceServicer):
    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def Feed(self, _: Any, context: Any) -> None:
        first = await context.read()
        feed = self.backend.feed(first.key)
        feed.arrived.set_result(context)
        try:
            await feed.over.wait()
        finally:
            self.backend.feeds.pop(first.key, None)


async def shutdown(request: bytes, context: Any) -> bytes:
    """plugin.GRPCController/Shutdown of go-plugin: the host has drained the plugin."""
    exit_in(0)
    return b""


class Lines(logging.Formatter):
    """The host's log takes a line of JSON with a level and a message."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return json.dumps({"level": record.levelname, "msg": text})


async def serve() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)  # the host decides about signals
    backend, plugin = Backend(), None
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 256 << 20), ("grpc.max_send_message_length", -1)])
    plugin = PluginService(backend)
    plugin_pb2_grpc.add_PluginServiceServicer_to_server(plugin, server)
    backend_pb2_grpc.add_BackendServiceServicer_to_server(BackendService(backend), server)
    source_pb2_grpc.add_SourceServiceServicer_to_server(SourceService(backend), server)
    checks = health.aio.HealthServicer()
    await checks.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        "plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}),))
    address = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin")
    server.add_insecure_port("unix:" + address)
    await server.start()
    print("1|%d|unix|%s|grpc" % (PROTOCOL, address), flush=True)
    loop.call_later(10, lambda: plugin.supervised or os._exit(0))  # no host has come
    await server.wait_for_termination()
