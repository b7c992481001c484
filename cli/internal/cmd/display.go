package cmd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// displayed shows what code displays: its text on standard output, and with a folder every other form as a file there.
type displayed struct {
	g *global
	// dir is the folder; empty: none.
	dir string
	// number is that of the last value that was saved.
	number int
}

// plain is the form that a terminal can show.
const plain = "text/plain"

// show prints the text of a value, or what forms it has, and saves them.
func (s *displayed) show(d executor.Display) error {
	text, ok := d.Data[plain]
	if !ok {
		text = []byte("[" + strings.Join(slices.Sorted(maps.Keys(d.Data)), ", ") + "]")
	}
	if len(text) > 0 {
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(slices.Clone(text), '\n')
		}
		if _, err := s.g.Out.Write(text); err != nil {
			return outputError{err}
		}
	}
	if d.Truncated {
		s.g.note("what was displayed is cut: it is too large")
	}
	return s.save(d)
}

// extensions are those that mime does not know everywhere, or knows several of.
var extensions = map[string]string{
	"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg", "image/gif": "gif", "image/webp": "webp", "application/pdf": "pdf",
	"text/html": "html", "text/markdown": "md", "text/latex": "tex", "text/csv": "csv", "application/json": "json", "application/javascript": "js",
	"audio/wav": "wav", "video/mp4": "mp4",
}

func extension(name string) string {
	mediaType, _, err := mime.ParseMediaType(name)
	if err != nil {
		mediaType = name
	}
	if known, ok := extensions[mediaType]; ok {
		return known
	}
	if strings.HasSuffix(mediaType, "+json") {
		return "json"
	}
	return "bin"
}

// save writes every form but the plain text. The names are ours, so nothing that the code says can lead out of the folder.
func (s *displayed) save(d executor.Display) error {
	if s.dir == "" {
		return nil
	}
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Data)) {
		if name == plain {
			continue
		}
		if len(used) == 0 {
			if err := s.next(); err != nil {
				return err
			}
		}
		file := fmt.Sprintf("display-%d.%s", s.number, extension(name))
		for n := 2; used[file]; n++ {
			file = fmt.Sprintf("display-%d-%d.%s", s.number, n, extension(name))
		}
		used[file] = true
		path := filepath.Join(s.dir, file)
		if err := writeNew(path, d.Data[name]); err != nil {
			return fmt.Errorf("save what is displayed: %w", err)
		}
		s.g.note("saved %s", path)
	}
	return nil
}

// next finds a number that no file has yet.
func (s *displayed) next() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("save what is displayed: %w", err)
	}
	for {
		s.number++
		name := fmt.Sprintf("display-%d", s.number)
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return strings.HasPrefix(e.Name(), name+".") || strings.HasPrefix(e.Name(), name+"-")
		}) {
			return nil
		}
	}
}

// writeNew makes a file that was not there.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // the user's file, by the user's umask
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
