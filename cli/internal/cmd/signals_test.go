//go:build unix

package cmd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

func TestASignalThatNohupIgnoresStaysIgnored(t *testing.T) {
	all := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	if got := heeded(); signal.Ignored(syscall.SIGINT) || signal.Ignored(syscall.SIGHUP) {
		t.Log("the test itself runs with signals ignored")
	} else if !slices.Equal(got, all) {
		t.Error(got)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(heeded(), os.Signal(syscall.SIGHUP)) {
		t.Error("SIGHUP is heeded")
	}
}
