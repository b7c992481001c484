//go:build !linux && !darwin

package cmd

import (
	"errors"
	"os"
)

const pasteOn, pasteOff = "", ""

// typed does nothing here, because the editor reads keys and not a stream.
type typed struct{}

func newTyped(*os.File) (*typed, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func (*typed) want(bool) {}

func (*typed) pending() bool { return false }
