package job

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func newTestWriter(t *testing.T) (*Writer, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "out")
	w, err := NewWriter(folder, "exe_1")
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w, folder
}

func emit(t *testing.T, w *Writer, s executor.Stream, offset int64, data string) {
	t.Helper()
	must(t, w.Emit(executor.Event{Body: executor.Output{Stream: s, Offset: offset, Data: []byte(data)}}))
}

func events(t *testing.T, folder string) *Reader {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, EventsFile))
	must(t, err)
	return NewReader(strings.NewReader(string(raw)), executor.Resume{})
}

func TestTheFolderIsTheRunnersAlone(t *testing.T) {
	folder := t.TempDir()
	must(t, os.Chmod(folder, 0o777)) //nolint:gosec // so that it shows
	w, err := NewWriter(folder, "exe_1")
	must(t, err)
	must(t, w.Close())
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, EventsFile: 0o600} {
		if st, err := os.Stat(filepath.Join(folder, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if _, err := NewWriter(folder, "exe_1"); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("a second time: %v", err)
	}
}

func TestOutputThatComesInPiecesWaitsForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, folder := newTestWriter(t)
		emit(t, w, executor.Stdout, 0, "a") // nothing was written before: at once
		if brief, _, _ := read(events(t, folder)); strings.Join(brief, " ") != "begin output" {
			t.Error(brief)
		}
		for n := range 100 {
			emit(t, w, executor.Stderr, int64(n), "e")
			emit(t, w, executor.Stdout, int64(1+n), "o")
		}
		if brief, _, _ := read(events(t, folder)); len(brief) != 2 {
			t.Error(brief)
		}
		<-time.After(holdTime)
		synctest.Wait()
		brief, out, err := read(events(t, folder))
		if strings.Join(brief, " ") != "begin output output output" || out != [2]string{"a" + strings.Repeat("o", 100), strings.Repeat("e", 100)} || !errors.Is(err, io.EOF) {
			t.Error(brief, out, err)
		}
		emit(t, w, executor.Stdout, 101, "last")
		must(t, w.Result(executor.Result{Status: executor.StatusSucceeded})) // what waits comes before
		if brief, _, _ := read(events(t, folder)); strings.Join(brief[4:], " ") != "output result" {
			t.Error(brief)
		}
	})
}

func TestMuchOutputDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, folder := newTestWriter(t)
		chunk := strings.Repeat("x", executor.MaxOutputData)
		for n := range 3 {
			emit(t, w, executor.Stdout, int64(n*len(chunk)), chunk)
		}
		if _, out, _ := read(events(t, folder)); len(out[0]) != 3*len(chunk) {
			t.Error(len(out[0]))
		}
	})
}

func TestOutputThatWaitsIsNotJoinedToMoreThanARecordHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, folder := newTestWriter(t)
		emit(t, w, executor.Stdout, 0, "a") // at once, so that the next piece waits
		emit(t, w, executor.Stdout, 1, "bc")
		emit(t, w, executor.Stdout, 3, strings.Repeat("d", executor.MaxOutputData))
		brief, out, err := read(events(t, folder))
		if strings.Join(brief, " ") != "begin output output output" || len(out[0]) != 3+executor.MaxOutputData || !errors.Is(err, io.EOF) {
			t.Error(brief, len(out[0]), err)
		}
	})
}

func TestTheArtifactsAreAWholeTar(t *testing.T) {
	w, folder := newTestWriter(t)
	must(t, w.Artifact(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 7, Mode: 0o600}, strings.NewReader("content")))
	must(t, w.Result(executor.Result{Status: executor.StatusSucceeded}))
	raw, err := os.ReadFile(filepath.Join(folder, ArtifactsFile))
	must(t, err)
	if want := 512 + 512 + 1024; len(raw) != want || strings.Trim(string(raw[1024:]), "\x00") != "" {
		t.Errorf("%d bytes, want %d with an end mark", len(raw), want)
	}
}

func TestAnArtifactThatIsTooShortIsNone(t *testing.T) {
	w, folder := newTestWriter(t)
	err := w.Artifact(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 7, Mode: 0o600}, strings.NewReader("con"))
	if executor.CodeOf(err) != executor.Internal {
		t.Error(err)
	}
	if brief, _, _ := read(events(t, folder)); strings.Join(brief, " ") != "begin" {
		t.Error(brief)
	}
}

func TestNothingFollowsTheLastRecord(t *testing.T) {
	w, folder := newTestWriter(t)
	must(t, w.Fail(executor.FieldErrorf(executor.Invalid, "python_version", "must be known")))
	if err := errors.Join(w.Emit(executor.Event{Body: executor.Progress{}})); executor.CodeOf(err) != executor.Internal {
		t.Error(err)
	}
	if err := w.Result(executor.Result{Status: executor.StatusKilled}); executor.CodeOf(err) != executor.Internal {
		t.Error(err)
	}
	r := events(t, folder)
	_, _ = r.Next()
	rec, err := r.Next()
	must(t, err)
	e, ok := errors.AsType[*executor.Error](rec.Error.Err())
	if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "python_version" || !r.ended {
		t.Errorf("%+v", rec.Error)
	}
}

func TestAResultThatIsTooLongSaysSo(t *testing.T) {
	w, folder := newTestWriter(t)
	res := executor.Result{Status: executor.StatusSucceeded, Requirements: []string{strings.Repeat("x", MaxRecord)}}
	must(t, w.Result(res))
	r := events(t, folder)
	_, _ = r.Next()
	rec, err := r.Next()
	must(t, err)
	if rec.Result.Failure == nil || !strings.Contains(rec.Result.Failure.Message, "at most") {
		t.Errorf("%+v", rec.Result)
	}
}

func TestARecordThatIsTooLongIsRefused(t *testing.T) {
	w, folder := newTestWriter(t)
	err := w.Emit(executor.Event{Body: executor.Progress{Message: strings.Repeat("x", MaxRecord)}})
	if executor.CodeOf(err) != executor.Internal {
		t.Error(err)
	}
	empty := line(t, Record{Event: &executor.Event{Body: executor.Progress{Message: "x"}}})
	must(t, w.Emit(executor.Event{Body: executor.Progress{Message: strings.Repeat("x", 1+MaxRecord-len(strings.TrimSuffix(empty, "\n")))}}))
	must(t, w.Result(executor.Result{Status: executor.StatusKilled}))
	if brief, _, _ := read(events(t, folder)); strings.Join(brief, " ") != "begin progress result" {
		t.Error(brief)
	}
}

func TestAnArtifactIsWrittenBeforeItsRecord(t *testing.T) {
	w, folder := newTestWriter(t)
	body := strings.NewReader("content")
	must(t, w.Artifact(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 7, Mode: 0o600}, body))
	broken := errors.New("broken")
	if err := w.Artifact(&tar.Header{Typeflag: tar.TypeReg, Name: "b", Size: 7}, breaking{strings.NewReader("con"), broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
	r := events(t, folder)
	_, _ = r.Next()
	rec, err := r.Next()
	must(t, err)
	raw, err := os.ReadFile(filepath.Join(folder, ArtifactsFile))
	must(t, err)
	if a := rec.Artifact; a.Header.Path != "a" || string(raw[a.Offset:a.Offset+a.Header.Size]) != "content" {
		t.Errorf("%+v", a)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("a record of an artifact that is not whole: %v", err)
	}
}

func TestAnInputThatIsTooLongIsRefused(t *testing.T) {
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, StartFile), []byte(`{"image":"`+strings.Repeat("x", MaxInput)+`"}`), 0o600))
	if err := ReadInput(folder, StartFile, &Start{}); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), StartFile) {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(folder, StartFile), []byte(`{"image":"a"}`), 0o600))
	var s Start
	if err := ReadInput(folder, StartFile, &s); err != nil || s.Image != "a" {
		t.Error(err, s.Image)
	}
}
