package zygote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestACopySaysWhatItsMainFileImports(t *testing.T) {
	t.Parallel()
	const text = `"""A text
import nothing, really
from here to there
"""
import os, json as j, xml.dom  # import re
import csv; import math
from email import message, policy
from . import sibling
from beside import x
import json, 7up
if True:
    import shlex
import numpy_that_is_not_there
`
	for _, learns := range []bool{true, false} {
		cfg := usual(t.TempDir())
		cfg.Learn = learns
		must(t, os.WriteFile(filepath.Join(cfg.Dir, "beside.py"), nil, 0o600))
		p, err := begin(t, start(t, cfg), text, nil)
		must(t, err)
		p.finish(t)
		want := map[bool]string{true: "[nothing really json xml.dom csv email numpy_that_is_not_there]", false: "[]"}[learns]
		if got := fmt.Sprint(p.Imports()); got != want {
			t.Errorf("learns %v: %s, want %s", learns, got, want)
		}
	}
}

func TestWhatACopySaysOfImportsIsBounded(t *testing.T) {
	t.Parallel()
	words := []string{"a", "a", "b.c", "", ".", "b.", "d e", "1", "é", "os;x", "../x", "\x00", "?f", strings.Repeat("x", 65), strings.Repeat("x", 64)}
	if got := fmt.Sprint(modulesOf(words)); got != fmt.Sprint([]string{"a", "b.c", strings.Repeat("x", 64)}) {
		t.Errorf("%s", got)
	}
	words = nil
	for i := range 1000 {
		words = append(words, fmt.Sprint("m", i))
	}
	if got := modulesOf(words); len(got) != maxImports {
		t.Errorf("%d names", len(got))
	}
}

func TestALearnedModuleThatFailsIsLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	userPackages(t, dir, "fails.py", "1 / 0\n")
	cfg := usual(t.TempDir())
	cfg.Env = append(cfg.Env, userBase(dir))
	cfg.Learned = []string{"fails", "no_such_module", "json"}
	if got := fmt.Sprint(start(t, cfg).imported); got != "[json]" {
		t.Errorf("%s", got)
	}
	cfg.Preimport = []string{"fails"}
	if z, err := New(awaittest.Context(t), cfg); err == nil || !strings.Contains(err.Error(), "ZeroDivisionError") {
		t.Errorf("a module of the configuration: %v", err)
		_ = z.Close()
	}
}

func TestAProgramGetsItsOwnModuleInPlaceOfOneThatWasImported(t *testing.T) {
	t.Parallel()
	for file, clash := range map[string]bool{"json.py": true, "json.abi3.so": true, "json": true, "json.txt": false, "os.py": false, "jsonx.py": false} {
		cfg := usual(t.TempDir())
		cfg.Preimport = []string{"json.tool"}
		must(t, os.WriteFile(filepath.Join(cfg.Dir, file), nil, 0o600))
		_, err := begin(t, start(t, cfg), "", nil)
		refused, ok := errors.AsType[*RefusedError](err)
		if got := ok && refused.Clash && strings.HasPrefix(refused.Why, "json "); got != clash || err != nil && !clash {
			t.Errorf("%s: %v", file, err)
		}
	}
}
