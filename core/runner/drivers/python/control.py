# The driver of a Python session: it runs one cell after the other in one namespace. It exchanges JSON objects with the runner
# over a socket, one per line (core/runner/drivers/doc.go). It runs on Python 3.8 to 3.14, with the standard library only.
#
# User code cannot stop the driver by an ordinary mistake (a replaced sys.stdout, deleted builtins, closed standard
# descriptors, a fork that returns). User code shares the process, and can break it on purpose. That ends its own session
# and nothing else.
#
# The driver is one text of these files: control.py (socket, interrupts), display.py (values, figures), modules.py (what users import),
# magics.py (lines of notebooks that are no Python), code.py (compiling), trace.py (tracebacks), cells.py (requests).
import _ast
import _contextvars
import _thread
import builtins
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types

CONTROL = 3
RUNNERS_SIGNAL = 63
FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80
FUTURE_FLAGS = 0
for _name in __import__("__future__").all_feature_names:
    FUTURE_FLAGS |= getattr(__import__("__future__"), _name).compiler_flag


class State:
    """What the driver knows. One object, so that user code that deletes a global of ours must mean it."""

    pid = os.getpid()
    child = False  # this process is a fork made by user code
    control = CONTROL
    buffered = b""
    sending = _thread.RLock()
    backup = ()  # duplicates of 0, 1 and 2
    flags = FLAGS
    interruptible = False
    critical = 0
    pending = False  # SIGINT came while it was critical
    context = _contextvars.copy_context()  # of all cells
    loop = None
    task = None
    cancelled = False
    unheeded = None  # the task that an interrupt was to cancel, until it is cancelled
    displays = 0
    dropped = 0
    asked = 0  # how often input() has asked in this cell
    folder = "."
    max_data = 2 << 20
    max_displays = 200
    cell = 0
    unanswered = None  # the cell that runs
    stdin = None
    stdin_is_null = True
    shown = []  # figures that were displayed as values in this cell
    outer = ()  # the code that calls the driver


S = State()
NS = sys.modules["__main__"].__dict__
HOME = dict(builtins.__dict__)
SYSTEM_EXCEPTHOOK = sys.excepthook
SYSTEM_UNRAISABLEHOOK = sys.unraisablehook
get_pid = os.getpid
MAIN_THREAD = _thread.get_ident()
DEFAULT_INT_HANDLER = signal.default_int_handler


def is_users(filename):
    return filename.startswith("<cell ")


# The control socket.


def protect_descriptors():
    """Moves the driver's descriptors above those that programs close in a loop (os.closerange(3, soft limit))."""
    high = 256
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > soft + 8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft + 8, hard))
            high = soft
        else:
            soft = None
    except (ImportError, ValueError, OSError):
        soft = None
    import fcntl

    def move(fd):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, high)
        except OSError:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)

    S.control = move(CONTROL)
    os.close(CONTROL)
    S.backup = tuple(move(fd) for fd in (0, 1, 2))
    if soft is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def restore_descriptors():
    for fd, kept in enumerate(S.backup):
        try:
            os.fstat(fd)
        except OSError:
            try:
                os.dup2(kept, fd)
            except OSError:
                pass


def receive():
    while True:
        line, found, rest = S.buffered.partition(b"\n")
        if found:
            S.buffered = rest
            return json.loads(line.decode())
        chunks = [S.buffered]
        S.buffered = b""
        while True:
            more = os.read(S.control, 1 << 18)
            if not more:
                os._exit(0)  # the runner is gone
            chunks.append(more)
            if b"\n" in more:
                break
        S.buffered = b"".join(chunks)


def send(message):
    """Sends a whole line. An interrupt waits until the line is sent."""
    data = json.dumps(message).encode() + b"\n"
    if _thread.get_ident() != MAIN_THREAD:
        write_line(data)
        return
    S.critical += 1
    try:
        write_line(data)
    finally:
        S.critical -= 1
    if S.pending and not S.critical and S.interruptible:
        S.pending = False
        interrupt(None)


def write_line(data):
    with S.sending:
        view = memoryview(data)
        while view:
            view = view[os.write(S.control, view) :]


# Interrupts.


def on_interrupt(signum, frame):
    if S.child or get_pid() != S.pid:
        raise KeyboardInterrupt
    if not S.interruptible:
        return  # too late: the cell has ended
    if S.critical:
        S.pending = True
        return
    interrupt(frame)


def on_runner(signum, frame):
    """Handles the runner's own signal. It arrives where SIGINT is lost, as while the C library's system() waits."""
    if S.child or get_pid() != S.pid:
        return
    if S.interruptible and not S.critical and signal.getsignal(signal.SIGINT) is not on_interrupt:
        heard()  # the user's handler may not do so
    signal.raise_signal(signal.SIGINT)
    for _ in (1, 2):
        pass  # the handler of SIGINT runs here at the latest


def heard():
    S.critical += 1
    try:
        write_line(b'{"op":"heard","n":%d}\n' % S.cell)
    finally:
        S.critical -= 1


def unraisablehook(unraisable):
    """Reports what Python drops, as it does by itself. An interrupt that came in a finalizer is dropped, too, and is asked for once more."""
    if _thread.get_ident() != MAIN_THREAD or S.child or get_pid() != S.pid:
        SYSTEM_UNRAISABLEHOOK(unraisable)  # interrupts come in the main thread only, and only that may count in S.critical
        return
    S.critical += 1  # one that comes here would be dropped as well
    try:
        SYSTEM_UNRAISABLEHOOK(unraisable)
        if unraisable.exc_type is KeyboardInterrupt:
            write_line(b'{"op":"lost","n":%d}\n' % S.cell)
    finally:
        S.pending = False  # the runner sends it until it is heard
        S.critical -= 1


def interrupt(frame):
    S.pending = False
    task = S.task
    if task is not None and in_asyncio(frame):
        S.cancelled = True
        if S.unheeded is not task:  # else the loop has not come to it yet
            S.unheeded = task
            if not task.done():
                S.loop.call_soon_threadsafe(cancel, task)
        return
    S.unheeded = None
    heard()
    S.pending = False  # another one has come meanwhile
    raise KeyboardInterrupt


def cancel(task):
    """Cancels a task, unless it has ended meanwhile: run_in_loop then finds that the interrupt was not heeded.

    Only now the interrupt is heard: a callback that the loop called before this one may have blocked, and then it is sent again.
    """
    if S.unheeded is task and not task.done():
        S.unheeded = None
        heard()
        S.pending = False  # another one has come meanwhile
        task.cancel()


def in_asyncio(frame):
    """Reports whether the event loop runs. An exception inside it could lose a task whose next step it was about to note.
    That task would never end."""
    while frame is not None and frame.f_code in HANDLERS:  # an interrupt may come while one is handled
        frame = frame.f_back
    if frame is None or frame.f_code is run_in_loop.__code__:
        return frame is not None
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in ("asyncio", "selectors")


HANDLERS = (on_runner.__code__, on_interrupt.__code__, interrupt.__code__, in_asyncio.__code__)


def take_interrupts():
    try:
        if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.SIG_IGN, DEFAULT_INT_HANDLER, None):
            signal.signal(signal.SIGINT, on_interrupt)
        if signal.getsignal(RUNNERS_SIGNAL) is not on_runner:
            signal.signal(RUNNERS_SIGNAL, on_runner)
    except (ValueError, TypeError, OSError):
        pass


def after_fork():
    S.child = True
    S.interruptible = False
    try:
        os.close(S.control)
        for fd in S.backup:
            os.close(fd)
        signal.default_int_handler = DEFAULT_INT_HANDLER
        if signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, DEFAULT_INT_HANDLER)
    except (OSError, ValueError):
        pass
