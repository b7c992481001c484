package pyexec

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzStreamsOfAnyBytesAreReadTheSameInAnyPieces(f *testing.F) {
	f.Add("id: 1\nevent: output\ndata: {}\n\n: beat\n\n")
	f.Add("data:a\r\ndata: b\r\n\r\nid\n\n\n")
	f.Add("data: cut")
	f.Fuzz(func(t *testing.T, text string) {
		read := func(r io.Reader) (all []message) {
			for m, err := range messages(r) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			}
			return all
		}
		whole, pieces := read(strings.NewReader(text)), read(iotest.OneByteReader(strings.NewReader(text)))
		if len(whole) != len(pieces) {
			t.Fatalf("%d messages, in pieces %d", len(whole), len(pieces))
		}
		for i := range whole {
			if whole[i].id != pieces[i].id || whole[i].event != pieces[i].event || string(whole[i].data) != string(pieces[i].data) {
				t.Fatalf("message %d is %+v, in pieces %+v", i, whole[i], pieces[i])
			}
			if strings.ContainsAny(whole[i].id+whole[i].event, "\n") {
				t.Fatalf("a line end in %+v", whole[i])
			}
		}
	})
}

func TestAMessageWithoutAnEndIsRefused(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("data: "), io.LimitReader(letters{}, maxMessage+1))
	for m, err := range messages(endless) {
		if !errors.Is(err, errTooLong) {
			t.Errorf("got a message of %d bytes, error %v", len(m.data), err)
		}
	}
	lines := strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", maxMessage>>20))
	for m, err := range messages(lines) {
		if !errors.Is(err, errTooLong) {
			t.Errorf("got a message of %d bytes, error %v", len(m.data), err)
		}
	}
}

type letters struct{}

var manyLetters = strings.Repeat("x", 32<<10)

func (letters) Read(p []byte) (int, error) { return copy(p, manyLetters), nil }
