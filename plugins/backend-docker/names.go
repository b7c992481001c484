package dockerbackend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cleanTime bounds what is cleaned up when somebody's ctx has ended already.
const cleanTime = 30 * time.Second

// cleanUp is a ctx for cleaning up after ctx.
func cleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, fmt.Errorf("not cleaned up within %s", cleanTime))
}

// newName is a name for a container of ours that no other has.
func newName(kind string) string { return "python-executor-" + kind + "-" + random() }

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// newBoot names this life of the plugin: a random part, the process, when it started, and what tells its number from the same
// one elsewhere. Whether it is over can then be told by whoever finds it in a label, on the same machine.
func newBoot() string {
	return fmt.Sprintf("%s.%d.%s.%s", random(), os.Getpid(), startTime(os.Getpid()), processNumbers())
}

// bootAlive reports whether the process that a boot names is there.
func bootAlive(boot string) bool {
	here, alive := findBoot(boot)
	return here && alive
}

// bootOver reports whether the process that a boot names has certainly ended: whose it is may be on another machine, where
// nobody can tell.
func bootOver(boot string) bool {
	here, alive := findBoot(boot)
	return here && !alive
}

func findBoot(boot string) (here, alive bool) {
	parts := strings.Split(boot, ".")
	if len(parts) != 4 || parts[3] == "" || parts[3] != processNumbers() {
		return false, false
	}
	pid, err := strconv.Atoi(parts[1])
	return true, err == nil && parts[2] != "" && startTime(pid) == parts[2]
}

// processNumbers names the machine, as long as it runs, and the namespace in which process numbers mean ours; empty: unknown.
var processNumbers = sync.OnceValue(func() string {
	machine, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/pid")
	if err != nil || err2 != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(string(machine) + namespace))
	return hex.EncodeToString(sum[:4])
})

// startTime is a process's, in clock ticks since the machine's boot; empty if it is not there.
func startTime(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name in brackets may hold anything; 20 fields follow it up to the start time.
	_, rest, found := strings.Cut(string(raw), ") ")
	if i := strings.LastIndex(string(raw), ") "); found && i >= 0 {
		rest = string(raw)[i+2:]
	}
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
