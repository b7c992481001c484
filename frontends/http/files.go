package httpfrontend

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// file is one of a JSON body's files.
type file struct {
	path string
	data []byte
}

const (
	// maxFiles bounds the files of a JSON body.
	maxFiles = 10_000
	// nameMax bounds each element of a path, as Linux does.
	nameMax = 255
	// depthMax bounds the folders of a path, as a tar's are bounded where it is unpacked.
	depthMax = 200
)

// filesField is the key that only a JSON body has.
func filesField() field {
	content := &huma.Schema{
		Description: "The file's text, or its bytes in base64.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeObject, AdditionalProperties: false, Required: []string{"base64"},
				Properties: map[string]*huma.Schema{"base64": {Type: huma.TypeString, ContentEncoding: "base64"}}},
			{Type: "null"},
		},
	}
	schema := &huma.Schema{Type: huma.TypeObject, Nullable: true, AdditionalProperties: content,
		Description: "Files of the work folder by their path (relative, with slashes). The order counts: the first .py file is the entrypoint where there is no main.py and no __main__.py."}
	return field{"files", schema, func(d *decoder, s *submission, at string, raw json.RawMessage) {
		s.files = []file{}
		full := false
		d.object(at, raw, func(name, at string, raw json.RawMessage) {
			switch {
			case isNull(raw):
				return
			case len(s.files) >= maxFiles:
				full = true
				return
			case strings.Count(name, "/") >= depthMax:
				d.bad(at, "lies more than %d folders deep", depthMax-1)
				return
			case !validPath(name):
				d.bad(at, "is not a path of a file: relative, with slashes, without . and .. and NUL, at most 255 bytes between two slashes")
				return
			}
			data, ok := d.content(at, raw)
			if ok {
				s.files = append(s.files, file{name, data})
			}
		})
		if full {
			d.bad("files", "has more than %d files; send a tar", maxFiles)
		}
		checkTree(d, s.files)
	}}
}

// validPath reports whether name can be a file in the work folder.
func validPath(name string) bool {
	if !fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) || len(name) >= 4096 {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > nameMax {
			return false
		}
	}
	return true
}

// content reads a file's value: a string, or {"base64": "…"}.
func (d *decoder) content(at string, raw json.RawMessage) ([]byte, bool) {
	if kindOf(raw) == "a string" {
		v, ok := d.text(at, raw)
		return []byte(v), ok
	}
	if kindOf(raw) != "an object" {
		d.bad(at, `must be a string or {"base64": "…"} (got %s)`, kindOf(raw))
		return nil, false
	}
	before := len(d.errs)
	var data []byte
	given := false
	d.object(at, raw, func(name, key string, raw json.RawMessage) {
		if name != "base64" {
			d.bad(key, "unknown field")
			return
		}
		given = true
		if v, ok := d.text(key, raw); ok {
			var err error
			if data, err = base64.StdEncoding.DecodeString(v); err != nil {
				d.bad(key, "is not base64")
			}
		}
	})
	if !given && len(d.errs) == before {
		d.bad(at+".base64", "is missing")
	}
	return data, len(d.errs) == before
}

// checkTree refuses a path that is both a file and a folder.
func checkTree(d *decoder, files []file) {
	names := make(map[string]bool, len(files))
	for _, f := range files {
		names[f.path] = true
	}
	for _, f := range files {
		for i := strings.LastIndexByte(f.path, '/'); i > 0; i = strings.LastIndexByte(f.path[:i], '/') {
			if dir := f.path[:i]; names[dir] {
				d.bad("files."+clip(f.path), "lies in %q, which is a file", clip(dir))
				break
			}
		}
	}
}

// workspace makes a tar of the files, in their order, and settles in spec what only they can tell. They are in hand, so
// what the server would otherwise find out after unpacking is an error of the request here.
func (s *submission) workspace(spec *executor.Spec) (*executor.Source, error) {
	if spec.Session != "" {
		return nil, executor.FieldErrorf(executor.Invalid, "files", "a session has its own files")
	}
	names := make([]string, len(s.files))
	has := make(map[string]bool, len(s.files))
	codeMeets := false // a file or a folder of the name that code gets
	for i, f := range s.files {
		names[i] = f.path
		has[f.path] = true
		root, _, _ := strings.Cut(f.path, "/")
		codeMeets = codeMeets || root == "main.py"
	}
	python := spec.Language == executor.LanguageDefault || spec.Language == executor.LanguagePython
	switch {
	case spec.Code != "" && codeMeets:
		return nil, executor.FieldErrorf(executor.Invalid, "files.main.py", "code runs as main.py; there cannot be a file of that name")
	case spec.Code != "" || len(spec.Command) > 0 || spec.Script != "":
	case spec.Entrypoint != "":
		if !has[path.Clean(spec.Entrypoint)] {
			return nil, executor.FieldErrorf(executor.Invalid, "entrypoint", "is not among the files")
		}
	case python && detect.Entrypoint(names) == "":
		return nil, executor.FieldErrorf(executor.Invalid, "entrypoint", "is missing, and there is no .py file to take")
	}
	if spec.Detect == nil && spec.Requirements == "" {
		// In hand means: look into them (PEP 723, requirements.txt). The Engine does it, by its own rules.
		spec.Detect = new(true)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range s.files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: 0o644, Size: int64(len(f.data))}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("make a tar of the files: %w", err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("make a tar of the files: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("make a tar of the files: %w", err)
	}
	return textSource(buf.Bytes()), nil
}
