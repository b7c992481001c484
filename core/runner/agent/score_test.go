//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// The kernel lets only a privileged process lower its score, so the real file shows a part of this only.
func TestAProtectionFromTheKernelsChoiceIsTakenAway(t *testing.T) {
	t.Parallel()
	for score, want := range map[string]string{"-1000\n": "0", "-1\n": "0", "0\n": "0\n", "300\n": "300\n"} {
		name := filepath.Join(t.TempDir(), "oom_score_adj")
		if err := os.WriteFile(name, []byte(score), 0o600); err != nil {
			t.Fatal(err)
		}
		usualOOMScore(name)
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", score, got, err)
		}
	}
}
