package detect

import (
	"path"
	"strings"
)

// Found is what the files of a Workspace tell about the program.
type Found struct {
	// Entrypoint is the file that runs: main.py, else __main__.py, else the first regular .py file; empty: none.
	Entrypoint string
	// Guessed reports whether Entrypoint was chosen among several .py files without a main.py or __main__.py.
	Guessed bool
	// Requirements is text in requirements.txt form: the dependencies of the entrypoint's PEP 723 block, else the
	// requirements.txt at the root, else the versions in uv.lock, else the dependencies in pyproject.toml. Never two of them.
	// A lock that does not support Linux does not count where there is a pyproject.toml.
	Requirements string
	// PythonVersion is the requires-python of the PEP 723 block, else that of the uv.lock or pyproject.toml which tells the
	// Requirements. It is a version specifier (">=3.11"); see SelectVersion.
	PythonVersion string
}

// Entrypoint returns the file that runs when a request names none: main.py at the root, else __main__.py at the root, else the
// first file that ends in .py, else "". names are the relative paths of regular files, with slashes, in archive order.
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
	mainName   = "main.py"
	dunderName = "__main__.py"
)

func isPython(name string) bool { return strings.HasSuffix(name, ".py") }
