package uvbackend

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAKindOfSessionsThatNobodyAsksForIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &warmSessions{keep: 1}
		asked := func(key string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.askedLocked(nil, key) // a kind without slots gives nothing back
		}
		known := func(key string) bool {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.find(key) >= 0
		}
		asked("often")
		asked("once")
		time.Sleep(warmTime - time.Second)
		asked("often")
		time.Sleep(2 * time.Second)
		if !known("often") || known("once") {
			t.Errorf("known are often: %v, and once: %v", known("often"), known("once"))
		}
		time.Sleep(warmTime)
		if known("often") {
			t.Error("a kind is known that nobody has asked for lately")
		}
	})
}
