"""Times MCP calls of servers side by side, one after the other in each round, and prints the samples as JSON.

The argument is JSON: {"rounds": N, "python": "3.11", "servers": {name: URL or [command, …]}}.
"""

import asyncio
import contextlib
import json
import os
import sys
import time

from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

SCRIPT = "import requests; print('hello')"
REST = 0.1  # seconds before each call, in which the servers clear up after the call before


def packages(plan):
    """A call with a package that is in the cache."""
    return "run_script_with_dependencies", {"script_content": SCRIPT, "python_version": plan["python"], "dependencies": ["requests==2.32.3"]}


async def main(plan):
    samples = {}
    async with contextlib.AsyncExitStack() as stack:
        cases = []
        for name, target in plan["servers"].items():
            transport = streamable_http_client(target) if isinstance(target, str) else stdio_client(
                StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ)))
            client = await stack.enter_async_context(Client(transport, mode="legacy"))
            if name.startswith("peer"):
                cases.append((f"mcp {name}, sys.executable", client, "run_python", {"code": "print('hello')"}))
                cases.append((f"mcp {name}, uv run, cached requests", client, "run_uv", {"code": SCRIPT, "dependencies": ["requests==2.32.3"]}))
            elif name.endswith(" before"):
                cases.append((f"mcp {name.removesuffix(' before')}, cached requests imported before", client, *packages(plan)))
            elif name.endswith(" learned"):
                for _ in range(30):  # each slot learns from its first programs
                    await client.call_tool(*packages(plan))
                cases.append((f"mcp {name.removesuffix(' learned')}, cached requests, imports learned", client, *packages(plan)))
            else:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                if "context_id" not in tools["run_code"].input_schema.get("required", []):
                    cases.append((f"mcp {name}, run_code without a context", client, "run_code", {"code": "print('hello')"}))
                made = await client.call_tool("create_context", {"name": "bench"})
                cases.append((f"mcp {name}, run_code", client, "run_code", {"code": "print('hello')", "context_id": made.structured_content["context_id"]}))
                cases.append((f"mcp {name}, cached requests", client, *packages(plan)))
        for round in range(plan["rounds"] + 1):  # the first warms up, and proves that each works
            for name, client, tool, args in cases:
                await asyncio.sleep(REST)
                begin = time.perf_counter()
                r = await client.call_tool(tool, args)
                took = (time.perf_counter() - begin) * 1000
                if r.is_error or r.structured_content.get("stdout") != "hello\n":
                    raise SystemExit(f"{name}: {r.content[0].text[:500]}")
                if round:
                    samples.setdefault(name, []).append(round_to(took))
    print(json.dumps(samples))


def round_to(ms):
    return round(ms, 3)


asyncio.run(main(json.loads(sys.argv[1])))
