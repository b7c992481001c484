# The driver of a Python session: it runs one cell after the other in one namespace and speaks with the runner over a
# socket, one JSON object a line (core/runner/drivers/doc.go). Python 3.8 to 3.14, standard library only.
#
# What it promises: user code cannot stop the driver by an ordinary mistake (a replaced sys.stdout, deleted builtins, closed
# standard descriptors, a fork that returns). What it does not: user code shares the process and can break it on purpose.
# That ends its own session and nothing else.
import _ast
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
IMAGES = (".png", ".jpeg", ".gif", ".pdf")
# The rich forms, in the order in which they get room.
FORMS = (
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_javascript_", "application/javascript"),
)
MAX_TEXT = 256 << 10
# Whoever names one of these without await means a running event loop; whoever names one of the others brings their own.
NEED_LOOP = frozenset(("create_task", "ensure_future", "get_running_loop", "current_task"))
OWN_LOOP = frozenset(("run", "run_until_complete", "run_forever"))


class State:
    """What the driver knows. One object, so that user code that deletes a global of ours must mean it."""

    pid = os.getpid()
    child = False  # this process is a fork that user code made
    control = CONTROL
    buffered = b""
    sending = _thread.RLock()
    backup = ()  # duplicates of 0, 1 and 2
    flags = FLAGS
    interruptible = False
    critical = 0
    pending = False  # SIGINT came while it was critical
    loop = None
    task = None
    cancelled = False
    displays = 0
    dropped = 0
    max_data = 2 << 20
    max_displays = 200
    cell = 0
    unanswered = None  # the cell that runs
    stdin = None
    stdin_is_null = True
    shown = []  # figures that were displayed as values in this cell


S = State()
NS = sys.modules["__main__"].__dict__
HOME = dict(builtins.__dict__)
SYSTEM_EXCEPTHOOK = sys.excepthook
get_pid = os.getpid
MAIN_THREAD = _thread.get_ident()
DEFAULT_INT_HANDLER = signal.default_int_handler


# The control socket.


def protect_descriptors():
    """Moves our descriptors above those that programs close in a loop (os.closerange(3, soft limit))."""
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
    """Sends whole lines: an interrupt waits until one is out."""
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
        return  # it came too late
    if S.critical:
        S.pending = True
        return
    interrupt(frame)


def on_runner(signum, frame):
    """Interrupts for the runner: where SIGINT itself is lost, as while the C library's system() waits, this is not."""
    if S.child or get_pid() != S.pid:
        return
    if S.interruptible and not S.critical and signal.getsignal(signal.SIGINT) is not on_interrupt:
        heard()  # whatever the user's own handler does
    signal.raise_signal(signal.SIGINT)
    for _ in (1, 2):
        pass  # here at the latest its handler runs


def heard():
    S.critical += 1
    try:
        write_line(b'{"op":"heard","n":%d}\n' % S.cell)
    finally:
        S.critical -= 1


def interrupt(frame):
    heard()
    S.pending = False
    task = S.task
    if task is not None and not task.done() and in_asyncio(frame):
        S.cancelled = True
        S.loop.call_soon_threadsafe(task.cancel)
        return
    raise KeyboardInterrupt


def in_asyncio(frame):
    """Reports whether what runs is the event loop, which does not stand an exception anywhere: a task whose next step it
    was about to note would never end."""
    while frame is not None and frame.f_code is on_runner.__code__:
        frame = frame.f_back
    if frame is None or frame.f_code is run_in_loop.__code__:
        return frame is not None
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in ("asyncio", "selectors")


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


# Values.


def encode(mime, value):
    """A form as bytes; None if it is none."""
    if isinstance(value, tuple) and value:
        value = value[0]  # (data, metadata)
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        if mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf":
            import base64

            try:
                return base64.b64decode(value, validate=False)
            except ValueError:
                return None
        return value.encode("utf-8", "replace")
    if mime == "application/json" or mime.endswith("+json"):
        return json.dumps(value).encode()
    return None


def forms(value):
    """The rich forms of value, in the order in which they get room."""
    found = {}
    kind = type(value)
    if isinstance(value, type):
        return found
    if callable(getattr(kind, "_repr_mimebundle_", None)):
        try:
            try:
                given = value._repr_mimebundle_(include=None, exclude=None)
            except TypeError:
                given = value._repr_mimebundle_()
            if isinstance(given, tuple):
                given = given[0]
            given = list((given or {}).items())
        except Exception:
            given = ()
        for mime, data in given:
            try:
                data = encode(mime, data)
            except Exception:
                continue
            if data is not None:
                found[str(mime)] = data
    for method, mime in FORMS:
        if mime in found or not callable(getattr(kind, method, None)):
            continue
        try:
            data = encode(mime, getattr(value, method)())
        except Exception:
            continue
        if data is not None:
            found[mime] = data
    if is_figure(value):
        found.update(render(value))
    return found


def show(value, is_value):
    """Displays value in all its forms, as far as there is room."""
    if S.child:
        print(repr(value))
        return
    if S.displays >= S.max_displays:
        S.dropped += 1
        return
    found = forms(value)
    text = found.pop("text/plain", None)
    if text is None:
        text = repr(value).encode("utf-8", "backslashreplace")
    cut = len(text) > MAX_TEXT
    if cut:
        text = text[:MAX_TEXT].decode("utf-8", "ignore").encode() + "…".encode()
    emit(text, found, is_value, cut)


def emit(text, found, is_value, truncated=False):
    import binascii

    data, room = {}, S.max_data
    for mime, form in [("text/plain", text)] + list(found.items()):
        if len(form) > room or len(mime) > 200:
            truncated = True
            continue
        room -= len(form)
        data[mime] = binascii.b2a_base64(form, newline=False).decode()
    S.displays += 1
    flush()
    send({"op": "display", "n": S.cell, "display": {"data": data, "value": is_value, "truncated": truncated}})


def display(*values, **_):
    """Shows each value in the richest form it has."""
    for value in values:
        show(value, False)


def displayhook(value):
    if value is None:
        return
    builtins._ = value
    show(value, True)


# Figures.


def is_figure(value):
    module = type(value).__module__
    return isinstance(module, str) and module.startswith("matplotlib.") and hasattr(value, "savefig") and hasattr(value, "canvas")


def render(figure):
    found = {}
    for form, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
        out = io.BytesIO()
        figure.savefig(out, format=form, bbox_inches="tight")
        found[mime] = out.getvalue()
    S.shown.append(figure)
    return found


def show_figures():
    """Displays the figures that are open, and closes them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or S.child:
        return
    get_fignums = getattr(pyplot, "get_fignums", None)
    if get_fignums is None or not get_fignums():
        return
    try:
        for number in get_fignums():
            figure = pyplot.figure(number)
            if not any(figure is other for other in S.shown):
                show(figure, False)
    finally:
        pyplot.close("all")


class FigureHook:
    """Lets matplotlib.pyplot.show display, as soon as pyplot is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        import importlib.util

        sys.meta_path.remove(FigureHook)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.show = lambda *args, **kwargs: show_figures()

        spec.loader.exec_module = exec_module
        return spec


# Errors.


def clean(error, seen):
    """Takes our own frames, and those that led to the user's, out of an error and what it names as its causes."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, SyntaxError) and error.text is None and str(error.filename).startswith("<cell "):
            error.text = linecache.getline(error.filename, error.lineno or 0) or None  # the compiler had a tree, no text
        frames = []
        tb = error.__traceback__
        while tb is not None:
            frames.append(tb)
            tb = tb.tb_next
        for i, tb in enumerate(frames):
            if tb.tb_frame.f_code.co_filename.startswith("<cell "):
                frames = frames[i:]
                break
        chain = None
        for tb in reversed(frames):
            if tb.tb_frame.f_globals is not globals():
                chain = types.TracebackType(chain, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
        error.__traceback__ = chain
        for sub in getattr(error, "exceptions", None) or ():
            if isinstance(sub, BaseException):
                clean(sub, seen)
        clean(error.__cause__, seen)
        error = error.__context__


def report(error):
    try:
        clean(error, set())
        hook = sys.excepthook
        if hook is not SYSTEM_EXCEPTHOOK and callable(hook):
            hook(type(error), error, error.__traceback__)
        else:
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
            sys.last_exc = error
            traceback.print_exception(type(error), error, error.__traceback__)
    except BaseException as broken:
        # sys.stderr or the hook is broken, or there is no memory.
        try:
            text = "%s: %s\n(reported in short: %s)\n" % (type(error).__name__, error, type(broken).__name__)
        except BaseException:
            text = type(error).__name__ + "\n"
        try:
            os.write(2, text.encode("utf-8", "replace"))
        except OSError:
            pass


def exit_code(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except BaseException:
        pass
    return 1


# Cells.


def flush():
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            getattr(sys, name).flush()
        except Exception:
            pass


def quiet(source, node):
    """Reports whether a semicolon follows the last statement: its value is not shown."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as the tokenizer does
    lines = source.encode("utf-8", "surrogatepass").split(b"\n")[node.end_lineno - 1 :]
    lines[0] = lines[0][node.end_col_offset :]
    return any(b";" in line.split(b"#")[0] for line in lines)


def compile_cell(source, name):
    """Returns the code before the last expression, the last expression's, and whether they mean a running event loop."""
    tree = compile(source, name, "exec", S.flags | _ast.PyCF_ONLY_AST, dont_inherit=True)
    body = tree.body
    last = None
    if body and isinstance(body[-1], _ast.Expr) and not quiet(source, body[-1]):
        last = _ast.Interactive([body.pop()])  # it calls sys.displayhook, from the cell's own frame
    names = set()
    stack = list(body) + ([last] if last is not None else [])
    if "asyncio" in sys.modules or "asyncio" in source:
        while stack:
            node = stack.pop()
            if isinstance(node, _ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, _ast.Name):
                names.add(node.id)
            for field in node._fields:
                child = getattr(node, field, None)
                if isinstance(child, _ast.AST):
                    stack.append(child)
                elif isinstance(child, list):
                    stack.extend(c for c in child if isinstance(c, _ast.AST))
    first = None
    if body:
        first = compile(tree, name, "exec", S.flags, dont_inherit=True)
        S.flags |= first.co_flags & FUTURE_FLAGS
    if last is not None:
        last = compile(last, name, "single", S.flags, dont_inherit=True)
    return first, last, bool(names & NEED_LOOP) and not names & OWN_LOOP


def evaluate(code, in_loop):
    """Runs code in the user's namespace."""
    if code.co_flags & CO_COROUTINE:
        run_in_loop(types.FunctionType(code, NS)())
        return
    if in_loop:

        async def inside():
            exec(code, NS)

        run_in_loop(inside())
        return
    exec(code, NS)


def run_in_loop(coroutine):
    import asyncio

    if S.loop is None or S.loop.is_closed():
        S.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(S.loop)
    S.cancelled = False
    S.critical += 1  # a task that nobody knows would go on in a later cell
    try:
        task = S.task = S.loop.create_task(coroutine)
    finally:
        S.critical -= 1
    try:
        if S.pending:
            interrupt(None)
        S.loop.run_until_complete(task)
    except asyncio.CancelledError as error:
        if S.cancelled:
            raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
        raise
    except (KeyboardInterrupt, SystemExit):
        if not task.done():
            # It came up in another task, or in a callback: this one must not go on in a later cell.
            task.cancel()
            S.task = None
            try:
                S.loop.run_until_complete(task)
            except BaseException:
                pass
        raise
    finally:
        S.task = None
        if task.done() and not task.cancelled():
            task.exception()  # it counts as seen


def guarded(function, *args):
    """Runs what may run the user's code, which an interrupt ends, and returns what it raised."""
    caught = None
    try:
        try:
            S.interruptible = True
            if S.pending and not S.critical:
                interrupt(None)
            function(*args)
        finally:
            S.interruptible = False
    except BaseException as error:
        S.interruptible = False
        caught = error
    return caught


def execute(message):
    send({"op": "begun", "n": S.cell})  # from here on an interrupt is the cell's
    source, name = message["code"], "<cell %d>" % message["count"]
    if source.startswith("\ufeff"):
        source = source[1:]  # as a file may begin
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    first, last, in_loop = compile_cell(source, name)
    if first is not None:
        evaluate(first, in_loop)
    if last is not None:
        evaluate(last, in_loop)
    if "matplotlib.pyplot" in sys.modules:
        show_figures()


def run_cell(message):
    S.cell = S.unanswered = message["n"]
    S.displays = S.dropped = 0
    S.pending = False
    del S.shown[:]
    restore_descriptors()
    connect_stdin(message.get("stdin"))
    take_interrupts()
    code = 0
    error = guarded(execute, message)
    if isinstance(error, SystemExit):
        said = []
        guarded(lambda: said.append(exit_code(error)))
        code = said[0] if said else 1
    elif error is not None:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        guarded(report, error)
        if code != 130 and "matplotlib.pyplot" in sys.modules:
            guarded(show_figures)
    if S.child or get_pid() != S.pid:
        flush()
        os._exit(code)
    del error
    for key in HOME:
        if key not in builtins.__dict__:
            builtins.__dict__[key] = HOME[key]
    guarded(flush)
    if message.get("stdin"):
        connect_stdin(None)
    answer(code)


def answer(code):
    send({"op": "done", "n": S.cell, "code": code, "dropped": S.dropped})
    S.unanswered = None


def connect_stdin(path):
    """Makes the pipe at path descriptor 0 and sys.stdin; without one they are empty."""
    if path:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.unlink(path)
            send({"op": "reading", "n": S.cell})
        except OSError:
            path = None
    if not path:
        if S.stdin_is_null and not getattr(sys.stdin, "closed", True):
            return
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    S.stdin_is_null = not path
    if fd != 0:
        os.dup2(fd, 0)
        os.close(fd)
    if sys.stdin is S.stdin or getattr(sys.stdin, "closed", True):
        S.stdin = sys.stdin = sys.__stdin__ = open(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)


# What is asked between cells.


def preview(value):
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    short.maxlong = 80
    try:
        text = short.repr(value)
    except BaseException as error:
        text = "<%s while asked for its form>" % type(error).__name__
    text = " ".join(str(text).split("\n"))
    return text if len(text) <= 200 else text[:199] + "…"


def variables(message):
    found = []
    S.interruptible = True
    try:
        for name in sorted(n for n in NS if isinstance(n, str) and not n.startswith("_")):
            value = NS[name]
            if isinstance(value, types.ModuleType):
                continue
            if len(found) == 1000:
                break
            found.append({"name": name, "type": type(value).__name__, "preview": preview(value)})
    finally:
        S.interruptible = False
    send({"op": "variables", "n": message["n"], "variables": found})


def add_path(folder):
    import importlib

    for i, place in enumerate(sys.path):
        if place == folder:
            break
        if place.endswith(("site-packages", "dist-packages")):
            sys.path.insert(i, folder)
            break
    else:
        sys.path.append(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder] + [p for p in (os.environ.get("PYTHONPATH"),) if p])
    importlib.invalidate_caches()


def prepare(message):
    for name in [n for n in NS if n not in ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__")]:
        del NS[name]
    NS["__builtins__"] = builtins
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "Agg")
    S.max_data = message.get("max_data") or S.max_data
    S.max_displays = message.get("max_displays") or S.max_displays
    protect_descriptors()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
    builtins.display = HOME["display"] = display
    sys.displayhook = displayhook
    sys.meta_path.insert(0, FigureHook)
    S.stdin = sys.stdin
    signal.default_int_handler = on_interrupt  # whoever finds it, as asyncio.run does, may have their own for a while
    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(RUNNERS_SIGNAL, on_runner)
    for folder in message.get("paths") or ():
        add_path(folder)
    for name in message.get("preload") or ():
        try:
            __import__(name)
        except BaseException:
            pass  # warm starts are a courtesy
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].show = lambda *args, **kwargs: show_figures()
    flush()
    send({"op": "ready", "version": "%d.%d.%d" % sys.version_info[:3]})


def serve():
    while True:
        try:
            message = receive()
            operation = message["op"]
            if operation == "cell":
                run_cell(message)
            elif operation == "variables":
                variables(message)
            elif operation == "path":
                add_path(message["dir"])
                send({"op": "added", "n": message["n"]})
            elif operation == "start":
                prepare(message)
        except KeyboardInterrupt:  # one after the other, and the second in the midst of taking the first
            S.interruptible = False
            if S.unanswered is not None:
                answer(130)


serve()
