package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// slow are packages whose tests take minutes, because they start real programs. They come last, the quick part of them first.
// skip names the tests that the second part has.
var slow = []struct {
	module, pkg string
	flags       []string
	skip        string
}{
	{"core", "./engine", nil, ""},
	{"core", "./store/sqlite", nil, ""},
	{"core", "./executor/fake", nil, ""},
	{"core", "./executor/backendtest", nil, ""},
	{"core", "./runner", nil, ""},
	{"cli", "./internal/cmd", nil, ""},
	{"plugins/backend-nomad", "./workers", nil, "Conformance|Cluster"},
	{"plugins/backend-nomad", "./jobs", nil, "Conformance|Cluster"},
	{"plugins/backend-docker", ".", nil, "Conformance"},
	{"plugins/backend-uv", ".", []string{"-tags", "embedrunner"}, "Conformance"},
}

// elsewhere are packages that another module's tests cover better than their own module's: a prefix of files, and a run.
var elsewhere = []struct {
	prefix string
	test   Test
}{
	{"sdk/go/", Test{"cli", []string{"./internal/remote"}}},
	{"core/config/", Test{"cli", []string{"./internal/settings"}}},
	{"core/host/", Test{"cli", []string{"./internal/app"}}},
	{"core/backend/", Test{"plugins/backend-uv", []string{".", "-tags", "embedrunner", "-skip", "Conformance"}}},
}

// cover knows which packages of a workspace test which others.
type cover struct {
	deps map[string]map[string][]string // module → package with tests → folders of the workspace that these tests use
}

// Covering are the runs of the gate that cover files, in the order in which they are tried: first the file's own package, then the
// packages of its module whose tests use it, the slow ones last, then what elsewhere names. Without withSlow they are the file's own package
// and the quick ones.
func (s *Session) Covering(ctx context.Context, files []string, withSlow bool) ([]Test, error) {
	if s.cover == nil {
		s.cover = &cover{deps: map[string]map[string][]string{}}
	}
	var own, others, slowly, outside []Test
	seen := map[string]bool{}
	add := func(list *[]Test, test Test) {
		if !seen[test.String()] {
			seen[test.String()] = true
			*list = append(*list, test)
		}
	}
	for _, file := range files {
		module, err := s.Module(file)
		if err != nil {
			return nil, err
		}
		if err := s.load(ctx, module); err != nil {
			return nil, err
		}
		folder := path.Dir(file)
		pkg := "./" + strings.TrimPrefix(strings.TrimPrefix(folder, module), "/")
		if pkg == "./" {
			pkg = "."
		}
		packages := s.cover.deps[module]
		for _, tested := range slices.Sorted(maps.Keys(packages)) {
			if !slices.Contains(packages[tested], folder) {
				continue
			}
			list := &others
			if tested == pkg {
				list = &own
			} else if isSlow(module, tested) {
				continue // below, in the order of the table
			}
			for _, test := range runs(module, tested) {
				add(list, test)
			}
		}
		for _, entry := range slow {
			if entry.module == module && entry.pkg != pkg && slices.Contains(packages[entry.pkg], folder) {
				for _, test := range runs(module, entry.pkg) {
					add(&slowly, test)
				}
			}
		}
		for _, entry := range elsewhere {
			if strings.HasPrefix(file, entry.prefix) {
				add(&outside, entry.test)
			}
		}
	}
	if !withSlow {
		slowly, outside = nil, nil
	}
	return slices.Concat(own, others, slowly, outside), nil
}

func isSlow(module, pkg string) bool {
	for _, entry := range slow {
		if entry.module == module && entry.pkg == pkg {
			return true
		}
	}
	return false
}

// runs are the runs of one package: one, or two where a part of it is slow.
func runs(module, pkg string) []Test {
	for _, entry := range slow {
		if entry.module != module || entry.pkg != pkg {
			continue
		}
		args := append([]string{pkg}, entry.flags...)
		if entry.skip == "" {
			return []Test{{module, args}}
		}
		return []Test{{module, append(slices.Clone(args), "-skip", entry.skip)}, {module, append(slices.Clone(args), "-run", entry.skip)}}
	}
	return []Test{{module, []string{pkg}}}
}

// Module is the longest folder around a file that has a go.mod.
func (s *Session) Module(file string) (string, error) {
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		if found, _ := filepath.Glob(filepath.Join(s.Runner.Workspace.Root, folder, "go.mod")); found != nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s is in no module", file)
}

// load reads what the tests of a module's packages use.
func (s *Session) load(ctx context.Context, module string) error {
	if s.cover.deps[module] != nil {
		return nil
	}
	root := s.Runner.Workspace.Root
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json=ImportPath,Dir,ForTest,Deps,TestGoFiles,XTestGoFiles,Standard", "-tags", "embedrunner", "./...")
	list.Dir = filepath.Join(root, module)
	// The embedded runner is built later, and go list -e does not mind.
	list.Args = slices.Insert(list.Args, 2, "-e")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list in %s: %w", module, err)
	}
	type pkg struct {
		ImportPath, Dir, ForTest  string
		Deps                      []string
		TestGoFiles, XTestGoFiles []string
		Standard                  bool
	}
	folders := map[string]string{} // import path → folder of the workspace
	var all []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("go list in %s: %w", module, err)
		}
		if rel, err := filepath.Rel(root, p.Dir); err == nil && !p.Standard && !strings.HasPrefix(rel, "..") {
			folders[p.ImportPath] = rel
			all = append(all, p)
		}
	}
	tested := map[string][]string{}
	for _, p := range all {
		main, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest || folders[p.ImportPath] == "" {
			continue
		}
		own, err := filepath.Rel(module, folders[main])
		if err != nil || strings.HasPrefix(own, "..") {
			continue
		}
		name := "./" + own
		if own == "." {
			name = "."
		}
		for _, dep := range p.Deps {
			plain, _, _ := strings.Cut(dep, " ") // "path [path.test]"
			if folder := folders[plain]; folder != "" && !slices.Contains(tested[name], folder) {
				tested[name] = append(tested[name], folder)
			}
		}
	}
	s.cover.deps[module] = tested
	return nil
}
