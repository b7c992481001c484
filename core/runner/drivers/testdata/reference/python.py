"""Runs cells as Python's own interactive interpreter does, statement by statement. After each cell a mark goes to both streams."""
import __main__
import ast
import asyncio
import code
import json
import linecache
import os
import sys
import types

cells = json.load(open(sys.argv[1]))
sys.argv = [""]
sys.path[0] = ""
for name in ("ast", "asyncio", "code", "json", "linecache", "os", "sys", "types"):
    __main__.__dict__.pop(name + "_", None)


class Console(code.InteractiveInterpreter):
    loop = None

    def runcode(self, compiled):
        try:
            function = types.FunctionType(compiled, self.locals)
            if compiled.co_flags & 0x80:
                if self.loop is None:
                    self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
                self.loop.run_until_complete(function())
            else:
                exec(compiled, self.locals)
            return True
        except SystemExit:
            return False
        except BaseException:
            self.showtraceback()
            return False


space = {"__name__": "__main__", "__builtins__": __builtins__}
module = sys.modules["__main__"] = types.ModuleType("__main__")
module.__dict__.update(space)
console = Console(module.__dict__)
flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
for number, cell in enumerate(cells, 1):
    read, write = os.pipe()
    os.write(write, cell["stdin"].encode())
    os.close(write)
    os.dup2(read, 0)
    os.close(read)
    sys.stdin = open(0, closefd=False)
    name = "<cell %d>" % number
    linecache.cache[name] = (len(cell["code"]), None, [line + "\n" for line in cell["code"].split("\n")], name)
    try:
        tree = compile(cell["code"], name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        parts = []
        for node in tree.body:
            parts.append((ast.Interactive([node]), "single"))
    except (SyntaxError, ValueError, OverflowError):
        console.showsyntaxerror(name)
        parts = []
    for part, mode in parts:
        compiled = compile(part, name, mode, flags, dont_inherit=True)
        flags |= compiled.co_flags & 0x1FF0000
        if not console.runcode(compiled):
            break
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.write(1, b"\x1e")
    os.write(2, b"\x1e")
