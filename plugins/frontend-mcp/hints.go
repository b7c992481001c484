package mcpfrontend

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// The usual causes of failures, as the output of a program names them.
var (
	noNetwork = compiled(`Temporary failure in name resolution|Name or service not known|Could not resolve host|Network is unreachable|` +
		`network is unreachable|nodename nor servname|getaddrinfo E|ENETUNREACH|bad address '|unable to resolve host address`)
	noModule = compiled(`ModuleNotFoundError: No module named '([\w.]+)'|Missing optional dependency '(\w+)'`)
	noPip    = compiled(`No module named pip\b|\bpip3?: (?:command )?not found`)
	noRoom   = compiled(`BlockingIOError: \[Errno 11\]|can't start new thread|[Ff]ork: .*[Rr]esource temporarily unavailable|[Cc]annot fork|` +
		`pthread_create failed|pthread_create: Resource temporarily unavailable|spawn \S+ EAGAIN`)
	// pipCall is a line that installs packages as a shell or a notebook does.
	pipCall = compiled(`(?m)^[ \t]*[!%]?[ \t]*(?:uv[ \t]+)?(?:python3?[ \t]+-m[ \t]+)?pip3?[ \t]+install\b([^\n;|&]*)`)
)

// packageOf maps modules to the packages that have them, where the names differ.
var packageOf = map[string]string{
	"attr": "attrs", "bs4": "beautifulsoup4", "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
	"distutils": "setuptools", "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "pymupdf", "git": "gitpython", "jwt": "pyjwt",
	"magic": "python-magic", "mpl_toolkits": "matplotlib", "OpenSSL": "pyopenssl", "PIL": "pillow", "pkg_resources": "setuptools",
	"pptx": "python-pptx", "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn", "umap": "umap-learn", "yaml": "pyyaml",
	"google.protobuf": "protobuf",
}

// packageFor returns the package that probably has a module.
func packageFor(module string) string {
	if p := packageOf[module]; p != "" {
		return p
	}
	top, _, _ := strings.Cut(module, ".")
	if p := packageOf[top]; p != "" {
		return p
	}
	return strings.ReplaceAll(top, "_", "-")
}

// advice tells how callers of a toolset get what a program lacks.
type advice struct {
	// install returns how to get packages, which are a list in JSON.
	install func(packages string) string
	// networkOff reports whether programs have no network. setting is the key that gives them one.
	networkOff bool
	setting    string
}

// advice returns the advice of a toolset.
func (t *tools) advice(toolset string, install func(packages string) string) advice {
	return advice{
		install: install, setting: "mcp.network." + toolset,
		networkOff: t.config.network(toolset) != executor.NetworkOn && t.backend().Capabilities.NetworkOff,
	}
}

// hint returns the usual cause of what a program wrote to stderr, and what to do; "" if there is none. failed reports whether the
// program has failed. A program that only tried pip may go on.
func (a advice) hint(stderr string, failed bool) string {
	offline := a.networkOff && noNetwork().MatchString(stderr)
	switch {
	case noPip().MatchString(stderr), offline && strings.Contains(stderr, "pip"):
		return a.pip("")
	case !failed:
		return ""
	}
	if found := noModule().FindAllStringSubmatch(stderr, -1); found != nil {
		last := found[len(found)-1]
		module := last[1] + last[2]
		return fmt.Sprintf("Module %s is missing: %s", module, a.install(text([]string{packageFor(module)})))
	}
	switch {
	case offline:
		return "network is off: no other host can be reached (setting " + a.setting + ")."
	case noRoom().MatchString(stderr):
		return "The limit of processes and threads is reached (config.pids): use fewer."
	}
	return ""
}

// pip returns the answer to code that calls pip. list holds the arguments of pip install.
func (a advice) pip(list string) string {
	var packages []string
	for _, word := range strings.Fields(list) {
		word = strings.Trim(word, `"'`)
		if strings.HasPrefix(word, "-r") {
			packages = nil
			break
		}
		if word != "" && !strings.HasPrefix(word, "-") {
			packages = append(packages, word)
		}
	}
	named := "[…]"
	if len(packages) > 0 {
		named = text(packages)
	}
	return "pip does not run in code: " + a.install(named)
}

// pipInstead returns the answer to Python code that calls pip as a notebook does, and so has failed with stderr; "" if it has
// not.
func (a advice) pipInstead(code, stderr string) string {
	found := pipCall().FindStringSubmatch(code)
	refused := strings.Contains(stderr, "SyntaxError") || strings.Contains(stderr, "pip cannot install here")
	if found == nil || !refused || !strings.Contains(stderr, `File "`) {
		return ""
	}
	return a.pip(found[1])
}

// compiled returns a function that returns the regular expression. The first call compiles it, so that a process does not pay for
// expressions that it does not use.
func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
