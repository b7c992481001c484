"""1,000 calls at 16 at once over one MCP client: every call has its own progress, and no other's."""

import asyncio
import os
import sys
import time

from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

CODE = """import sys
for i in range(3):
    sys.stdout.write(f'call {n} {{i}}\\n')
    sys.stdout.flush()
"""


async def main(calls, at_once, target):
    transport = streamable_http_client(target[0]) if target[0].startswith("http://") else stdio_client(
        StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ)))
    numbers, wrong, progress = iter(range(calls)), [], 0
    # One write a line: what is written is what progress shows.
    async with Client(transport, mode="legacy") as client:
        async def worker():
            nonlocal progress
            for n in numbers:
                seen = []

                async def on(value, total, message):
                    seen.append((value, message))

                r = await client.call_tool("run_script_with_dependencies", {"script_content": CODE.format(n=n), "python_version": sys.argv[3]}, progress_callback=on)
                fields = r.structured_content or {}
                values = [v for v, _ in seen]
                if r.is_error or fields.get("stdout") != "".join(f"call {n} {i}\n" for i in range(3)):
                    wrong.append(f"{n}: {r.content[0].text[:300]}")
                if not any(m == "started" for _, m in seen) or values != sorted(set(values)) or values[0] != 1 or values[-1] != len(values):
                    wrong.append(f"{n}: progress was lost, doubled or late: {seen}")
                if any(m.startswith("call ") and not m.startswith(f"call {n} ") for _, m in seen):
                    wrong.append(f"{n}: another call's progress: {seen}")
                progress += len(seen)

        begin = time.monotonic()
        await asyncio.gather(*[worker() for _ in range(at_once)])
        took = time.monotonic() - begin
    print(f"{calls} calls at {at_once} at once in {took:.1f} s, {progress} progress notifications, {len(wrong)} wrong")
    for w in wrong[:10]:
        print(w)
    return 1 if wrong else 0


sys.exit(asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:])))
