# Errors, cells, and the requests between cells. See control.py.
# CONSOLE is the beginning of executor.ConsoleCell, INCOMPLETE is executor.IncompleteType.
CONSOLE = "# python-executor: console\n"
# ASKING begins a cell of a console that answers input(), COMPLETE begins executor.CompletionCell.
ASKING = "# python-executor: console, asks\n"
COMPLETE = "# python-executor: complete\n"
ASK = "application/vnd.python-executor.ask+json"
COMPLETIONS = "application/vnd.python-executor.completions+json"
MAX_ASKED = 150  # of one cell: more displays would be dropped, and nobody would answer
INCOMPLETE = "application/vnd.python-executor.incomplete+json"


# Errors.


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


def lines_of(source):
    """Returns the lines as the tokenizer counts them. Each has a line end: without it, the marks below a line in a traceback are shifted."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line + "\n" for line in lines]


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
    S.context.run(exec, code, NS)


def run_in_loop(coroutine):
    import asyncio

    use_loop()
    S.cancelled = False
    S.unheeded = None
    S.critical += 1  # a task that S.task does not name would continue in a later cell
    try:
        task = S.task = start_task(coroutine)
    finally:
        S.critical -= 1
    try:
        if S.pending:
            interrupt(None)
        run_task(task)
    except asyncio.CancelledError as error:
        if S.cancelled:
            raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
        raise
    except (KeyboardInterrupt, SystemExit):
        if not task.done():
            # Another task or a callback raised it. This task must not continue in a later cell.
            task.cancel()
            try:
                run_task(task)
            except BaseException:
                pass
        raise
    finally:
        S.task = None
        if task.done() and not task.cancelled():
            task.exception()  # asyncio warns of an exception that nobody has read
    if S.unheeded is task:
        raise KeyboardInterrupt


def run_task(task):
    """Is run_until_complete. Where an interrupt leaves the loop after the end of a task, the stop that asyncio has scheduled would end the next run."""
    task.add_done_callback(task_ended)
    try:
        S.loop.run_forever()
    finally:
        task.remove_done_callback(task_ended)
    if not task.done():
        raise RuntimeError("Event loop stopped before Future completed.")
    return task.result()


def task_ended(task):
    if task is S.task:
        S.loop.stop()


def guarded(function, *args):
    """Calls function, which may run user code. An interrupt ends it. Returns the exception that it raised, or None."""
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


def incomplete(source):
    """Reports whether source needs another line, by the rules of Python's console."""
    import codeop

    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= S.flags
    try:
        return compiler(source.rstrip(" \t"), "<input>", "single") is None
    except (SyntaxError, ValueError, OverflowError):
        return False  # another line cannot help: the cell reports the error


def show_form(mime, value):
    import binascii
    import json

    S.displays += 1
    data = binascii.b2a_base64(json.dumps(value).encode(), newline=False).decode()
    send({"op": "display", "n": S.cell, "display": {"data": {mime: data}, "value": False, "truncated": False}})


def ask(prompt=""):
    """Is input() in a cell of a console: the person there answers by a file."""
    import time

    if S.asked >= MAX_ASKED:
        raise EOFError("one input of the console may ask %d times" % MAX_ASKED)
    S.asked += 1
    name = ".pyexec-answer-" + os.urandom(8).hex()
    path = os.path.join(S.folder, name)
    flush()
    show_form(ASK, {"prompt": str(prompt), "file": name})
    while not os.path.exists(path):
        time.sleep(0.02)
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        line = file.read()
    os.unlink(path)
    if not line.endswith("\n"):
        raise EOFError("EOF when reading a line")
    return line[:-1]


def complete(text):
    """Displays what may stand in place of text."""
    import rlcompleter

    completer, found = rlcompleter.Completer(NS), []
    while len(found) < 200:
        match = completer.complete(text, len(found))
        if match is None:
            break
        found.append(match)
    show_form(COMPLETIONS, found)


def execute(message):
    send({"op": "begun", "n": S.cell})  # from here on an interrupt ends the cell
    source, name = message["code"], "<cell %d>" % message["count"]
    if source.startswith(COMPLETE):
        complete(source[len(COMPLETE) :])
        return
    asking = source.startswith(ASKING)
    if asking or source.startswith(CONSOLE):
        source = source[len(ASKING if asking else CONSOLE) :]
        if asking and builtins.input is HOME["input"]:
            builtins.input = ask
        if incomplete(source):
            send({"op": "display", "n": S.cell, "display": {"data": {INCOMPLETE: "e30="}, "value": False, "truncated": False}})
            return
    if source.startswith("\ufeff"):
        source = source[1:]  # a byte order mark, as in a file
    linecache.cache[name] = (len(source), None, lines_of(source), name)
    source = translate(source, name)
    first, last, in_loop = compile_cell(source, name)
    if first is not None:
        evaluate(first, in_loop)
    if last is not None:
        evaluate(last, in_loop)
    if "matplotlib.pyplot" in sys.modules:
        S.context.run(show_figures)


def run_cell(message):
    S.cell = S.unanswered = message["n"]
    S.displays = S.dropped = S.asked = 0
    S.pending = False
    del S.shown[:]
    restore_descriptors()
    connect_stdin(message.get("stdin"))
    take_interrupts()
    keep_loop()
    code = 0
    error = guarded(execute, message)
    if isinstance(error, SystemExit):
        said = []
        guarded(lambda: said.append(exit_code(error)))
        code = said[0] if said else 1
    elif error is not None:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        guarded(S.context.run, report, error)
        if code != 130 and "matplotlib.pyplot" in sys.modules:
            guarded(S.context.run, show_figures)
    if S.child or get_pid() != S.pid:
        flush()
        os._exit(code)
    del error
    if builtins.__dict__.get("input") is ask:
        builtins.input = HOME["input"]
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
    """Makes the pipe at path descriptor 0 and sys.stdin. Without a path they are empty."""
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


# Requests between cells.


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
    S.folder = os.getcwd()
    protect_descriptors()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
    builtins.display = HOME["display"] = display
    sys.displayhook = displayhook
    sys.unraisablehook = unraisablehook
    builtins.__magic__ = HOME["__magic__"] = magic
    sys.dont_write_bytecode = True  # its files are dated by the second, so an edit within one would run the old code
    change_modules()
    S.stdin = sys.stdin
    signal.default_int_handler = on_interrupt  # asyncio.run, and others that look for it, may replace it for a while
    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(RUNNERS_SIGNAL, on_runner)
    for folder in message.get("paths") or ():
        add_path(folder)
    for name in message.get("preload") or ():
        try:
            __import__(name)
        except BaseException:
            pass  # the cell that imports it reports the error
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
                S.context.run(variables, message)
            elif operation == "path":
                add_path(message["dir"])
                send({"op": "added", "n": message["n"]})
            elif operation == "start":
                prepare(message)
        except KeyboardInterrupt:  # a second interrupt, while the first was handled
            S.interruptible = False
            if S.unanswered is not None:
                answer(130)


serve()
