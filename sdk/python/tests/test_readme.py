"""The examples of the README are true."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from helpers import binary, needs_index

from python_executor._server import LocalServer

README = Path(__file__).parent.parent / "README.md"


@needs_index
def test_the_examples(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYEXEC_BINARY", binary())
    # Programs with the rights of the tests find every Python that the tests can run on.
    monkeypatch.setenv("PYEXEC_BACKENDS_UV_ISOLATION", "none")
    monkeypatch.setenv("PYEXEC_BACKENDS_UV_CACHE_DIR", str(cache.parent / "own"))
    server = LocalServer()
    server.start()
    try:
        monkeypatch.setenv("PYEXEC_SERVER", server.url)
        monkeypatch.setenv("PYEXEC_TOKEN", server.token)
        text = README.read_text("utf-8").replace("```", "")
        examples = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, "README", str(README), 0)
        report: list[str] = []
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        result = doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append)
        assert result.failed == 0, "".join(report)
        assert result.attempted >= text.count(">>>")
    finally:
        server.stop()
