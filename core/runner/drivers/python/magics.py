# Lines that a notebook knows and Python does not. See control.py.
#
# A line is one of them if it begins with one of MARKS and Python's compiler refuses it. So strings and expressions that go on in the
# next line stay what they are.
MARKS = ("!", "%", "?")
# What to use in place of a magic.
INSTEAD = {
    "autoreload": "importlib.reload",
    "bash": "subprocess.run, or a line that begins with !",
    "cd": "os.chdir",
    "debug": "traceback.print_exc",
    "env": "os.environ",
    "load_ext": "import",
    "run": "runpy.run_path",
    "sh": "subprocess.run, or a line that begins with !",
    "time": "time.perf_counter",
    "timeit": "timeit.timeit",
    "who": "dir",
    "whos": "dir",
    "writefile": "open(name, 'w').write(text)",
}




def marked(line):
    return line.lstrip().startswith(MARKS) or line.rstrip().endswith("?") or assigned(line)


def assigned(line):
    """Returns the magic of a line such as "files = !ls", else None."""
    text = line.partition("=")[2].strip()
    return text if text.startswith(("!", "%")) else None


def translate(source, name):
    """Returns source with calls in place of lines that are magics. The numbers of lines stay the same."""
    lines = source.split("\n")
    if not any(marked(line) for line in lines):
        return source
    first = next(n for n, line in enumerate(lines) if line.strip())
    if lines[first].startswith("%%"):
        return "\n" * first + "__magic__(%r)" % lines[first].rstrip()
    while True:
        try:
            compile("\n".join(lines), name, "exec", S.flags | _ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            number = (error.lineno or 0) - 1
            line = lines[number] if 0 <= number < len(lines) else ""
            if not marked(line):
                return source  # the error is another one
            text = assigned(line)
            if text:
                lines[number] = "%s= __magic__(%r, True)" % (line.partition("=")[0], text)
            else:
                lines[number] = line[: len(line) - len(line.lstrip())] + "__magic__(%r)" % line.strip()
        except (ValueError, OverflowError, RecursionError, MemoryError):
            return source
        else:
            return "\n".join(lines)


def magic(text, wanted=False):
    """Does what a magic asks for, or says what to use. Where it is wanted, the output of a command is returned as a list of its lines."""
    if text.startswith("!"):
        command = text.lstrip("!").strip()
        if installs(command):
            need_pip()
        return shell(command, wanted)
    if text.startswith("?") or text.endswith("?"):
        raise NotImplementedError("a question mark asks IPython, which this session has not: use help(name)")
    word, _, rest = text.lstrip("%").strip().partition(" ")
    if word == "pip":
        need_pip()
        shell("%s -m pip %s" % (quoted(sys.executable), rest.strip()))
    elif word == "matplotlib":
        pass  # figures are displayed anyway
    else:
        mark = "%%" if text.startswith("%%") else "%"
        raise NotImplementedError("%s%s is a magic of IPython, which this session has not: use %s" % (mark, word, INSTEAD.get(word, "Python")))


def installs(command):
    import re

    return re.match(r"(sudo\s+)?(uv\s+|\S*python\S*\s+-m\s+)?pip[\d.]*\s+install\b", command) is not None


def need_pip():
    """Raises an error where pip cannot install: it is not there, or the environment is one that is not changed (PEP 668)."""
    import importlib.util
    import sysconfig

    managed = os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
    if managed or importlib.util.find_spec("pip") is None:
        raise NotImplementedError("pip cannot install here: packages come from the requirements of the session, which can be added to")


def quoted(text):
    import shlex

    return shlex.quote(text)


def shell(command, wanted=False):
    """Runs a command, whose output is returned if it is wanted. {name} and $name stand for variables of the session, where it has them."""
    import re
    import subprocess

    def value(match):
        name = match.group(1) or match.group(2)
        return str(NS[name]) if name in NS else match.group(0)

    flush()
    program = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    done = subprocess.run([program, "-c", re.sub(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", value, command)], stdout=subprocess.PIPE if wanted else None)
    return done.stdout.decode("utf-8", "replace").splitlines() if wanted else None
