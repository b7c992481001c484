"""The memory of the fork server: what its copies touch, and where the kernel finds their command lines."""
import os
import sys

PR_SET_MM, PR_SET_MM_MAP = 35, 14


class Failed(Exception):
    """Why the interpreter cannot be forked."""


class Library:
    """Functions of the C library and of the interpreter. The module ctypes has more, and each fork would pay for it."""

    def __init__(self, ctypes):
        class Long(ctypes._SimpleCData):
            _type_ = "L"

        class Function(ctypes.CFuncPtr):
            _flags_ = 1
            _restype_ = Long

        class Locked(ctypes.CFuncPtr):
            _flags_ = 1 | 4  # with the interpreter's lock
            _restype_ = None

        self.ctypes, self.handle = ctypes, ctypes.dlopen(None, 0)
        self.long, self.function, self.locked = Long, Function, Locked

    def address(self, name):
        return self.ctypes.dlsym(self.handle, name)

    def call(self, name, *args):
        return self.ctypes.call_function(self.address(name), args)


class Rehearsal:
    """What a program touches of the memory that it shares with the server. A copy gets these pages before it has to answer. It would
    take a fault for each of them otherwise."""

    def __init__(self, lib, kill, end):
        self.end = end
        self.lib, self.madvise, self.parts = lib, lib.address("madvise"), []
        ready, begin = os.pipe()
        pid = os.fork()
        if not pid:
            self.run(begin)
        os.close(begin)
        os.read(ready, 1)
        os.close(ready)
        while self.state(pid) not in b"SZ":
            os.sched_yield()
        try:
            if self.state(pid) == b"S":
                self.look(pid)
        except OSError:
            pass  # the kernel does not tell
        os.kill(pid, kill)
        os.waitpid(pid, 0)

    def run(self, begin):
        """Runs and ends a program in this process. It waits just before its end."""
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in 0, 1, 2:
                os.dup2(null, fd)
            main = type(sys)("__main__")
            exec(compile("print()", "main.py", "exec"), vars(main))
            if self.end and self.end.objects_harmless(main):
                os.write(begin, b".")
                self.lib.call("pause")
            import atexit
            atexit._clear()  # what the environment has registered is for programs
            self.lib.call("Py_AtExit", self.lib.long(self.lib.address("pause")))
            os.write(begin, b".")
            self.lib.locked(self.lib.address("Py_FinalizeEx"))()
        finally:
            os._exit(0)

    def state(self, pid):
        with open("/proc/%d/stat" % pid, "rb") as f:
            return f.read().rpartition(b")")[2].split()[0]

    def look(self, pid):
        """Finds the parts that process has for itself (proc(5), pagemap)."""
        populate_read, populate_write, present, exclusive = 22, 23, 1 << 63, 1 << 56
        page = os.sysconf("SC_PAGESIZE")
        with open("/proc/%d/maps" % pid, "rb") as maps, open("/proc/%d/pagemap" % pid, "rb", 0) as pages:
            for line in maps:
                place, mode, _, _, _, *name = line.split(None, 5)
                if mode[:1] != b"r" or mode[3:] != b"p" or name and name[0].startswith(b"[v"):
                    continue
                start, end = (int(x, 16) // page for x in place.split(b"-"))
                want, advice = (present | exclusive, populate_write) if mode[1:2] == b"w" else (present, populate_read)
                pages.seek(start * 8)
                bits = memoryview(pages.read((end - start) * 8)).cast("Q")
                first = last = -1
                for i in [i for i, b in enumerate(bits, start) if b & want == want] + [sys.maxsize]:
                    if first >= 0 and i - last > 4:  # each part costs a call
                        self.parts.append((self.lib.long(first * page), self.lib.long((last + 1 - first) * page), advice))
                        first = -1
                    if first < 0:
                        first = i
                    last = i

    def repeat(self):
        for part in self.parts:
            self.lib.ctypes.call_function(self.madvise, part)  # a kernel before 5.14 refuses, and the copy is slower


class Memory:
    """Where the kernel finds the command line and the variables of this process."""

    def __init__(self, lib):
        self.lib = lib
        with open("/proc/self/stat", "rb") as f:
            n = [int(word) for word in f.read().rpartition(b")")[2].split()[1:]]  # the fields of proc(5) from 4 on
        # The fields of struct prctl_mm_map.
        self.fields = [n[22], n[23], n[41], n[42], n[43], 0, n[24], n[44], n[45], n[46], n[47]]
        with open("/proc/self/environ", "rb") as f:
            first = f.read().partition(b"\0")[0]
        if not first.startswith(b"PYTHONPATH="):
            raise Failed("PYTHONPATH is not the first variable")
        self.own = self.fields[9] + len(first) + 1, self.fields[10]
        self.fields[9] = self.fields[10]  # only programs have variables
        self.set()

    def command_line(self, words):
        self.place(7, words)

    def environment(self, words):
        """Shows words as the variables, or those of the start."""
        if words is None:
            self.fields[9:11] = self.own
        else:
            self.place(9, words)

    def place(self, i, words):
        block = b"".join(word + b"\0" for word in words)
        self.lib.ctypes.Py_INCREF(block)  # it stays until the process ends
        self.fields[i] = id(block) + bytes.__basicsize__ - 1
        self.fields[i + 1] = self.fields[i] + len(block)

    def set(self):
        self.fields[5] = self.lib.function(self.lib.address("sbrk"))(0)
        request = b"".join(f.to_bytes(8, sys.byteorder) for f in self.fields) + bytes(12) + b"\xff" * 4
        if self.lib.call("prctl", PR_SET_MM, PR_SET_MM_MAP, request, len(request), 0):
            raise Failed("the kernel does not let a process place its command line (CONFIG_CHECKPOINT_RESTORE)")
