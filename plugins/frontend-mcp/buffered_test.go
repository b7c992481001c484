package mcpfrontend

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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
			return 0, nil // a server that refuses need not read what is being sent
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
	body, rest := io.Pipe()
	slow := make(chan int)
	go func() {
		status, _ := send(body)
		slow <- status
	}()
	if _, err := io.WriteString(rest, large); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		status, header := send(strings.NewReader(large))
		if status == http.StatusServiceUnavailable {
			if header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("two large messages at once: %d", status)
		}
	}
	if status, _ := send(strings.NewReader(ping)); status != http.StatusOK {
		t.Errorf("a small message: %d", status)
	}
	rest.Close()
	if status := <-slow; status != http.StatusOK {
		t.Errorf("the slow message: %d", status)
	}
	if status, _ := send(strings.NewReader(large)); status != http.StatusOK {
		t.Errorf("a large message after it: %d", status)
	}
}
