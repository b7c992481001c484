package buffered_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func wantFull(t *testing.T, err error) {
	t.Helper()
	var e *executor.Error
	if !buffered.ErrFull(err) || !errors.As(err, &e) || e.Code != executor.Unavailable || e.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
}

func TestBodiesShareABudget(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	b := buffered.New(2*size, false)
	text := strings.Repeat("x", size)
	first, second, third := b.Open(""), b.Open(""), b.Open("")
	for _, s := range []*buffered.Share{first, second} {
		if got, err := s.ReadAll(strings.NewReader(text), size); err != nil || string(got) != text {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	unread := strings.NewReader(text)
	_, err := third.ReadAll(unread, size)
	wantFull(t, err)
	if unread.Len() != size {
		t.Error("a body that cannot fit was read")
	}
	// Without a length it is refused when it has grown too much.
	_, err = third.ReadAll(strings.NewReader(text), -1)
	wantFull(t, err)
	third.Release()
	// A short request is served all the same.
	if got, err := b.Open("").ReadAll(strings.NewReader("short"), 5); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
	first.Release()
	first.Release()
	if _, err := third.ReadAll(strings.NewReader(text), size); err != nil {
		t.Errorf("after a release: %v", err)
	}
	wantFullNow := b.Open("")
	_, err = wantFullNow.ReadAll(strings.NewReader(text), size)
	wantFull(t, err)
}

// TestTheLargestBodyThatFits: the budget, the part that is not counted, and without the byte for the Read of the end.
func TestTheLargestBodyThatFits(t *testing.T) {
	t.Parallel()
	const largest = 1<<20 + 16<<10 - 1
	b := buffered.New(1<<20, false)
	unread := strings.NewReader(strings.Repeat("x", largest+1))
	_, err := b.Open("").ReadAll(unread, largest+1)
	wantFull(t, err)
	if unread.Len() != largest+1 {
		t.Error("a body that is one byte too large was read")
	}
	if got, err := b.Open("").ReadAll(strings.NewReader(strings.Repeat("x", largest)), largest); err != nil || len(got) != largest {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// What was announced and does not come takes nothing from others.
func TestASilentSenderHoldsWhatItHasSent(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	b := buffered.New(size, false)
	for range 100 {
		s := b.Open("")
		if _, err := s.ReadAll(io.MultiReader(strings.NewReader("a few bytes"), iotest.ErrReader(io.ErrUnexpectedEOF)), size); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	if _, err := b.Open("").ReadAll(strings.NewReader(strings.Repeat("x", size)), size); err != nil {
		t.Error(err)
	}
}

func TestAShareOfSeveralBodies(t *testing.T) {
	t.Parallel()
	b := buffered.New(1<<20, false)
	s := b.Open("")
	half := strings.Repeat("x", 500<<10)
	for range 2 {
		if _, err := s.ReadAll(strings.NewReader(half), int64(len(half))); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.ReadAll(strings.NewReader(half), int64(len(half)))
	wantFull(t, err)
	s.Release()
	if _, err := s.ReadAll(strings.NewReader(half), int64(len(half))); err != nil {
		t.Error(err)
	}
}

func TestReadAllReadsEverything(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte("ab"), n)
		for _, announced := range []int64{-1, 0, int64(n), int64(2 * n), int64(3 * n)} { // net/http allows the right one only
			for _, budget := range []*buffered.Budget{nil, buffered.New(1<<20, false)} {
				got, err := budget.Open("").ReadAll(iotest.HalfReader(bytes.NewReader(want)), announced)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, announced %d: %d, %v", len(want), announced, len(got), err)
				}
			}
		}
	}
}

// Large bodies of one owner must not keep out those of others.
func TestBodiesOfOneOwnerLeaveRoomToOthers(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	body := func(s *buffered.Share, n int) error {
		_, err := s.ReadAll(strings.NewReader(strings.Repeat("x", n)), int64(n))
		return err
	}
	b := buffered.New(4*size, true)
	first, second, third, other := b.Open("a"), b.Open("a"), b.Open("a"), b.Open("b")
	if err := errors.Join(body(first, size), body(second, size/2), body(other, size)); err != nil {
		t.Fatal(err)
	}
	if err := body(third, size); !buffered.ErrFull(err) {
		t.Errorf("an owner has more than half: %v", err)
	}
	if err := body(b.Open("a"), 1000); err != nil {
		t.Errorf("a short body: %v", err)
	}
	first.Release()
	second.Release()
	if err := body(third, 3*size-1000); err != nil {
		t.Errorf("an only body, which may have what is free: %v", err)
	}
	third.Release()
	other.Release()
	if err := errors.Join(body(b.Open("c"), 2*size), body(b.Open("d"), 2*size-20000)); err != nil {
		t.Errorf("after all were released: %v", err)
	}
	one := buffered.New(4*size, false)
	for range 3 {
		if err := body(one.Open("a"), size+size/4); err != nil {
			t.Errorf("where there is one owner: %v", err)
		}
	}
}
