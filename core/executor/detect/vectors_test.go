package detect

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTheVectorsOfPrograms reads the trees of testdata/input, which the SDKs read, too, in the order in which they pack them.
func TestTheVectorsOfPrograms(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/input/*.json")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "ignore.json" {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var vectors []vector
		if err := json.Unmarshal(raw, &vectors); err != nil {
			t.Fatal(err)
		}
		for _, v := range vectors {
			if v.Want.Names == nil { // the folder cannot be packed
				continue
			}
			t.Run(filepath.Base(file)+"/"+v.Name, func(t *testing.T) {
				t.Parallel()
				v.check(t)
			})
		}
	}
}

type vector struct {
	Name       string
	Files      map[string]json.RawMessage
	Folder     string
	Entrypoint string
	Command    bool
	Error      string
	Want       struct {
		Names        []string
		Entrypoint   string
		Guessed      bool
		Requirements string
		Python       string
	}
}

func (v vector) check(t *testing.T) {
	var content []string
	folder := fstest.MapFS{}
	for _, name := range v.Want.Names {
		name, target, link := strings.Cut(name, " -> ")
		var text string
		switch {
		case strings.HasSuffix(name, "/"):
			continue
		case link:
			text = "->" + target
		default:
			if err := json.Unmarshal(v.Files[path.Join(v.Folder, name)], &text); err != nil {
				t.Fatal(err)
			}
			folder[name] = &fstest.MapFile{Data: []byte(text)}
		}
		content = append(content, name, text)
	}
	want := Found{Entrypoint: v.Want.Entrypoint, Guessed: v.Want.Guessed, Requirements: v.Want.Requirements, PythonVersion: v.Want.Python}
	got, err := Tar(bytes.NewReader(archive(t, content...)), Ask{Entrypoint: v.Entrypoint, NoEntrypoint: v.Command})
	_, typed := errors.AsType[*Error](err)
	if v.Error != "" {
		if !typed || !strings.Contains(err.Error(), v.Error) {
			t.Errorf("error %v, want %q", err, v.Error)
		}
	} else if got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	var program []byte
	if f := folder[want.Entrypoint]; f != nil {
		program = f.Data
	}
	inFolder, folderErr := Folder(folder, want.Entrypoint, program)
	if folderErr == nil != (err == nil) || err != nil && folderErr.Error() != err.Error() ||
		err == nil && (inFolder.Requirements != want.Requirements || inFolder.PythonVersion != want.PythonVersion) {
		t.Errorf("in the folder %+v, %v", inFolder, folderErr)
	}
}
