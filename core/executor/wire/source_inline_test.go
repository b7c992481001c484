package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// A small source travels in the message that announces it, and is opened once, however often the backend opens it.
func TestASmallSourceIsReadWhenItIsAnnounced(t *testing.T) {
	t.Parallel()
	const small = 16 << 10
	for name, c := range map[string]struct {
		size, said int64
		once       bool
		want       int32 // how often it is opened until the backend has opened it twice
	}{
		"empty":              {0, 0, false, 1},
		"small":              {100, 100, false, 1},
		"as large as may be": {small, small, false, 1},
		"larger":             {small + 1, small + 1, false, 2},
		"of unknown size":    {100, -1, false, 2},
		"longer than said":   {101, 100, false, 3},
		"shorter than said":  {99, 100, false, 3},
		"that is read once":  {100, 100, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdin := &tracked{make: func() (io.Reader, error) { return patterned(c.size), nil }}
			src := stdin.source()
			src.SizeBytes, src.Replayable = c.said, !c.once
			err := runWith(t, nil, src, func(job executor.Job) error {
				if opened := stdin.opened.Load(); c.once && opened != 0 {
					t.Errorf("it was opened %d times before the backend has opened it", opened)
				}
				for range 2 {
					if got := readAll(t, job.Stdin); got != digest(t, patterned(c.size)) {
						t.Errorf("got %s", got)
					}
					if c.once {
						break
					}
				}
				if job.Stdin.SizeBytes != c.said || job.Stdin.Replayable == c.once || job.Stdin.Digest != src.Digest {
					t.Errorf("it is announced as %+v", job.Stdin)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if opened, closed := stdin.opened.Load(), stdin.closed.Load(); opened != c.want || closed != opened {
				t.Errorf("it was opened %d times and closed %d times, want %d", opened, closed, c.want)
			}
		})
	}
}

// An error of a small source is that of the backend's reads, and does not end the call.
func TestABrokenSmallSourceFailsWhereItIsRead(t *testing.T) {
	t.Parallel()
	broken := executor.Errorf(executor.Unavailable, "broken")
	for name, r := range map[string]func() (io.Reader, error){
		"open": func() (io.Reader, error) { return nil, broken },
		"end": func() (io.Reader, error) {
			return io.MultiReader(patterned(8), iterReader(func([]byte) (int, error) { return 0, broken })), nil
		},
		"read": func() (io.Reader, error) {
			return io.MultiReader(bytes.NewReader([]byte("half")), iterReader(func([]byte) (int, error) { return 0, broken })), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := (&tracked{make: r}).source()
			src.SizeBytes = 8
			err := runWith(t, nil, src, func(job executor.Job) error {
				in, err := job.Stdin.Open()
				if err != nil {
					return err
				}
				_, err = io.ReadAll(in)
				return errors.Join(err, in.Close())
			})
			if executor.CodeOf(err) != executor.Unavailable {
				t.Errorf("got %v", err)
			}
		})
	}
}
