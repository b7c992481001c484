package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// alwaysChecked are packages that check tests whatever has changed: the law on the fake, in virtual time.
var alwaysChecked = map[string][]string{"core": {"./executor/fake"}}

// check lints and tests what has changed since the branch left main, or since the last commit on main itself, with what is not
// committed. It needs no Docker, Nomad or root.
func check(ctx context.Context, dir string, _ []string) error {
	changed, err := changedFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range []string{"PYEXEC_TEST_REQUIRE", "PYEXEC_TEST_LONG"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	modules, err := goModules(dir)
	if err != nil {
		return err
	}
	var chosen []Part
	for _, module := range modules {
		all, err := packagesOf(dir, module)
		if err != nil {
			return err
		}
		lint, test := affected(all, module, changed)
		if len(lint) > 0 {
			chosen = append(chosen, Part{Name: "lint " + module, Command: append([]string{"tools/lint.sh", module}, lint...), Seconds: 60, Uses: "cpu:150"})
		}
		real, err := realPackages(dir, module)
		if err != nil {
			return err
		}
		test = slices.DeleteFunc(append(test, alwaysChecked[module]...), func(name string) bool { return slices.Contains(real, name) })
		slices.Sort(test)
		if test = slices.Compact(test); len(test) > 0 {
			chosen = append(chosen, Part{Name: "test " + module, Dir: module, Test: test, Seconds: 60, Uses: "cpu:100"})
		}
	}
	r, err := newRunner(dir)
	if err != nil {
		return err
	}
	r.goOn = true
	return r.all(ctx, chosen)
}

// changedFiles returns the paths that differ from where the branch left main, committed or not.
func changedFiles(dir string) ([]string, error) {
	base, err := output(dir, "git", "merge-base", "HEAD", "main")
	head, headErr := output(dir, "git", "rev-parse", "HEAD")
	if headErr != nil {
		return nil, headErr
	}
	if err != nil || base == head {
		base = "HEAD~"
	}
	changed, err := output(dir, "git", "diff", "--name-only", "--no-renames", strings.TrimSpace(base))
	if err != nil { // the first commit
		if changed, err = output(dir, "git", "ls-files"); err != nil {
			return nil, err
		}
	}
	added, err := output(dir, "git", "ls-files", "--others", "--exclude-standard")
	return strings.Fields(changed + added), err
}

// goModules returns the folders of the modules in go.work.
func goModules(dir string) ([]string, error) {
	text, err := output(dir, "go", "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal([]byte(text), &work); err != nil {
		return nil, err
	}
	var modules []string
	for _, use := range work.Use {
		modules = append(modules, path.Clean(use.DiskPath))
	}
	return modules, nil
}

// goPackage is a package of a module, with the names that arguments of the go command use: ./engine.
type goPackage struct {
	ImportPath string
	Dir        string
	Tests      bool
	imports    []string // also of its tests
}

func packagesOf(root, module string) (map[string]goPackage, error) {
	text, err := output(filepath.Join(root, module), "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	all := map[string]goPackage{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	for {
		var p struct {
			ImportPath, Dir                                               string
			Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(filepath.Join(root, module), p.Dir)
		if err != nil {
			return nil, err
		}
		name := "./" + filepath.ToSlash(rel)
		if rel == "." {
			name = "."
		}
		all[name] = goPackage{p.ImportPath, path.Join(module, filepath.ToSlash(rel)), len(p.TestGoFiles)+len(p.XTestGoFiles) > 0, slices.Concat(p.Imports, p.TestImports, p.XTestImports)}
	}
}

// affected returns the packages of a module that hold a changed file, and those with tests among them and among the packages that import
// them. A file in a folder without a package, such as testdata, belongs to the next package above it. A change of go.mod, go.sum or
// docs/contract.md affects the whole module.
func affected(all map[string]goPackage, module string, changed []string) (lint, test []string) {
	folders := map[string]string{}
	for name, p := range all {
		folders[p.Dir] = name
	}
	hit := map[string]bool{}
	for _, file := range changed {
		if file == path.Join(module, "go.mod") || file == path.Join(module, "go.sum") || file == "docs/contract.md" && module == "core" {
			for name := range all {
				hit[name] = true
			}
		}
		for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
			if name, ok := folders[folder]; ok {
				hit[name] = true
				break
			}
			if folder == module {
				break
			}
		}
	}
	for name, p := range all {
		if hit[name] {
			lint = append(lint, name)
		}
		near := hit[name] || slices.ContainsFunc(p.imports, func(path string) bool {
			for other := range hit {
				if all[other].ImportPath == path {
					return true
				}
			}
			return false
		})
		if near && p.Tests {
			test = append(test, name)
		}
	}
	slices.Sort(lint)
	slices.Sort(test)
	return lint, test
}

// realPackages returns the packages of a module that parts with real programs test.
func realPackages(root, module string) ([]string, error) {
	var real []string
	for _, p := range parts {
		if !p.Real || p.Test == nil || p.Dir != module {
			continue
		}
		for _, arg := range p.Test {
			switch {
			case arg == "./...":
				all, err := packagesOf(root, module)
				if err != nil {
					return nil, err
				}
				for name := range all {
					real = append(real, name)
				}
			case strings.HasPrefix(arg, "."):
				real = append(real, arg)
			}
		}
	}
	return real, nil
}
