package zygote

import (
	"fmt"
	"slices"
	"strings"
)

// maxRequest bounds a request in bytes. A packet must fit into a socket's buffer.
const maxRequest = 60 << 10

// Request is what a program is started with.
type Request struct {
	// Argv is the complete command line. It begins with that of Config.
	Argv []string
	// Env has all variables as "NAME=value", each name once.
	Env []string
	// Files are the descriptors 0, 1 and 2 of the program. The caller closes them.
	Files [3]int
	// Groups are open `tasks` or `cgroup.procs` files. The program enters these control groups before it begins.
	Groups []int
}

func (r Request) words(dir string) []byte {
	words := slices.Concat([]string{"run", fmt.Sprint(len(r.Argv)), dir}, r.Argv, r.Env)
	return []byte(strings.Join(words, "\x00"))
}

// Refuses says why only a new interpreter runs r as it must be run, or "".
func (z *Zygote) Refuses(r Request) string {
	if base := z.cfg.argv(); len(r.Argv) < len(base) || !slices.Equal(r.Argv[:len(base)], base) {
		return "it is another command line than that of the fork server"
	}
	if len(r.words(z.cfg.Dir)) > maxRequest {
		return fmt.Sprintf("arguments and variables have more than %d bytes", maxRequest)
	}
	if slices.Equal(r.Env, z.cfg.Env) {
		return ""
	}
	if z.startupCode != "" {
		return fmt.Sprintf("%s may read the variables at the start", z.startupCode)
	}
	if len(z.imported) > 0 {
		return fmt.Sprintf("%s may have read the variables when it was imported", z.imported[0])
	}
	if name := differentAtStart(z.cfg.Env, r.Env); name != "" {
		return fmt.Sprintf("%s counts when an interpreter starts", name)
	}
	return ""
}

// differentAtStart returns a variable that an interpreter reads when it starts, and that is not the same in both, or "".
func differentAtStart(a, b []string) string {
	x, y := readAtStart(a), readAtStart(b)
	for name, value := range x {
		if got, ok := y[name]; !ok || got != value {
			return name
		}
	}
	for name := range y {
		if _, ok := x[name]; !ok {
			return name
		}
	}
	return ""
}

func readAtStart(env []string) map[string]string {
	all := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if countsAtStart(name) {
			all[name] = value
		}
	}
	return all
}

// countsAtStart reports whether the loader, the C library, the interpreter or its module site reads a variable when it starts.
func countsAtStart(name string) bool {
	for _, prefix := range []string{"PYTHON", "_PYTHON", "LC_", "LD_", "MALLOC_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "LANG", "LANGUAGE", "LOCPATH", "GCONV_PATH", "GLIBC_TUNABLES", "HOME", "TZ", "TZDIR", "SETUPTOOLS_USE_DISTUTILS":
		return true
	}
	return false
}
