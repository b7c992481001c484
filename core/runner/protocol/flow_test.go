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
