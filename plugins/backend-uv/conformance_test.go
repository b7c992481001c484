package uvbackend

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/binary"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

// TestConformance holds this backend to the law, with a package index of the test's own. The lane of a plugin process also has
// all that the wire lane has, since nothing attaches to a program of this backend. As root the law is tested without root, too.
func TestConformance(t *testing.T) {
	needUV(t)
	if os.Geteuid() == 0 && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") { // one that names a lane wants no other
		judge := lawWithoutRoot(t) // both mostly wait, so they run at once
		defer func() { t.Run("without root", judge) }()
	}
	index := newWheelhouse(t)
	index.probe()
	cache := filepath.Join(folder(t), "cache")
	settings := map[string]any{"cache_dir": cache, "index_url": index.url(), "warm_sessions": -1} // a warm session would count as a leftover
	if needtest.Required(needtest.Box) {
		settings["isolation"] = IsolationNamespaces
	}
	own := ownAddress()
	if own != "" {
		settings["network_open"] = []string{own + "/32"}
	}
	options, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	lanes := []backendtest.LaneRules{{Lane: backendtest.LaneDirect}, backendtest.SecondProcess}
	if os.Getenv(asNobody) != "" {
		lanes = []backendtest.LaneRules{withoutRoot()}
	}
	backendtest.Run(t, backendtest.Harness{
		Lanes: lanes,
		New: func(t *testing.T) executor.Backend {
			b, err := Factory(t.Context(), plugin.Configure{Name: "uv", Instance: "law", Options: options})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Process: func(t *testing.T) *plugintest.Plugin { return plugintest.Process(t, "uv", options) },
		Options: backendtest.Options{
			Requirement: backendtest.Requirement{Text: "pyexec-probe<2", Import: "pyexec_probe", Version: "1.2.3", Resolved: "pyexec-probe==1.2.3"},
			Leftovers:   func() []string { return lastingLeftovers(filepath.Join(cache, "work")) },

			NetworkAddress: own, Expire: expire(t),
		},
	})
}

// asNobody is a variable of the environment of the process that lawWithoutRoot starts.
const asNobody = "PYEXEC_TEST_AS_NOBODY"

// withoutRoot is the lane of the law without root.
func withoutRoot() backendtest.LaneRules {
	lane := backendtest.LaneRules{Lane: backendtest.LaneDirect, Why: "without root only the sandbox is another one: limits, stopping, and what a program can reach"}
	for _, r := range backendtest.Rules() {
		id := r[0]
		limits, stopping, abuse := strings.HasPrefix(id, "BE-3"), strings.HasPrefix(id, "BE-4"), strings.HasPrefix(id, "BE-2") && len(id) == len("BE-200")
		if limits || stopping || abuse || slices.Contains([]string{"BE-01", "BE-15", "BE-50", "BE-61", "BE-70", "BE-75", "SE-01", "SE-10", "SE-12", "SE-17", "SE-25", "SE-43", "SE-48"}, id) {
			lane.Gate = append(lane.Gate, id)
		}
	}
	return lane
}

// expire returns what lets a limit come, or nil if the runner is the embedded one, which is not of this test.
func expire(t *testing.T) func(string, backendtest.Limit) {
	if binary.Bytes() != nil {
		return nil
	}
	return func(id string, limit backendtest.Limit) {
		if toldtest.Tell(t, id, agent.LimitTimeout); limit == backendtest.LimitGrace {
			toldtest.Tell(t, id, agent.LimitGrace)
			toldtest.Tell(t, id, agent.LimitLast)
		}
	}
}

// ownAddress returns an address of this host that is not loopback, or "".
func ownAddress() string {
	c, err := net.Dial("udp4", "198.51.100.1:9") // sends nothing: the kernel only chooses the address
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String()
}

// lastingLeftovers lists the leftovers of programs that a runner does not clear up.
func lastingLeftovers(work string) []string {
	return awaittest.None(func() []string { return leftovers(work) })
}

// leftovers lists files of programs, and processes of programs. The empty work folder that an idle slot has for its next run does not
// count. The private mounts of a runner are seen through the root of its process, which needs root's rights.
func leftovers(work string) []string {
	var found []string
	for _, root := range append(runnerRoots(work), "/") {
		slots, _ := filepath.Glob(filepath.Join(root, work, "*", "*"))
		boxed := false
		for _, slot := range slots {
			if box := filepath.Join(slot, "root"); isFolder(filepath.Join(box, "dev")) {
				boxed = true
				found = append(found, leftInPublic(box, work, "/work")...)
			} else {
				found = append(found, leftIn(slot)...)
			}
		}
		mounts, _ := os.ReadFile(filepath.Join(filepath.Dir(root), "mountinfo"))
		if root == "/" || boxed || !bytes.Contains(mounts, []byte(" "+work+"/")) {
			continue // these are the host's own folders, which others use too
		}
		found = append(found, leftInPublic(root, work)...)
	}
	for _, pid := range leftovertest.Programs(work) {
		found = append(found, fmt.Sprintf("process %d in %s", pid, work))
	}
	return found
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// leftInPublic lists the content of private folders and of more. What leads to work does not count.
func leftInPublic(root, work string, more ...string) []string {
	var found []string
	for _, public := range append(more, "/tmp", "/var/tmp", "/dev/shm", "/run/lock") {
		files, _ := os.ReadDir(filepath.Join(root, public))
		for _, f := range files {
			if path := filepath.Join(public, f.Name()); path != work && !strings.HasPrefix(work, path+"/") {
				found = append(found, "file "+filepath.Join(root, path))
			}
		}
	}
	return found
}

// leftIn lists the content of a slot's folder, except for an empty work folder and its empty folder for temporary files.
func leftIn(slot string) []string {
	var found []string
	folders, _ := os.ReadDir(slot)
	for i, f := range folders {
		path := filepath.Join(slot, f.Name())
		files, _ := os.ReadDir(path)
		own := i == 0 || i == 1 && f.Name() == folders[0].Name()+"t"
		if !own || len(files) > 0 {
			found = append(found, "folder "+path)
		}
	}
	return found
}

// runnerRoots lists the root folders of the runners whose claims lie below work.
func runnerRoots(work string) []string {
	var roots []string
	claims, _ := os.ReadDir(work)
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range environments {
		raw, _ := os.ReadFile(e)
		for _, c := range claims {
			if bytes.HasPrefix(raw, []byte(claimVariable+filepath.Join(work, c.Name())+"\x00")) {
				roots = append(roots, filepath.Join(filepath.Dir(e), "root"))
			}
		}
	}
	return roots
}

// lawWithoutRoot runs the direct lane and the tests of boxes as the user nobody, while the caller goes on. Without root there are no uids
// and control groups. User namespaces replace them as far as the machine has them. judge waits for the end, and fails its test unless all
// has passed.
func lawWithoutRoot(t *testing.T) (judge func(*testing.T)) {
	t.Helper()
	home := folder(t)
	uv, err := exec.LookPath("uv")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(uv)
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(home, "bin", "uv"), string(raw))
	const nobody = 65534
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^(TestConformance|"+boxTests+")$/^direct$", "-test.v")
	cmd.Env = []string{asNobody + "=1", "PYEXEC_TEST_LONG=" + os.Getenv("PYEXEC_TEST_LONG"), "PATH=" + filepath.Join(home, "bin") + ":" + defaultPath, "HOME=" + home, "TMPDIR=" + home}
	if needtest.Required(needtest.Box) {
		cmd.Env = append(cmd.Env, "PYEXEC_TEST_REQUIRE="+needtest.Box)
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = childAttr(nobody)
	var out []byte
	var runErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the child is killed when the thread that has started it ends
		defer runtime.UnlockOSThread()
		out, runErr = cmd.CombinedOutput()
	}()
	t.Cleanup(func() { <-done })
	return func(t *testing.T) {
		<-done
		t.Logf("%s", out)
		if runErr != nil || !bytes.Contains(out, []byte("--- PASS: TestConformance/direct")) {
			t.Error(runErr)
		}
		for _, name := range strings.Split(boxTests, "|") {
			if !bytes.Contains(out, []byte("--- PASS: "+name)) {
				needtest.Need(t, !bytes.Contains(out, []byte("--- SKIP: "+name)), needtest.Box, "user namespaces do not work")
				t.Errorf("%s did not run", name)
			}
		}
	}
}
