package cmd

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestProgressOnATerminalIsOneLineThatIsWiped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&global{IO: IO{Err: &out, ErrTerminal: true}})
		p.show(executor.Progress{Phase: executor.PhasePrepare, Message: "installing \x1b[31mred", Done: 1, Total: 3, Unit: "packages"})
		p.show(executor.Progress{Message: "too soon"})
		time.Sleep(time.Second)
		p.show(executor.Progress{Message: "downloading", Done: 1 << 20, Total: 4 << 20, Unit: "bytes"})
		time.Sleep(time.Second)
		p.show(executor.Progress{Message: strings.Repeat("é", 200)})
		p.end()
		p.end()
		p.show(executor.Progress{Message: "too late"})
		want := "\rinstalling ?[31mred 1 of 3 packages\x1b[K\rdownloading 1.0 MiB of 4.0 MiB (25 %)\x1b[K\r" + strings.Repeat("é", 77) + "…\x1b[K\r\x1b[K"
		if got := out.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestProgressElsewhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		g    global
		want string
	}{
		{"no terminal, no progress", global{}, ""},
		{"quiet on a terminal", global{IO: IO{ErrTerminal: true}, quiet: true}, ""},
		{"verbose, a line for each message", global{IO: IO{ErrTerminal: true}, verbose: true}, "python-executor: installing 1 packages\npython-executor: prepare\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			g := test.g
			g.Err = &out
			p := newProgress(&g)
			p.show(executor.Progress{Message: "installing", Done: 1, Unit: "packages"})
			p.show(executor.Progress{Message: "installing", Done: 2, Unit: "packages"})
			p.show(executor.Progress{Phase: executor.PhasePrepare})
			p.end()
			if out.String() != test.want {
				t.Errorf("got %q, want %q", &out, test.want)
			}
		})
	}
}

func TestUploadIsCounted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&global{IO: IO{Err: &out, ErrTerminal: true}})
	source := p.counted(&executor.Source{SizeBytes: 4, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abcd")), nil }})
	r, err := source.Open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "abcd" {
		t.Fatal(string(b), err)
	}
	if !strings.Contains(out.String(), "uploading 4 B of 4 B (100 %)") {
		t.Errorf("got %q", &out)
	}
	if p.counted(nil) != nil {
		t.Error("nothing is something")
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 kiB", 5 << 20: "5.0 MiB", 1 << 60: "1.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
