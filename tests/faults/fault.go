package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Tiers of a fault: the gate must notice it, or a long part.
const (
	TierGate = "gate"
	TierLong = "long"
)

// Fault is one patch of this folder.
type Fault struct {
	Name    string   // the name of the file, without .patch
	Suffers string   // what a user suffers, one line
	Tests   []Test   // the tests that must notice it
	Tier    string   // TierGate or TierLong
	Files   []string // the files that the patch changes, relative to the root of the workspace
	Path    string   // the patch's file, absolute
}

// Test is one run of go test.
type Test struct {
	Module string   // the module's folder, relative to the root of the workspace
	Args   []string // arguments of go test: a package, and flags
}

func (t Test) String() string { return t.Module + " " + strings.Join(t.Args, " ") }

// Load reads the patches of a folder whose names match a pattern of filepath.Match, ordered by name.
func Load(dir, pattern string) ([]Fault, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var faults []Fault
	var problems []error
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if ok, err := filepath.Match(pattern, name); err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		} else if !ok {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fault, err := parse(name, data)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.patch: %w", name, err))
			continue
		}
		if fault.Path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		faults = append(faults, fault)
	}
	return faults, errors.Join(problems...)
}

// modules are the folders of the modules with tests. A patch may name one by the last part of its folder.
var modules = []string{
	"core", "cli", "tests", "frontends/http", "plugins/backend-uv", "plugins/backend-docker", "plugins/backend-nomad", "plugins/frontend-mcp", "sdk/go",
}

var (
	faultName   = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
)

// parse reads the lines before the diff, of which each has a key that is known, and the names of the changed files.
func parse(name string, data []byte) (Fault, error) {
	fault := Fault{Name: name}
	if !faultName.MatchString(name) {
		return fault, errors.New("the name must be of small letters, digits and single hyphens")
	}
	begin := bytes.Index(data, []byte("\ndiff --git "))
	if begin < 0 {
		return fault, errors.New("no diff")
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(data[:begin])), "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case value == "":
			return fault, fmt.Errorf("line %q is not KEY: VALUE", line)
		case key == "suffers" && fault.Suffers == "":
			fault.Suffers = value
		case key == "tier" && fault.Tier == "":
			fault.Tier = value
		case key == "tests":
			words := strings.Fields(value)
			if len(words) < 2 || !slices.Contains(words, "-run") {
				return fault, fmt.Errorf("tests: must be MODULE PACKAGE -run REGEX (got %q)", value)
			}
			i := slices.IndexFunc(modules, func(module string) bool { return words[0] == module || words[0] == path.Base(module) })
			if i < 0 {
				return fault, fmt.Errorf("tests: MODULE must be one of %v (got %q)", modules, words[0])
			}
			fault.Tests = append(fault.Tests, Test{Module: modules[i], Args: words[1:]})
		default:
			return fault, fmt.Errorf("key %q is not known, or there twice", key)
		}
	}
	for _, found := range changedFile.FindAllSubmatch(data[begin:], -1) {
		fault.Files = append(fault.Files, string(found[1]))
	}
	switch {
	case fault.Suffers == "":
		return fault, errors.New("suffers: is missing")
	case len(fault.Tests) == 0:
		return fault, errors.New("tests: is missing")
	case fault.Tier != TierGate && fault.Tier != TierLong:
		return fault, fmt.Errorf("tier: must be gate or long (got %q)", fault.Tier)
	case len(fault.Files) == 0:
		return fault, errors.New("the diff changes no file")
	}
	return fault, nil
}

// Run is the pattern of -run, up to its first slash: the pattern of the tests' names.
func (t Test) Run() string {
	i := slices.Index(t.Args, "-run")
	if i < 0 || i+1 == len(t.Args) {
		return ""
	}
	pattern, _, _ := strings.Cut(t.Args[i+1], "/")
	return pattern
}

// Packages are the arguments that name packages.
func (t Test) Packages() []string {
	var packages []string
	for _, arg := range t.Args {
		if arg == "." || strings.HasPrefix(arg, "./") {
			packages = append(packages, arg)
		}
	}
	return packages
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// Exists reports whether the workspace at root has a test that t names.
func (t Test) Exists(root string) (bool, error) {
	pattern, err := regexp.Compile(t.Run())
	if err != nil {
		return false, err
	}
	for _, pkg := range t.Packages() {
		files, err := filepath.Glob(filepath.Join(root, t.Module, strings.TrimSuffix(pkg, "/..."), "*_test.go"))
		if err != nil {
			return false, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return false, err
			}
			for _, found := range testFunction.FindAllSubmatch(data, -1) {
				if pattern.Match(found[1]) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
