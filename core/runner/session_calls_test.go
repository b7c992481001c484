//go:build linux

package runner

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Without a tmpfs only the runner knows how much of the disk limit is used.
func TestAFileMustFitBesideWhatIsThere(t *testing.T) {
	cfg := testConfig(t)
	cfg.Tmpfs, cfg.Box = false, false
	start := pythonSession()
	start.Limits.DiskBytes = 4 << 20
	r := openSessionWith(t, cfg, start)
	r.wants(t, "import os\nos.makedirs('d')\nos.makedirs('e/f')\nopen('d/used', 'wb').write(b'x' * (3 << 20))\nopen('e/f/used', 'wb').write(b'x' * (512 << 10))\nNone", "", "")
	write := func(name string, n int, announced int64) error {
		_, err := r.WriteFile(t.Context(), executor.File{Path: name, SizeBytes: announced}, strings.NewReader(strings.Repeat("y", n)))
		return err
	}
	for _, announced := range []int64{1 << 20, -1} {
		if err := write("beyond", 1<<20, announced); executor.CodeOf(err) != executor.Exhausted {
			t.Errorf("1 MiB beside 3.5 of 4, announced as %d: %v", announced, err)
		}
	}
	if err := write("fits", 256<<10, -1); err != nil {
		t.Errorf("0.25 MiB beside 3.5 of 4: %v", err)
	}
	if err := write("no more", 300<<10, -1); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("0.3 MiB beside 3.75 of 4: %v", err)
	}
	if err := r.RemoveFile(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if err := write("fits now", 2<<20, -1); err != nil {
		t.Errorf("2 MiB beside 0.75 of 4: %v", err)
	}
	// A hole takes no room.
	r.wants(t, "open('hole', 'wb').truncate(4 << 20)\nNone", "", "")
	if err := write("beside a hole", 1000, -1); err != nil {
		t.Errorf("a small file beside a hole: %v", err)
	}
	list, err := r.ListFiles(t.Context(), "", false)
	if err != nil || len(list) != 5 {
		t.Errorf("%v, %+v", err, list)
	}
}

// survivorSession is a session in a runner whose hosts come and go, and its first host.
func survivorSession(t *testing.T) (*survivor, Config, *Conn) {
	t.Helper()
	cfg := survivorConfig(t)
	s := newSurvivor(t, cfg)
	conn, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	must(t, err)
	if err := conn.OpenSession(t.Context(), pythonSession()); err != nil {
		t.Fatalf("%v\n%s", err, &s.err)
	}
	return s, cfg, conn
}

// slowReader gives one byte and then nothing until it is closed.
type slowReader struct {
	given  bool
	closed chan struct{}
}

func (s *slowReader) Read(p []byte) (int, error) {
	if !s.given {
		s.given = true
		return copy(p, "x"), nil
	}
	<-s.closed
	return 0, io.ErrUnexpectedEOF
}

// awaitWriting waits until as many names of files that are being written are in a folder.
func awaitWriting(t *testing.T, dir string, want int) {
	t.Helper()
	awaittest.Until(t, fmt.Sprintf("the writing of %d files", want), func() bool {
		names, err := filepath.Glob(filepath.Join(dir, ".pyexec-writing-*"))
		must(t, err)
		return len(names) == want
	})
}

func TestTheCallsOfAHostThatIsGoneAreForgotten(t *testing.T) {
	s, cfg, first := survivorSession(t)
	// As many calls as there may be, all of which wait for more of a file.
	body := &slowReader{closed: make(chan struct{})}
	var writing sync.WaitGroup
	for range protocol.MaxCalls {
		writing.Go(func() {
			_, err := first.WriteFile(context.Background(), executor.File{Path: "upload", SizeBytes: -1}, &slowReader{closed: body.closed})
			if err == nil {
				t.Error("a file was written that never came")
			}
		})
	}
	awaitWriting(t, cfg.WorkRoot, protocol.MaxCalls)
	s.detach(t, first)
	close(body.closed)
	writing.Wait()
	// The next host counts its calls from 1 again.
	second, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	must(t, err)
	for range 3 {
		if _, err := second.WriteFile(t.Context(), executor.File{Path: "upload", SizeBytes: -1}, strings.NewReader("whole")); err != nil {
			t.Fatalf("the next host: %v\n%s", err, &s.err)
		}
	}
	awaitWriting(t, cfg.WorkRoot, 0)
	f, r, err := second.ReadFile(t.Context(), "upload")
	must(t, err)
	if data, err := io.ReadAll(r); err != nil || string(data) != "whole" || f.SizeBytes != 5 {
		t.Errorf("%v, %q, %+v", err, data, f)
	}
	must(t, r.Close())
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	s.detach(t, second)
}

// What a host that is gone has asked for is not told to the next one, whose calls have the same numbers.
func TestAnAnswerToAHostThatIsGoneReachesNobody(t *testing.T) {
	s, _, first := survivorSession(t)
	if _, err := first.WriteFile(t.Context(), executor.File{Path: "file", SizeBytes: -1}, strings.NewReader(strings.Repeat("a", 4<<20))); err != nil {
		t.Fatal(err)
	}
	_, reading, err := first.ReadFile(t.Context(), "file") // more than is sent before somebody reads
	must(t, err)
	s.detach(t, first)
	if _, err := io.ReadAll(reading); err == nil {
		t.Error("a file was read to its end without a connection")
	}
	must(t, reading.Close())
	second, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	must(t, err)
	for range 5 {
		list, err := second.ListFiles(t.Context(), "", false)
		if err != nil || len(list) != 1 || list[0].SizeBytes != 4<<20 {
			t.Fatalf("%v, %+v", err, list)
		}
	}
	s.detach(t, second)
}
