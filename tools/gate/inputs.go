package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// blob is a tracked file at a commit: its path and its line of `git ls-tree`.
type blob struct {
	path, line string
}

// tree is what the keys of parts are made of.
type tree struct {
	root   string
	blobs  []blob
	dirty  []string // paths that differ from the commit, and new files
	listed map[string][]string
}

// readTree reads the commit HEAD and what differs from it.
func readTree(root string) (*tree, error) {
	t := &tree{root: root, listed: map[string][]string{}}
	list, err := output(root, "git", "ls-tree", "-r", "-z", "HEAD")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		_, name, _ := strings.Cut(line, "\t")
		t.blobs = append(t.blobs, blob{name, line})
	}
	changed, err := output(root, "git", "diff", "--name-only", "--no-renames", "-z", "HEAD")
	if err != nil {
		return nil, err
	}
	added, err := output(root, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(changed+added, "\x00") {
		if name != "" {
			t.dirty = append(t.dirty, name)
		}
	}
	return t, nil
}

// output runs a command and returns what it prints.
func output(dir string, command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, exit.Stderr)
	}
	return string(out), err
}

// inputs returns the patterns of all files that matter to a part.
func (t *tree) inputs(p Part) ([]string, error) {
	patterns := slices.Clone(p.Inputs)
	if p.Test != nil {
		found, err := t.list(p.Dir, append([]string{"-test"}, p.Test...))
		if err != nil {
			return nil, fmt.Errorf("inputs of %s: %w", p.Name, err)
		}
		patterns = append(patterns, found...)
	}
	if len(p.Builds) > 0 {
		args := []string{"-tags=embedrunner"}
		for _, dir := range p.Builds {
			args = append(args, "./"+dir)
		}
		found, err := t.list(".", args)
		if err != nil {
			return nil, fmt.Errorf("inputs of %s: %w", p.Name, err)
		}
		patterns = append(append(patterns, found...), built...)
	}
	slices.Sort(patterns)
	return slices.Compact(patterns), nil
}

// list returns patterns of the files of packages, of all that they import, and of their modules.
func (t *tree) list(dir string, args []string) ([]string, error) {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return strings.HasPrefix(arg, "-") && arg != "-test" && !strings.HasPrefix(arg, "-tags")
	})
	id := dir + " " + strings.Join(args, " ")
	if found, ok := t.listed[id]; ok {
		return found, nil
	}
	text, err := output(filepath.Join(t.root, dir), append([]string{"go", "list", "-e", "-deps", "-json=Dir,DepOnly,Module,GoFiles,CgoFiles,CFiles,HFiles,SFiles,EmbedFiles,TestEmbedFiles,XTestEmbedFiles"}, args...)...)
	if err != nil {
		return nil, err
	}
	var patterns []string
	// within returns a path from the root, or "" if it is outside.
	within := func(elements ...string) string {
		name, err := filepath.Rel(t.root, filepath.Join(elements...))
		if err != nil || name == ".." || strings.HasPrefix(name, "../") {
			return ""
		}
		return filepath.ToSlash(name)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	for {
		var p struct {
			Dir                                         string
			DepOnly                                     bool
			Module                                      *struct{ Dir string }
			GoFiles, CgoFiles, CFiles, HFiles, SFiles   []string
			EmbedFiles, TestEmbedFiles, XTestEmbedFiles []string
		}
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		here := within(p.Dir)
		if here == "" || p.Dir == "" {
			continue
		}
		patterns = append(patterns, path.Join(here, "testdata")+"/")
		files := slices.Concat(p.EmbedFiles, p.TestEmbedFiles, p.XTestEmbedFiles)
		if p.DepOnly { // its own tests do not run
			files = slices.Concat(files, p.GoFiles, p.CgoFiles, p.CFiles, p.HFiles, p.SFiles)
		} else {
			files = append(files, "*")
		}
		if p.Module != nil {
			patterns = append(patterns, path.Join(within(p.Module.Dir), "go.mod"), path.Join(within(p.Module.Dir), "go.sum"))
		}
		for _, name := range files {
			patterns = append(patterns, path.Join(here, name))
		}
	}
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	t.listed[id] = patterns
	return patterns, nil
}

// matches reports whether a path belongs to patterns: a path, a folder that ends in a slash, or a pattern of path.Match.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if strings.HasSuffix(pattern, "/") {
			return strings.HasPrefix(name, pattern)
		}
		ok, err := path.Match(pattern, name)
		return ok && err == nil || pattern == name
	})
}

// known returns the patterns of all files that belong to a part or to none, and those of each part.
func (t *tree) known(parts []Part) (known []string, inputs map[string][]string, err error) {
	inputs = map[string][]string{}
	known = slices.Concat(noInput, []string{ledgerPath})
	for _, p := range parts {
		if inputs[p.Name], err = t.inputs(p); err != nil {
			return nil, nil, err
		}
		known = append(known, inputs[p.Name]...)
	}
	slices.Sort(known)
	return slices.Compact(known), inputs, nil
}

// keys returns the key of each part: a hash of the files that matter to it, of its command, and of machine. A part whose inputs differ
// from the commit has no key.
func (t *tree) keys(parts []Part, machine ...string) (map[string]string, error) {
	known, inputs, err := t.known(parts)
	if err != nil {
		return nil, err
	}
	var strange []blob // no rule knows them, so they belong to every part
	for _, b := range t.blobs {
		if !matches(known, b.path) {
			strange = append(strange, b)
		}
	}
	keys := map[string]string{}
	for _, p := range parts {
		if slices.ContainsFunc(t.dirty, func(name string) bool {
			return name != ledgerPath && (matches(inputs[p.Name], name) || !matches(known, name))
		}) {
			continue
		}
		h := sha256.New()
		fmt.Fprintf(h, "%q\n%q\n", machine, append(append(append([]string{p.Dir}, p.Test...), p.Command...), p.Env...))
		for _, b := range strange {
			fmt.Fprintln(h, b.line)
		}
		for _, b := range t.blobs {
			if b.path != ledgerPath && matches(inputs[p.Name], b.path) {
				fmt.Fprintln(h, b.line)
			}
		}
		keys[p.Name] = hex.EncodeToString(h.Sum(nil))[:16]
	}
	return keys, nil
}
