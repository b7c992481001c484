# A program that displays what a cell displays: the value of its last expression, figures, and what it gives to display.
#
# drivers.Program makes a main file that calls run. So the interpreter's start and end, its arguments and its exit code are those of any
# program. run gives the main file the text of the user, and runs it in __main__. It appends what is displayed to the file S.place, one JSON
# object per line, as the driver of a session says it. Most programs need little of the driver, so LATER, which has the rest, is compiled when
# it is needed. DRIVER names the file that this text was read from, if it was. A fork server runs this file before it is forked, and before
# there is the main file. It runs on Python 3.8 to 3.14.
import _ast
import builtins
import os
import sys

FLAGS = getattr(_ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
CO_COROUTINE = 0x80
PLAIN = (int, float, str, bool, bytes, complex)  # they have one form
FUTURE_FLAGS = 0
WATCHED = ("matplotlib", "matplotlib.pyplot", "plotly.basedatatypes", "IPython.core.display_functions", "IPython.display")


class State:
    """What the driver knows, as in a session."""

    names = None  # of the user, while the main file runs: its objects end as those of any program do
    file = ""  # the main file
    place = ""
    pid = 0
    child = False
    flags = FLAGS
    context = None  # of what runs since the event loop was needed
    loop = None
    displays = 0
    dropped = 0
    max_data = MAX_DATA
    max_displays = MAX_DISPLAYS
    cell = 0
    shown = []
    outer = ()  # code of the main file that calls run
    later = LATER


S = State()


class Names:
    """NS of a session."""

    def __contains__(self, name):
        return name in S.names

    def __getitem__(self, name):
        return S.names[name]


NS = Names()


def is_users(filename):
    return filename == S.file


def load():
    """Makes the rest of the driver's functions."""
    if S.later:
        text, S.later = S.later, None
        exec(compile(text, "<python-executor>", "exec"), globals())
        builtins.display = display
        CHANGES.pop("asyncio")  # a program has a loop when it asks for one
        if Hook in sys.meta_path:
            sys.meta_path.remove(Hook)
            change_modules()


class Hook:
    """Loads the driver when a module is imported that it changes."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in WATCHED:
            os.environ.setdefault("MPLBACKEND", "Agg")
            load()
            return ImportHook.find_spec(name, path, target)
        return None


def first_display(*values, **options):
    load()
    display(*values, **options)


def first_displayhook(value):
    if S.child or value is None:
        return  # a child goes on where its parent does
    if type(value) in PLAIN:
        text = repr(value).encode("utf-8", "backslashreplace")
        if len(text) < 1 << 16:
            import binascii

            form = binascii.b2a_base64(text, newline=False).decode()
            write('{"op":"display","display":{"data":{"text/plain":"%s"},"value":true}}\n' % form)
            return
    load()
    show(value, True)


def after_fork():
    S.child = True


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def send(message):
    write(json.dumps(message) + "\n")


def write(line):
    data = line.encode()
    try:
        fd = os.open(S.place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
    except OSError:
        S.dropped += 1  # there is no room


def report(usual, kind, error, trace):
    """Reports an error without the frames of the driver. It imports nothing, because an import may change how the interpreter ends."""
    sys.excepthook = usual
    try:
        exec(compile(TRACE, "<python-executor>", "exec"), globals())
        clean(error, set())
        sys.last_traceback = error.__traceback__
    except BaseException:
        pass  # there is no memory: the traceback has more frames
    usual(kind, error, error.__traceback__)


def evaluate(code, in_loop):
    if in_loop or code.co_flags & CO_COROUTINE:
        load()
        run_in_loop(code)
    elif S.context is not None:
        S.context.run(exec, code, S.names)
    else:
        exec(code, S.names)


def execute(source, data):
    try:
        first, last, in_loop = compile_cell(source, S.file, data)
    except SyntaxError:
        load()
        other = translate(source, S.file)
        if other == source:
            raise
        builtins.__magic__ = magic
        first, last, in_loop = compile_cell(other, S.file)
    if first is not None:
        evaluate(first, in_loop)
    if last is not None:
        usual = sys.displayhook
        sys.displayhook = first_displayhook
        try:
            evaluate(last, in_loop)
        finally:
            sys.displayhook = usual


def finish():
    if S.child or os.getpid() != S.pid:
        return
    if "matplotlib.pyplot" in sys.modules:
        load()
        show_figures()
    if S.loop is not None and not S.loop.is_closed():
        close_loop()
    if S.dropped:
        write('{"op":"done","dropped":%d}\n' % S.dropped)


def run(source, place):
    """Runs the text of the user. Only the main file calls it."""
    global FUTURE_FLAGS
    main = sys.modules["__main__"]
    S.names, S.file, S.place, S.pid, S.outer = main.__dict__, main.__file__, place, os.getpid(), (sys._getframe(1).f_code,)
    del main
    if "__future__" in source:
        import __future__

        for name in __future__.all_feature_names:
            FUTURE_FLAGS |= getattr(__future__, name).compiler_flag
    for path in DRIVER:
        try:
            os.unlink(path)
        except OSError:
            pass  # the runner does it
    data = source.encode("utf-8", "surrogatepass")
    try:
        with open(S.file, "wb") as file:
            file.write(data)
    except OSError:
        pass  # then tracebacks have no text
    if source.startswith("\ufeff"):
        source = source[1:]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
    builtins.display = first_display
    sys.meta_path.insert(0, Hook)
    try:
        try:
            execute(source, data)
        except KeyboardInterrupt:
            raise
        except BaseException:
            finish()
            raise
        else:
            finish()
    except SystemExit:
        raise
    except BaseException:
        usual = getattr(sys, "excepthook", None)
        if usual is not None:
            sys.excepthook = lambda *error: report(usual, *error)
        raise
    finally:
        S.names = None
