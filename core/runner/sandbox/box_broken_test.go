//go:build linux

package sandbox

import (
	"errors"
	"testing"
)

// A box that could not be made cannot be had later either: its runner ends, and programs get another.
func TestABoxThatCouldNotBeMadeIsBroken(t *testing.T) {
	t.Parallel()
	why := errors.New("no signals are left")
	b := &Box{made: make(chan struct{}), err: why}
	if err := b.Broken(); err != nil {
		t.Errorf("while it is made: %v", err)
	}
	close(b.made)
	if err := b.Broken(); !errors.Is(err, why) {
		t.Errorf("it is broken because of %v", err)
	}
	if b.closing.Store(true); b.Broken() != nil {
		t.Error("a closed box is broken")
	}
}
