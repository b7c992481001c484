package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// TestRecordsWithMuchCodeAreListedInLittleMemory stores 240 MiB of code in 16 Executions. A server that recovers and lists
// them reads none of it.
func TestRecordsWithMuchCodeAreListedInLittleMemory(t *testing.T) {
	needtest.Long(t, "the tests of core/store")
	const records, codeBytes, limit = 16, 15 << 20, 192 << 20
	s := startServer(t, nil)
	body := `{"code":"#` + strings.Repeat("x", codeBytes) + `"}`
	for range records {
		if got := s.post("/api/v1/exec/sync", body); got.status != http.StatusOK || got.json(t)["status"] != "succeeded" {
			t.Fatalf("%d %.400s", got.status, got.body)
		}
	}
	s.stop()
	s.start()
	_, recovered := serve.RSS(s.cmd.Process.Pid)
	list, _ := s.get("/api/v1/executions?limit=500").json(t)["executions"].([]any)
	_, peak := serve.RSS(s.cmd.Process.Pid)
	t.Logf("peak: %d MiB when recovered, %d MiB after a list of %d", recovered>>20, peak>>20, len(list))
	if len(list) != records || peak == 0 || peak > limit {
		t.Errorf("%d records, a peak of %d bytes, want %d and at most %d", len(list), peak, records, limit)
	}
}
