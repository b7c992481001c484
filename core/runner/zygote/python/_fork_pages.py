"""The pages of memory that a copy uses. The copy takes them before its request, because each of them costs the kernel microseconds."""
import os
import sys

POPULATE_READ, POPULATE_WRITE = 22, 23  # of madvise, Linux 5.14
PROCESS_MADVISE, SELF = 440, -10000  # the call, and this process as its descriptor (PIDFD_SELF, Linux 6.14)
PRESENT, EXCLUSIVE = 1 << 63, 1 << 56  # bits of proc(5), pagemap
AROUND = 16  # the kernel maps so many pages of a file at once

# How many pages a copy changes before its request, how many ranges one call takes, and how many milliseconds a rehearsal may take.
MOST, RANGES, PATIENCE = 1024, 1024, 2000


class Pages:
    """The pages that copies take. The server learns them from a copy that rehearses, so they do not depend on any program."""

    def __init__(self, lib):
        self.lib, self.calls, self.moved = lib, [], False

    def take(self):
        for name, *args in self.calls:
            self.lib.call(name, *args)

    def learn(self, poll, rehearse):
        """Makes a child that calls rehearse with the descriptor to which it writes used. It reports whether this is the child."""
        result, own = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(result)
            rehearse(own)
            return True
        os.close(own)
        poll = poll()
        poll.register(result, 1)
        told = []
        while poll.poll(PATIENCE):
            told.append(os.read(result, 1 << 16))
            if not told[-1]:
                break
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(result)
        told = b"".join(told)
        self.moved = told == b"moved"
        for part, advice in () if self.moved else zip(told.split(b"|"), (POPULATE_READ, POPULATE_WRITE)):
            self.use([int(word, 16) for word in part.split()], advice)
        return False

    def use(self, numbers, advice):
        """Adds ranges, each an address and a length, unless the kernel cannot do what is advised."""
        if not numbers:
            return
        vector = b"".join(n.to_bytes(8, sys.byteorder) for n in numbers)
        call = "syscall", PROCESS_MADVISE, SELF, vector, len(numbers) // 2, advice, 0
        if self.lib.call(*call) >= 0:
            self.calls.append(call)
            return
        calls = [("madvise", self.lib.long(at), self.lib.long(n), advice) for at, n in zip(numbers[::2], numbers[1::2])]
        if self.lib.call(*calls[0]) >= 0:
            self.calls += calls


def used():
    """Returns the pages that this process has used, as Pages.learn takes them. Its parent has not changed any since the fork."""
    page = os.sysconf("SC_PAGESIZE")
    read, written, count = [], [], 0
    with open("/proc/self/maps", "rb") as maps, open("/proc/self/pagemap", "rb", 0) as bits:
        for line in maps:
            place, mode, _, _, _, *name = line.split(None, 5)
            if mode[:1] != b"r" or mode[3:] != b"p" or name and name[0].startswith(b"[v"):
                continue
            start, end = (int(x, 16) // page for x in place.split(b"-"))
            bits.seek(start * 8)
            last = -1
            for i, b in enumerate(memoryview(bits.read((end - start) * 8)).cast("Q"), start):
                if mode[1:2] != b"w":
                    if b & PRESENT and i // AROUND != last // AROUND:
                        read.append([i * page, page])
                        last = i
                elif b & PRESENT and b & EXCLUSIVE and count < MOST:
                    count += 1
                    if i == last + 1:
                        written[-1][1] += page
                    else:
                        written.append([i * page, page])
                    last = i
    return b"|".join(b" ".join(b"%x %x" % tuple(r) for r in ranges[:RANGES]) for ranges in (read, written))
