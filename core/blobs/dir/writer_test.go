package dirblobs

import (
	"runtime"
	"strings"
	"testing"
)

// Each Put needs a large buffer. A server with many uploads must not allocate one for each of them.
func TestPutsShareTheirBuffers(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	b, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const puts = 64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range puts {
		if _, err := b.Put(t.Context(), "key", strings.NewReader("text"), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector drops a quarter of what is put back into a pool, by chance.
	if each := (after.TotalAlloc - before.TotalAlloc) / puts; each > copyBuffer*3/4 {
		t.Errorf("a Put allocates %d bytes", each)
	}
}
