package mcpfrontend

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestMessagesInMemoryShareABudget(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.HTTP.MaxBodyBytes, c.HTTP.MaxBufferedBytes = 1<<20, 1<<20 })
	send := func(body io.Reader) (int, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", c.session)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	large := ping + strings.Repeat(" ", 700<<10)
	for range 5 { // each gives back what it held
		if status, _ := send(strings.NewReader(large)); status != http.StatusOK {
			t.Fatalf("a large message: %d", status)
		}
	}
	share := c.buffers.Open("") // of another message
	if _, err := share.ReadAll(strings.NewReader(large), -1); err != nil {
		t.Fatal(err)
	}
	if status, header := send(strings.NewReader(large)); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("two large messages at once: %d, Retry-After %q", status, header.Get("Retry-After"))
	}
	if status, _ := send(strings.NewReader(ping)); status != http.StatusOK {
		t.Errorf("a small message: %d", status)
	}
	share.Release()
	if status, _ := send(strings.NewReader(large)); status != http.StatusOK {
		t.Errorf("a large message after it: %d", status)
	}
}
