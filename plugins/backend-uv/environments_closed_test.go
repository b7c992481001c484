package uvbackend

import (
	"os"
	"testing"
)

// Packages of callers may be private, so other users of the host do not get at them.
func TestEnvironmentsAreClosedToOtherUsersOfTheHost(t *testing.T) {
	b := openBackend(t, nil)
	want := os.FileMode(0o700)
	if os.Geteuid() == 0 && !b.how.Box {
		want = 0o711 // programs of other users pass through
	}
	info, err := os.Stat(environmentsDir(b.config))
	if err != nil || info.Mode().Perm() != want {
		t.Errorf("%v, %v, want %v", info.Mode(), err, want)
	}
	if err := os.Chmod(environmentsDir(b.config), 0o755); err != nil { // as an earlier version has made it
		t.Fatal(err)
	}
	if err := b.closeEnvironments(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(environmentsDir(b.config)); err != nil || info.Mode().Perm() != want {
		t.Errorf("after an earlier version: %v, %v", info.Mode(), err)
	}
}
