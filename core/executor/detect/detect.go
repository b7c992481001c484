package detect

import (
	"path"
	"strings"
)

// Found is what a Workspace says about itself.
type Found struct {
	// Entrypoint is the file that runs, by the order main.py, __main__.py, first regular .py; empty if there is none.
	Entrypoint string
	// Guessed: Entrypoint is the first of several .py files, none of which is called main.py or __main__.py.
	Guessed bool
	// Requirements is text in requirements.txt form: the dependencies of the entrypoint's PEP 723 block, else the
	// root's requirements.txt. Never both.
	Requirements string
	// PythonVersion is the PEP 723 block's requires-python, a version specifier (">=3.11"); see SelectVersion.
	PythonVersion string
}

// Entrypoint returns the file that runs when a request names none: main.py, else __main__.py, both at the root, else the
// first that ends in .py; empty if there is none. names are regular files, relative, with slashes, in archive order.
func Entrypoint(names []string) string {
	first, dunder := "", false
	for _, name := range names {
		switch clean := path.Clean(name); {
		case clean == mainName:
			return mainName
		case clean == dunderName:
			dunder = true
		case first == "" && isPython(clean):
			first = clean
		}
	}
	if dunder {
		return dunderName
	}
	return first
}

const (
	mainName         = "main.py"
	dunderName       = "__main__.py"
	requirementsName = "requirements.txt"
)

func isPython(name string) bool { return strings.HasSuffix(name, ".py") }
