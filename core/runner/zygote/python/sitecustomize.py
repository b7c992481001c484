"""The fork server of the runner. doc.go describes how it is started and what it says.

The interpreter imports this file as its module sitecustomize. That is near the end of its own start. The last that it calls before it
opens the main file are the functions of sys.path_hooks, because that file may be an archive. One of them is ours. A child returns from
there, and the interpreter goes on: it opens and runs the main file and ends, as always. No frame of ours is left.
"""
import os
import sys

try:
    import _fork_end
    import _fork_memory as memory
    import _fork_pages
    import _fork_server
    import _fork_text
    from _fork_server import content, receive, threads
except BaseException:  # or the interpreter would open the main file
    sys.excepthook(*sys.exc_info())
    os._exit(70)

PROGRAM = 4  # the descriptor of the archive
DRIVER = "driver"  # the name in it of drivers.ProgramDriver

# The newest version that is known to look for the importer of the main file after all else. One that does not would run a program here.
NEWEST = 3, 14

PR_SET_DUMPABLE = 4

# How a main file begins that drivers.Program has made.
DISPLAYING = b'(__builtins__.__dict__.pop("_python_executor"'

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST

# Lines of .pth files, and a sitecustomize, whose effects do not depend on the variables that a program may set.
KNOWN_LINES = (b"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, ", b"import _virtualenv")
KNOWN_CUSTOMIZE = b"try:import apport_python_hookexcept ImportError:passelse:apport_python_hook.install()"  # Debian

# The bytes of a larger main file are not looked at.
LARGEST_MAIN = 1 << 20


def hide():
    """Removes what brought this module in, and imports the environment's own sitecustomize. It returns the text DRIVER."""
    place = os.environ.pop("PYTHONPATH")
    driver = __loader__.get_data(os.path.join(place, DRIVER))
    restore_home(os.environ.pop("PYEXEC_HOME", None), sys.modules["site"])
    if sys.path[:1] != [place]:
        raise memory.Failed("sys.path does not begin with the fork server")
    del sys.path[0], sys.path_importer_cache[place]
    for name in "sitecustomize", _fork_end.__name__, memory.__name__, _fork_pages.__name__, _fork_server.__name__, _fork_text.__name__:
        del sys.modules[name]
    sys.modules["zipimport"]._zip_directory_cache.pop(place)
    os.close(PROGRAM)
    if sys.implementation.name != "cpython" or not (3, 9) <= sys.version_info[:2] <= NEWEST or "t" in sys.abiflags:
        raise memory.Failed("only CPython 3.9 to %d.%d with its lock can be forked" % NEWEST)
    try:
        import sitecustomize
    except ImportError as e:
        if e.name != "sitecustomize":
            raise
    return driver


def restore_home(home, site):
    """Sets the variable HOME. It names no folder at the start, because a program's files may have come into the real one already."""
    if home is None:
        del os.environ["HOME"]
    else:
        os.environ["HOME"] = home
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()
    config = getattr(sys.modules.get("sysconfig"), "_CONFIG_VARS", None)
    if config and "userbase" in config:
        config["userbase"] = site.USER_BASE


def startup_code(site):
    """Returns the file of the environment whose code has run at the start, or nothing."""
    if "usercustomize" in sys.modules:
        return sys.modules["usercustomize"].__file__
    own = sys.modules.get("sitecustomize")
    if own is not None:
        with open(own.__file__, "rb") as f:
            if b"".join(line.partition(b"#")[0].strip() for line in f) != KNOWN_CUSTOMIZE:
                return own.__file__
    for folder in site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else []):
        try:
            names = sorted(n for n in os.listdir(folder) if n.endswith(".pth"))
        except OSError:
            continue
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                for line in f:
                    if line.startswith((b"import ", b"import\t")) and not line.startswith(KNOWN_LINES):
                        return os.path.join(folder, name)
    return ""


def kind(fd):
    """Returns what a stream of a new interpreter depends on."""
    st = os.fstat(fd)
    mode = st.st_mode & 0o170000
    return mode, st.st_blksize, mode == 0o020000 and os.isatty(fd)


class Child:
    """What a child becomes. Its parent makes it, so that the child has less to do."""

    def __init__(self, lib, driver):
        self.lib, self.end, self.pages, self.main = lib, None, _fork_pages.Pages(lib), None
        self.driver = driver
        self.learns, self.start, self.ahead = False, frozenset(sys.modules), frozenset()
        self.argv = content("/proc/self/cmdline").split(b"\0")[:-1]
        self.env = [name + b"=" + value for name, value in os.environb.items()]
        self.memory = memory.Memory(lib, self.env)
        self.kinds = [kind(fd) for fd in (0, 1, 2)]

    def wait(self, own):
        """Waits for a request and fulfils it."""
        self.lib.call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
        own.send(b"waiting")
        words, fds = receive(own)
        if words[0] != b"run":
            os._exit(0)
        argc = int(words[1])
        for fd in fds[3:]:
            os.write(fd, b"0")
            os.close(fd)
        try:
            os.chdir(words[2])
            why = self.differs(fds)
        except OSError as e:
            why = "exec", str(e)
        if why:
            own.send("\0".join(why).encode(errors="replace"))
            os._exit(0)
        self.become(words[3:3 + argc], words[3 + argc:])
        for i, fd in enumerate(fds[:3]):
            os.dup2(fd, i)
            os.close(fd)
        if kind(0) != self.kinds[0]:
            new_stdin()
        own.send("\0".join(("started", *self.imports)).encode())
        own.close()

    def differs(self, fds):
        """Returns the message that says why a new interpreter would do something else, or nothing."""
        for i in 1, 2:
            if kind(fds[i]) != self.kinds[i]:
                return "exec", "descriptor %d is of another kind" % i
        site = sys.modules["site"]
        if site.ENABLE_USER_SITE and os.access(site.USER_SITE, os.F_OK):
            return "exec", "there are packages of the user"
        text = content(self.main or self.argv[-1], LARGEST_MAIN)
        if text is None:
            return "exec", "the main file is large"
        self.archive = b"PK\5\6" in text
        if self.archive and self.ahead:
            return "exec", "the main file is an archive, and modules were imported before"
        word = _fork_text.inspecting(text)
        if word:
            return "exec", "the program mentions " + word
        self.imports = ()
        if (self.ahead or self.learns) and not self.main:
            local = _fork_text.modules_in(os.path.dirname(self.argv[-1]) or b".")
            if local & self.ahead:
                return "clash", min(local & self.ahead)
            if self.learns:
                self.imports = [n for n in _fork_text.imports(text) if n not in self.start and n.partition(".")[0] not in local][:_fork_text.MOST_NAMES]
        if self.end:
            self.end.begin(text)
        if text.startswith(DISPLAYING):
            vars(sys.modules["builtins"])["_python_executor"] = self.driver  # the main file removes it before all else
        return ()

    def importer(self, path):
        """Returns what the interpreter imports from, if the main file is an archive. The two usual hooks accept no other file."""
        for hook in sys.path_hooks if self.archive or len(sys.path_hooks) > 2 else ():
            try:
                return hook(path)
            except ImportError:
                pass
        return None

    def become(self, argv, env):
        if argv == self.argv and env == self.env:
            return
        if argv != self.argv:
            self.memory.command_line(argv)
            sys.argv[1:] = [os.fsdecode(a) for a in argv[len(self.argv):]]
            if hasattr(sys, "orig_argv"):
                sys.orig_argv[:] = [os.fsdecode(a) for a in argv]
        self.memory.environment(env)
        self.memory.set()
        if env != self.env:
            os.environb.clear()
            for variable in env:
                name, _, value = variable.partition(b"=")
                os.environb[name] = value


def rehearse(server, child, main, to):
    """Prepares a child for a program that does nothing. It goes all the way of others, until the interpreter would open the main file."""
    own, peer = server.socket.socketpair(server.socket.AF_UNIX, server.socket.SOCK_SEQPACKET)
    os.dup2(own.fileno(), server.own.fileno())
    out = os.pipe()
    fds = (os.open(os.devnull, os.O_RDONLY), out[1], os.dup(out[1]))
    peer.sendmsg([b"\0".join([b"run", str(len(child.argv)).encode(), b"/", *child.argv, *child.env])],
                 [(server.socket.SOL_SOCKET, server.socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))])
    child.main, child.peer, child.out = os.devnull, peer, out

    def audit(event, args):
        if event == "cpython.run_file":
            try:
                if not args[0].startswith("/"):  # the interpreter did not find the folder at its start
                    os.write(to, b"moved")
                    return
                exec(compile(b"print()", "main.py", "exec"), vars(main))
                if child.end:
                    child.end.nothing_left()
                os.write(to, _fork_pages.used())
            finally:
                os._exit(0)
    sys.addaudithook(audit)
    server.become_child()


def new_stdin():
    """Makes sys.stdin as create_stdio of CPython does."""
    io, old = sys.modules["io"], sys.stdin
    buffer = io.open(0, "rb", -1, None, None, None, False)
    buffer.raw.name = "<stdin>"
    line = buffer.raw.isatty() and not old.write_through
    new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line, old.write_through)
    new.mode = "r"
    sys.stdin = sys.__stdin__ = new


def new_main():
    """Makes the module __main__ anew, so that it and what a program puts there are not frozen. It returns the module."""
    old = sys.modules["__main__"]
    new = type(sys)("__main__")
    vars(new).update({name: dict(value) if name == "__annotations__" else value for name, value in vars(old).items()})
    sys.modules["__main__"] = new
    return new


def preimport(names):
    """Imports modules, and returns the names of those that are there. A name after "?" may fail with any error."""
    got = []
    for name in names:
        module = name.lstrip("?")
        try:
            __import__(module)
        except ImportError:
            continue
        except Exception:
            if module == name:
                raise
            continue
        got.append(module)
    return got


def end_threads():
    """Ends threads of libraries that end them before a fork, and start them again when they need them, such as OpenBLAS."""
    if threads() == 1:
        return
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(1000):  # a thread that was joined is there for a moment
        if threads() == 1:
            return
        os.sched_yield()


def main(site, driver, path):
    """Serves the runner. In a child it returns what the interpreter imports from, if the main file is an archive."""
    before = set(sys.modules)
    import gc
    import _ctypes
    import _operator
    import _signal
    import _socket
    import _thread
    import _weakref
    import atexit
    import select
    driver = run_driver(driver)
    for name in set(sys.modules) - before:
        del sys.modules[name]
    del before
    gc.disable()
    lib = memory.Library(_ctypes)
    child = Child(lib, driver)
    server = _fork_server.Server(_signal, _socket, select, lib)
    server.child, server.socket = child, _socket
    if _fork_end.dropped():
        child.end = _fork_end.End(gc, _weakref, _thread, atexit, _operator, lib)
    word, *names = receive(server.control)[0]
    child.learns = word == b"learn"
    if names:
        gc.freeze()  # so that the collector lists only objects of the imports
    got = server.imported = preimport([n.decode() for n in names])
    child.ahead = frozenset(n.partition(".")[0] for n in sys.modules.keys() - child.start) - child.start
    end_threads()
    if threads() > 1:
        raise memory.Failed("the interpreter has several threads after the imports of: " + (", ".join(got) or "its start"))
    gc.collect()
    harmless = not got or child.end and child.end.kinds_harmless(gc.get_objects())
    gc.freeze()
    lib.trim()
    modules = list(sys.modules.values())
    main = new_main()
    if child.end:
        child.end.watch(main, harmless)
    os.chdir("/")  # the folder may be unmounted
    kept = keep(_ctypes.Py_INCREF, globals(), child, server, lib, got, *modules)
    if child.end:
        child.end.give_back = lambda: give_back(gc.unfreeze, _ctypes.Py_DECREF, kept)
    lib.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    ready = "ready", startup_code(site), *got
    own = server.own
    if word == b"alone":
        server.say(*ready)
        server.leave()
        own.close()
        own = server.control
    elif not child.pages.learn(select.poll, lambda to: rehearse(server, child, main, to)):
        if child.pages.moved:
            server.say("moved")
            os._exit(0)
        server.say(*ready)
        server.serve()
    child.wait(own)
    if "threading" in sys.modules:
        main_thread(sys.modules["threading"])
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # the module random does so by itself
    _signal.pthread_sigmask(_signal.SIG_SETMASK, server.mask)
    gc.enable()
    return child.importer(path)


def run_driver(text):
    """Returns the names of the driver of programs that display. It makes the types of syntax trees, too, which that driver needs."""
    names = {"__name__": "_python_executor", "__builtins__": dict(vars(sys.modules["builtins"])), "DRIVER": ()}
    exec(compile(text, "<python-executor>", "exec", 0, True), names)
    compile("", "main.py", "exec", ONLY_AST)
    return names


def main_thread(threading):
    """Makes the main thread as it is without a fork. The module threading does not do so in every version."""
    thread = threading.main_thread()
    thread._set_native_id()
    if hasattr(threading, "_shutdown_locks"):
        threading._shutdown_locks.add(thread._tstate_lock)


def keep(increase, *values):
    """Keeps values, and the code of all callers, and returns them. Taking them apart would change pages that copies share with the server."""
    frame = sys._getframe(1)
    while frame:
        values += frame.f_code,
        frame = frame.f_back
    for value in values:
        increase(value)
    return values


def give_back(unfreeze, decrease, kept):
    """Undoes keep and the freeze, so that the collector takes apart what it would take apart without a fork server."""
    unfreeze()
    for value in kept:
        decrease(value)


def install(site, driver):
    """Makes the interpreter call main where it looks for the importer of the main file."""
    usual = site.ENABLE_USER_SITE, site.execusercustomize

    def last():  # of what the module site calls
        site.ENABLE_USER_SITE, site.execusercustomize = usual
        if usual[0]:
            site.execusercustomize()
        sys.path_hooks.insert(0, hook)

    def hook(path):
        sys.path_hooks.remove(hook)
        return guarded(main, site, driver, path)
    site.ENABLE_USER_SITE, site.execusercustomize = True, lambda: guarded(last)


def guarded(function, *args):
    """Returns what function returns. Nothing goes on to the main file after an error."""
    try:
        return function(*args)
    except memory.Failed as e:
        os.write(2, str(e).encode(errors="replace"))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(70)


guarded(install, sys.modules["site"], guarded(hide))
if "sitecustomize" not in sys.modules:
    sys.modules["sitecustomize"] = None  # the importer deletes it
    raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
