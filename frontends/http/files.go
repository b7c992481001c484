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
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// file is a file of a JSON body.
type file struct {
	path string
	data []byte
}

// files are those of a JSON body, in order. nil: the body has none.
type files []file

// execRequest is a JSON body that asks for an Execution.
type execRequest struct {
	pyexec.Spec
	Files files `json:"files,omitempty" doc:"Files of the work folder by their path (relative, with slashes). The order counts: the first .py file is the entrypoint if there is no main.py and no __main__.py."`
}

// batchRequest is a JSON body that asks for a batch.
type batchRequest struct {
	pyexec.Batch
	Files files `json:"files,omitempty" doc:"Files of the work folder by their path, as for a single program."`
}

const (
	// maxFiles bounds the files of a JSON body.
	maxFiles = 10_000
	// nameMax bounds each element of a path, as Linux does.
	nameMax = 255
	// depthMax bounds the folders of a path, as the runner does for a tar.
	depthMax = 200
)

// Schema implements huma.SchemaProvider.
func (files) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{
		Description: "Text of the file, or its bytes in base64.",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeObject, AdditionalProperties: false, Required: []string{"base64"},
				Properties: map[string]*huma.Schema{"base64": {Type: huma.TypeString, ContentEncoding: "base64"}}},
			{Type: "null"},
		},
	}}
}

// read implements reader.
func (list *files) read(d *decoder, path string, raw json.RawMessage) {
	*list = files{}
	if kind := kindOf(raw); kind != "an object" {
		d.bad(path, `must be an object of names and contents, {"main.py": "print(1)"} (got %s)`, kind)
		return
	}
	full := false
	d.object(path, raw, func(name, at string, raw json.RawMessage) {
		switch {
		case isNull(raw):
		case len(*list) >= maxFiles:
			full = true
		case strings.Count(name, "/") >= depthMax:
			d.bad(at, "must be at most %d folders deep", depthMax-1)
		case !validPath(name):
			d.bad(at, badPath)
		default:
			if data, ok := d.content(at, raw); ok {
				*list = append(*list, file{name, data})
			}
		}
	})
	if full {
		d.bad(path, "must have at most %d files; send a tar instead", maxFiles)
	}
	checkTree(d, *list)
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

// content reads the content of a file: a string, or {"base64": "…"}.
func (d *decoder) content(at string, raw json.RawMessage) ([]byte, bool) {
	if kindOf(raw) == "a string" {
		v, ok := d.anyText(at, raw)
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
			d.bad(at, `must be a string or {"base64": "…"} (got an object with %s)`, clip(name))
			return
		}
		given = true
		if v, ok := d.anyText(key, raw); ok {
			var err error
			if data, err = base64.StdEncoding.DecodeString(v); err != nil {
				d.bad(key, "must be base64")
			}
		}
	})
	if !given && len(d.errs) == before {
		d.bad(at+".base64", "must be given")
	}
	return data, len(d.errs) == before
}

// checkTree finds paths that are both a file and a folder.
func checkTree(d *decoder, list files) {
	names := make(map[string]bool, len(list))
	for _, f := range list {
		names[f.path] = true
	}
	for _, f := range list {
		for i := strings.LastIndexByte(f.path, '/'); i > 0; i = strings.LastIndexByte(f.path[:i], '/') {
			if dir := f.path[:i]; names[dir] {
				d.bad("files."+clip(f.path), "must not be below the file %q", clip(dir))
				break
			}
		}
	}
}

// workspace returns a tar of the files, in their order, and sets Detect in spec. It checks the entrypoint against the files, so
// that the error names the field of the request.
func (list files) workspace(spec *executor.Spec) (*executor.Source, error) {
	if spec.Session != "" {
		return nil, executor.FieldErrorf(executor.Invalid, "files", "must not be given with session_id: a session has its own files")
	}
	names := make([]string, len(list))
	has := make(map[string]bool, len(list))
	codeMeets := false // a file or a folder of the name that code gets
	for i, f := range list {
		names[i] = f.path
		has[f.path] = true
		root, _, _ := strings.Cut(f.path, "/")
		codeMeets = codeMeets || root == "main.py"
	}
	python := spec.Language == executor.LanguageDefault || spec.Language == executor.LanguagePython
	switch {
	case spec.Code != "" && codeMeets:
		return nil, executor.FieldErrorf(executor.Invalid, "files.main.py", "must not be given with code, which runs as main.py")
	case spec.Code != "" || len(spec.Command) > 0 || spec.Script != "":
	case spec.Entrypoint != "":
		if !has[path.Clean(spec.Entrypoint)] {
			return nil, executor.FieldErrorf(executor.Invalid, "entrypoint", "must be one of the files")
		}
	case python && detect.Entrypoint(names) == "":
		return nil, executor.FieldErrorf(executor.Invalid, "entrypoint", "must be given, because there is no .py file")
	}
	if spec.Detect == nil && spec.Requirements == "" {
		// The Engine looks for requirements in the files (PEP 723, requirements.txt).
		spec.Detect = new(true)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range list {
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
