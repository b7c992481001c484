"""A client for the tools of agent frameworks, and the packages that they are for."""

from __future__ import annotations

import importlib
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from helpers import TOKEN, Server, required

from python_executor import Client


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


#: A picture of one pixel.
PNG = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + _chunk(b"IDAT", zlib.compress(b"\0\0")) + _chunk(b"IEND", b"")


@pytest.fixture
def plot() -> str:
    """Code that prints, and whose value is a picture."""
    return f"""
class Plot:
    def _repr_png_(self):
        return {PNG!r}
print("drawn")
Plot()
"""


@pytest.fixture(scope="session")
def client(shared: Server) -> Iterator[Client]:
    """A client of the suite's server."""
    with Client(shared.url, TOKEN) as made:
        yield made


@pytest.fixture(scope="session")
def package() -> Callable[[str], Any]:
    """Import a framework. PYEXEC_TEST_REQUIRE=adapters makes a missing one a failure. None of them is there for Python 3.9."""

    def load(name: str) -> Any:
        if required("adapters") and sys.version_info >= (3, 10):
            return importlib.import_module(name)
        return pytest.importorskip(name)

    return load
