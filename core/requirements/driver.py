"""Installs requirements into an environment of their own.

It runs as PID 1 of a preparation container, in the image's Python in isolated mode (-I). It executes no code of wheels.

The first line of standard input is the job, as JSON. Standard output has one JSON object, the outcome. Standard error has
the output of the tools, a line at a time.
"""
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

job = json.loads(sys.stdin.buffer.readline())
base, tools, target = job["base"], job["tools"], job["base"] + "/env"
temp = base + "/tmp"
nothing = open(os.devnull, "rb")
# The tools' output goes to standard error, so that they cannot write into the answer.
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def end(**outcome):
    for path in (tools, temp):
        shutil.rmtree(path, ignore_errors=True)
    print(json.dumps(outcome), file=answer, flush=True)
    sys.exit(0)


def run(*argv, **more):
    return subprocess.run(argv, env=env, cwd=temp, stdin=nothing, **more).returncode


os.makedirs(temp, exist_ok=True)
env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": temp, "TMPDIR": temp, "PYTHONUNBUFFERED": "1"}
env.update(job["env"])

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
    end(failed="install")

packages = sorted({
    re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower() + "==" + d.version
    for d in importlib.metadata.distributions(path=[site]) if d.metadata["Name"] and d.version
})
# -S leaves site-packages out: the code of wheels is compiled, and none of it is executed.
run(sys.executable, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", site)
end(python=python, version=platform.python_version(), requirements=packages, tool=version.strip() if has_uv else "pip")
