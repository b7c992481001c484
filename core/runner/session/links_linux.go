package session

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// within returns the real name of a session's file. On gVisor, links lead os.Root out of the folder. Only the session's own
// code can change names between this call and their use.
func (s *Session) within(name string, last bool) (string, error) {
	if s.sandbox.Inside.Kernel() == "" {
		return name, nil
	}
	return withoutLinks(s.root, name, last)
}

// maxLinks bounds the links that a name may lead through, as on Linux.
const maxLinks = 40

// withoutLinks follows the links in name, and a link in the last part only if last. It refuses links that lead out of root. It
// keeps a name that does not exist.
func withoutLinks(root *os.Root, name string, last bool) (string, error) {
	done, rest, links := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if done == "." {
				return "", errEscapes
			}
			done = path.Dir(done)
			continue
		}
		at := path.Join(done, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return path.Join(append([]string{at}, rest...)...), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != fs.ModeSymlink || len(rest) == 0 && !last {
			done = at
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		target, err := root.Readlink(at)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			return "", errEscapes
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// errEscapes has the text of os.Root's error, which os does not export.
var errEscapes = errors.New("path escapes from parent")
