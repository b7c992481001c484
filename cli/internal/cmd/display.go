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

// displayed shows the displays of an execution: the text on standard output, and every other form as a file in dir.
type displayed struct {
	g *global
	// dir is the folder for files; empty: no files are saved.
	dir string
	// number is the number of the last value that was saved.
	number int
}

// plain is the form that a terminal can show.
const plain = "text/plain"

// show prints the text of a value, or the names of its forms, and saves the other forms.
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
		s.g.note("the display is cut, because it is too large")
	}
	return s.save(d)
}

// extensions has the types for which package mime has no extension on some systems, or several.
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

// save writes every form except the plain text. The code does not choose the names, so it cannot write outside the folder.
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

// next sets number to the next one that no file has.
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

// writeNew makes a new file, and fails if the file exists.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // the user's file, by the user's umask
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
