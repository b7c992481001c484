"""What people do today: a FastMCP server that shells out."""

import os
import subprocess
import sys

from fastmcp import FastMCP

server = FastMCP("peer")


def run(command: list[str]) -> dict:
    p = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return {"stdout": p.stdout, "stderr": p.stderr, "exit_code": p.returncode}


@server.tool
def run_python(code: str) -> dict:
    return run([sys.executable, "-c", code])


@server.tool
def run_uv(code: str, dependencies: list[str]) -> dict:
    return run([os.environ["PEER_UV"], "run", "--no-project", *[w for d in dependencies for w in ("--with", d)], "python", "-c", code])


port = os.environ.get("PEER_PORT")
server.run(transport="http", port=int(port), show_banner=False) if port else server.run(show_banner=False)
