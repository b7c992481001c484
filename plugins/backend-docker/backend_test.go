package dockerbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAProgramRunsInAContainerOfItsOwn(t *testing.T) {
	b := backend(t, nil)
	out, r := succeeds(t, b, executor.Spec{Code: "import os; print(os.getuid(), os.getcwd(), os.listdir('/work'))"})
	if out != "1000 /work ['main.py', '.tmp']\n" && out != "1000 /work ['.tmp', 'main.py']\n" {
		t.Errorf("got %q", out)
	}
	t.Logf("%+v", r)
}

func TestWithoutANetworkOnlyTheOwnLoopbackIsThere(t *testing.T) {
	b := backend(t, nil)
	out, _ := succeeds(t, b, executor.Spec{Code: `
import os, socket
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
	if out != "['lo']\nTrue\nup\nrefused\n" {
		t.Errorf("got %q", out)
	}
}
