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
	for name, r := range map[string]io.Reader{
		"one line":   io.MultiReader(strings.NewReader("data: "), io.LimitReader(letters{}, maxMessage+1)),
		"many lines": strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", maxMessage>>20)),
	} {
		refused := false
		for m, err := range messages(r) {
			if refused = errors.Is(err, errTooLong); !refused {
				t.Errorf("%s: got a message of %d bytes, error %v", name, len(m.data), err)
			}
		}
		if !refused {
			t.Errorf("%s: it was not refused", name)
		}
	}
}

// A message without an id is no event of the log. It must not take over the id of the message before it.
func TestAMessageHasItsOwnFieldsOnly(t *testing.T) {
	t.Parallel()
	var got []string
	for m, err := range messages(strings.NewReader("id: 1\nevent: a\ndata: x\n\nevent: b\n\ndata: y\n\n")) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.id+"|"+m.event+"|"+string(m.data))
	}
	if want := "1|a|x |b| ||y"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, " "), want)
	}
}

type letters struct{}

var manyLetters = strings.Repeat("x", 32<<10)

func (letters) Read(p []byte) (int, error) { return copy(p, manyLetters), nil }
