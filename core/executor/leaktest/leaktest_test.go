package leaktest

import (
	"bytes"
	"strings"
	"testing"
)

type tests func() int

func (f tests) Run() int { return f() }

// printed is what run prints. Its first write calls first.
type printed struct {
	bytes.Buffer
	first func()
}

func (p *printed) Write(b []byte) (int, error) {
	if p.Len() == 0 {
		p.first()
	}
	return p.Buffer.Write(b)
}

func TestTheEndOfAGoroutineIsAwaited(t *testing.T) {
	end := make(chan struct{})
	out := &printed{first: func() { close(end) }}
	code := run(tests(func() int {
		go func() { <-end }()
		return 0
	}), 0, out)
	if code != 0 || !strings.Contains(out.String(), "TestTheEndOfAGoroutineIsAwaited") {
		t.Errorf("%d after %q", code, &out.Buffer)
	}
}

func TestAGoroutineThatStaysIsAFailure(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	out := &printed{first: func() {}}
	code := run(tests(func() int {
		go func() { <-end }()
		return 0
	}), 0, out)
	if code != 1 || !strings.Contains(out.String(), "goroutines are left after 0s") {
		t.Errorf("%d after %q", code, &out.Buffer)
	}
	if code := run(tests(func() int { return 3 }), 0, out); code != 3 {
		t.Errorf("failed tests end with %d", code)
	}
}
