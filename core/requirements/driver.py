"""Installs requirements into an environment of their own.

It runs as PID 1 of a preparation container, in the image's Python in isolated mode (-I). It executes no code of wheels.

The first line of standard input is the job, as JSON. Standard output has one JSON object, the outcome. Standard error has
the output of the tools, a line at a time.
"""
import base64
import http.client
import http.server
import importlib.metadata
import ipaddress
import json
import os
import platform
import re
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import sysconfig
import threading
import urllib.parse
import urllib.request

job = json.loads(sys.stdin.buffer.readline())
base, tools, target = job["base"], job["tools"], job["base"] + "/env"
temp = base + "/tmp"
nothing = open(os.devnull, "rb")
CONNECT_SECONDS = 15  # as pip
ANSWER_SECONDS = 60
# The tools' output goes to standard error, so that they cannot write into the answer.
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Refused(Exception):
    pass


class Fetches(http.server.BaseHTTPRequestHandler):
    """A proxy for what uv, pip and git fetch: from the sources of the configuration, and from public addresses over https.

    It is what core/fetchproxy is for a preparation that is no container. It connects to addresses that it has checked.
    """

    protocol_version = "HTTP/1.0"
    refused = []
    troubles = {}  # the errors of sources that have not answered since

    def log_message(self, *args):
        pass

    def addresses(self, endpoint, source):
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        try:
            numeric = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            numeric = None
        last = host.rstrip(".").rpartition(".")
        if not source and numeric is None and (not last[1] or last[2] == "localhost" or last[2][:1].isdigit()):
            raise Refused(endpoint)
        try:
            found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError, UnicodeError):
            return []
        for each in found:
            address = ipaddress.ip_address(each[4][0].partition("%")[0])
            inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
            if address.version == 6 and address in ipaddress.ip_network("64:ff9b::/96"):
                inner = ipaddress.ip_address(int(address) & 0xFFFFFFFF)
            for a in {address, inner or address}:
                mapped = a is address and getattr(address, "ipv4_mapped", None)
                if not source and not mapped and any(a.version == n.version and a in n for n in closed):
                    raise Refused(endpoint)
        return found

    def upstream(self, scheme, endpoint):
        proxy = proxies.get(scheme) or proxies.get("all")
        if proxy and not urllib.request.proxy_bypass_environment(endpoint, proxies):
            return urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
        return None

    def connect(self, endpoint, source):
        found = self.addresses(endpoint, source)
        proxy = self.upstream("https", endpoint)
        if proxy:
            return self.through(proxy, endpoint)
        if not found and source:
            raise OSError("no such host")
        if not found:
            raise Refused(endpoint)  # as an address that is not public
        error = OSError()
        for family, kind, protocol, _, address in found:
            s = socket.socket(family, kind, protocol)
            s.settimeout(CONNECT_SECONDS)
            try:
                s.connect(address)
                s.settimeout(None)
                return s
            except OSError as e:
                error = e
                s.close()
        raise error

    def through(self, proxy, endpoint):
        s = socket.create_connection((proxy.hostname, proxy.port or (443 if proxy.scheme == "https" else 80)), 30)
        if proxy.scheme == "https":
            s = ssl.create_default_context().wrap_socket(s, server_hostname=proxy.hostname)
        s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (endpoint, endpoint, "".join("%s: %s\r\n" % h for h in credentials(proxy).items()))).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = s.recv(1)
            if not more:
                raise OSError("the proxy has hung up")
            head += more
        if head.split(None, 2)[1:2] != [b"200"]:
            raise OSError("the proxy refuses")
        s.settimeout(None)
        return s

    def refuse(self, endpoint):
        Fetches.refused.append(endpoint)
        if child:
            child.kill()  # it would ask again for seconds
        self.send_error(403)

    def fail(self, endpoint, error):
        Fetches.troubles[endpoint] = error
        # pip asks again after 503, not after 502 in all its versions. uv asks again after both.
        self.send_error(503 if isinstance(error, (socket.timeout, TimeoutError)) else 502)

    def do_CONNECT(self):
        endpoint = self.path.lower()
        try:
            outside = self.connect(endpoint, endpoint in sources)
        except Refused:
            return self.refuse(endpoint)
        except OSError as e:
            return self.fail(endpoint, e)
        Fetches.troubles.pop(endpoint, None)
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        other = threading.Thread(target=copy, args=(outside, self.connection), daemon=True)
        other.start()
        copy(self.connection, outside)
        other.join()
        outside.close()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        endpoint = "%s:%d" % (("[%s]" if ":" in (url.hostname or "") else "%s") % (url.hostname or ""), url.port or 80)
        if url.scheme != "http" or endpoint not in sources:  # nothing protects what comes over plain http
            return self.refuse(endpoint)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("proxy-connection", "connection", "proxy-authorization")}
        headers["Connection"] = "close"
        proxy, path = self.upstream("http", endpoint), urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
        at = (url.hostname, url.port or 80)
        if proxy:
            headers.update(credentials(proxy))
            at, path = (proxy.hostname, proxy.port or 80), self.path
        try:
            ask = http.client.HTTPConnection(*at, timeout=CONNECT_SECONDS)
            ask.connect()
            ask.sock.settimeout(ANSWER_SECONDS)
            ask.request(self.command, path, headers=headers)
            answer = ask.getresponse()
        except (OSError, http.client.HTTPException) as e:
            return self.fail(endpoint, e)
        Fetches.troubles.pop(endpoint, None)
        self.send_response_only(answer.status, answer.reason)
        for k, v in answer.getheaders():
            if k.lower() not in ("transfer-encoding", "connection"):
                self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            shutil.copyfileobj(answer, self.wfile)

    do_HEAD = do_GET


class Proxy(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass


def credentials(proxy):
    if not proxy.username:
        return {}
    pair = urllib.parse.unquote(proxy.username) + ":" + urllib.parse.unquote(proxy.password or "")
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def copy(source, to):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def fetches(env):
    """Starts the proxy, and makes env name it in the place of the proxies that it names."""
    server = Proxy(("127.0.0.1", 0), Fetches)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = {}
    for name in ("http", "https", "all", "no"):
        own[name] = env.get(name + "_proxy") or env.get(name.upper() + "_PROXY") or ""
        env[name + "_proxy"] = env[name.upper() + "_PROXY"] = "" if name == "no" else "http://127.0.0.1:%d" % server.server_port
    env.update({"PIP_PROXY": env["https_proxy"], "GIT_ALLOW_PROTOCOL": "https", "GIT_TERMINAL_PROMPT": "0"})
    return own


def end(**outcome):
    for path in (tools, temp):
        shutil.rmtree(path, ignore_errors=True)
    print(json.dumps(outcome), file=answer, flush=True)
    sys.exit(0)


child = None


def run(*argv):
    global child
    child = subprocess.Popen(argv, env=env, cwd=temp, stdin=nothing)
    return child.wait()


os.makedirs(temp, exist_ok=True)
env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": temp, "TMPDIR": temp, "PYTHONUNBUFFERED": "1"}
env.update(job["env"])
sources = job.get("sources") or []
closed = [ipaddress.ip_network(n) for n in job.get("closed") or []]
proxies = fetches(env)

uv = tools + "/uv"
version = ""
if os.path.exists(uv):
    try:  # it may be built for another C library or architecture
        version = subprocess.run([uv, "--version"], env=env, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    except OSError:
        pass
has_uv = version.startswith("uv ")
if not has_uv and subprocess.run([sys.executable, "-I", "-c", "import pip, venv"], env=env, stdin=nothing, stderr=subprocess.DEVNULL).returncode != 0:
    end(failed="tool")

listing = temp + "/requirements.txt"
with open(listing, "w") as f:
    f.write("\n".join(job["requirements"]) + "\n")

if has_uv:
    made = run(uv, "venv", "--quiet", "--no-project", "--no-config", "--system-site-packages", "--python", sys.executable, target)
else:
    made = run(sys.executable, "-I", "-m", "venv", "--without-pip", "--system-site-packages", target)
if made != 0:
    end(failed="venv")
python = target + "/bin/python"
site = sysconfig.get_path("purelib", "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix", {"base": target, "platbase": target})
if sys.prefix != sys.base_prefix:  # the image's own Python is an environment too: its packages stay visible
    with open(site + "/_image.pth", "w") as f:
        f.write("\n".join(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])) + "\n")

if has_uv:
    argv = [uv, "pip", "install", "--no-config", "--no-cache", "--python", python, "--prerelease", "if-necessary-or-explicit", "-r", listing]
else:
    argv = [python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--ignore-installed",
            "--no-warn-script-location", "--progress-bar", "off", "-r", listing]
if not job["allow_builds"]:
    argv += ["--only-binary", ":all:"]
if run(*argv) != 0:
    for endpoint, error in list(Fetches.troubles.items()):  # clients do not show why
        if endpoint in sources:
            print("%s: %s" % (endpoint, error), file=sys.stderr, flush=True)
    end(failed="install", refused=Fetches.refused[0] if Fetches.refused else "")

packages = sorted({
    re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower() + "==" + d.version
    for d in importlib.metadata.distributions(path=[site]) if d.metadata["Name"] and d.version
})
# -S leaves site-packages out: the code of wheels is compiled, and none of it is executed.
run(sys.executable, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", site)
end(python=python, version=platform.python_version(), requirements=packages, tool=version.strip() if has_uv else "pip")
