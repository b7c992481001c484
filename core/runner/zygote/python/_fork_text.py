"""What a copy looks for in its main file and in the folder of that."""
import os

# What a main file that looks into the interpreter mentions.
INSPECTING = b"gc", b"__del__", b"weakref", b"__subclasses__", b"setproctitle"

# Bounds of what a copy says about the imports of its main file: bytes that are looked at, names, and characters of a name.
SCANNED, MOST_NAMES, LONGEST_NAME = 1 << 15, 32, 64


def inspecting(text):
    """Returns what text mentions of INSPECTING, or None."""
    return next((word.decode() for word in INSPECTING if mentions(text, word)), None)


def mentions(text, word):
    """Reports whether text has the name word."""
    i = text.find(word)
    while i >= 0:
        end = i + len(word)
        if not text[max(i - 1, 0):i].isalnum() and not text[end:end + 1].isalnum():
            return True
        i = text.find(word, end)
    return False


def modules_in(folder):
    """Returns the names of the modules that a folder may have."""
    names = [n.partition(".") for n in map(os.fsdecode, os.listdir(folder))]
    return {name for name, dot, rest in names if not dot or rest.endswith(("py", "pyc", "so"))}


def imports(text):
    """Returns the names of the modules that lines of a main file import, in their order and each once."""
    names = {}
    for line in text[:SCANNED].split(b"\n"):
        if line.startswith(b"import "):
            parts = line[7:].partition(b"#")[0].partition(b";")[0].split(b",")
        elif line.startswith(b"from ") and b" import " in line:
            parts = [line[5:]]
        else:
            continue
        for part in parts:
            name = b"".join(part.split(None, 1)[:1]).decode(errors="replace")
            if name.isascii() and len(name) <= LONGEST_NAME and all(map(str.isidentifier, name.split("."))):
                names[name] = None
    return list(names)
