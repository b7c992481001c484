"""What is forked: it serves the runner, makes copies, waits for them and kills them."""
import os
import sys

import _fork_memory as memory

CONTROL = 3  # the descriptor of the socket

SIGKILL = 9

# What is received and read comes here, because a copy would have to get new memory for it.
BUFFER = bytearray(1 << 16)


def receive(sock):
    """Returns the words and the descriptors of a message. At the end of the socket the only word is empty."""
    n, ancillary = sock.recvmsg_into([BUFFER], 128)[:2]  # with room for 28 descriptors
    fds = []
    for _, _, raw in ancillary:
        fds += [int.from_bytes(raw[i:i + 4], sys.byteorder) for i in range(0, len(raw) - 3, 4)]
    return bytes(BUFFER[:n]).split(b"\0"), fds


def content(path, most=0):
    """Returns the bytes of a file, or None if there are more than most. 0 is no bound."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if most and os.fstat(fd).st_size > most:
            return None
        parts = []
        while True:
            n = os.readv(fd, [BUFFER])
            if not n:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            parts.append(bytes(BUFFER[:n]))
    finally:
        os.close(fd)


def threads():
    return os.stat("/proc/self/task").st_nlink - 2


class Server:
    """The process that is forked."""

    def __init__(self, signal, socket, select, lib):
        self.lib, self.first = lib, os.getpid() == 1
        self.children = {}  # their numbers, by process
        # The kernel drops signals of programs to PID 1 that have no handler. If they were blocked, it would keep them.
        blocked = {signal.SIGCHLD, signal.SIGINT} if self.first else signal.valid_signals()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        self.control = socket.socket(fileno=CONTROL)
        self.own = socket.socket(fileno=os.dup(CONTROL))  # of the next child, once its descriptor is replaced
        self.ended = lib.call("signalfd", -1, (1 << signal.SIGCHLD - 1 | 1 << signal.SIGINT - 1).to_bytes(128, "little"), os.O_CLOEXEC | os.O_NONBLOCK)
        if self.ended < 0:
            raise memory.Failed("the kernel has no signalfd")
        self.poll = select.poll()
        self.poll.register(CONTROL, select.POLLIN)
        self.poll.register(self.ended, select.POLLIN)
        self.info, self.status, self.used = lib.ints(), lib.ints(), lib.longs()
        self.queues = "/dev/mqueue" if os.path.isdir("/dev/mqueue") else None

    def say(self, *words):
        self.control.send(b"\0".join(w if isinstance(w, bytes) else str(w).encode(errors="replace") for w in words))

    def serve(self):
        """Serves the runner. It returns in a child."""
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.ended:
                    os.read(fd, 128)
                    self.reap(os.WNOHANG)
                    continue
                words, fds = receive(self.control)
                if words[0] == b"next":
                    self.end()
                    os.dup2(fds[0], self.own.fileno(), False)
                    os.close(fds[0])
                    if self.fork(words[1]):
                        return
                    os.dup2(CONTROL, self.own.fileno(), False)
                elif words[0] == b"end":
                    self.end()
                    self.say("empty")
                else:
                    self.kill()
                    os._exit(0)

    def fork(self, n):
        """Makes a child. It reports whether this is the child."""
        try:
            if self.imported and threads() > 1:
                raise OSError("the interpreter has several threads")
            pid = os.fork()
        except OSError as e:
            self.say("failed", n, e)
            return False
        if pid:
            self.children[pid] = n
            return False
        self.become_child()
        return True

    def become_child(self):
        self.child.pages.take()
        os.setsid()
        self.leave()
        self.control.close()

    def leave(self):
        """Undoes what only a server needs."""
        os.close(self.ended)

    def reap(self, options):
        """Waits for children. The function of the module os would import the module resource, and so would all copies."""
        used = self.used
        while True:
            pid = self.lib.call("wait4", -1, self.status, options, used)
            if pid <= 0:
                return
            if self.status[0] & 0xFF == 0x7F:  # it has stopped, because it has made this process its tracer (PTRACE_TRACEME)
                os.kill(pid, SIGKILL)
                continue
            n = self.children.pop(pid, None)
            if n is not None:
                self.say("exited", n, self.status[0], (used[0] + used[2]) * 1000000 + used[1] + used[3], used[4])

    def kill(self):
        """Kills all processes. It reports whether there may be any."""
        if self.first:
            return not self.lib.call("kill", -1, SIGKILL)
        for pid in self.children:
            os.kill(pid, SIGKILL)
            try:
                os.killpg(pid, SIGKILL)
            except ProcessLookupError:
                pass  # it had no group yet
        return True

    def end(self):
        if self.kill():
            self.reap(0)
        if self.first:
            self.remove_ipc()

    def remove_ipc(self):
        """Removes what outlives its makers in the namespace."""
        for name, info, used in ("shmctl", 14, 0), ("msgctl", 12, 0), ("semctl", 19, 7):  # SHM_INFO and its like: the number of objects
            get = (0, 0, info, self.info) if name == "semctl" else (0, info, self.info)
            if self.lib.call(name, *get) >= 0 and not self.info[used]:
                continue
            for line in content("/proc/sysvipc/" + name[:3]).splitlines()[1:]:
                self.lib.call(name, int(line.split()[1]), 0, 0)  # IPC_RMID, and the index 0 of a semaphore
        if self.queues:
            for name in os.listdir(self.queues):
                os.unlink(self.queues + "/" + name)
