package dockerbackend

import (
	"bytes"
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

// cleanTime bounds the cleaning up after a ctx that has ended.
const cleanTime = 30 * time.Second

// cleanUp returns a ctx for cleaning up after ctx. It does not end with ctx.
func cleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, fmt.Errorf("the cleaning up timed out after %s", cleanTime))
}

// newName returns a unique name for a container.
func newName(kind string) string { return "python-executor-" + kind + "-" + random() }

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // Read never fails
	return hex.EncodeToString(b[:])
}

// newBoot returns the name of this life of the plugin. It has a random part, the process number, the start time of the process,
// and the machine and namespace of that number. A reader on the same machine can tell from it whether the process has ended.
func newBoot() string {
	return fmt.Sprintf("%s.%d.%s.%s", random(), os.Getpid(), startTime(os.Getpid()), processNumbers())
}

// bootAlive reports whether the process of a boot runs on this machine.
func bootAlive(boot string) bool {
	here, alive := findBoot(boot)
	return here && alive
}

// bootOver reports whether the process of a boot has certainly ended. For a process of another machine that is unknown, and
// bootOver returns false.
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

// processNumbers identifies the machine's present boot and the namespace of process numbers; empty means unknown.
var processNumbers = sync.OnceValue(func() string {
	machine, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/pid")
	if err != nil || err2 != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(string(machine) + namespace))
	return hex.EncodeToString(sum[:4])
})

// startTime returns the start time of a process, in clock ticks since the machine's boot; empty if there is no such process.
func startTime(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name in brackets may contain anything. The start time is the 20th field after it.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
