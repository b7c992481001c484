"""A gigabyte goes up at constant memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from helpers import TOKEN, Server

GIGABYTE = 1 << 30
LIMIT_KB = 100 << 10

PROGRAM = """
import {imports}, resource, sys
from python_executor import {client}

class Zeros:
    '''A tar of one file: its header comes first, and then zeros.'''
    def __init__(self):
        import tarfile
        info = tarfile.TarInfo("big")
        info.size = {size}
        code = b"import os; print(os.path.getsize('big'))"
        main = tarfile.TarInfo("main.py")
        main.size = len(code)
        self.head = main.tobuf() + code + bytes(-len(code) % 512) + info.tobuf()

    def __iter__(self):
        yield self.head
        for _ in range({size} // 65536):
            yield bytes(65536)
        yield bytes(1024)

{main}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(done.stdout.strip(), peak)
"""

SYNC = """
with Client(sys.argv[1], sys.argv[2]) as client:
    done = client.run(tar={tar}, disk_mb=2048, memory_mb=512)
"""

ASYNC = """
async def main():
    async with AsyncClient(sys.argv[1], sys.argv[2]) as client:
        return await client.run(tar={tar}, disk_mb=2048, memory_mb=512)
done = asyncio.run(main())
"""


@pytest.mark.big
@pytest.mark.parametrize("client", ["Client", "AsyncClient"])
def test_a_gigabyte_goes_up_at_constant_memory(shared: Server, client: str) -> None:
    main = textwrap.dedent(SYNC if client == "Client" else ASYNC).format(tar="Zeros()")
    program = PROGRAM.format(imports="asyncio", client=client, size=GIGABYTE, main=main)
    done = subprocess.run([sys.executable, "-c", program, shared.url, TOKEN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size, peak = done.stdout.split()
    assert int(size) == GIGABYTE
    assert int(peak) < LIMIT_KB, f"the client took {int(peak) >> 10} MB"
