package archive

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Empty removes everything below root and follows no link. It moves trees deeper than flattenDepth up, so that deep trees cost
// no descriptors.
func Empty(root int) error { return emptier{root: root}.run() }

// EmptyAround is Empty, but it leaves mount points.
func EmptyAround(root int) error { return emptier{root: root, around: true}.run() }

// makeUsable gives the owner of an open folder the rights back that a program has taken away.
func makeUsable(dir int) error {
	var st unix.Stat_t
	err := unix.Fstat(dir, &st)
	if err == nil && st.Mode&0o700 != 0o700 {
		err = unix.Fchmod(dir, st.Mode&0o7777|0o700)
	}
	return err
}

const flattenDepth = 64

type emptier struct {
	root int
	// around leaves mount points, and the folders above them.
	around bool
	// prefix begins the names of what was moved up. It is random, so that a program cannot have made such a name.
	prefix string
	count  int
	moved  bool
}

func (e emptier) run() error {
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails (crypto/rand)
	root := e.root
	e.prefix = ".flat-" + hex.EncodeToString(name[:]) + "-"
	if err := makeUsable(root); err != nil {
		return fmt.Errorf("empty work folder: %w", err)
	}
	for {
		e.moved = false
		if err := e.folder(root, 0); err != nil {
			return fmt.Errorf("empty work folder: %w", err)
		}
		if !e.moved {
			return nil
		}
	}
}

func (e *emptier) folder(dir, depth int) error {
	f, err := openAgain(dir)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if err := e.entry(dir, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (e *emptier) entry(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || e.around && errors.Is(err, unix.EBUSY) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if depth >= flattenDepth {
		e.count++
		e.moved = true
		return unix.Renameat(dir, name, e.root, e.prefix+strconv.Itoa(e.count))
	}
	sub, err := openUsable(dir, name)
	if err != nil {
		return err
	}
	err = errors.Join(makeUsable(sub), e.folder(sub, depth+1), unix.Close(sub))
	if err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if e.around && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY)) {
		return nil
	}
	return err
}
