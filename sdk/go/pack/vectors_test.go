package pack

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vector is a case of testdata/input, which the server and the Python SDK read, too. A file is a text or {"link": target}, in which {tree} is the
// path of the tree. A name that ends in / is an empty folder.
type vector struct {
	Name  string                     `json:"name"`
	Files map[string]json.RawMessage `json:"files"`
	// Folder is the packed part of the tree. Leave is relative to it.
	Folder     string `json:"folder"`
	Entrypoint string `json:"entrypoint"`
	Command    bool   `json:"command"`
	All        bool   `json:"all"`
	Leave      string `json:"leave"`
	// Error is part of the error. With Want.Names it is the error of what is detected in the files, which this package does not read.
	Error string `json:"error"`
	Want  struct {
		Names      []string `json:"names"`
		Entrypoint string   `json:"entrypoint"`
		Guessed    bool     `json:"guessed"`
	} `json:"want"`
}

// write makes the tree of v and returns the folder to pack.
func (v vector) write(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	for name, raw := range v.Files {
		file := filepath.Join(tree, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var text string
		var link struct{ Link string }
		var err error
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(file, 0o755)
		case json.Unmarshal(raw, &text) == nil:
			err = os.WriteFile(file, []byte(text), 0o600)
		default:
			err = errors.Join(json.Unmarshal(raw, &link), os.Symlink(strings.ReplaceAll(link.Link, "{tree}", tree), file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(tree, filepath.FromSlash(v.Folder))
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheVectorsOfFolders(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/input/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("SKIPPED: the vectors are not here (a module outside its repository)")
	}
	for _, file := range files {
		if filepath.Base(file) == "ignore.json" {
			continue
		}
		var vectors []vector
		load(t, file, &vectors)
		for _, v := range vectors {
			t.Run(filepath.Base(file)+"/"+v.Name, func(t *testing.T) {
				t.Parallel()
				v.check(t)
			})
		}
	}
}

func (v vector) check(t *testing.T) {
	dir := v.write(t)
	o := Options{All: v.All}
	if v.Leave != "" {
		o.Leave = filepath.Join(dir, v.Leave)
	}
	a, err := Folder(t.Context(), dir, o)
	if v.Want.Names == nil {
		if err == nil || !strings.Contains(err.Error(), v.Error) {
			t.Errorf("error %v, want %q", err, v.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(a.Open()); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Linkname != "" {
			name += " -> " + h.Linkname
		}
		names = append(names, name)
	}
	if !slices.Equal(names, v.Want.Names) {
		t.Errorf("packed %q, want %q", names, v.Want.Names)
	}
	if v.Entrypoint != "" || v.Command {
		return
	}
	if entrypoint, guessed := Entrypoint(a.Regular()); entrypoint != v.Want.Entrypoint || guessed != v.Want.Guessed {
		t.Errorf("entrypoint %q (guessed %t), want %q (%t)", entrypoint, guessed, v.Want.Entrypoint, v.Want.Guessed)
	}
}

// TestTheVectorsOfIgnoreFiles tries the answers of git (see TestIgnoreAgreesWithGit) that are kept for those without git.
func TestTheVectorsOfIgnoreFiles(t *testing.T) {
	t.Parallel()
	const file = "../../../testdata/input/ignore.json"
	if _, err := os.Stat(file); err != nil {
		t.Skip("SKIPPED: the vectors are not here (a module outside its repository)")
	}
	var vectors struct {
		Files []string
		Cases []struct {
			Rules   string
			LeftOut []string `json:"left_out"`
		}
	}
	load(t, file, &vectors)
	tree := map[string]string{}
	for _, name := range vectors.Files {
		tree[name] = ""
	}
	for _, c := range vectors.Cases {
		t.Run(c.Rules, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, tree)
			if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(c.Rules+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			a, err := Folder(t.Context(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, name := range append([]string{".gitignore"}, vectors.Files...) {
				if !slices.Contains(a.Regular(), name) {
					left = append(left, name)
				}
			}
			slices.Sort(left)
			if !slices.Equal(left, c.LeftOut) {
				t.Errorf("left out %q, want %q", left, c.LeftOut)
			}
		})
	}
}
