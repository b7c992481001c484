package dockerbackend

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// newBoot names this life of the plugin: a random part, the process and when it started. Whether it is over can then be
// told by whoever finds it in a label, on the same machine.
func newBoot() string {
	return fmt.Sprintf("%s.%d.%s", random(), os.Getpid(), startTime(os.Getpid()))
}

// bootAlive reports whether the process that a boot names is there.
func bootAlive(boot string) bool {
	parts := strings.Split(boot, ".")
	if len(parts) != 3 {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	return err == nil && parts[2] != "" && startTime(pid) == parts[2]
}

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
