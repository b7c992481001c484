"""Functions of C for the fork server, and where the kernel finds the command lines of its copies."""
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

        class Int(ctypes._SimpleCData):
            _type_ = "i"

        class Ints(ctypes.Array):
            _type_, _length_ = Int, 64

        class Longs(ctypes.Array):
            _type_, _length_ = Long, 32

        self.ctypes, self.handle, self.addresses = ctypes, ctypes.dlopen(None, 0), {}
        self.function, self.long, self.ints, self.longs = Function, Long, Ints, Longs
        for name in "fflush", "getrusage", "kill", "msgctl", "prctl", "semctl", "setrlimit", "shmctl", "wait4":
            self.address(name)

    def address(self, name):
        if name not in self.addresses:
            self.addresses[name] = self.ctypes.dlsym(self.handle, name)
        return self.addresses[name]

    def call(self, name, *args):
        return self.ctypes.call_function(self.address(name), args)

    def trim(self):
        """Gives free memory back to the kernel, which would have to copy its pages for each fork."""
        try:
            self.call("malloc_trim", 0)
        except OSError:
            pass  # only glibc has it


class Memory:
    """Where the kernel finds the command line and the variables of this process."""

    def __init__(self, lib, env):
        self.lib = lib
        with open("/proc/self/stat", "rb") as f:
            n = [int(word) for word in f.read().rpartition(b")")[2].split()[1:]]  # the fields of proc(5) from 4 on
        # The fields of struct prctl_mm_map.
        self.fields = [n[22], n[23], n[41], n[42], n[43], 0, n[24], n[44], n[45], n[46], n[47]]
        self.environment(env)
        self.set()

    def command_line(self, words):
        self.place(7, words)

    def environment(self, words):
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
