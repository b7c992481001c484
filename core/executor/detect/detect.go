package detect

import "io"

// Found is what a Workspace says about itself.
type Found struct {
	// Entrypoint is the file that runs, by the order main.py, __main__.py, first regular .py; empty if there is none.
	Entrypoint string
	// Requirements is text in requirements.txt form: the dependencies of the entrypoint's PEP 723 block, else the
	// root's requirements.txt. Never both.
	Requirements string
	// PythonVersion is the PEP 723 block's requires-python, a version specifier (">=3.11"); see SelectVersion.
	PythonVersion string
}

// Ask says what is known before a Workspace is read.
type Ask struct {
	// Entrypoint is the file that will run; empty: find it.
	Entrypoint string
	// NoEntrypoint: no file of the Workspace is the program (Spec.Code or Spec.Command is); only requirements.txt counts.
	NoEntrypoint bool
}

// Tar reads a Workspace to its end. An error means that it is not a readable tar.
func Tar(r io.Reader) (Found, error) { return TarFor(r, Ask{}) }

// TarFor is Tar for a caller who knows more.
func TarFor(io.Reader, Ask) (Found, error) { return Found{}, nil }

// Entrypoint returns the file that runs when a request names none: main.py, else __main__.py, both at the root, else the
// first that ends in .py; empty if there is none. names are regular files, relative, with slashes, in archive order.
func Entrypoint([]string) string { return "" }

// PEP723 reads the script block of a Python source. ok is false where there is none. requires is its dependencies, one a
// line; pythonVersion its requires-python, as it stands there.
func PEP723([]byte) (requires, pythonVersion string, ok bool, err error) { return "", "", false, nil }

// SelectVersion returns the first of versions ("3.12", best first) that satisfies the version specifier spec, or "" if
// none does. Without versions it returns the minor version that spec pins ("==3.12.*"), else "".
func SelectVersion(string, []string) string { return "" }
