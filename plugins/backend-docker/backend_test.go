package dockerbackend

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestAProgramRunsInAContainerOfItsOwn(t *testing.T) {
	t.Parallel()
	// Without a network only its own loopback is there, and memory is limited by the container: a limit of the address space would refuse
	// programs that only reserve it.
	out, _ := succeeds(t, commonBackend(t), executor.Spec{Code: `
import os, resource, socket
print(os.getuid(), os.getcwd(), os.listdir("/work"), resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY)
print(sorted(os.listdir("/sys/class/net")))
print(os.readlink("/proc/self/ns/net") == os.readlink("/proc/1/ns/net") if os.access("/proc/1/ns/net", os.R_OK) else True)
l = socket.create_server(("localhost", 0))
socket.create_connection((socket.gethostname(), l.getsockname()[1]), timeout=5).close()
print("up")
try:
    open("/etc/hosts", "a").write("x")
except OSError as e:
    print("refused")
`})
	if out != "1000 /work ['main.py'] True\n['lo']\nTrue\nup\nrefused\n" {
		t.Errorf("got %q", out)
	}
}

// TestInfoDoesNotSayForEverThatTheDefaultImageCannotBeUsed: its registry may have been out of reach when the backend started.
func TestInfoDoesNotSayForEverThatTheDefaultImageCannotBeUsed(t *testing.T) {
	t.Parallel()
	name := "127.0.0.1:9/late-" + strings.ToLower(random()) + ":1" // no registry listens there
	b := openBackend(t, map[string]any{"default_image": name})
	unusable := func() bool {
		info, err := b.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.Contains(w, name+" cannot be used") })
	}
	awaittest.Until(t, "the warning", unusable)
	if err := b.daemon.tag(t.Context(), commonBackend(t).imageOf(t), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.daemon.removeImage(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	if out, _ := succeeds(t, b, executor.Spec{Code: "print(1)"}); out != "1\n" || unusable() {
		t.Errorf("got %q; the warning is still there: %v", out, unusable())
	}
}
