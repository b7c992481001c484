"""The parents of the programs. A supervisor ends its program and all that the program has started, whatever becomes of the plugin.

The plugin starts one process, which forks a supervisor for each program: that is much quicker than to start an interpreter.
A supervisor gets the program's three streams and a connection to the plugin. The plugin sends argv, cwd and env there, as a
line of JSON. The supervisor starts the program and answers with its pid, or with the errno of the start. The plugin then
sends "int", "term" or "kill", or closes the connection. At the end of the program the supervisor kills what is left of its process
tree and answers with the wait status.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
from typing import Any, Optional

PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 22, 36, 38

# KEY_CALLS are add_key, request_key and keyctl, by machine, after the number of the machine's system call interface.
KEY_CALLS = {"x86_64": (0xC000003E, (248, 249, 250)), "aarch64": (0xC00000B7, (217, 218, 219))}


def main(descriptor: int) -> int:
    plugin = socket.socket(fileno=descriptor)
    plugin.set_inheritable(False)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    refuse_keys(prctl)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, most), most))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    while True:
        data, descriptors, _, _ = socket.recv_fds(plugin, 1, 4)
        if not data:
            return 0  # the plugin is gone; each supervisor sees that, too
        if os.fork() == 0:
            try:
                plugin.close()
                os.setsid()
                prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
                supervise(descriptors)
            finally:
                os._exit(0)
        for d in descriptors:
            os.close(d)


def supervise(descriptors: list[int]) -> None:
    control = socket.socket(fileno=descriptors[3])
    for stream in (0, 1, 2):
        os.dup2(descriptors[stream], stream)
        os.close(descriptors[stream])
    request = json.loads(control.makefile("rb").readline() or b"null")
    if request is None:
        return  # the plugin is gone
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        program = subprocess.Popen(request["argv"], cwd=request["cwd"], env=request["env"], start_new_session=True)
    except OSError as e:
        answer(control, {"errno": e.errno, "error": e.strerror})
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # they are the program's, whose end the plugin waits for
        os.dup2(null, stream)
    answer(control, {"pid": program.pid})
    status = follow(program.pid, control, woken)
    end_tree()
    if status is not None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer(control, {"status": status, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024})


def refuse_keys(prctl: Any) -> None:
    """Refuses the system calls about the kernel's keyrings: those of a user outlive its programs (rule BE-211)."""
    machine = os.uname().machine
    if machine not in KEY_CALLS:
        raise OSError("no system call numbers for " + machine)
    interface, calls = KEY_CALLS[machine]
    load, equal, above, end = 0x20, 0x15, 0x35, 0x06  # LD, JEQ, JGE and RET of a filter
    allow, refuse = 0x7FFF0000, 0x00050001  # EPERM
    lines = [(load, 0, 0, 4), (equal, 0, len(calls) + 3, interface), (load, 0, 0, 0), (above, len(calls) + 1, 0, 0x40000000)]
    lines += [(equal, len(calls) - n, 0, call) for n, call in enumerate(calls)]
    lines += [(end, 0, 0, allow), (end, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    if prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0) != 0:
        raise OSError("the filter of system calls was refused")


def answer(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass  # the plugin is gone


def follow(pid: int, control: socket.socket, woken: socket.socket) -> Optional[int]:
    """Waits for the end of the program. The result is its wait status, or None if the plugin is gone."""
    killed = False
    while True:
        while True:  # reap the program and the orphans that have ended
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == pid:
                return status
            if child == 0:
                break
        ready, _, _ = select.select([woken] if killed else [woken, control], [], [])
        if woken in ready:
            woken.recv(4096)
        if control in ready:
            message = control.recv(16)
            if not message:
                return None
            if message.startswith(b"int"):
                os.killpg(pid, signal.SIGINT)
            elif message.startswith(b"term"):
                os.killpg(pid, signal.SIGTERM)
            if b"kill" in message:
                os.kill(pid, signal.SIGKILL)
                killed = True


def end_tree() -> None:
    """Kills all children until there are none. The children of a killed child become children of this process."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] != 0:
                continue
        except ChildProcessError:
            return
        found = children()
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if found:
            os.waitpid(-1, 0)


def children() -> list[int]:
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    stat = f.read()
            except OSError:
                continue  # it has ended
            if int(stat[stat.rindex(b")") + 2 :].split()[1]) == me:
                found.append(int(name))
    return found
