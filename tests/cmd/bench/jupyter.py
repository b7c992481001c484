"""The peer of sessions: a Jupyter kernel gateway with ipykernel, driven as a client would, over HTTP and a websocket.

Each line on standard input is a command, each is answered by a line: what went wrong, or `ok`.
new: start a kernel and wait until it answers. cell: run `x = 1` in it, to its reply and until it is idle.
drop: end it. many N, rid: start N more and end them all.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid

import websocket

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
base = f"127.0.0.1:{port}"
gateway = subprocess.Popen(
    [sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.ip=127.0.0.1", f"--KernelGatewayApp.port={port}"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)


def call(method, path, body=None):
    request = urllib.request.Request(f"http://{base}{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as response:
        raw = response.read()
    return json.loads(raw) if raw else None


class Kernel:
    def __init__(self):
        self.id = call("POST", "/api/kernels", {"name": "python3"})["id"]
        self.ws = websocket.create_connection(f"ws://{base}/api/kernels/{self.id}/channels", sockopt=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),))
        self.ask("kernel_info_request", {})

    def ask(self, kind, content):
        """Send and wait for the reply and for the kernel to be idle again, whichever is later."""
        own = uuid.uuid4().hex
        header = {"msg_id": own, "msg_type": kind, "session": own, "username": "", "version": "5.3", "date": ""}
        self.ws.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}))
        replied = idle = False
        while not (replied and idle):
            message = json.loads(self.ws.recv())
            if message["parent_header"].get("msg_id") != own:
                continue
            if message["msg_type"] == kind.replace("request", "reply"):
                replied = True
                if message["content"]["status"] != "ok":
                    raise RuntimeError(message["content"])
            idle = idle or message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"

    def cell(self):
        self.ask("execute_request", {"code": "x = 1", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False})

    def drop(self):
        self.ws.close()
        call("DELETE", f"/api/kernels/{self.id}")


try:
    for _ in range(600):
        try:
            call("GET", "/api")
            break
        except OSError:
            time.sleep(0.1)
    print(gateway.pid, flush=True)
    kernels = []
    for line in sys.stdin:
        said = "ok"
        try:
            match line.split():
                case ["new"]:
                    kernels.append(Kernel())
                case ["cell"]:
                    kernels[-1].cell()
                case ["drop"]:
                    kernels.pop().drop()
                case ["many", n]:
                    for _ in range(int(n)):
                        kernels.append(Kernel())
                        kernels[-1].cell()
                case ["rid"]:
                    while kernels:
                        kernels.pop().drop()
        except Exception as e:
            said = repr(e).replace("\n", " ")
        print(said, flush=True)
finally:
    gateway.terminate()
    gateway.wait()
