"""Writes the sync client, src/python_executor/_sync, from the async one; and the sync tests from the async ones.

With --check it compares instead, and says which file is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Callable, Dict, Sequence, Tuple, Union

ROOT = Path(__file__).resolve().parent.parent
PAIRS = {"src/python_executor/_async": "src/python_executor/_sync", "tests/suite_async": "tests/suite_sync"}
HEADER = "# Written by tools/unasync.py from {0}. Do not edit.\n"

RULES: Sequence[Tuple[str, Union[str, Callable[[re.Match[str]], str]]]] = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b(_?)Async(?=[A-Z])", r"\1"),
    (r"\b(an|An) (?=`?Client\b|`?Session\b)", lambda m: "A " if m[1] == "An" else "a "),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baiter_(raw|bytes)\b", r"iter_\1"),
    (r"\b(aclose|aread)\b", lambda m: m[1][1:]),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_async\b", "_sync"),
    (r"\b_platform_async\b", "_platform_sync"),
    (r"\bsuite_async\b", "suite_sync"),
)


def to_sync(text: str, name: str) -> str:
    """Return the sync form of a module."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)):
            raise SystemExit(f"{name}:{node.lineno}: is still async")
    return HEADER.format(name) + text


def generated() -> Dict[Path, str]:
    """Return the text of every generated file."""
    files: Dict[Path, str] = {}
    for origin, target in PAIRS.items():
        for path in sorted((ROOT / origin).glob("*.py")):
            files[ROOT / target / path.name] = to_sync(path.read_text("utf-8"), f"{origin}/{path.name}")
    return files


def main() -> int:
    """Write the files, or check them."""
    wanted = generated()
    present = {p for target in PAIRS.values() for p in (ROOT / target).glob("*.py")}
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    stale += sorted(present - set(wanted))
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"stale: {path.relative_to(ROOT)} (python tools/unasync.py)")
        return 1 if stale else 0
    for path in stale:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], "utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
