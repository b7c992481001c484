//go:build linux

package protocol

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAnInboxCountsWhatWasReadAndNotGranted(t *testing.T) {
	t.Parallel()
	granted := 0
	box := NewInbox(100, func(n int) { granted += n })
	put := func(n int) error {
		buf := ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		return box.Put(Piece{Buffer: buf, Data: (*buf)[:n]})
	}
	read := func(n int) {
		if got, err := box.Read(make([]byte, n)); got != n || err != nil {
			t.Fatal(got, err)
		}
	}
	must(t, put(60))
	read(24)
	if granted != 0 {
		t.Errorf("%d bytes were granted although a quarter of the window was not read", granted)
	}
	if err := put(41); !errors.Is(err, ErrFrame) {
		t.Errorf("24 bytes that were not granted again were used: %v", err)
	}
	box = NewInbox(100, func(n int) { granted += n })
	must(t, put(60))
	read(24)
	read(1)
	if granted != 25 {
		t.Errorf("%d bytes were granted when a quarter of the window was read", granted)
	}
	read(5)
	box.Swallow()
	if granted != 60 {
		t.Errorf("%d of 60 bytes were granted when nobody reads on", granted)
	}
	box = NewInbox(100, func(int) { t.Error("granted after the end was told") })
	must(t, put(10))
	box.Abort(ErrStopped)
	must(t, put(10))
	if n, err := box.Read(make([]byte, 5)); n != 0 || !errors.Is(err, ErrStopped) {
		t.Errorf("%d bytes of what was dropped, %v", n, err)
	}
}

func TestAFileThatCannotBeReadIsNoEnd(t *testing.T) {
	t.Parallel()
	box := NewInbox(100, func(int) {})
	folder, err := os.Open(t.TempDir())
	must(t, err)
	must(t, box.Open(folder))
	box.End(io.EOF)
	if n, err := box.Read(make([]byte, 10)); n != 0 || !errors.Is(err, unix.EISDIR) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// fileOf returns an open file with that content.
func fileOf(t *testing.T, content string) *os.File {
	t.Helper()
	name := t.TempDir() + "/file"
	must(t, os.WriteFile(name, []byte(content), 0o600))
	f, err := os.Open(name)
	must(t, err)
	return f
}

func TestAnInboxEndsWithTheFirstReason(t *testing.T) {
	t.Parallel()
	box := NewInbox(100, func(int) {})
	must(t, box.Open(fileOf(t, "data")))
	box.End(ErrCancelled)
	box.End(io.EOF)
	if p, err := io.ReadAll(box); string(p) != "data" || !errors.Is(err, ErrCancelled) {
		t.Errorf("read %q, %v", p, err)
	}
}

func TestAStreamThatHasEndedTakesNoFile(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Inbox){"ended": func(b *Inbox) { b.End(io.EOF) }, "dropped": (*Inbox).Swallow} {
		box, f := NewInbox(100, func(int) {}), fileOf(t, "data")
		end(box)
		if err := box.Open(f); err != nil || !errors.Is(f.Close(), os.ErrClosed) {
			t.Errorf("%s: the file was not closed: %v", name, err)
		}
	}
}

func TestAStreamIsAFileOrData(t *testing.T) {
	t.Parallel()
	put := func(box *Inbox) error {
		buf := ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		return box.Put(Piece{Buffer: buf, Data: (*buf)[:1]})
	}
	box, f := NewInbox(100, func(int) {}), fileOf(t, "data")
	must(t, put(box))
	if err := box.Open(f); !errors.Is(err, ErrFrame) || !errors.Is(f.Close(), os.ErrClosed) {
		t.Errorf("a file beside data: %v", err)
	}
	box = NewInbox(100, func(int) {})
	must(t, box.Open(fileOf(t, "data")))
	defer box.Abort(ErrStopped)
	if err := put(box); !errors.Is(err, ErrFrame) {
		t.Errorf("data beside a file: %v", err)
	}
	if err := box.Open(fileOf(t, "more")); !errors.Is(err, ErrFrame) {
		t.Errorf("a second file: %v", err)
	}
}

// The sender may still wait for credit when the reader has given up, although the stream has ended at this side.
func TestAnInboxThatWasEndedAndIsNotReadGrantsAllTheSame(t *testing.T) {
	t.Parallel()
	granted := 0
	box := NewInbox(100, func(n int) { granted += n })
	box.End(ErrCancelled)
	box.Swallow()
	buf := ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	if err := box.Put(Piece{Buffer: buf, Data: (*buf)[:60]}); err != nil || granted != 60 {
		t.Errorf("%d of 60 bytes were granted, %v", granted, err)
	}
}
