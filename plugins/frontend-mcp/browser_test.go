package mcpfrontend

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// A browser shows a page only what these headers allow, and sends a request only if the answer to its preflight allows it.
func TestABrowserIsToldWhatItMaySendAndRead(t *testing.T) {
	const page = "https://app.example"
	sum := sha256.Sum256([]byte("secret"))
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) {
		c.HTTP.AllowedOrigins = []string{page}
		c.HTTP.Tokens = []auth.Token{{Owner: "me", SHA256: hex.EncodeToString(sum[:])}}
	})
	lists := func(h http.Header, name string) (all []string) {
		for item := range strings.SplitSeq(h.Get(name), ",") {
			all = append(all, http.CanonicalHeaderKey(strings.TrimSpace(item)))
		}
		return all
	}
	for _, request := range []struct {
		method, origin, token string
		status                int
	}{
		{http.MethodOptions, page, "", http.StatusNoContent}, // a preflight carries no token
		{http.MethodPost, page, "secret", http.StatusOK},
		{http.MethodPost, page, "wrong", http.StatusUnauthorized}, // which the page must be able to read
		{http.MethodOptions, "https://other.example", "", http.StatusForbidden},
		{http.MethodPost, "https://other.example", "secret", http.StatusForbidden},
		{http.MethodPost, "", "secret", http.StatusOK},
	} {
		const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
		r, err := http.NewRequestWithContext(t.Context(), request.method, c.url, strings.NewReader(initialize))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if request.origin != "" {
			r.Header.Set("Origin", request.origin)
		}
		if request.token != "" {
			r.Header.Set("Authorization", "Bearer "+request.token)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != request.status || request.status == http.StatusOK && h.Get("Mcp-Session-Id") == "" {
			t.Errorf("%+v: status %d, %v", request, resp.StatusCode, h)
		}
		if request.origin != page {
			for name := range h {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%+v: %s: %s", request, name, h.Get(name))
				}
			}
			continue
		}
		if got := h.Get("Access-Control-Allow-Origin"); got != page || !slices.Contains(lists(h, "Vary"), "Origin") {
			t.Errorf("%+v: allowed is %q, and the answer varies by %q", request, got, h.Get("Vary"))
		}
		for name, want := range map[string][]string{
			"Access-Control-Expose-Headers": {"Mcp-Session-Id"},
			"Access-Control-Allow-Methods":  {"Get", "Post", "Delete"},
			"Access-Control-Allow-Headers":  {"Authorization", "Content-Type", "Accept", "Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-Id"},
		} {
			got := lists(h, name)
			for _, item := range want {
				if !slices.Contains(got, item) && !slices.Contains(got, strings.ToUpper(item)) {
					t.Errorf("%+v: %s lacks %s: %q", request, name, item, got)
				}
			}
		}
	}
}
