package httpfrontend

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestOutputThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Started{}, out(executor.Stdout, 0, "a\xffb\xe2\x82"), out(executor.Stdout, 5, "\xac\xe2"), out(executor.Stderr, 0, "caf\xc3"), out(executor.Stderr, 4, "\xa9\x00\u2028<"), done(0))
	m := decode(t, postJSON(t, handlerOf(t, r.service()), "/api/v1/exec/sync", `{"code":"x"}`).Body.Bytes())
	if m["stdout"] != "a\uFFFDb€\uFFFD" || m["stdout_base64"] != base64.StdEncoding.EncodeToString([]byte("a\xffb€\xe2")) {
		t.Errorf("%q %q", m["stdout"], m["stdout_base64"])
	}
	if m["stderr"] != "café\x00\u2028<" || m["stderr_base64"] != nil {
		t.Errorf("%q %q", m["stderr"], m["stderr_base64"])
	}
}

func FuzzTextEscaper(f *testing.F) {
	f.Add([]byte("a\xffb€\xe2\x82"), uint8(1), uint8(3))
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f\x98"), uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, a, b uint8) {
		var e textEscaper
		got := []byte{'"'}
		rest := data
		for i := 0; len(rest) > 0; i++ {
			n := min(len(rest), 1+int([]uint8{a, b}[i%2]))
			got = e.append(got, rest[:n])
			rest = rest[n:]
		}
		got = append(e.finish(got), '"')
		var s string
		if err := json.Unmarshal(got, &s); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		// One U+FFFD for each byte that is no part of a rune: as a range over a string has it.
		if want := string([]rune(string(data))); s != want {
			t.Fatalf("%q became %q, want %q", data, s, want)
		}
		if valid := strings.ToValidUTF8(string(data), "x") == string(data); e.broken == valid {
			t.Fatalf("%q: broken is %v", data, e.broken)
		}
	})
}
