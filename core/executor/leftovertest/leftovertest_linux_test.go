package leftovertest

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const prefix = "pyexec-leftovertest-"

// lock is that of a helper. A file that nothing refers to is closed by the garbage collector.
var lock *os.File

func TestMain(m *testing.M) {
	Help(func() (string, error) {
		dir, err := os.MkdirTemp("", prefix)
		if err == nil {
			lock, err = Lock(dir)
		}
		return dir, err
	})
	os.Exit(m.Run())
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

func TestTheFolderOfAKilledProcessIsSwept(t *testing.T) {
	mark := "PYEXEC_LEFTOVERTEST_MARK=" + t.TempDir() // other packages and other runs of this test have helpers, too
	helper, dir := StartHelper(t, mark)
	Sweep(prefix, os.RemoveAll)
	if !exists(dir) {
		t.Fatal("the folder of a running process was removed")
	}
	marked := func() []int {
		return Processes("environ", func(content string) bool { return strings.Contains(content, mark+"\x00") })
	}
	if pids := marked(); len(pids) != 1 || pids[0] != helper.Process.Pid {
		t.Errorf("%v, want %d", pids, helper.Process.Pid)
	}
	if err := End(marked, unix.SIGTERM, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := helper.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the helper ended with %v", err)
	}
	Sweep(prefix, os.RemoveAll)
	if exists(dir) {
		t.Errorf("%s is left", dir)
	}
}

func TestAFolderWithoutALockIsSweptWhenItIsOld(t *testing.T) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	Sweep(prefix, os.RemoveAll)
	if !exists(dir) {
		t.Error("a folder that is just being made was removed")
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	Sweep(prefix, os.RemoveAll)
	if exists(dir) {
		t.Errorf("%s is left", dir)
	}
}

func TestASignalIsHeededUntilItIsIgnored(t *testing.T) {
	heard := make(chan unix.Signal, 1)
	ignore := Heed(func(s unix.Signal) { heard <- s })
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if s := <-heard; s != unix.SIGHUP {
		t.Errorf("heard %v", s)
	}
	ignore()
	ignore()
}
