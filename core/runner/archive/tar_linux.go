package archive

import (
	"bytes"
	"errors"
	"io"
)

// tarInput counts bytes, remembers the reader's own error, and looks for the end mark: archive/tar takes an archive that stops
// between two entries for a whole one.
type tarInput struct {
	r     io.Reader
	head  []byte
	read  int64
	err   error
	ended bool
	tail  [512]byte
	fill  int
}

var zeroBlock [512]byte

// Read implements io.Reader.
func (t *tarInput) Read(p []byte) (int, error) {
	if len(t.head) > 0 {
		n := copy(p, t.head)
		t.head = t.head[n:]
		t.note(p[:n])
		return n, nil
	}
	n, err := t.r.Read(p)
	t.note(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

// note follows the stream block by block. archive/tar stops at the end mark, so the last whole block that it has read tells.
func (t *tarInput) note(p []byte) {
	t.read += int64(len(p))
	if t.fill+len(p) >= len(t.tail) {
		over := (t.fill + len(p)) % len(t.tail)
		if whole := p[:len(p)-over]; len(whole) >= len(t.tail) {
			copy(t.tail[:], whole[len(whole)-len(t.tail):])
		} else {
			copy(t.tail[len(t.tail)-len(whole):], whole)
		}
		t.ended = bytes.Equal(t.tail[:], zeroBlock[:])
		t.fill = copy(t.tail[:], p[len(p)-over:])
		return
	}
	t.fill += copy(t.tail[t.fill:], p)
}

// sniff reads the beginning, and refuses a compressed stream with the name of its format.
func (t *tarInput) sniff() error {
	head := make([]byte, 6)
	n, err := io.ReadFull(t.r, head)
	if errors.Is(err, io.EOF) {
		return badEntry("", "the archive is empty: it must have an end mark")
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.err = err
		return err
	}
	t.head = head[:n]
	for magic, format := range map[string]string{
		"\x1f\x8b": "gzip", "BZh91A": "bzip2", "BZh11A": "bzip2", "\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "PK\x03\x04": "zip",
		"\x04\x22\x4d\x18": "lz4", "7z\xbc\xaf\x27\x1c": "7z",
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return badEntry("", "the archive must not be compressed (got %s)", format)
		}
	}
	return nil
}
