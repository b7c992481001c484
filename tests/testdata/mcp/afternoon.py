"""An agent's afternoon with the official Python client: packages in the first call, a plot, a wrong import, an endless loop, files in and out.

    afternoon.py --python MINOR (--url URL | -- COMMAND ARG …)

It prints how long the answers are together. A token is counted as four characters of text; images and links count with what a
client passes on of them: a link with its JSON, an image with nothing.
"""

import argparse
import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

DEADLINE = 300.0  # of one call; the first one may install packages
MAX_TOKENS = 3000


class Agent:
    def __init__(self, client):
        self.client = client
        self.characters = 0

    async def call(self, tool, **arguments):
        """Calls a tool and returns its fields and its images."""
        async with asyncio.timeout(DEADLINE):
            result = await self.client.call_tool(tool, arguments)
        text = "".join(c.text for c in result.content if c.type == "text")
        self.characters += len(text) + sum(len(c.model_dump_json()) for c in result.content if c.type == "resource_link")
        assert not result.is_error, f"{tool}: {text}"
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content, [c for c in result.content if c.type == "image"]


def is_png(image):
    return image.mime_type == "image/png" and image.data.startswith("iVBOR")


async def afternoon(agent, minor):
    tools = {t.name: t for t in (await agent.client.list_tools()).tools}
    versions = tools["create_context"].input_schema["properties"]["python_version"]["enum"]
    assert minor in versions, versions
    assert "python_version" not in tools["run_script_with_dependencies"].input_schema.get("required", [])

    made, _ = await agent.call("create_context", name="sales", requirements=["pandas", "matplotlib"])
    context = made["context_id"]

    async def run(code, **more):
        return await agent.call("run_code", context_id=context, code=code, **more)

    await agent.call("write_context_file", context_id=context, path="sales.csv", content="day,sold\n" + "".join(f"{d},{d * d}\n" for d in range(1, 31)))
    got, images = await run("import pandas as pd\nsales = pd.read_csv('sales.csv')\nsales.describe()")
    assert got["success"] and "mean" in got["result"], got

    got, images = await run("import matplotlib.pyplot as plt\nsales.plot(x='day', y='sold')\nplt.show()")
    assert got["success"] and len(images) == 1 and is_png(images[0]), got

    got, _ = await run("import yaml\nyaml.safe_load('a: 1')")
    assert not got["success"] and '"pyyaml"' in got["note"] and "install_packages" in got["note"], got
    got, _ = await run("!pip install pyyaml")
    assert not got["success"] and got["stderr"].count("\n") == 0 and "install_packages" in got["stderr"] and '"pyyaml"' in got["stderr"], got
    installed, _ = await agent.call("install_packages", context_id=context, packages=["pyyaml"])
    assert any(p.lower().startswith("pyyaml==") for p in installed["packages"]), installed
    got, _ = await run("import yaml\nyaml.safe_load('a: 1')")
    assert got["result"] == "{'a': 1}", got

    got, _ = await run("n = 0\nwhile True:\n    n += 1", timeout_ms=1000)
    assert not got["success"] and "time limit" in got["note"] and "state is kept" in got["note"], got
    got, _ = await run("n > 0, len(sales)")
    assert got["result"] == "(True, 30)", got

    got, _ = await run("import urllib.request\nurllib.request.urlopen('http://example.com')")
    assert not got["success"] and got["note"].startswith("network is off: "), got

    got, _ = await run("figure = sales.plot(x='day', y='sold').figure\nfigure.savefig('sales.png', dpi=60)\nplt.close('all')")
    assert got["success"], got
    got, images = await agent.call("read_context_file", context_id=context, path="sales.png")
    assert got["size_bytes"] > 1000 and len(images) == 1 and is_png(images[0]), got

    endless = asyncio.ensure_future(run("import time\nopen('begun', 'w').close()\nwhile True: time.sleep(0.01)"))
    while True:  # until the code runs
        got, _ = await agent.call("interrupt_context", context_id=context)
        if got["interrupted"]:
            break
        await asyncio.sleep(0.05)
    got, _ = await endless
    assert not got["success"], got
    await agent.call("restart_context", context_id=context)
    got, _ = await run("'sales' in globals(), open('sales.csv').readline()")
    assert got["result"] == r"(False, 'day,sold\n')", got

    await agent.call("stop_context", context_id=context)
    tokens = agent.characters // 4
    assert tokens < MAX_TOKENS, f"the answers have {tokens} tokens"
    return tokens


async def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--url")
    options = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1:]
    if command:
        transport = stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)))
    else:
        transport = streamable_http_client(options.url, http_client=httpx2.AsyncClient(timeout=DEADLINE))
    async with Client(transport, mode="legacy") as client:
        print(await afternoon(Agent(client), options.python), "tokens")


asyncio.run(main())
