"""The end of a program whose objects have nothing to do at the end."""
import os
import sys

from _fork_text import mentions

# What this module calls, also if the program replaces it.
all, any, dict, frozenset, id, isinstance, issubclass, len, list, map, max, memoryview, next, reversed, sum, type, vars, zip = (
    all, any, dict, frozenset, id, isinstance, issubclass, len, list, map, max, memoryview, next, reversed, sum, type, vars, zip)
is_finalizing, allocated = sys.is_finalizing, sys.getallocatedblocks

# Modules of C whose objects only hold memory. Other modules may have an end of their own.
HARMLESS = frozenset((
    "_ast _asyncio _bisect _blake2 _bz2 _codecs _collections _contextvars _csv _datetime _decimal _elementtree _functools _hashlib"
    " _heapq _json _locale _lzma _md5 _opcode _operator _pickle _posixsubprocess _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _socket"
    " _sre _ssl _stat _statistics _string _struct _suggestions _symtable _sysconfig _tokenize _typing _uuid _weakref _zoneinfo array"
    " atexit binascii cmath errno fcntl gc grp itertools math pwd pyexpat pyexpat.errors pyexpat.model resource select termios typing.io"
    " typing.re unicodedata zlib").split())

# Packages whose modules of C only hold memory, too. What they have written to streams of C is flushed.
LIBRARIES = frozenset("charset_normalizer numpy".split())

# Modules of C that each start of an interpreter has. Their objects with an end, which are files, have __del__.
CORE = frozenset("__main__ _abc _codecs _imp _io _signal _stat _thread _warnings builtins faulthandler marshal posix sys time".split())

# What a main file mentions that may notice this end.
NOTICING = (b"settrace", b"setprofile", b"monitoring", b"audit", b"scandir", b"__interactivehook__", b"__cached__", b"globals", b"locals", b"vars",
            b"ps1", b"ps2", b"last_", b"_socket", b"SocketType", b"ctypes", b"updateifcopy")

# The same, but only as whole names: "exec" is a part of many words.
NOTICING_NAMES = b"signal", b"exec", b"eval"

# The names that the interpreter adds to sys after an exception, and those that it adds at its end, each in this order.
EXCEPTION = ["last_exc"] * (sys.version_info >= (3, 12)) + ["last_type", "last_value", "last_traceback"]
ADDED = ["ps1", "ps2"] + EXCEPTION

# Whether dropped is a finder, which the interpreter drops before it adds names to sys.
FINDER = sys.version_info >= (3, 13)

RLIMIT_RSS = 5

HEAP_TYPE, HAVE_GC = 1 << 9, 1 << 14  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_HAVE_GC

# How many blocks of memory a program may have for a look at its objects. The list of many objects is large itself.
MOST = 200_000

# Attributes of classes, also of those whose metaclass has functions for attributes.
MRO, NAMES, FLAGS = (vars(type)[name].__get__ for name in ("__mro__", "__dict__", "__flags__"))


def types(kind):
    """Yields a type and all that are derived from it."""
    yield kind
    for k in type.__subclasses__(kind):
        yield from types(k)


GENERATOR = type(k for k in ())

# How many handlers of exceptions a generator has whose code has none. From 3.12 on, one turns StopIteration into RuntimeError.
HANDLERS = int(sys.version_info >= (3, 12))


def generator_harmless(g):
    """Reports whether the end of a generator runs no code of the program: it does not wait at a yield, or no handler is around that."""
    frame = g.gi_frame
    if frame is None:
        return True
    if sys.version_info < (3, 11):
        return frame.f_lasti < 0
    return not g.gi_running and (not g.gi_suspended or g.gi_yieldfrom is None and handlers(frame.f_code) == HANDLERS)


def handlers(code):
    """Returns how many ranges of code have a handler. Only the first byte of an entry has the highest bit."""
    return sum(byte >> 7 for byte in code.co_exceptiontable)


class Files:
    """The files of the module io. At its end, each that is open calls its method close, which calls flush."""

    def __init__(self, io):
        self.raw, self.text, self.bytes, self.string = io.FileIO, io.TextIOWrapper, io.BytesIO, io.StringIO
        self.buffers = io.BufferedReader, io.BufferedWriter, io.BufferedRandom
        self.kinds = (self.raw, self.text, self.bytes, self.string, *self.buffers)

    def harmless(self, file):
        """Reports whether the end of a file, which is of one of kinds, changes nothing: there is nothing to write and no descriptor to close."""
        if type(file) is self.string or type(file) is self.bytes:
            return self.plain(file)
        parts = self.parts(file)
        raw = parts[-1]
        if type(raw) is not self.raw:
            return False  # it may have functions of the program
        return raw.closed or not (raw.closefd or self.raw.writable(raw)) and self.plain(file)

    def parts(self, file):
        """Returns a file, its buffer and its raw file, as far as it has them."""
        parts = [file]
        if type(file) is self.text:
            parts.append(file.buffer)
        if type(parts[-1]) in self.buffers:
            parts.append(parts[-1].raw)
        return parts

    def plain(self, file):
        """Reports whether the program has given no attributes to a file and its parts. Their end would call some."""
        return all(type(name) is str and name in ("mode", "name") for part in self.parts(file) for name in vars(part))


def dropped():
    """Returns an object that the interpreter drops between the flush of the streams and the modules, or None. Before Python 3.13 only sys
    holds its hook. Newer versions drop the cache of finders before all else."""
    if not FINDER:
        return getattr(sys, "__interactivehook__", None)
    kind = sys.modules["_frozen_importlib_external"].FileFinder
    return next((f for f in sys.path_importer_cache.values() if type(f) is kind), None)


def tracers():
    """Returns functions of C that return None unless the program is traced, profiled or monitored."""
    method, monitoring = type(tracers.__get__(0)), getattr(sys, "monitoring", None)
    return (sys.gettrace, sys.getprofile, *(method(monitoring.get_tool, i) for i in range(6) if monitoring))


class End:
    """Ends a process without taking its objects apart, where no object does anything at its end.

    The interpreter takes modules and types apart at its end. A copy has to copy most pages for that. It serves only objects with
    finalizers. The interpreter drops an object after the exit functions and the flush of the streams. A weak reference calls run then.
    """

    def __init__(self, gc, weakref, thread, atexit, operator, lib):
        self.lib, self.clock = lib, sys.modules["time"].thread_time
        self.atexit, self.failed, self.early, self.give_back = atexit.register, False, True, None
        self.gc, self.threads, self.weak, self.exit, self.close, self.getpid = gc, thread._count, weakref.ref, os._exit, os.close, os.getpid
        # next of an untraced function calls it, unless a tracer would see that. All is of C until then. A tracer may be false.
        calls, nothing = operator.methodcaller("__call__"), (None,) * (len(tracers()) + 1)
        self.untraced = lambda function: filter(None, map(operator.is_not, map(calls, (*tracers(), function)), nothing))
        self.reference = weakref.ref(dropped(), type(self.run)(next, self.untraced(self.run)))
        self.streams, self.excepthook, self.frame = (sys.stdout, sys.stderr), sys.excepthook, sys._getframe
        self.input, self.files = sys.stdin, Files(sys.modules["io"])
        self.harmless = {id(kind): self.files.harmless for kind in self.files.kinds}  # whether an object has no end, by its type
        self.harmless[id(GENERATOR)] = generator_harmless
        self.spec = sys.modules["_frozen_importlib"].ModuleSpec
        self.loaders = sys.modules["_frozen_importlib_external"].SourceFileLoader, sys.modules["_frozen_importlib"].FrozenImporter
        self.extension = sys.modules["_frozen_importlib_external"].ExtensionFileLoader
        self.function, self.module, self.proxies = type(self.run.__func__), type(sys), [id(weakref.ProxyType), id(weakref.CallableProxyType)]
        self.usual = frozenset(id(k) for k in (
            dict, list, tuple, set, frozenset, property, classmethod, staticmethod, self.function, type(self.run), type(len)))

    def watch(self, main, harmless):
        """Begins. The modules that are there already count as modules of the program, if they have an end of their own. The collector does
        not list the objects of those that were imported before. harmless says whether none of these has an end."""
        self.main, self.blocks = self.weak(main), allocated()
        self.last, self.count = next(reversed(sys.modules)), len(sys.modules)
        self.usual |= {id(k) for k in types(object) if self.without_end(k)}
        self.early = harmless and all(map(self.module_harmless, sys.modules.keys() - CORE))

    def without_end(self, kind):
        """Reports whether objects of a type have no end, and nobody can give them one."""
        return (not FLAGS(kind) & HEAP_TYPE and not issubclass(kind, (type, self.weak)) and id(kind) not in self.proxies
                and not any("__del__" in NAMES(k) for k in MRO(kind)))

    def begin(self, text):
        """Begins the program text in this process."""
        self.pid = self.getpid()
        if any(word in text for word in NOTICING) or any(mentions(text, name) for name in NOTICING_NAMES):
            self.reference = None
            self.give_back()
        elif b"atexit" not in text:
            self.atexit(next, self.untraced(self.note), None)

    def note(self):
        """Notes whether the main file has ended with an exception, which makes the exit code 1. The interpreter drops the exception before
        it calls run. The frame of a main file that has gone on after an exception is elsewhere."""
        try:
            trace = vars(sys).get("last_traceback")
            frame = trace and trace.tb_frame
            self.failed = (frame is not None and not isinstance(vars(sys)["last_value"], KeyboardInterrupt)
                           and frame.f_globals is vars(self.main()) and frame.f_code.co_name == "<module>"
                           and frame.f_back is None and frame.f_lasti == trace.tb_lasti)
        except BaseException:
            pass

    def tell_peak(self):
        """Tells the runner the peak of the resident memory, of this process or of a child that it has waited for. Nobody but the parent could
        ask the kernel for it once the process exits. The kernel does not enforce this limit, but shows it (proc_pid_stat(5), rsslim)."""
        own, children = self.lib.longs(), self.lib.longs()
        self.lib.call("getrusage", 0, own)
        self.lib.call("getrusage", -1, children)
        self.lib.call("setrlimit", RLIMIT_RSS, (max(own[4], children[4]) << 10 | 1).to_bytes(8, sys.byteorder) + b"\xff" * 8)

    def run(self):
        try:
            if is_finalizing():
                self.tell_peak()
            if self.early and is_finalizing() and self.frame().f_back is None and self.nothing_left():
                code = self.code()
                if code is not None:
                    for stream in self.streams:
                        stream.flush()  # it fails again if it has failed
                    self.quit(code)
                return  # the interpreter ends, and the collector has nothing to find
        except BaseException:
            pass
        self.give_back()

    def quit(self, code):
        """Ends the process. The libraries of harmless modules have nothing to do at their end, but may have written to C streams. The end of
        the output tells the runner to look at this process. The kernel would close it only after it has taken the memory apart."""
        self.lib.call("fflush", None)
        self.clock()  # adds the time of this process to that of its control groups
        try:
            for fd in 1, 2:
                try:
                    self.close(fd)
                except OSError:
                    pass
        finally:
            self.exit(code)

    def code(self):
        """Returns the exit code if the main file was run to its end or has ended with an exception, or None. The interpreter then removes
        two names. It has added names for an exception before it has added the others."""
        main = vars(self.main()).keys()
        if (sys.excepthook is not self.excepthook or not main.isdisjoint(("__file__", "__cached__"))
                or not main >= {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__"}):
            return None
        if FINDER:
            want = EXCEPTION if self.failed else []
            if not vars(sys).keys().isdisjoint(name for name in ADDED if name not in want):
                return None
        else:
            want = EXCEPTION + ADDED[:2] if self.failed else ADDED
        names = reversed(vars(sys))
        return int(self.failed) if [next(names) for _ in want][::-1] == want else None

    def nothing_left(self):
        """Reports whether nothing happens at the end of the objects of this process."""
        return (self.getpid() == self.pid and not self.threads() and allocated() < self.blocks + MOST
                and type(sys.modules) is dict and sys.stdout is self.streams[0] and sys.stderr is self.streams[1]
                and all(map(self.files.plain, (self.input, *self.streams))) and not self.gc.callbacks and not self.gc.get_debug()
                and not sys.flags.dev_mode and not sys.flags.verbose and all(map(self.module_harmless, self.imported()))
                and self.objects_harmless(self.main()))

    def imported(self):
        """Returns the names of the modules of the program. A look at all names would change the counts of their references."""
        names = []
        for name in reversed(sys.modules):
            if type(name) is not str:
                raise TypeError  # it may have functions of the program
            if name == self.last:
                break
            names.append(name)
        return names if len(names) == len(sys.modules) - self.count else list(sys.modules)  # the program has changed their order

    def module_harmless(self, name):
        if name in HARMLESS:
            return True
        if type(sys.modules[name]) is not self.module:
            return False  # it may have functions for its attributes
        spec = vars(sys.modules[name]).get("__spec__")
        loader = spec.loader if type(spec) is self.spec else None
        if type(loader) is self.extension:
            return self.library_harmless(spec.name)
        if spec is None and name.startswith(("cython_runtime", "_cython_")):
            return True  # types that modules of Cython share
        return (type(loader) is self.loaders[0] or loader is self.loaders[1]) and name != "code"  # it adds names to sys

    def library_harmless(self, name):
        """Reports whether a module of C that belongs to a library only holds memory. numpy imports ctypes, which others may have used."""
        if name == "_ctypes":
            return "numpy" in sys.modules
        package, _, rest = name.partition(".")
        return bool(rest) and package in LIBRARIES or package.endswith("__mypyc")

    def objects_harmless(self, main):
        """Reports whether no object is finalized. The module main is one of them."""
        objects = self.gc.get_objects()
        return id(main) in map(id, objects) and self.kinds_harmless(objects)  # else the program has hidden objects from the collector

    def kinds_harmless(self, objects):
        """Reports whether none of objects is finalized."""
        kinds = list(map(type, objects))
        ids = list(map(id, kinds))
        kinds = dict(zip(ids, kinds))
        unusual = {i: [] for i in kinds.keys() - self.usual}
        for i, o in zip(ids, objects):
            if i in unusual:
                unusual[i].append(o)
        for i, objects in unusual.items():
            kind = kinds[i]
            if i in self.harmless:  # only these types, and none that is derived from them
                if not all(map(self.harmless[i], objects)) or kind is self.files.bytes and id(memoryview) in kinds:
                    return False  # bytes that are in use cannot be closed, and newer versions say so
                continue
            bases = [id(k) for k in MRO(kind)]
            if id(kind) in self.proxies or any("__del__" in NAMES(k) for k in MRO(kind)):
                return False
            if id(type) in bases and any("__del__" in NAMES(o) and not FLAGS(o) & HAVE_GC for o in objects):
                return False  # the collector does not know its objects
            if any("_func_restype_" in NAMES(k) for k in MRO(kind)) and not all(self.unused(lib, kinds) for lib in objects):
                return False
            if id(self.weak) in bases and not all(self.callback_harmless(o.__callback__) for o in objects):
                return False
        return True

    def unused(self, lib, kinds):
        """Reports whether a library of ctypes is ctypes.pythonapi, and no function of it was looked up. lib["name"] does not keep its function."""
        return (vars(lib).keys() == {"_name", "_FuncPtr", "_handle"} and lib is vars(sys.modules.get("ctypes", sys)).get("pythonapi")
                and id(lib._FuncPtr) not in kinds)

    def callback_harmless(self, call):
        """Reports whether the callback of a weak reference only removes the reference, or the variables of a thread."""
        if type(call) is type(len):
            return call.__name__ in ("_destroy", "_localdummy_destroyed", "clear_locals")
        return call is None or type(call) is self.function and (
            call.__module__ in ("weakref", "_weakrefset", "logging") and not call.__qualname__.startswith("WeakMethod."))
