package runner

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// opening is a Source that notes its opening, and whether what was opened is closed.
type opening struct {
	io.Reader
	opened, closed int
	during         func()
	err            error
}

func (o *opening) source() *executor.Source {
	return &executor.Source{Open: func() (io.ReadCloser, error) {
		o.opened++
		if o.during != nil {
			o.during()
		}
		if o.err != nil {
			return nil, o.err
		}
		return o, nil
	}}
}

func (o *opening) Close() error {
	o.closed++
	return nil
}

func TestASourceIsOpenedWhenItIsReadAndClosedOnce(t *testing.T) {
	t.Parallel()
	o := &opening{Reader: strings.NewReader("text")}
	s := NewSourceReader(o.source())
	if s.Opened() || o.opened != 0 {
		t.Error("it is opened before anybody reads")
	}
	if text, err := io.ReadAll(s.Reader()); string(text) != "text" || err != nil || !s.Opened() || o.opened != 1 {
		t.Errorf("%q, %v, opened %d times", text, err, o.opened)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil || o.closed != 1 {
		t.Errorf("%v, closed %d times", err, o.closed)
	}
	if NewSourceReader(nil).Reader() != nil {
		t.Error("no Source is one to read")
	}
}

func TestASourceThatIsClosedIsNotOpenedAndLeftBehind(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(*SourceReader, *opening){
		"before": func(s *SourceReader, _ *opening) { _ = s.Close() },
		"while":  func(s *SourceReader, o *opening) { o.during = func() { _ = s.Close() } },
	} {
		o := &opening{Reader: strings.NewReader("text")}
		s := NewSourceReader(o.source())
		when(s, o)
		if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.ErrClosedPipe) || o.closed != o.opened {
			t.Errorf("closed %s it is opened: %d, %v; opened %d times, closed %d times", name, n, err, o.opened, o.closed)
		}
	}
	o := &opening{err: os.ErrPermission}
	s := NewSourceReader(o.source())
	for range 2 {
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrPermission) || o.opened != 1 || !s.Opened() {
			t.Errorf("%v, opened %d times", err, o.opened)
		}
	}
}

// inFile is a Source's reader that lies in a file.
type inFile struct {
	io.ReadCloser
	file *os.File
}

func (f inFile) TakeFile() *os.File { return f.file }

func TestAFileBelowASourceCanBeTaken(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := NewSourceReader(&executor.Source{Open: func() (io.ReadCloser, error) { return inFile{file, file}, nil }})
	if s.TakeFile() != file {
		t.Error("it cannot")
	}
	plain := NewSourceReader((&opening{Reader: strings.NewReader("x")}).source())
	if plain.TakeFile() != nil {
		t.Error("there is none")
	}
}
