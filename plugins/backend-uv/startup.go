package uvbackend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// madeByUV is what uv has written for an environment without packages.
type madeByUV struct {
	packages string            // site-packages, relative to the environment
	files    map[string]string // what each file has, by its path in the environment
}

// lookAtNew returns what uv has just made in dir. No code of a package has run.
func lookAtNew(dir string) (madeByUV, error) {
	packages, err := sitePackages(dir)
	if err != nil {
		return madeByUV{}, err
	}
	m := madeByUV{files: map[string]string{}}
	if m.packages, err = filepath.Rel(dir, packages); err != nil {
		return m, err
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == ".lock" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			m.files[name], err = fileContent(path)
		}
		return err
	})
	return m, err
}

// fileContent returns the target of a link, or the hash of a file.
func fileContent(path string) (string, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return "link " + target, err
	case !st.Mode().IsRegular():
		return st.Mode().String(), nil
	}
	raw, err := os.ReadFile(path)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), err
}

// startModules are modules of packages that an interpreter imports at its start, if they are there. The last one is of Debian's
// sitecustomize.
var startModules = []string{"sitecustomize", "usercustomize", "apport_python_hook"}

// startupCode returns a file of the environment dir by which packages run code, or change what runs, when an interpreter starts. It
// returns "" if there is none.
func (m madeByUV) startupCode(dir string) (string, error) {
	for name, want := range m.files {
		got, err := fileContent(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && got != want {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	for folder, starts := range map[string]func(string) bool{m.packages: startsPackages, "bin": placesInterpreter} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			name := filepath.Join(folder, e.Name())
			if _, known := m.files[name]; known || !starts(e.Name()) {
				continue
			}
			if harmless, err := hasOnlyComments(filepath.Join(dir, name)); !harmless || err != nil {
				return name, err
			}
		}
	}
	return "", nil
}

// startsPackages reports whether the module site executes a file of site-packages.
func startsPackages(name string) bool {
	module, _, _ := strings.Cut(name, ".")
	return strings.HasSuffix(name, ".pth") || strings.HasSuffix(name, ".start") || slices.Contains(startModules, module)
}

// placesInterpreter reports whether an interpreter reads a file beside it to find its modules.
func placesInterpreter(name string) bool {
	return name == "pyvenv.cfg" || name == "pybuilddir.txt" || strings.HasSuffix(name, "._pth")
}

// hasOnlyComments reports whether a file is a .pth file without effect.
func hasOnlyComments(path string) (bool, error) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || !strings.HasSuffix(path, ".pth") {
		return false, err
	}
	raw, err := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false, err
		}
	}
	return true, err
}
