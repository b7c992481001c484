# How code becomes what runs, in sessions and in programs (program.py).
# Code that names one of NEED_LOOP, and none of OWN_LOOP, runs in an event loop even without await.
NEED_LOOP = frozenset(("create_task", "ensure_future", "gather", "shield", "get_running_loop", "current_task"))
OWN_LOOP = frozenset(("run", "run_until_complete", "run_forever"))


def quiet(source, node):
    """Reports whether a semicolon follows the last statement, so that its value is not shown."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as the tokenizer does
    lines = source.encode("utf-8", "surrogatepass").split(b"\n")[node.end_lineno - 1 :]
    lines[0] = lines[0][node.end_col_offset :]
    return any(b";" in line.split(b"#")[0] for line in lines)


def compile_cell(source, name, data=None):
    """Returns the code before the last expression, that of the last expression, and whether both need an event loop. data is source as a file."""
    tree = compile(data or source, name, "exec", S.flags | _ast.PyCF_ONLY_AST, dont_inherit=True)
    body = tree.body
    last = None
    if body and isinstance(body[-1], _ast.Expr) and not quiet(source, body[-1]):
        last = _ast.Interactive([body.pop()])  # calls sys.displayhook from the frame of the cell
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
