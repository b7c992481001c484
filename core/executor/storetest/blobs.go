package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

type blobCase struct {
	id   string
	name string
	run  func(t *testing.T, b executor.Blobs)
}

func blobCases() []blobCase {
	return []blobCase{
		{"BL-01", "put then open", putThenOpen},
		{"BL-02", "put replaces", putReplaces},
		{"BL-03", "a failed put changes nothing", putFails},
		{"BL-04", "the size is bounded", putBounded},
		{"BL-05", "keys are checked", keysChecked},
		{"BL-06", "a source is replayable", sourceReplayable},
		{"BL-07", "open of nothing", openNothing},
		{"BL-08", "delete", deleteBlob},
		{"BL-09", "list by prefix", listBlobs},
		{"BL-10", "concurrent puts of a key", putRace},
	}
}

// RunBlobs checks the rules of Blobs. open returns empty Blobs and registers their cleanup.
func RunBlobs(t *testing.T, open func(t *testing.T) executor.Blobs) {
	t.Helper()
	for _, c := range blobCases() {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

func put(t *testing.T, b executor.Blobs, key, content string) executor.BlobInfo {
	t.Helper()
	info, err := b.Put(awaittest.Context(t), key, strings.NewReader(content), 0, false)
	if err != nil {
		t.Fatalf("Put(%s): %v", key, err)
	}
	return info
}

func content(t *testing.T, b executor.Blobs, key string) string {
	t.Helper()
	s, err := b.Open(awaittest.Context(t), key)
	if err != nil {
		t.Fatalf("Open(%s): %v", key, err)
	}
	return readSource(t, s)
}

func readSource(t *testing.T, s *executor.Source) string {
	t.Helper()
	r, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if s.SizeBytes != int64(len(data)) {
		t.Errorf("the source says %d bytes and has %d", s.SizeBytes, len(data))
	}
	return string(data)
}

func keys(t *testing.T, b executor.Blobs, prefix string) []string {
	t.Helper()
	var found []string
	for info, err := range b.List(awaittest.Context(t), prefix) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if info.ModTime.IsZero() {
			t.Errorf("%s has no time", info.Key)
		}
		found = append(found, info.Key)
	}
	slices.Sort(found)
	return found
}

func putThenOpen(t *testing.T, b executor.Blobs) {
	big := string(bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 70_000))
	for i, text := range []string{"", "x", big} {
		for _, durable := range []bool{false, true} {
			key := fmt.Sprintf("a/b.c/d_e-%d%t", i, durable)
			info, err := b.Put(awaittest.Context(t), key, iotest.HalfReader(strings.NewReader(text)), 0, durable)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(text))
			want := executor.BlobInfo{Key: key, SizeBytes: int64(len(text)), Digest: "sha256:" + hex.EncodeToString(sum[:]), ModTime: info.ModTime}
			if info != want || info.ModTime.IsZero() {
				t.Errorf("Put says %+v, want %+v", info, want)
			}
			if content(t, b, key) != text {
				t.Errorf("%s came back different", key)
			}
		}
	}
}

func putReplaces(t *testing.T, b executor.Blobs) {
	put(t, b, "k", "old content")
	s, err := b.Open(awaittest.Context(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, "k", "new")
	if got := content(t, b, "k"); got != "new" {
		t.Errorf("content is %q after replacing", got)
	}
	data, err := io.ReadAll(r)
	if err != nil || string(data) != "old content" {
		t.Errorf("the open reader got %q, error %v", data, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func putFails(t *testing.T, b executor.Blobs) {
	put(t, b, "k", "old")
	broken := errors.New("the client went away")
	for _, key := range []string{"k", "fresh/k"} {
		_, err := b.Put(awaittest.Context(t), key, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), 0, true)
		if !errors.Is(err, broken) {
			t.Errorf("Put from a broken reader gave %v", err)
		}
		ctx, cancel := context.WithCancelCause(awaittest.Context(t))
		_, err = b.Put(ctx, key, io.MultiReader(strings.NewReader("half"), endCtx{cancel}, strings.NewReader("more")), 0, true)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Put with a ctx that ended gave %v", err)
		}
		ctx, cancel = context.WithCancelCause(awaittest.Context(t))
		_, err = b.Put(ctx, key, io.MultiReader(strings.NewReader("half"), endCtx{cancel}), 0, true)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Put with a ctx that ended with the last byte gave %v", err)
		}
	}
	if got := content(t, b, "k"); got != "old" {
		t.Errorf("content is %q after failed Puts", got)
	}
	if got := keys(t, b, ""); !slices.Equal(got, []string{"k"}) {
		t.Errorf("blobs after failed Puts: %v", got)
	}
}

type endCtx struct{ cancel context.CancelCauseFunc }

func (e endCtx) Read([]byte) (int, error) {
	e.cancel(nil)
	return 0, io.EOF
}

func putBounded(t *testing.T, b executor.Blobs) {
	put(t, b, "k", "old")
	for size, want := range map[int]executor.Code{9: "", 10: "", 11: executor.Exhausted, 100_000: executor.Exhausted} {
		_, err := b.Put(awaittest.Context(t), fmt.Sprintf("size-%d", size), bytes.NewReader(make([]byte, size)), 10, false)
		wantCode(t, fmt.Sprintf("Put of %d bytes of at most 10", size), err, want)
	}
	_, err := b.Put(awaittest.Context(t), "k", strings.NewReader("eleven bytes"), 10, false)
	wantCode(t, "Put over an older blob", err, executor.Exhausted)
	if got := keys(t, b, ""); !slices.Equal(got, []string{"k", "size-10", "size-9"}) {
		t.Errorf("blobs after bounded Puts: %v", got)
	}
	if got := content(t, b, "k"); got != "old" {
		t.Errorf("content is %q after a refused Put", got)
	}
}

func keysChecked(t *testing.T, b executor.Blobs) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/./b", "a/../../b", "A", "a b", "a\x00b", "ä", "a\\b",
		"a/" + strings.Repeat("x", 300), strings.Repeat("a/", 2000) + "a"} {
		_, err := b.Put(awaittest.Context(t), key, strings.NewReader("x"), 0, false)
		wantCode(t, fmt.Sprintf("Put(%.20q)", key), err, executor.Invalid)
		_, err = b.Open(awaittest.Context(t), key)
		wantCode(t, fmt.Sprintf("Open(%.20q)", key), err, executor.NotFound)
		if err := b.Delete(awaittest.Context(t), key); err != nil {
			t.Errorf("Delete(%.20q): %v", key, err)
		}
	}
	for _, key := range []string{"a", "...", "a/...b", "-", "_", ".a", "0/1/2/3/4", "tmp", "tmp/tmp", strings.Repeat("x", 100)} {
		put(t, b, key, key)
		if got := content(t, b, key); got != key {
			t.Errorf("%q holds %q", key, got)
		}
		if err := b.Delete(awaittest.Context(t), key); err != nil {
			t.Error(err)
		}
	}
	if got := keys(t, b, ""); len(got) != 0 {
		t.Errorf("blobs are left: %v", got)
	}
}

func sourceReplayable(t *testing.T, b executor.Blobs) {
	put(t, b, "k", "content")
	s, err := b.Open(awaittest.Context(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Replayable {
		t.Error("the source is not replayable")
	}
	first, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, first, 3); err != nil {
		t.Fatal(err)
	}
	if got := readSource(t, s); got != "content" {
		t.Errorf("a second reader got %q", got)
	}
	rest, err := io.ReadAll(first)
	if err != nil || string(rest) != "tent" {
		t.Errorf("the first reader went on with %q, error %v", rest, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if s.Path != "" {
		data, err := os.ReadFile(s.Path)
		if err != nil || string(data) != "content" {
			t.Errorf("Path holds %q, error %v", data, err)
		}
	}
}

func openNothing(t *testing.T, b executor.Blobs) {
	put(t, b, "a/b", "x")
	for _, key := range []string{"c", "a", "a/b/c", "a/bc"} {
		_, err := b.Open(awaittest.Context(t), key)
		wantCode(t, "Open("+key+")", err, executor.NotFound)
	}
}

func deleteBlob(t *testing.T, b executor.Blobs) {
	put(t, b, "a/b", "content")
	put(t, b, "a/c", "other")
	s, err := b.Open(awaittest.Context(t), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/b", "a/b", "never", "a", "a/b/c"} {
		if err := b.Delete(awaittest.Context(t), key); err != nil {
			t.Errorf("Delete(%s): %v", key, err)
		}
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "content" {
		t.Errorf("the open reader got %q, error %v", data, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_, err = b.Open(awaittest.Context(t), "a/b")
	wantCode(t, "Open after Delete", err, executor.NotFound)
	_, err = s.Open()
	wantCode(t, "opening a source again after Delete", err, executor.NotFound)
	if got := content(t, b, "a/c"); got != "other" {
		t.Errorf("a neighbour holds %q", got)
	}
	put(t, b, "a/b", "again")
}

func listBlobs(t *testing.T, b executor.Blobs) {
	for _, key := range []string{"a/b", "a/c/d", "ab", "b/a"} {
		put(t, b, key, key)
	}
	for prefix, want := range map[string][]string{
		"": {"a/b", "a/c/d", "ab", "b/a"}, "a": {"a/b", "a/c/d", "ab"}, "a/": {"a/b", "a/c/d"}, "a/c": {"a/c/d"},
		"a/c/d": {"a/c/d"}, "x": nil, "../": nil, "/": nil,
	} {
		if got := keys(t, b, prefix); !slices.Equal(got, want) {
			t.Errorf("List(%q) has %v, want %v", prefix, got, want)
		}
	}
	for info, err := range b.List(awaittest.Context(t), "a/c") {
		if err != nil || info.SizeBytes != 5 {
			t.Errorf("List says %+v, error %v", info, err)
		}
	}
	rounds := 0
	for _, err := range b.List(awaittest.Context(t), "") {
		if rounds++; err != nil {
			t.Error(err)
		}
		break
	}
	if rounds != 1 {
		t.Errorf("List yielded %d times to a reader that stopped at once", rounds)
	}
	writing, proceed := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := b.Put(awaittest.Context(t), "a/late", writing, 0, false)
		done <- err
	}()
	if _, err := proceed.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, b, "a/"); !slices.Equal(got, []string{"a/b", "a/c/d"}) {
		t.Errorf("while a Put is under way List has %v", got)
	}
	if err := proceed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func putRace(t *testing.T, b executor.Blobs) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 50_000)
			if _, err := b.Put(awaittest.Context(t), "a/k", strings.NewReader(text), 0, i%2 == 0); err != nil {
				t.Errorf("Put: %v", err)
			}
		})
	}
	wg.Wait()
	got := content(t, b, "a/k")
	if len(got) != 50_000 || strings.Trim(got, got[:1]) != "" {
		t.Errorf("the content is a mixture of %d bytes", len(got))
	}
}
