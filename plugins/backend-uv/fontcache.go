package uvbackend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// matplotlib looks at all fonts of the machine when it is imported first, which takes seconds. It keeps what it has found in a file of the
// folder that MPLCONFIGDIR names. The preparation of an environment makes that file, and programs find a link to it.
const (
	fontVariable = "MPLCONFIGDIR"
	// fontFolder is where an environment has the file.
	fontFolder = "share/python-executor/matplotlib"
	// fontPatience bounds how long matplotlib looks. Without the file programs look themselves.
	fontPatience = time.Minute
	maxFontList  = 16 << 20
)

// fontList is the name of matplotlib's file: fontlist-v390.json until matplotlib 3.10, then fontlist-v3.11.0.json.
var fontList = regexp.MustCompile(`^fontlist-v[0-9][0-9a-z.]*\.json$`)

// listFonts lets the matplotlib of a new environment make its file, in x.temp/fonts. This is code of packages, so it runs in a box only,
// without a network, and may write to that folder alone. The error is that of ctx.
func (b *builder) listFonts(ctx context.Context, x *buildSlot, i interpreter) error {
	env := filepath.Join(x.temp, "env")
	packages, err := sitePackages(env)
	if err != nil || !x.how.Box || !isFile(filepath.Join(packages, "matplotlib", "font_manager.py")) {
		return nil
	}
	dir := filepath.Join(x.temp, "fonts")
	if err := errors.Join(os.Mkdir(dir, 0o700), x.hand(dir)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, fontPatience)
	defer cancel()
	var said boundedBuffer
	python := filepath.Join(env, "bin", "python")
	result, failure, err := x.runIn(limited, confined{writable: []string{dir}, reach: append([]string{env}, i.reach...)}, map[string]string{fontVariable: dir}, &said, python, "-I", "-c", "import matplotlib.font_manager")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil || failure != nil || result.Status != executor.StatusSucceeded {
		b.log.Info("matplotlib's list of fonts was not made, so programs make it themselves", "status", result.Status, "output", said.String(), "failure", failure, "error", err)
	}
	return nil
}

// keepFonts takes matplotlib's file from the folder from into the environment dir, and returns its name there, or "" if there is none. Code of
// packages has written what lies in from. No process of it is left.
func keepFonts(from, dir string) (name string, err error) {
	entries, err := os.ReadDir(from)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	for _, e := range entries {
		if !fontList.MatchString(e.Name()) {
			continue
		}
		raw, err := readPlain(filepath.Join(from, e.Name()))
		if err != nil || !json.Valid(raw) {
			continue
		}
		root, err := os.OpenRoot(dir) // a link of a package does not lead out of it
		if err != nil {
			return "", err
		}
		name := path.Join(fontFolder, e.Name())
		err = errors.Join(root.MkdirAll(fontFolder, 0o755), root.WriteFile(name, raw, 0o644)) //nolint:gosec // programs read it
		return name, errors.Join(err, root.Close())
	}
	return "", err
}

// readPlain reads a regular file that has no other name and is not too large. Another file could be one that only this process may read.
func readPlain(name string) ([]byte, error) {
	f, err := os.OpenFile(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Size > maxFontList {
		return nil, errors.New("not a plain file")
	}
	return io.ReadAll(io.LimitReader(f, maxFontList))
}

// caches returns what programs in e find ready made. e may be nil.
func (e *environment) caches() []protocol.Cache {
	if e == nil || e.Fonts == "" {
		return nil
	}
	return []protocol.Cache{{Variable: fontVariable, Files: []string{filepath.Join(e.dir, e.Fonts)}}}
}
