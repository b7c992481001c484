package sysmon

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestCalmProlongsTheSleepsOfTheMonitorAlone(t *testing.T) {
	needtest.NeedRoot(t)
	threads, err := os.ReadDir("/proc/self/task") // before Calm: what the monitor makes after it has its timer slack, too
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads { // a run before has left the slack
		err := os.WriteFile("/proc/"+thread.Name()+"/timerslack_ns", []byte("50000"), 0)
		if err != nil && !ended(err) {
			t.Fatal(err)
		}
	}
	Calm()
	var calm []string
	for _, thread := range threads {
		raw, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if ended(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) == strconv.Itoa(slackNanoseconds)+"\n" {
			calm = append(calm, thread.Name())
		}
	}
	if len(calm) != 1 || calm[0] == strconv.Itoa(os.Getpid()) {
		t.Fatalf("threads %q have that timer slack", calm)
	}
	// Only the monitor wakes without anybody who wakes it.
	before := sleeps(t, calm[0])
	awaittest.Until(t, "that thread "+calm[0]+" wakes by itself", func() bool { return sleeps(t, calm[0]) >= before+20 })
}

// ended reports whether err says that a thread has ended.
func ended(err error) bool { return errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist) }

// sleeps returns how often a thread has slept.
func sleeps(t *testing.T, thread string) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/task/" + thread + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(raw, []byte("\nvoluntary_ctxt_switches:"))
	line, _, _ := strings.Cut(string(rest), "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
